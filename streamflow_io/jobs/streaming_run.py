"""The run, as a job of a streaming step uses it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from streamflow.core.workflow import Token

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
from .short_jobs import ShortJobs


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
