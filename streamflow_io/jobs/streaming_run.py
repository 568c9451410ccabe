"""The run, as a job of a streaming step uses it, and another place for a job that streams."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol, cast

from streamflow.core.context import StreamFlowContext
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.recovery import recoverable
from streamflow.core.workflow import Job, Status, Token
from streamflow.cwl.step import CWLScheduleStep, CWLTransferStep
from streamflow.log_handler import logger
from streamflow.workflow.step import ScheduleStep

from streamflow_io._streamflow import forget_directories, has_lost_place, retry_policy, schedule_again, schedule_once
from streamflow_io.adapters.attempts import StreamingJobs
from streamflow_io.adapters.jobs import Jobs, JobState
from streamflow_io.adapters.steps import StreamingExecuteStep
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.parts.part_ways import PartWays
from streamflow_io.parts.read_sessions import ReadSessions
from streamflow_io.parts.splitting import Cuts
from streamflow_io.runtime.node_commands import CannotWriteError
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import ExitEvent

from .awaited_streams import AwaitedStreams
from .full_disks import FullDisks
from .job_runner import JobRunner
from .learned_streams import LearnedStreams
from .reach import Reach
from .short_jobs import ShortJobs


class MovesFirst:
    """Marks a job that lacks an input at its place: the job moves before its first attempt."""


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


async def may_leave_place(run: StreamingRun, context: StreamFlowContext, job: Job, error: Exception) -> bool:
    """Whether a job that could not be prepared at its place may be tried at another one. Waits as the user asks.

    StreamFlow 0.2.0rc3 would run the jobs once more from which the job reads, and cannot do that while they run.

    :param error: the failure. The cause is the place if its node is lost, or if its disk takes no more files
    """
    state = run.jobs.of(job)
    await run.full_disks.failed(state, str(error) if isinstance(error, CannotWriteError) else None)
    if not has_lost_place(context, job.name) and not await run.full_disks.look(job.name, state.targets):
        return False
    if state.kept(MovesFirst) is not None:
        return True
    policy = retry_policy(context.failure_manager, job.name)
    if not policy.take():
        return False
    logger.warning(f"{error}\nJob {job.name} is tried again at another place")
    await asyncio.sleep(policy.delay)
    return True


class StreamingScheduleStep(CWLScheduleStep):  # type: ignore[misc]
    """Gives a job another place if its directories cannot be made at the first one."""

    @recoverable  # type: ignore[untyped-decorator]
    async def _schedule(self, job: Job) -> None:
        context = self.workflow.context
        while True:
            try:
                return await schedule_once(self, job)
            except WorkflowExecutionException as error:
                run = cast(StreamingRun, context.scheduler.run)
                if run.jobs.find(job.name) is None or not await may_leave_place(run, context, job, error):
                    raise
            await context.scheduler.notify_status(job.name, Status.ROLLBACK)
            forget_directories(self, job)


class JobRehearsals(Protocol):
    """Finds out which inputs of jobs can be read as streams."""

    def begins(
        self,
        step: StreamingExecuteStep,
        job: JobState,
        runtime: NodeRuntime,
        inputs: Mapping[str, Token],
        streams: Collection[str],
    ) -> None: ...
    def succeeded(self, job: JobState, outputs: Mapping[str, Token], exit_event: ExitEvent) -> None: ...
    def attempt_ended(self, job: JobState) -> None: ...


class StreamProofs(Protocol):
    """The knowledge of a run about streams without a hint."""

    streams: LearnedStreams
    short_jobs: ShortJobs
    awaited: AwaitedStreams

    @property
    def rehearsals(self) -> JobRehearsals | None: ...


class StreamingRun(Protocol):
    """The run, as a streaming job uses it."""

    config: SchedulerConfig
    jobs: Jobs
    streaming_jobs: StreamingJobs
    reach: Reach
    runner: JobRunner
    full_disks: FullDisks

    @property
    def proofs(self) -> StreamProofs: ...
    @property
    def part_ways(self) -> PartWays: ...
    @property
    def cuts(self) -> Cuts: ...
    @property
    def sessions(self) -> ReadSessions: ...
