"""Records for telemetry what jobs do."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import cast

from msgspec import Struct, field
from streamflow.core.data import DataManager
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.scheduling import AvailableLocation
from streamflow.core.workflow import Status

from streamflow_io.adapters.job_spec import observed
from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.records.job_files import JobFiles
from streamflow_io.records.jobs import EndedRecord, EndStatus, StartedRecord, SubmittedRecord, WaitCause
from streamflow_io.records.records import LocationRecord, ProgressRecord, Record
from streamflow_io.runtime.locations import Place, innermost, location_node, node_name, path_on
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import Event, GateEvent, JobSpec, StartedEvent
from streamflow_io.runtime.usage import JobUsage
from streamflow_io.runtime.wire import with_observation

from .early_records import EarlyRecords, Progress

# Shorter waits, in seconds, are not recorded.
_LEAST = 0.001


class Waits(Struct):
    """Adds up what a job waits for. What the job lacks at one look is the cause of its wait until the next look.

    Times are seconds of any clock that does not go back.

    :ivar since: the time of the last look that has changed the cause
    :ivar cause: of the wait that goes on; None: the job waits for nothing that is known
    """

    since: float
    cause: WaitCause | None = None
    _seconds: defaultdict[WaitCause, float] = field(default_factory=lambda: defaultdict(float))

    def lacks(self, cause: WaitCause | None, now: float) -> None:
        """Note what the job lacks; None: the job lacks nothing."""
        if self.cause != cause:
            self._add(now)
            self.since, self.cause = now, cause

    def end(self, now: float) -> dict[WaitCause, float]:
        """End the wait of the job.

        :return: how long the job has waited for each cause, in seconds
        """
        self._add(now)
        self.cause = None
        return {cause: seconds for cause, seconds in self._seconds.items() if seconds >= _LEAST}

    def _add(self, now: float) -> None:
        if self.cause is not None:
            self._seconds[self.cause] += now - self.since


_STATUSES: dict[Status, EndStatus] = {
    Status.COMPLETED: "completed",
    Status.CANCELLED: "cancelled",
    Status.ROLLBACK: "rolled back",
}


class JobRecorder(Listener):
    """Records the jobs of a workflow: their times, how they ended, and what their node runtimes have measured.

    Where no node runtime has measured a job, the times are those of the driver.

    :param data: StreamFlow's knowledge of where files are
    :param observes: whether the use of files by jobs is recorded, too
    :param record: keeps a record for telemetry
    :param show: called with the part of the state of the run that is in no record
    """

    def __init__(
        self,
        data: DataManager,
        observes: bool,
        record: Callable[[Record], None],
        show: Callable[[ProgressRecord], None] = lambda _: None,
        has_queue: Callable[[ExecutionLocation], bool] = lambda _: False,
    ) -> None:
        self._data = data
        self._observes = observes
        self._record = record
        self._has_queue = has_queue
        self._progress = Progress(show)
        self._early = EarlyRecords(record, self._progress)
        # The names of jobs, by node and output directory.
        self._origins: dict[tuple[str, str], str] = {}
        # By location: the files of its host that its node runtime sees.
        self._places: dict[str, Place] = {}
        # By deployment: the names of the locations that are recorded.
        self._offered: defaultdict[str, set[str]] = defaultdict(set)

    @property
    def streamed(self) -> Mapping[str, Collection[tuple[str, str]]]:
        """See :class:`EarlyRecords`."""
        return self._early.streamed

    def offered(self, locations: Mapping[str, AvailableLocation]) -> None:
        """Record the locations of a deployment where a job may start: each once, and none of a single one."""
        if len(locations) < 2:
            return
        known = self._offered[next(iter(locations.values())).deployment]
        for name in sorted(locations.keys() - known):
            known.add(name)
            hardware = innermost(locations[name]).hardware
            cores = None if hardware is None else float(hardware.cores)
            self._record(LocationRecord(time=time.time(), location=node_name(locations[name]), location_cores=cores))

    def is_measured(self, job: JobState) -> bool:
        """Whether the node runtime is to measure a job."""
        return job.hints is not None and (self._observes or job.concerns_storage)

    def submitted(self, job: JobState) -> None:
        if job.hints is not None:
            job.keep(Waits(time.monotonic()))
            self._record(SubmittedRecord(time=job.submitted, job=job.name, step=job.step))

    def lacks(self, job: JobState, cause: WaitCause | None) -> None:
        """The scheduler has looked at a job that waits for a place.

        :param cause: what the job lacks; None: the job lacks nothing
        """
        if (waits := job.kept(Waits)) is not None:
            waits.lacks(cause, time.monotonic())
            self._progress.waits(job, cause)

    def placed(self, job: JobState) -> None:
        self.lacks(job, None)

    def running(self, job: JobState) -> None:
        if job.hints is None or job.started is None:
            return
        where, queue = node_name(job.location), self._has_queue(job.location)
        waits = job.drop(Waits)
        self._progress.waits(job, None)
        hardware = job.places[0].hardware if job.places else None
        self._record(
            StartedRecord(
                time=job.started,
                job=job.name,
                step=job.step,
                location=where,
                waited={} if waits is None else waits.end(time.monotonic()),
                cores=job.cores,
                location_cores=None if hardware is None else float(hardware.cores),
                queue=queue,
            )
        )

    def starting(self, job: JobState, spec: JobSpec, runtime: NodeRuntime) -> JobSpec:
        """Ask for measures of the job, and for its use of files, as far as they are wanted."""
        self._early.told(spec, job)
        self.queued(job)
        step = job.executed_by
        if not self._observes or step is None or job.hints is None:
            return with_observation(spec, io=self.is_measured(job))
        if runtime.place is not None:
            self._places[location_node(job.location)] = runtime.place
        self._origins[self._path_on(job.location, job.job.output_directory)] = job.name
        spec = observed(spec, step, job.job)
        job.keep(JobFiles(spec))
        return spec

    def queued(self, job: JobState) -> bool:
        """Note that a job is about to be given to its location.

        :return: whether the job may wait in the queue of a queue manager
        """
        if has_queue := self._has_queue(job.location):
            self._progress.waits(job, "queue")
        return has_queue

    def event(self, job: JobState, event: Event) -> None:
        self._early.event(job, event)
        if isinstance(event, StartedEvent):
            self._progress.waits(job, None)
        elif isinstance(event, GateEvent):
            self._progress.waits(job, "gate" if event.waits else None)
        if (files := job.kept(JobFiles)) is not None:
            files.add(event)

    def ended(self, job: JobState) -> None:
        self._progress.job_ended(job)
        usage = job.usage if job.status is Status.COMPLETED else None
        self._early.ended(job, None if usage is None else usage.ended)
        if job.hints is None or job.ended is None:
            return
        self._record_files(job, usage)
        status = _STATUSES.get(cast(Status, job.status), "failed")
        self._record(EndedRecord(time=job.ended, job=job.name, step=job.step, status=status, usage=job.usage))

    async def run_closed(self) -> None:
        self._progress.close()

    def _record_files(self, job: JobState, usage: JobUsage | None) -> None:
        files = job.drop(JobFiles)
        if files is None or usage is None:
            return
        now = time.time()
        for output in files.outputs(job.name, job.step, now, usage.ended):
            self._record(output)
        for used in files.inputs(job.name, job.step, now, partial(self._origin, job)):
            self._record(used)

    def _origin(self, reader: JobState, path: str) -> tuple[str | None, str]:
        """The job whose output a file is, and the path of the file relative to the output directory.

        :param reader: the job that has read the file, with this path
        """
        for node, found in self._paths(reader.location, path):
            directory = found
            while (job_name := self._origins.get((node, directory))) is None and directory != "/":
                directory = os.path.dirname(directory)
            if job_name is not None:
                return job_name, os.path.relpath(found, directory)
        return None, path_on(reader.location, path)[1]

    def _paths(self, location: ExecutionLocation, path: str) -> Iterator[tuple[str, str]]:
        """Yield the places of a file as (node, path): its own, and all others that StreamFlow knows."""
        yield self._path_on(location, path)
        if not location.local or self._places:
            for known in (PurePosixPath(path), *PurePosixPath(path).parents):
                for data in self._data.get_data_locations(str(known)):
                    below = os.path.join(data.path, PurePosixPath(path).relative_to(known))
                    yield self._path_on(data.location, below)

    def _path_on(self, location: ExecutionLocation, path: str) -> tuple[str, str]:
        """A path with its node. A path in a container becomes the path on its host, if it is on a volume."""
        place = self._places.get(location_node(location))
        if place is None or (outside := Place(place.host).path_of(place, path)) is None:
            return path_on(location, path)
        return place.host, str(outside) if place.host else os.path.realpath(outside)
