"""The writes of compute jobs: bursts, which node runtimes report. They are measured and predicted, and never limited.

A job waits for its own writes. So its bursts are exposed requests, of a channel of their own. A job that writes in a
rhythm is expected to go on, and its mean bandwidth is not left for others.

FTIO finds a period in the spectrum of the sum of all channels. No spectrum is needed where the channels are known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from statistics import median

from msgspec import Struct, field
from msgspec.structs import replace
from streamflow.core.workflow import Status

from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.hints.models import Way
from streamflow_io.records.records import Record, RequestRecord
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import Event, JobSpec, PhaseEvent
from streamflow_io.runtime.wire import with_observation
from streamflow_io.storage.admission.demand import Capacity, StoragePlace
from streamflow_io.storage.storages import Storages

# Fewer times have no rhythm.
_LEAST_TIMES = 4
# The most deviation, in periods, that counts as regular.
_MOST_DEVIATION = 0.15
# The standard deviation of a normal distribution is this many times its median absolute deviation.
_NORMAL = 1.48


def period(starts: Iterable[float]) -> float | None:
    """Return the seconds from one of some times to the next. None: the times have no rhythm, or are too few."""
    times = sorted(starts)
    if len(times) < _LEAST_TIMES:
        return None
    periods = [later - earlier for earlier, later in pairwise(times)]
    found = median(periods)
    deviation = _NORMAL * median(abs(one - found) for one in periods)
    return found if found > 0 and deviation <= _MOST_DEVIATION * found else None


class Written(Struct, frozen=True):
    """A burst that a job has written.

    :ivar start: when the first byte was written, as far as could be seen
    :ivar last: when the last byte was written, as far as could be seen
    """

    start: float
    last: float
    bytes: int


class WriteBursts(Struct, eq=False):
    """The bursts of one attempt of a job. The listener keeps them with the job.

    :ivar storage: the storage of its output directory. None: unknown
    :ivar holds: the job holds bandwidth of its storage already
    """

    job: str
    step: str
    storage: str | None
    location: str
    holds: bool = False
    bursts: list[Written] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """Bytes per second that the job is expected to go on writing. 0: no rhythm, or the job holds bandwidth."""
        seconds = period(burst.start for burst in self.bursts)
        if self.holds or seconds is None:
            return 0.0
        return median(burst.bytes for burst in self.bursts) / seconds

    def records(self, now: float) -> Iterator[RequestRecord]:
        """The bursts as requests."""
        for number, burst in enumerate(self.bursts):
            yield RequestRecord(
                time=now,
                job=self.job,
                step=self.step,
                channel=self.job,
                phase=number,
                kind="write",
                storage=self.storage,
                direction="write",
                bytes=burst.bytes,
                ready=burst.start,
                started=burst.start,
                ended=burst.last,
                required=burst.start,
                rule="exposed",
            )


class WriteChannels(Listener):
    """The compute jobs of a run under node runtimes.

    :param storages: the storages of the config
    :param record: keeps a record for telemetry
    """

    def __init__(self, storages: Storages, record: Callable[[Record], None]) -> None:
        self._storages = storages
        self._record = record
        # The attempts that run; an ordered set.
        self._running: dict[WriteBursts, None] = {}

    def starting(self, job: JobState, spec: JobSpec, runtime: NodeRuntime) -> JobSpec:
        """Request reports of the bursts in which the job writes, if the job computes."""
        if job.is_io_task:
            return spec
        directory = str(job.job.output_directory)
        storage = self._storages.of(None, job.target, directory)
        holds = job.hints is not None and job.hints.storage_bandwidth is not None
        self._end(job)
        bursts = WriteBursts(job.name, job.step, None if storage is None else storage.name, job.location.name, holds)
        job.keep(bursts)
        self._running[bursts] = None
        return with_observation(spec, writes=directory)

    def event(self, job: JobState, event: Event) -> None:
        if isinstance(event, PhaseEvent) and (bursts := job.kept(WriteBursts)) is not None:
            # Clocks of hosts differ, and reports come a moment later.
            later = time.time() - event.time
            bursts.bursts.append(Written(event.start + later, event.last + later, event.bytes))

    def ended(self, job: JobState) -> None:
        """Record what the job has written, if the job has succeeded."""
        if (bursts := self._end(job)) is not None and job.status is Status.COMPLETED:
            for record in bursts.records(time.time()):
                self._record(record)

    def left(self, capacity: Capacity | None, place: StoragePlace, way: Way) -> Capacity | None:
        """Return the capacity of a storage that is left for others, without what jobs write there in a rhythm."""
        if capacity is None or way == "read":
            return capacity
        expected = sum(
            one.mean
            for one in self._running
            if one.storage == place.storage and (capacity.is_shared or one.location == place.location)
        )
        return replace(capacity, bandwidth=max(0.0, capacity.bandwidth - expected))

    def _end(self, job: JobState) -> WriteBursts | None:
        """End an attempt of a job, if there is one."""
        if (bursts := job.drop(WriteBursts)) is not None:
            del self._running[bursts]
        return bursts
