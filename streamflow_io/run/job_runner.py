"""Gives the commands of jobs to the node runtimes: of those that stream, of I/O tasks, and of all that are measured."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from streamflow.core.deployment import Connector
from streamflow.core.workflow import Job
from streamflow.cwl.step import CWLExecuteStep
from streamflow.log_handler import logger

from streamflow_io.runtime import Event, ExitEvent, JobSpec, NodeJob, NodeRuntimeError
from streamflow_io.runtime.protocol import WarningEvent

from .connector import JobConnector, exit_event_of
from .job_spec import job_spec
from .job_warnings import JobWarnings
from .reach import Reach
from .recorder import JobRecorder


@dataclass(eq=False)
class CommandRun:
    """One run of the command of a job under the node runtime; see :class:`JobConnector` for its last fields.

    :ivar spec: what the node runtime is told of it
    """

    job_name: str
    node_job: NodeJob
    spec: JobSpec
    recorder: JobRecorder
    warnings: JobWarnings
    confirms: bool = False

    def connector(self, inner: Connector) -> JobConnector:
        """What the command is to be run through."""
        return JobConnector(inner, self.job_name, self.node_job, self.spec, self.confirms)

    async def events(self) -> AsyncIterator[Event]:
        """What the node runtime tells of it, in order, to the exit event; recorded by the way. For one reader.

        :raises NodeRuntimeError: if the node runtime ends before it
        """
        async for event in self.node_job.events():
            self.recorder.happened(self.job_name, event)
            if isinstance(event, WarningEvent):
                self.warnings.tell(self.job_name, event)
            yield event

    async def exit(self) -> ExitEvent | None:
        """How it has ended, when its command is said to have ended. None: it has not come to run.

        :raises asyncio.TimeoutError: if that is not told
        :raises NodeRuntimeError: if the node runtime has ended before it
        """
        if not await self.node_job.has_started():
            self.node_job.abandon()
            return None
        exit_event = await exit_event_of(self.node_job)
        self.recorder.exited(self.job_name, exit_event)
        return exit_event


class JobRunner:
    """Lets the commands of jobs run under the node runtimes, when StreamFlow runs them.

    A job that streams is run by its step, with a :class:`CommandRun` for each attempt. One that is only measured is run
    by StreamFlow, which repeats it if it fails; that it is measured never lets it fail.
    """

    def __init__(self, reach: Reach, recorder: JobRecorder, warnings: JobWarnings) -> None:
        self._reach = reach
        self._recorder = recorder
        self._warnings = warnings
        self._streaming: dict[str, CommandRun] = {}
        self._measured: dict[str, CommandRun] = {}
        self._followed: dict[str, asyncio.Task[None]] = {}

    def connector(self, job_name: str, inner: Connector) -> Connector:
        """What the command of a job is to be run through."""
        run = self._streaming.get(job_name) or self._measured.get(job_name)
        return inner if run is None else run.connector(inner)

    def command(self, job_name: str, node_job: NodeJob, spec: JobSpec) -> CommandRun:
        """A run of the command of a job that streams."""
        return CommandRun(job_name, node_job, spec, self._recorder, self._warnings)

    @contextlib.contextmanager
    def running(self, run: CommandRun) -> Iterator[None]:
        """Let the command of a job that streams be run so."""
        self._streaming[run.job_name] = run
        try:
            yield
        finally:
            del self._streaming[run.job_name]

    async def measure(self, job_name: str, otherwise: str) -> None:
        """A job that StreamFlow runs is about to run its command: it is measured, where there is a node runtime.

        :param otherwise: what is said, once, where there is none
        """
        if (node_job := await self._reach.measured_job(job_name, otherwise)) is not None:
            spec = JobSpec(name=job_name, measure=True)
            self._measured[job_name] = CommandRun(
                job_name, node_job, spec, self._recorder, self._warnings, confirms=True
            )

    def observe(self, step: CWLExecuteStep, job: Job) -> None:
        """What a job that is measured does with its files is recorded, too."""
        if (run := self._measured.get(job.name)) is not None:
            run.spec = self._recorder.told(job_spec(step, job), step, job)
            self._followed[job.name] = asyncio.create_task(_follow(run))

    async def end(self, job_name: str, succeeded: bool) -> None:
        """A job has ended; returns when nothing of it runs, and what was measured of it is recorded."""
        if (run := self._measured.pop(job_name, None)) is None:
            return
        following = self._followed.pop(job_name, None)
        try:
            if not succeeded and await run.node_job.has_started():
                await run.node_job.cancel()
                if not run.node_job.exit.done():
                    return
            if await run.exit() is not None and following is not None:
                await following
        except (asyncio.TimeoutError, NodeRuntimeError) as error:
            logger.warning(f"Job {job_name} was not measured: {str(error) or 'the node runtime does not answer'}")
        finally:
            if following is not None:
                following.cancel()


async def _follow(run: CommandRun) -> None:
    with contextlib.suppress(NodeRuntimeError):
        async for _ in run.events():
            pass
