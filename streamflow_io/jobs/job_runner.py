"""Runs the commands of jobs under the node runtimes: of jobs that stream, of I/O tasks, and of measured jobs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence

from msgspec import Struct
from streamflow.core.deployment import Connector
from streamflow.deployment.connector.local import LocalConnector
from streamflow.log_handler import logger

from streamflow_io.adapters.connector import JobConnector, LocalJobConnector, exit_event_of
from streamflow_io.adapters.job_spec import job_spec
from streamflow_io.adapters.jobs import Jobs, JobState, usage_of
from streamflow_io.messages import Code, coded
from streamflow_io.parts.splitting import Cuts
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeJob
from streamflow_io.runtime.protocol import Event, ExitEvent, JobSpec, ObservationSpec

from .reach import Reach
from .recorder import JobRecorder


class _CommandRun(Struct):
    """A command that is about to run, or runs, under a node runtime.

    :ivar command: runs in place of the command of the step, without redirections; None: the command of the step
    :ivar tells_paths: the command may find paths of its inputs in a file
    :ivar told: the spec that the node runtime gets; None: the command has not started
    :ivar following: records the events of a job that StreamFlow runs
    """

    node_job: NodeJob
    spec: JobSpec
    streams: bool
    command: Sequence[str] | None = None
    tells_paths: bool = False
    told: JobSpec | None = None
    following: asyncio.Task[None] | None = None


class JobRunner:
    """Lets the commands of jobs run under the node runtimes, when StreamFlow runs them.

    The step of a streaming job runs the job, and begins a job of the node runtime for each attempt. StreamFlow runs a
    job that is only measured, and repeats that job if it fails; measuring never lets a job fail.
    """

    def __init__(self, jobs: Jobs, reach: Reach, recorder: JobRecorder, cuts: Cuts) -> None:
        self._jobs = jobs
        self._reach = reach
        self._recorder = recorder
        self._cuts = cuts

    def connector(self, job: JobState, inner: Connector) -> Connector:
        """Return the connector for the command of a job."""
        if (running := job.kept(_CommandRun)) is None:
            return LocalJobConnector(inner, job.name) if isinstance(inner, LocalConnector) else inner
        # StreamFlow asks for connectors at other times, too, even after the command. An attempt starts once.
        if running.told is None:
            running.told = self._jobs.starting(job, running.spec, running.node_job.runtime)
        if running.streams:
            return JobConnector(
                inner,
                running.node_job,
                running.told,
                command=running.command,
                tells_paths=running.tells_paths,
            )
        told = running.told
        if running.following is None:
            queued = self._recorder.queued(job)
            if told.limit or told.observation.writes or told.observation.cores or queued:
                # The events tell the bursts of the job, its need of cores, and the end of its wait in a queue.
                running.following = asyncio.create_task(self._follow(job, running.node_job))
        return JobConnector(inner, running.node_job, told, is_optional=True)

    @contextlib.contextmanager
    def running(
        self,
        job: JobState,
        node_job: NodeJob,
        spec: JobSpec,
        command: Sequence[str] | None = None,
        tells_paths: bool = False,
    ) -> Iterator[None]:
        """Let the command of a job that streams run as a job of the node runtime.

        :param command: runs instead, without the redirections of the job; None: the command of the job
        :param tells_paths: the command may find paths of its inputs in a file
        """
        job.begin(node_job)
        job.keep(_CommandRun(node_job, spec, streams=True, command=command, tells_paths=tells_paths))
        try:
            yield
        finally:
            job.node_job = None
            job.drop(_CommandRun)

    async def events(self, job: JobState, node_job: NodeJob) -> AsyncIterator[Event]:
        """Yield the events of a job in order, up to the exit event, and record them. There may be one reader only.

        :raises NodeRuntimeError: if the node runtime ends before the job
        """
        async for event in node_job.events():
            self._jobs.event(job, event)
            yield event

    async def exit(self, job: JobState, node_job: NodeJob) -> ExitEvent | None:
        """Return the exit event of a job whose command is said to have ended; None: the command has not run.

        :raises asyncio.TimeoutError: if no exit event comes in time
        :raises NodeRuntimeError: if the node runtime has ended before the job
        """
        if not await node_job.has_started():
            node_job.abandon()
            return None
        exit_event = await exit_event_of(node_job)
        job.usage = usage_of(exit_event)
        return exit_event

    async def measure(self, job: JobState, otherwise: str) -> None:
        """Let a job be measured that StreamFlow runs, if there is a node runtime. Its command is about to run.

        :param otherwise: the beginning of the warning, logged once, if there is none
        """
        if (node_job := await self._reach.measured_job(job, otherwise)) is not None:
            job.begin(node_job)
            job.keep(_CommandRun(node_job, JobSpec(name=job.name, observation=ObservationSpec(io=True)), streams=False))

    def observe(self, job: JobState) -> None:
        """Record how a measured job uses its files, too."""
        running = job.kept(_CommandRun)
        if running is not None and not running.streams and job.executed_by is not None:
            running.spec, running.told = job_spec(job.executed_by, job.job), None
            # A job with a limit is followed already, and its events are for one reader.
            if running.following is None:
                running.following = asyncio.create_task(self._follow(job, running.node_job))

    async def end(self, job: JobState, succeeded: bool) -> None:
        """Wait until nothing of an ended job runs, and its measures are recorded."""
        if (running := job.drop(_CommandRun)) is None or running.streams:
            return
        node_job, following = running.node_job, running.following
        try:
            if not succeeded and await node_job.has_started():
                await node_job.cancel()
                if not node_job.exit.done():
                    return
            if await self.exit(job, node_job) is not None and following is not None:
                await following
                if succeeded:
                    await self._cuts.observed(job, node_job.runtime)
        except (asyncio.TimeoutError, NodeRuntimeError) as error:
            why = str(error) or "the node runtime does not answer"
            logger.warning(coded(f"Job {job.name} was not measured: {why}", Code.NOT_MEASURED))
        finally:
            if following is not None:
                following.cancel()

    async def _follow(self, job: JobState, node_job: NodeJob) -> None:
        with contextlib.suppress(NodeRuntimeError):
            async for _ in self.events(job, node_job):
                pass
