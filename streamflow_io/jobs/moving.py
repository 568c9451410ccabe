"""Gives a job that streams another place."""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

from streamflow.core.workflow import Job, Status, Token
from streamflow.cwl.step import CWLTransferStep
from streamflow.workflow.step import ScheduleStep

from streamflow_io._streamflow import schedule_again
from streamflow_io.adapters.steps import StreamingExecuteStep


class MovesFirst:
    """Marks a job that has no file of a producer that moves: the job moves, too, before its first attempt."""


async def move(
    step: StreamingExecuteStep, job: Job, inputs: Mapping[str, Token], may_take_place: Callable[[], Awaitable[None]]
) -> dict[str, Token]:
    """Let a job give up its place, and give it another one, with new directories and its inputs there.

    :param may_take_place: waits until the job may ask for the other place
    :return: the inputs at the new place
    :raises WorkflowExecutionException: if no place is left, or an input cannot be copied from any
    """
    steps, scheduler = step.workflow.steps, step.workflow.context.scheduler
    await scheduler.notify_status(job.name, Status.ROLLBACK)
    await may_take_place()
    job.inputs = dict(inputs)
    await schedule_again(cast(ScheduleStep, steps[posixpath.join(step.name, "__schedule__")]), job)
    moved = {}
    for name, token in job.inputs.items():
        transfer = cast("CWLTransferStep | None", steps.get(posixpath.join(step.name, "__transfer__", name)))
        moved[name] = token if transfer is None else await transfer.transfer(job, token)
        moved[name].persistent_id = token.persistent_id
    await scheduler.notify_status(job.name, Status.RUNNING)
    return moved
