"""The first records of a run: its configuration, and its plan."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

from msgspec import convert
from msgspec.structs import asdict
from streamflow.core.workflow import Step, Workflow
from streamflow.workflow.step import ExecuteStep

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.records.files import OFF, EdgeRecord, RouteRecord
from streamflow_io.records.records import Record, RunRecord, RunStorage, StepRecord

from .plan import Plan


def steps_before(workflow: Workflow) -> dict[str, tuple[str, ...]]:
    """The steps that run jobs, each with the steps whose results it gets, also through steps without jobs.

    :return: each step after those whose results it gets, except in loops; otherwise in the order of the workflow
    """
    executing = {name: step for name, step in workflow.steps.items() if isinstance(step, ExecuteStep)}
    before = {name: tuple(dict.fromkeys(_before(step))) for name, step in executing.items()}
    ordered: dict[str, tuple[str, ...]] = {}
    for name in before:
        _place(name, before, ordered)
    return ordered


def _before(step: Step) -> Iterator[str]:
    """Yield the nearest steps before a step that run jobs."""
    seen, ahead = {step.name}, [step]
    while ahead:
        for port in ahead.pop().get_input_ports().values():
            for writer in port.get_input_steps():
                if isinstance(writer, ExecuteStep):
                    if writer.name != step.name:
                        yield writer.name
                elif writer.name not in seen:
                    seen.add(writer.name)
                    ahead.append(writer)


def _place(name: str, before: dict[str, tuple[str, ...]], ordered: dict[str, tuple[str, ...]]) -> None:
    """Put a step into the order, after those before it."""
    ahead, entered = [name], set()
    while ahead:
        last = ahead[-1]
        missing = [other for other in before[last] if other not in ordered and other not in entered]
        if last not in entered and missing:
            entered.add(last)
            ahead += reversed(missing)
        else:
            ahead.pop()
            ordered.setdefault(last, before[last])


def start_records(plan: Plan, config: SchedulerConfig, file: str, now: float) -> Iterator[Record]:
    """The first records of a run, in order.

    :param file: the StreamFlow file
    :param now: in seconds since the epoch
    """
    yield RunRecord(
        time=now,
        name=plan.workflow.name,
        workflow=plan.file,
        streamflow_file=file,
        host=socket.gethostname(),
        pid=os.getpid(),
        storages=tuple(convert(storage, RunStorage, from_attributes=True) for storage in config.storages),
        io_executors=config.io_executors,
        streaming=config.streaming,
        oversubscribe=config.oversubscribe,
        steps=steps_before(plan.workflow),
    )
    for step, hints in plan.annotations.items():
        if hints.concern_storage:
            yield StepRecord(
                time=now,
                step=step,
                io_task=hints.io_task is not None,
                storage_bw=None if hints.storage_bw is None else str(hints.storage_bw),
                direction=hints.direction,
            )
    why = OFF if config.runtime == "off" else plan.service.unavailable
    for edge in plan.graph.edges:
        consumer = edge.route.consumer
        yield EdgeRecord(
            time=now,
            output=edge.route.output.name,
            input=None if consumer is None else consumer.name,
            delivery=edge.delivery if why is None else Delivery.TERMINATION,
            fallback=edge.fallback if why is None else why,
            capio=plan.service.runtime_edges.get(edge),
        )
    for route in plan.graph.possible:
        yield RouteRecord(time=now, **asdict(route))
