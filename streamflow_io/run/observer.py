"""Adapter: what jobs do, measured by the node runtime where it can, and recorded for telemetry and the learner."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from streamflow.core.deployment import Connector, ExecutionLocation
from streamflow.core.utils import get_job_step_name
from streamflow.core.workflow import Job, Status
from streamflow.log_handler import logger

from streamflow_io.admission.observations import Observation
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.models import Direction
from streamflow_io.runtime import ExitEvent, JobSpec, NodeJob, NodeRuntimeError
from streamflow_io.runtime.protocol import WarningEvent
from streamflow_io.telemetry.job_files import Identity, JobFiles
from streamflow_io.telemetry.records import EndedRecord, EndStatus, Record, StartedRecord, SubmittedRecord, Usage

from .connector import JobConnector
from .tokens import stream_tokens

if TYPE_CHECKING:
    from streamflow.cwl.step import CWLExecuteStep

    from streamflow_io.runtime.protocol import Event

    from .scheduler import IOAwareScheduler

_EXIT_SECONDS = 60.0
_STATUSES: dict[Status, EndStatus] = {
    Status.COMPLETED: "completed",
    Status.CANCELLED: "cancelled",
    Status.ROLLBACK: "rolled back",
}


class JobObserver:
    """Follows the jobs of annotated workflows.

    Jobs of I/O tasks, and those with a storageBW, run under the node runtime where there is one: it measures them.
    Without it the driver's times are taken. With `observe: true` all jobs do, and what they do with their files is
    recorded.

    :param annotations: by step path: the steps to observe
    :param streaming: the steps whose jobs run under the node runtime anyway; they tell :meth:`measured` of it
    :param record: keeps a record for telemetry
    """

    def __init__(
        self,
        scheduler: IOAwareScheduler,
        annotations: Mapping[str, StepAnnotations],
        streaming: Collection[str],
        record: Callable[[Record], None],
    ) -> None:
        self._scheduler = scheduler
        self._annotations = annotations
        self._streaming = streaming
        self._record = record
        # Since when they have been submitted, or have run.
        self._open: dict[str, float] = {}
        # Those that read what is being written: they may wait for it.
        self._readers: set[str] = set()
        self._node_jobs: dict[str, NodeJob] = {}
        self._exits: dict[str, ExitEvent] = {}
        self._observes = scheduler.config.observe
        self._specs: dict[str, JobSpec] = {}
        self._files: dict[str, JobFiles] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        # By location and output directory of a job, its name.
        self._origins: dict[tuple[str, str], str] = {}
        self._can_measure = scheduler.config.runtime != "off"
        # Locations without a node runtime.
        self._unmeasured: set[str] = set()
        if self._observes and not self._can_measure:
            logger.warning("Nothing is observed in this run: `runtime: off`")

    def submitted(self, job: Job) -> None:
        """A job asks to be scheduled."""
        job_name = job.name
        if (step := get_job_step_name(job_name)) in self._annotations:
            if any(True for value in job.inputs.values() for _ in stream_tokens(value)):
                self._readers.add(job_name)
            self._open[job_name] = time.time()
            self._record(SubmittedRecord(time=self._open[job_name], job=job_name, step=step))

    async def started(self, job_name: str) -> None:
        """A job has all its input and is about to run its command."""
        if (step := get_job_step_name(job_name)) not in self._annotations:
            return
        location = self._scheduler.get_locations(job_name)[0]
        self._open[job_name] = time.time()
        self._record(
            StartedRecord(
                time=self._open[job_name], job=job_name, step=step, location=f"{location.deployment}/{location.name}"
            )
        )
        if step not in self._streaming and self._is_measured(step):
            await self._create_node_job(job_name, location)

    async def ended(self, job_name: str, status: Status) -> Observation | None:
        """A job has ended, however.

        :return: how it went, if it succeeded
        """
        if (started := self._open.get(job_name)) is None:
            return None
        usage = None
        try:
            usage = await self._usage(job_name, status)
        finally:
            now = time.time()
            self._specs.pop(job_name, None)
            if (following := self._following.pop(job_name, None)) is not None:
                following.cancel()
            self._record_files(job_name, usage if status is Status.COMPLETED else None)
            self._end(job_name, _STATUSES.get(status, "failed"), usage)
        is_reader = job_name in self._readers
        self._readers.discard(job_name)
        if status is not Status.COMPLETED or (is_reader and (usage is None or usage.io_seconds is None)):
            return None
        if usage is None:
            return Observation(now - started)
        # What a job waits for its stream, or at the gate, is no time in I/O.
        seconds = usage.io_seconds if is_reader else None
        if seconds is None:
            seconds = usage.ended - usage.started
        return Observation(seconds, usage.moved(self._direction(get_job_step_name(job_name))))

    def abandoned(self, job_name: str) -> None:
        """A job will not start."""
        self._readers.discard(job_name)
        self._end(job_name, "cancelled")

    def close(self) -> None:
        """The run ends, and with it what has not ended yet."""
        for job_name in list(self._open):
            self.abandoned(job_name)

    def measured(self, job_name: str, exit_event: ExitEvent) -> None:
        """The node runtime has ended a job of a streaming step."""
        self._exits[job_name] = exit_event

    def observe(self, spec: JobSpec, step: CWLExecuteStep, job: Job) -> JobSpec:
        """A job is about to run its command under the node runtime.

        :return: what the node runtime is to be told of it
        """
        if not (self._observes and self._can_measure and job.name in self._open):
            return spec
        from .job_spec import observed

        if job.name not in self._node_jobs and get_job_step_name(job.name) not in self._streaming:
            return spec  # There is no node runtime.
        self._origins[_place(self._scheduler.get_locations(job.name)[0], job.output_directory)] = job.name
        spec = self._specs[job.name] = observed(spec, step, job)
        self._files[job.name] = JobFiles(spec)
        if (node_job := self._node_jobs.get(job.name)) is not None:
            self._following[job.name] = asyncio.create_task(self._follow(job.name, node_job))
        return spec

    def happened(self, job_name: str, event: Event) -> None:
        """The node runtime tells something of a job."""
        if (files := self._files.get(job_name)) is not None:
            files.add(event)

    async def _follow(self, job_name: str, node_job: NodeJob) -> None:
        with contextlib.suppress(NodeRuntimeError):
            async for event in node_job.events():
                self.happened(job_name, event)
                if isinstance(event, WarningEvent):
                    self._scheduler.warnings.tell(job_name, event)

    def _record_files(self, job_name: str, usage: Usage | None) -> None:
        files = self._files.pop(job_name, None)
        if files is None or usage is None:
            return
        of, now = Identity(job_name, get_job_step_name(job_name)), time.time()
        for output in files.outputs(of, now, usage.ended):
            self._record(output)
        for used in files.inputs(of, now, partial(self._origin, job_name)):
            self._record(used)

    def _origin(self, reader: str, path: str) -> tuple[str | None, str]:
        """The job whose output a file is, and its path relative to the output directory.

        :param reader: the job that has read it, with this path
        """
        for location, found in self._places(self._scheduler.get_locations(reader)[0], path):
            directory = found
            while (job_name := self._origins.get((location, directory))) is None and directory != "/":
                directory = os.path.dirname(directory)
            if job_name is not None:
                return job_name, os.path.relpath(found, directory)
        return None, _place(self._scheduler.get_locations(reader)[0], path)[1]

    def _places(self, location: ExecutionLocation, path: str) -> Iterator[tuple[str, str]]:
        """Where a file is, by another path or on another location; as far as StreamFlow has put it there."""
        yield _place(location, path)
        if not location.local:
            for known in (PurePosixPath(path), *PurePosixPath(path).parents):
                for data in self._scheduler.context.data_manager.get_data_locations(str(known)):
                    yield _place(data.location, os.path.join(data.path, PurePosixPath(path).relative_to(known)))

    def _is_measured(self, step: str) -> bool:
        if self._observes:
            return True
        annotations = self._annotations.get(step)
        return annotations is not None and (
            annotations.io_task is not None or annotations.storage_bandwidth is not None
        )

    def connector(self, job_name: str, connector: Connector) -> Connector:
        """What a job's command is to be run through."""
        if (node_job := self._node_jobs.get(job_name)) is None:
            return connector
        spec = self._specs.get(job_name) or JobSpec(name=job_name, measure=True)
        return JobConnector(connector, job_name, node_job, spec, confirms=True)

    def _end(self, job_name: str, status: EndStatus, usage: Usage | None = None) -> None:
        # The run may have ended while its last jobs were being ended.
        if self._open.pop(job_name, None) is None:
            return
        step = get_job_step_name(job_name)
        self._record(EndedRecord(time=time.time(), job=job_name, step=step, status=status, usage=usage))

    async def _create_node_job(self, job_name: str, location: ExecutionLocation) -> None:
        if not self._can_measure or str(location) in self._unmeasured:
            return
        try:
            runtime = await self._scheduler.node_runtime(job_name)
            self._node_jobs[job_name] = await runtime.create_job(job_name)
        except NodeRuntimeError as error:
            if str(location) not in self._unmeasured:
                self._unmeasured.add(str(location))
                what = "Nothing is observed" if self._observes else "The bytes of I/O tasks are not measured"
                where = "in this run" if location.local else f"on {location}"
                logger.warning(f"{what} {where}: {error}")

    async def _usage(self, job_name: str, status: Status) -> Usage | None:
        exit_event = self._exits.pop(job_name, None)
        if (node_job := self._node_jobs.pop(job_name, None)) is not None:
            try:
                if not await node_job.has_started():
                    node_job.abandon()
                    return None
                if status is not Status.COMPLETED:
                    await node_job.cancel()
                    if not node_job.exit.done():
                        return None
                exit_event = await asyncio.wait_for(asyncio.shield(node_job.exit), _EXIT_SECONDS)
                if (following := self._following.get(job_name)) is not None:
                    await following
            except (asyncio.TimeoutError, NodeRuntimeError) as error:
                logger.warning(f"Job {job_name} was not measured: {error or 'the node runtime does not answer'}")
                return None
        if exit_event is None or exit_event.started is None or exit_event.ended is None:
            return None
        usage = exit_event.usage
        return Usage(
            started=exit_event.started,
            ended=exit_event.ended,
            bytes_read=usage.rchar,
            bytes_written=usage.wchar,
            storage_bytes_read=usage.read_bytes,
            storage_bytes_written=usage.write_bytes,
            cpu_seconds=usage.user + usage.system,
            io_seconds=usage.io,
        )

    def _direction(self, step: str) -> Direction:
        bandwidth = self._annotations[step].storage_bandwidth
        return "write" if bandwidth is None else bandwidth.value.direction


def _place(location: ExecutionLocation, path: str) -> tuple[str, str]:
    """A path on a location; what is here is known by its real path."""
    return ("", os.path.realpath(path)) if location.local else (str(location), os.path.normpath(path))
