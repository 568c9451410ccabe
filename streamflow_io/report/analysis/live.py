"""The state of a run while it goes on, from its records in their order.

:class:`LiveRun` takes each record from the first on, and the newest :class:`ProgressRecord`. :meth:`LiveRun.view`
returns the state at a time as plain data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from streamflow_io.records.files import SERVED, EdgeRecord, FallbackRecord, StreamedRecord
from streamflow_io.records.jobs import (
    AdmittedRecord,
    EndedRecord,
    JobRecord,
    StartedRecord,
    SubmittedRecord,
    WaitingCause,
)
from streamflow_io.records.records import (
    EndRecord,
    LocationRecord,
    ProgressRecord,
    QueuedRecord,
    Record,
    RemovedRecord,
    RunRecord,
    RunState,
    RunStatus,
    RunStorage,
    StepRecord,
    StreamProgress,
)

_JobState = Literal["waiting", "running", "done", "failed", "cancelled"]

_SHOWN_FAILURES = 5


class StepView(Struct, frozen=True):
    """The state of a step.

    :ivar waits: how many of the step's jobs wait, by cause, as far as is known
    """

    name: str
    waiting: int
    running: int
    done: int
    failed: int
    io_task: bool
    waits: Mapping[WaitingCause, int]

    @property
    def jobs(self) -> int:
        return self.waiting + self.running + self.done + self.failed


class StreamView(Struct, frozen=True):
    """A byte stream that goes on.

    :ivar output: as /step/port
    :ivar input: as /step/port. None: unknown
    :ivar tag: the tag of the job that reads
    :ivar rate: bytes per second, now. None: unknown so far
    :ivar stalled: seconds in which nothing was fed. None: bytes move
    """

    output: str
    input: str | None
    tag: str
    bytes: int
    rate: float | None
    waits: str | None
    stalled: float | None


class StorageView(Struct, frozen=True):
    """The state of a storage. Bandwidths are in MB/s.

    :ivar bandwidth: bandwidth of the storage. None: undeclared
    :ivar admitted: the sum of storageBW of the jobs that are admitted
    :ivar jobs: how many jobs are admitted
    """

    name: str
    bandwidth: float | None
    admitted: float
    jobs: int


class LocationView(Struct, frozen=True):
    """The state of a location where a job has started, or may start.

    :ivar jobs: the jobs that run there
    :ivar held: the cores that these jobs hold
    :ivar cores: None: unknown
    """

    name: str
    jobs: tuple[str, ...]
    held: float
    cores: float | None


class RunView(Struct, frozen=True):
    """The state of a run.

    :ivar began: in seconds since the epoch
    :ivar seconds: since the run began, or of the whole run
    :ivar expected: the time of the last successful run. None: unknown, or exceeded
    :ivar more_streams: how many streams go on beside `streams`
    :ivar streamed: how many byte streams have ended without an error
    :ivar streamed_bytes: the sum over these streams
    :ivar failures: the first jobs that failed
    :ivar fallbacks: deliveries that were not as asked, with the reason
    :ivar disk: the space that the directories of jobs hold. None: nothing is shown
    :ivar locations: those where a job has started, or may start, by name
    :ivar queued: the allocations that deployments wait for, and why, by deployment
    """

    label: str
    workflow: str
    state: RunState
    began: float
    seconds: float
    expected: float | None
    steps: tuple[StepView, ...]
    streams: tuple[StreamView, ...]
    more_streams: int
    streamed: int
    streamed_bytes: int
    storages: tuple[StorageView, ...]
    failures: tuple[str, ...]
    fallbacks: tuple[str, ...]
    disk: RemovedRecord | None = None
    locations: tuple[LocationView, ...] = ()
    queued: Mapping[str, str] = {}

    @property
    def jobs(self) -> tuple[int, int, int, int]:
        """The numbers of jobs that wait, run, are done, and have failed."""
        steps = self.steps
        return (
            sum(step.waiting for step in steps),
            sum(step.running for step in steps),
            sum(step.done for step in steps),
            sum(step.failed for step in steps),
        )


class _LiveStorage(Struct):
    storage: RunStorage
    way: Literal["read", "write"] = "write"
    admitted: dict[str, float] = field(default_factory=dict)

    def view(self) -> StorageView:
        bandwidth = self.storage.write if self.way == "write" else self.storage.read
        bandwidth = bandwidth or self.storage.write or self.storage.read
        return StorageView(self.storage.name, bandwidth, sum(self.admitted.values()), len(self.admitted))


class _LiveLocation(Struct):
    cores: float | None = None
    held: dict[str, float] = field(default_factory=dict)

    def view(self, name: str) -> LocationView:
        return LocationView(name, tuple(self.held), sum(self.held.values()), self.cores)


class LiveRun:
    """A run, as far as its records were read.

    :param label: the name under which the run is shown
    :param last_seconds: the time of the last successful run. None: no estimate is shown
    """

    def __init__(self, label: str, last_seconds: float | None = None) -> None:
        self._label = label
        self._last_seconds = last_seconds
        self._run: RunRecord | None = None
        self._time = 0.0
        self._status: RunStatus | None = None
        self._ended: float | None = None
        self._hints: dict[str, StepRecord] = {}
        self._jobs: dict[str, _JobState] = {}
        self._counts: dict[str, Counter[_JobState]] = {}
        self._storages: dict[str, _LiveStorage] = {}
        self._storage_of: dict[str, str] = {}
        self._locations: dict[str, _LiveLocation] = {}
        self._location_of: dict[str, str] = {}
        self._progress: ProgressRecord | None = None
        self._disk: RemovedRecord | None = None
        self._streamed = self._streamed_bytes = 0
        self._failures: dict[str, None] = {}
        self._fallbacks: dict[str, None] = {}
        self._queued: dict[str, str] = {}

    @property
    def label(self) -> str:
        """The name under which the run is shown."""
        return self._label

    @property
    def has_ended(self) -> bool:
        return self._ended is not None

    def told(self, record: Record | ProgressRecord) -> None:
        """Take the next record. A :class:`ProgressRecord` replaces the one before."""
        self._time = max(self._time, record.time)
        match record:
            case ProgressRecord():
                self._progress = record
            case RunRecord():
                self._run = record
                self._storages = {storage.name: _LiveStorage(storage) for storage in record.storages}
                self._counts = {step: Counter() for step in record.steps}
            case StepRecord():
                self._hints[record.step] = record
            case EdgeRecord() if record.fallback is not None:
                self._fallbacks.setdefault(f"{record.output}: {record.fallback}")
            case EdgeRecord() if record.capio not in (None, SERVED):
                self._fallbacks.setdefault(f"{record.output}: not by CAPIO: {record.capio}")
            case FallbackRecord():
                without = "" if record.without is None else f"without {record.without}: "
                self._fallbacks.setdefault(f"{record.output or record.step}: {without}{record.reason}")
            case StreamedRecord():
                self._streamed += 1
                self._streamed_bytes += record.bytes
            case LocationRecord():
                self._locations.setdefault(record.location, _LiveLocation(record.location_cores))
            case QueuedRecord(waits=None):
                self._queued.pop(record.deployment, None)
            case QueuedRecord(waits=str(waits)):
                self._queued[record.deployment] = waits
            case RemovedRecord():
                self._disk = record
            case EndRecord():
                self._ended, self._status = record.time, record.status
            case JobRecord():
                self._follow(record)

    def view(self, now: float, is_alive: bool = True) -> RunView:
        """Return the state at a time.

        :param now: in seconds since the epoch
        :param is_alive: whether a process still writes the records
        """
        began = self._time if self._run is None else self._run.time
        until = self._ended if self._ended is not None else now if is_alive else self._time
        state: RunState = "running" if is_alive else "killed"
        if self._ended is not None:
            state = self._status or "ended"
        seconds = max(0.0, until - began)
        expected = self._last_seconds if state == "running" else None
        progress = self._progress if state == "running" else None
        return RunView(
            self._label,
            "" if self._run is None else self._run.workflow,
            state,
            began,
            seconds,
            expected if expected is not None and expected > seconds else None,
            tuple(self._step(name, progress) for name in self._counts),
            () if progress is None else tuple(_stream(stream, progress.time, now) for stream in progress.streams),
            0 if progress is None else progress.more,
            self._streamed,
            self._streamed_bytes,
            tuple(storage.view() for storage in self._storages.values()),
            tuple(self._failures)[:_SHOWN_FAILURES],
            tuple(self._fallbacks),
            self._disk,
            tuple(location.view(name) for name, location in sorted(self._locations.items())),
            dict(self._queued) if state == "running" else {},
        )

    def _follow(self, record: JobRecord) -> None:
        match record:
            case SubmittedRecord():
                self._failures.pop(record.job, None)
                self._to(record, "waiting")
            case StartedRecord():
                self._to(record, "running")
                self._leave(record.job)
                location = self._locations.setdefault(record.location, _LiveLocation())
                location.cores = record.location_cores or location.cores
                location.held[record.job] = record.cores or 0.0
                self._location_of[record.job] = record.location
            case AdmittedRecord(storage=str(name), constraint=constraint) if name in self._storages:
                storage = self._storages[name]
                storage.admitted[record.job] = constraint or 0.0
                storage.way = "read" if self._direction(record.step) == "read" else "write"
                self._storage_of[record.job] = name
            case EndedRecord():
                self._end(record)

    def _leave(self, job: str) -> None:
        if (location := self._location_of.pop(job, None)) is not None:
            del self._locations[location].held[job]

    def _end(self, record: EndedRecord) -> None:
        self._leave(record.job)
        match record.status:
            case "completed":
                self._to(record, "done")
            case "failed":
                self._to(record, "failed")
                self._failures.setdefault(record.job)
            case _:
                self._to(record, "cancelled")
        if (name := self._storage_of.pop(record.job, None)) is not None:
            self._storages[name].admitted.pop(record.job, None)

    def _direction(self, step: str) -> Literal["read", "write", "both"]:
        return self._hints[step].direction if step in self._hints else "write"

    def _to(self, record: JobRecord, state: _JobState) -> None:
        counts = self._counts.setdefault(record.step, Counter())
        if (before := self._jobs.get(record.job)) is not None:
            counts[before] -= 1
        self._jobs[record.job] = state
        counts[state] += 1

    def _step(self, name: str, progress: ProgressRecord | None) -> StepView:
        counts, hints = self._counts[name], self._hints.get(name)
        waits = {} if progress is None else progress.waiting.get(name, {})
        numbers = (counts["waiting"], counts["running"], counts["done"], counts["failed"])
        io_task = hints is not None and hints.io_task
        return StepView(name, *numbers, io_task, waits)


def _stream(stream: StreamProgress, told: float, now: float) -> StreamView:
    stalled = None if stream.rate != 0 else max(0.0, max(now, told) - stream.since)
    tag = stream.job.rpartition("/")[2]
    return StreamView(stream.output, stream.input, tag, stream.bytes, stream.rate, stream.waits, stalled)
