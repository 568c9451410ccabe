"""Adapter: what jobs do, as it is told, recorded for telemetry and the learner."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath

from streamflow.core.data import DataManager
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.utils import get_job_step_name
from streamflow.core.workflow import Job, Status
from streamflow.cwl.step import CWLExecuteStep
from streamflow.scheduling.scheduler import JobAllocation

from streamflow_io.admission.observations import Observation
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.records.files import SplitRecord
from streamflow_io.records.job_files import Identity, JobFiles, PossibleSplit
from streamflow_io.records.jobs import EndedRecord, EndStatus, JobUsage, StartedRecord, SubmittedRecord, WaitCause
from streamflow_io.records.records import ProgressRecord, Record
from streamflow_io.runtime.locations import location_node, node_name, path_on
from streamflow_io.runtime.place import Place
from streamflow_io.runtime.protocol import Event, ExitEvent, GateEvent, JobSpec, StartedEvent

from .early_records import EarlyRecords
from .job_spec import observed
from .progress import Progress
from .tokens import streams_of
from .waits import Waits

_STATUSES: dict[Status, EndStatus] = {
    Status.COMPLETED: "completed",
    Status.CANCELLED: "cancelled",
    Status.ROLLBACK: "rolled back",
}


class JobRecorder:
    """Records the jobs of a workflow: their times, how they ended, and what the node runtime has measured of them.

    Without the node runtime the driver's times are taken.

    :param jobs: those that were scheduled, by name
    :param data: where StreamFlow has put files
    :param annotations: by step path, of all steps of which jobs are recorded
    :param observes: what jobs do with their files is recorded, too
    :param record: keeps a record for telemetry
    :param show: is given the state of the run, as far as no record has it
    :param has_queue: whether a location is that of a queue manager
    """

    def __init__(
        self,
        jobs: Mapping[str, JobAllocation],
        data: DataManager,
        annotations: Mapping[str, StepAnnotations],
        observes: bool,
        record: Callable[[Record], None],
        show: Callable[[ProgressRecord], None] = lambda _: None,
        has_queue: Callable[[ExecutionLocation], bool] = lambda _: False,
    ) -> None:
        self._jobs = jobs
        self._data = data
        self._annotations = annotations
        self._observes = observes
        self._record = record
        self._has_queue = has_queue
        # Since when they have been submitted, or have run.
        self._open: dict[str, float] = {}
        # Those that read what is being written: they may wait for it.
        self._readers: set[str] = set()
        self._exits: dict[str, ExitEvent] = {}
        self._files: dict[str, JobFiles] = {}
        self._progress = Progress(show)
        self._early = EarlyRecords(record, self._progress)
        self._waits = Waits()
        # The cores that jobs with a place use, and those that this has.
        self._cores: dict[str, tuple[float, float | None]] = {}
        # By node and output directory of a job, its name.
        self._origins: dict[tuple[str, str], str] = {}
        # By location, what its node runtime sees of its host.
        self._places: dict[str, Place] = {}

    def is_measured(self, job_name: str) -> bool:
        """Whether it is wanted what the node runtime measures of a job."""
        annotations = self._annotations.get(get_job_step_name(job_name))
        return annotations is not None and (self._observes or annotations.concern_storage)

    def submitted(self, job: Job) -> None:
        """A job asks to be scheduled."""
        job_name = job.name
        if (step := get_job_step_name(job_name)) in self._annotations:
            if streams_of(job.inputs):
                self._readers.add(job_name)
            self._open[job_name] = time.time()
            self._record(SubmittedRecord(time=self._open[job_name], job=job_name, step=step))

    def lacks(self, job_name: str, cause: WaitCause | None) -> None:
        """A job that waits for a place was looked at: it lacks something; none: nothing any more."""
        if job_name in self._open:
            self._waits.lacks(job_name, cause, time.monotonic())
            self._progress.waits(job_name, cause)

    def placed(self, job_name: str, cores: float, of: float | None) -> None:
        """A job has a place.

        :param cores: that it uses
        :param of: so many that its location has; none: it does not say
        """
        if job_name in self._open:
            self._cores[job_name] = cores, of

    def started(self, job_name: str) -> None:
        """A job has all its input and is about to run its command."""
        cores, of = self._cores.pop(job_name, (None, None))
        if (step := get_job_step_name(job_name)) not in self._annotations:
            return
        location = self._location(job_name)
        where, queue = node_name(location), self._has_queue(location)
        self._open[job_name] = now = time.time()
        waited = self._waits.end(job_name, time.monotonic())
        self._progress.waits(job_name, None)
        self._record(
            StartedRecord(
                time=now,
                job=job_name,
                step=step,
                location=where,
                waited=waited,
                cores=cores,
                location_cores=of,
                queue=queue,
            )
        )

    def told(self, spec: JobSpec, step: CWLExecuteStep, job: Job, place: Place | None) -> JobSpec:
        """A job is about to run its command under the node runtime.

        :param place: what that sees of the files of its host; None: nobody else sees them by another path
        :return: what the node runtime is to be told of it: to measure it, and to observe it, if that is wanted
        """
        self._early.told(spec, job)
        self.queued(job.name)
        if not self._observes or job.name not in self._open:
            return spec.model_copy(update={"measure": self.is_measured(job.name)})
        location = self._location(job.name)
        if place is not None:
            self._places[location_node(location)] = place
        self._origins[self._path_on(location, job.output_directory)] = job.name
        spec = observed(spec, step, job)
        self._files[job.name] = JobFiles(spec)
        return spec

    def queued(self, job_name: str) -> bool:
        """A job is about to be given to its location.

        :return: whether it may wait in the queue of a queue manager then
        """
        if has_queue := self._has_queue(self._location(job_name)):
            self._progress.waits(job_name, "queue")
        return has_queue

    def happened(self, job_name: str, event: Event) -> None:
        """The node runtime tells something of a job."""
        self._early.happened(job_name, event)
        if isinstance(event, StartedEvent):
            self._progress.waits(job_name, None)
        elif isinstance(event, GateEvent):
            self._progress.waits(job_name, "gate" if event.waits else None)
        if (files := self._files.get(job_name)) is not None:
            files.add(event)

    def exited(self, job_name: str, exit_event: ExitEvent) -> None:
        """The node runtime has ended a job."""
        self._exits[job_name] = exit_event

    def possible_splits(self, job_name: str) -> list[PossibleSplit]:
        """What a job that is observed has written, as it seems, of its inputs."""
        return [] if (files := self._files.get(job_name)) is None else list(files.possible_splits())

    def splits(self, job_name: str, split: PossibleSplit, rule: Mapping[str, object]) -> None:
        """A job has split a file.

        :param rule: as `sfio-node propose` says it
        """
        what = {"port": split.port, "of": split.of, "count": split.parts}
        names = {"names": split.names.names, "first": split.names.first}
        of = {"time": time.time(), "job": job_name, "step": get_job_step_name(job_name)}
        self._record(SplitRecord.model_validate({**of, **what, **names, **rule}))

    def ended(self, job_name: str, status: Status) -> Observation | None:
        """A job has ended, however.

        :return: how it went, if it succeeded
        """
        self._progress.job_ended(job_name)
        usage = _usage(self._exits.pop(job_name, None))
        self._early.ended(job_name, usage.ended if usage is not None and status is Status.COMPLETED else None)
        if (started := self._open.get(job_name)) is None:
            return None
        now = time.time()
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
        return Observation(seconds, usage.moved(self._annotations[get_job_step_name(job_name)].direction))

    def abandoned(self, job_name: str) -> None:
        """A job will not start."""
        self._readers.discard(job_name)
        self._cores.pop(job_name, None)
        self._early.ended(job_name, None)
        self._progress.job_ended(job_name)
        self._waits.end(job_name, time.monotonic())
        self._end(job_name, "cancelled")

    def close(self) -> None:
        """The run ends, and with it what has not ended yet."""
        self._progress.close()
        for job_name in list(self._open):
            self.abandoned(job_name)

    def _record_files(self, job_name: str, usage: JobUsage | None) -> None:
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
        for node, found in self._paths(self._location(reader), path):
            directory = found
            while (job_name := self._origins.get((node, directory))) is None and directory != "/":
                directory = os.path.dirname(directory)
            if job_name is not None:
                return job_name, os.path.relpath(found, directory)
        return None, path_on(self._location(reader), path)[1]

    def _paths(self, location: ExecutionLocation, path: str) -> Iterator[tuple[str, str]]:
        """Where a file is, by another path or on another location; as far as StreamFlow has put it there."""
        yield self._path_on(location, path)
        if not location.local or self._places:
            for known in (PurePosixPath(path), *PurePosixPath(path).parents):
                for data in self._data.get_data_locations(str(known)):
                    below = os.path.join(data.path, PurePosixPath(path).relative_to(known))
                    yield self._path_on(data.location, below)

    def _path_on(self, location: ExecutionLocation, path: str) -> tuple[str, str]:
        """A path with its node: of a container, that on its host, if it is on a volume."""
        place = self._places.get(location_node(location))
        if place is None or (outside := Place(place.host).path_of(place, path)) is None:
            return path_on(location, path)
        return place.host, str(outside) if place.host else os.path.realpath(outside)

    def _end(self, job_name: str, status: EndStatus, usage: JobUsage | None = None) -> None:
        # The run may have ended while its last jobs were being ended.
        if self._open.pop(job_name, None) is None:
            return
        step = get_job_step_name(job_name)
        self._record(EndedRecord(time=time.time(), job=job_name, step=step, status=status, usage=usage))

    def _location(self, job_name: str) -> ExecutionLocation:
        return self._jobs[job_name].locations[0]


def _usage(exit_event: ExitEvent | None) -> JobUsage | None:
    if exit_event is None or exit_event.started is None or exit_event.ended is None:
        return None
    used = exit_event.usage
    spent = {"started": exit_event.started, "ended": exit_event.ended, "cpuSeconds": used.user + used.system}
    return JobUsage.model_validate({**dict(used), **spent})
