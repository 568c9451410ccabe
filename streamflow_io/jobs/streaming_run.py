"""The run, as a job of a streaming step uses it: another place for a job, and steps whose jobs are too short to stream.

A job under the node runtime costs a process and some events. If no hint asks for streams, a job of a few milliseconds
runs as with plain StreamFlow: its output is there at once anyway.
"""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol, cast

from msgspec import Struct, field
from streamflow.core.workflow import Job, Status, Token
from streamflow.cwl.step import CWLTransferStep
from streamflow.workflow.step import ScheduleStep

from streamflow_io._streamflow import schedule_again
from streamflow_io.adapters.attempts import StreamingJobs
from streamflow_io.adapters.jobs import Jobs, JobState
from streamflow_io.adapters.steps import StreamingExecuteStep
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.parts.part_ways import PartWays
from streamflow_io.parts.read_sessions import ReadSessions
from streamflow_io.parts.splitting import Cuts
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import ExitEvent

from .awaited_streams import AwaitedStreams
from .full_disks import FullDisks
from .job_runner import JobRunner
from .learned_streams import LearnedStreams
from .reach import Reach

#: A command that takes fewer seconds is short.
SHORT = 0.1
#: The number of jobs that are looked at. If all but one were short, the next jobs of the step count as short.
ENOUGH = 8
#: Of this many short jobs, one is measured nevertheless.
SAMPLED = 50
# A job that takes this many seconds, with the driver's work for it, lets the step be measured anew. On a busy machine a
# short job may take longer now and then.
_LONG = 1.0
# A short job may read this many times the bytes of earlier short jobs, and in any case this many bytes.
_MORE, _FEW_BYTES = 2, 2**16


class _MeasuredJobs(Struct):
    """The measured jobs of a step.

    :ivar seconds: the times of the last measured commands
    :ivar plain: the number of short jobs since the last measured one
    :ivar bytes: the most that a short job has read
    """

    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=ENOUGH))
    plain: int = 0
    bytes: int = 0

    @property
    def are_short(self) -> bool:
        return len(self.seconds) == ENOUGH and sum(each >= SHORT for each in self.seconds) <= 1


class ShortJobs:
    """Knows whether the jobs of a step are short.

    :param steps: those for which no hint asks that anything be streamed or measured
    """

    def __init__(self, steps: Collection[str]) -> None:
        self._seen = {step: _MeasuredJobs() for step in steps}

    def is_short(self, step: str, read: int) -> bool:
        """Whether the next job of a step is to run as with plain StreamFlow.

        :param read: bytes of its input files
        """
        seen = self._seen.get(step)
        if seen is None or not seen.are_short or read > max(_FEW_BYTES, _MORE * seen.bytes):
            return False
        seen.plain = (seen.plain + 1) % SAMPLED
        return seen.plain != 0

    def measured(self, step: str, read: int, seconds: float) -> None:
        """Note that a job has succeeded.

        :param read: bytes of its input files
        :param seconds: the time of its command
        """
        if (seen := self._seen.get(step)) is None:
            return
        if seconds >= _LONG:
            self._seen[step] = _MeasuredJobs()
            return
        seen.seconds.append(seconds)
        if seconds < SHORT:
            seen.bytes = max(seen.bytes, read)

    def ran_plainly(self, step: str, seconds: float) -> None:
        """Note that a job has run as with plain StreamFlow.

        :param seconds: its time, with the driver's work for it
        """
        if step in self._seen and seconds >= _LONG:
            self._seen[step] = _MeasuredJobs()


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
