"""Gives the commands of jobs to the node runtimes: of those that stream, of I/O tasks, and of all that are measured."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from streamflow.core.deployment import Connector
from streamflow.core.workflow import Job
from streamflow.cwl.step import CWLExecuteStep
from streamflow.log_handler import logger

from streamflow_io.messages import Code, coded
from streamflow_io.runtime.node_runtime import NodeJob, NodeRuntimeError
from streamflow_io.runtime.protocol import Event, ExitEvent, JobSpec, MovedEvent, WarningEvent

from .connector import JobConnector, exit_event_of
from .job_spec import job_spec
from .job_warnings import JobWarnings
from .lent_cores import LentCores
from .limits import Limits
from .reach import Reach
from .recorder import JobRecorder
from .seen_splits import look_for_splits
from .stream_rates import StreamRates
from .write_channels import WriteChannels

_ASKS = coded("the command asks by path for more than its bytes, and waits for the whole file", Code.ASKS_BY_PATH)


@dataclass
class _Measured:
    """:ivar asked: what its node runtime is asked for, when it is"""

    node_job: NodeJob
    spec: JobSpec
    asked: JobSpec | None = None
    following: asyncio.Task[None] | None = None


class JobRunner:
    """Lets the commands of jobs run under the node runtimes, when StreamFlow runs them.

    A job that streams is run by its step, which begins a job of the node runtime for each attempt. One that is only
    measured is run by StreamFlow, which repeats it if it fails; that it is measured never lets it fail.
    """

    def __init__(
        self,
        reach: Reach,
        recorder: JobRecorder,
        warnings: JobWarnings,
        limits: Limits,
        stream_rates: StreamRates,
        writes: WriteChannels,
        lent_cores: LentCores | None = None,
    ) -> None:
        self._reach = reach
        self._recorder = recorder
        self._warnings = warnings
        self._limits = limits
        self._stream_rates = stream_rates
        self._writes = writes
        self._lent_cores = lent_cores
        self._streaming: dict[str, tuple[NodeJob, JobSpec, Sequence[str] | None]] = {}
        self._measured: dict[str, _Measured] = {}
        # Those that have streamed, once or more often.
        self._tried: set[str] = set()

    def connector(self, job_name: str, inner: Connector) -> Connector:
        """What the command of a job is to be run through."""
        if (streaming := self._streaming.get(job_name)) is not None:
            node_job, spec, command = streaming
            spec = self._stream_rates.asked(self._asked(node_job, spec))
            return JobConnector(inner, job_name, node_job, spec, command=command)
        if (measured := self._measured.get(job_name)) is not None:
            # StreamFlow has connectors for more than the command, also after it. What a job does is asked for once.
            spec = measured.asked or self._asked(measured.node_job, measured.spec)
            measured.asked = spec
            queued = measured.following is None and self._recorder.queued(job_name)
            if (spec.limit or spec.phases or spec.cores or queued) and measured.following is None:
                # What keeps it from being held to its limit is told, in which bursts it writes, what it needs, and that
                # it does not wait in a queue any more.
                measured.following = asyncio.create_task(self._follow(job_name, measured.node_job))
            return JobConnector(inner, job_name, measured.node_job, spec, is_optional=True)
        return inner

    @contextlib.contextmanager
    def running(
        self, job_name: str, node_job: NodeJob, spec: JobSpec, command: Sequence[str] | None = None
    ) -> Iterator[None]:
        """Let the command of a job that streams run as a job of the node runtime.

        :param command: what is run instead, without its redirections
        """
        self._streaming[job_name] = node_job, spec, command
        if job_name in self._tried:
            self._limits.repeated(job_name)
        self._tried.add(job_name)
        try:
            yield
        finally:
            del self._streaming[job_name]

    async def events(self, job_name: str, node_job: NodeJob) -> AsyncIterator[Event]:
        """What the node runtime tells of a job, in order, to the exit event; recorded by the way. For one reader.

        :raises NodeRuntimeError: if the node runtime ends before the job
        """
        async for event in node_job.events():
            self._recorder.happened(job_name, event)
            self._stream_rates.happened(job_name, event)
            self._writes.happened(job_name, event)
            if self._lent_cores is not None:
                self._lent_cores.happened(job_name, event)
            if isinstance(event, WarningEvent):
                self._warnings.tell(job_name, event)
                if event.input is not None and event.port is not None:
                    self._reach.fell_back(job_name, (event.input, event.port), _ASKS)
            if isinstance(event, MovedEvent):
                self._limits.moved(job_name, event.bytes)
            if isinstance(event, ExitEvent):
                self._limits.exited(job_name)
            yield event

    def limit(self, job_name: str, rate: float | None) -> None:
        """Let a job move so many bytes per second from now on, None: as many as it can; if it has begun."""
        if (streaming := self._streaming.get(job_name)) is not None:
            streaming[0].limit(rate)
        elif (measured := self._measured.get(job_name)) is not None:
            measured.node_job.limit(rate)

    def limit_stream(self, job_name: str, stream: str, rate: float | None) -> None:
        """Let a byte stream of a job be fed with so many bytes per second from now on; see :meth:`limit`."""
        if (streaming := self._streaming.get(job_name)) is not None:
            streaming[0].limit(rate, stream)

    async def exit(self, job_name: str, node_job: NodeJob) -> ExitEvent | None:
        """How a job has ended whose command is said to have ended; None: it has not come to run.

        :raises asyncio.TimeoutError: if that is not told
        :raises NodeRuntimeError: if the node runtime has ended before the job
        """
        if not await node_job.has_started():
            node_job.abandon()
            return None
        exit_event = await exit_event_of(node_job)
        self._recorder.exited(job_name, exit_event)
        return exit_event

    async def measure(self, job_name: str, otherwise: str) -> None:
        """A job that StreamFlow runs is about to run its command: it is measured, where there is a node runtime.

        :param otherwise: what is said, once, where there is none
        """
        if (node_job := await self._reach.measured_job(job_name, otherwise)) is not None:
            self._measured[job_name] = _Measured(node_job, JobSpec(name=job_name, measure=True))

    def observe(self, step: CWLExecuteStep, job: Job) -> None:
        """What a job that is measured does with its files is recorded, too."""
        if (measured := self._measured.get(job.name)) is not None:
            place = measured.node_job.runtime.place
            measured.spec, measured.asked = self._recorder.told(job_spec(step, job), step, job, place), None
            # One that is limited is followed already; its events are for one reader.
            if measured.following is None:
                measured.following = asyncio.create_task(self._follow(job.name, measured.node_job))

    async def end(self, job_name: str, succeeded: bool) -> None:
        """A job has ended; returns when nothing of it runs, and what was measured of it is recorded."""
        if (measured := self._measured.pop(job_name, None)) is None:
            return
        node_job, following = measured.node_job, measured.following
        try:
            if not succeeded and await node_job.has_started():
                await node_job.cancel()
                if not node_job.exit.done():
                    return
            if await self.exit(job_name, node_job) is not None and following is not None:
                await following
                if succeeded:
                    found = partial(self._recorder.splits, job_name)
                    await look_for_splits(node_job.runtime, self._recorder.possible_splits(job_name), found)
        except (asyncio.TimeoutError, NodeRuntimeError) as error:
            why = str(error) or "the node runtime does not answer"
            logger.warning(coded(f"Job {job_name} was not measured: {why}", Code.NOT_MEASURED))
        finally:
            if following is not None:
                following.cancel()

    def _asked(self, node_job: NodeJob, spec: JobSpec) -> JobSpec:
        """What the node runtime is to be told of a job, and of what it is to tell itself."""
        limited = spec.model_copy(update={"limit": self._limits.of(spec.name, node_job.runtime)})
        asked = self._writes.asked(limited)
        return asked if self._lent_cores is None else self._lent_cores.asked(asked)

    async def _follow(self, job_name: str, node_job: NodeJob) -> None:
        with contextlib.suppress(NodeRuntimeError):
            async for _ in self.events(job_name, node_job):
                pass
