"""Epochs: jobs that run concurrently under one constraint, and the times that they show for it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from streamflow_io.hints.bandwidth import Bounds

from .demand import bytes_per_second

_UNEVEN = 1.1
# The bytes of a job that moves less are mostly logs and the like, so they do not explain its time.
_LEAST_BYTES = 1_000_000
# Shorter jobs count as equal: their time is mostly the start of processes, and the driver does not start them faster.
_LEAST_SECONDS = 0.25


class Observation(Struct, frozen=True):
    """The time and bytes of a job that succeeded.

    :ivar bytes: bytes moved in the direction of the constraint. None or less than 1 MB: the time is taken as it is
    :ivar is_disturbed: a run or program that this run does not know has used the storage meanwhile
    """

    seconds: float
    bytes: float | None = None
    is_disturbed: bool = False


class Group:
    """The observations of jobs that ran under one constraint.

    :ivar concurrency: the most jobs that were seen to run at once
    """

    def __init__(self) -> None:
        self._observations: list[Observation] = []
        self._seconds = 0.0
        self._bytes: float | None = 0.0
        self.concurrency = 0

    def __len__(self) -> int:
        return len(self._observations)

    def add(self, observation: Observation, concurrency: int) -> None:
        self._observations.append(observation)
        self._seconds += observation.seconds
        # The sum is of no use unless all jobs are measured.
        size = observation.bytes or 0
        self._bytes = self._bytes + size if self._bytes is not None and size >= _LEAST_BYTES else None
        self.concurrency = max(self.concurrency, concurrency)

    @property
    def job_bytes(self) -> float | None:
        """The mean bytes of a job. None: some job was not measured."""
        return self._bytes / len(self) if self._bytes else None

    @property
    def is_uneven(self) -> bool:
        """Whether jobs are known to differ in size."""
        sizes = self._sizes()
        return bool(sizes) and max(sizes) > _UNEVEN * min(sizes)

    def seconds(self, job_bytes: float | None) -> float | None:
        """Return the mean time of a job. Where bytes were measured, scale it to a job of `job_bytes`.

        At least 0.25 s. None for an empty group.
        """
        if not self._observations:
            return None
        mean = max(self._seconds / len(self), _LEAST_SECONDS)
        mine = self.job_bytes
        return mean * job_bytes / mine if job_bytes and mine else mean

    def without_slowest(self) -> Group:
        """Return the group without the slowest job, by bytes where they were measured. A single job stays."""
        sizes = self._sizes()
        pace = [
            observation.seconds / (sizes[index] if sizes else 1.0)
            for index, observation in enumerate(self._observations)
        ]
        rest = Group()
        slowest = pace.index(max(pace)) if len(pace) > 1 else None
        for index, one in enumerate(self._observations):
            if index != slowest:
                rest.add(one, self.concurrency)
        return rest

    def _sizes(self) -> list[float]:
        sizes = [size for one in self._observations if (size := one.bytes or 0) >= _LEAST_BYTES]
        return sizes if len(sizes) == len(self._observations) else []


class Crowd:
    """How many jobs run at once on one location, and how many did on average while a job ran.

    :ivar running: how many run now
    """

    def __init__(self) -> None:
        self.running = 0
        self._job_seconds = 0.0
        self._now = 0.0

    def job_seconds(self, now: float) -> float:
        """Return the integral of the number of jobs over time.

        The mean number is the growth of this integral divided by the elapsed time.
        """
        self._job_seconds += self.running * max(0.0, now - self._now)
        self._now = now
        return self._job_seconds

    def enter(self, now: float) -> float:
        """Count one more job, and return :meth:`job_seconds`."""
        before = self.job_seconds(now)
        self.running += 1
        return before

    def leave(self, now: float, entered: float, job_seconds: float) -> float:
        """Count one job less, and return how many jobs ran on average since it entered, itself included.

        :param job_seconds: what :meth:`enter` returned at the time `entered`
        """
        grown = self.job_seconds(now) - job_seconds
        mean = grown / (now - entered) if now > entered else float(self.running)
        self.running -= 1
        return mean


DOUBLE = 2.0


class EpochEnded(Struct, frozen=True):
    """The result of an epoch. The epochs of one learning are reported in the order of their constraints.

    :ivar concurrency: how many jobs fit at once
    :ivar jobs: how many jobs the mean covers
    :ivar mean_seconds: mean time of a job. None: no job succeeded
    :ivar job_bytes: size of the job that the mean stands for. None: bytes were not measured
    :ivar uneven: the jobs differ in size
    :ivar registered: the mean is in the constraint registry
    :ivar location: where the epoch was alone. None: on all locations, or nowhere
    """

    number: int
    constraint: float
    concurrency: int
    jobs: int
    mean_seconds: float | None
    job_bytes: float | None
    uneven: bool
    registered: bool
    started: float
    location: str | None = None


class Epoch(Struct, eq=False):
    """The jobs that run concurrently under one constraint.

    :ivar full: enough jobs are there. As many as fit at once start together, and no other job with them
    :ivar location: where the jobs of a full epoch start: a location, or `""` for any location of the step. None: the
        epoch waits for a location
    :ivar alone: other I/O tasks are kept away from the location
    :ivar over: all jobs of the epoch have ended
    :ivar is_climb: more jobs run at once than in any epoch before
    """

    number: int
    constraint: float
    concurrency: int
    is_climb: bool = False
    full: bool = False
    location: str | None = None
    started: float | None = None
    admitted: int = 0
    alone: bool = False
    over: bool = False
    members: set[Hashable] = field(default_factory=set)
    _ended: list[tuple[Observation, float, int]] = field(default_factory=list)
    _measured: Group = field(default_factory=Group)

    @property
    def is_on(self) -> bool:
        """Whether the epoch is full and not over."""
        return self.full and not self.over

    @property
    def lacks(self) -> int:
        """How many jobs have still to start."""
        return max(0, self.concurrency - self.admitted) if self.is_on else 0

    def add(self, observation: Observation, mean: float, concurrency: int) -> None:
        """Add the observation of a job that succeeded.

        :param mean: how many jobs ran on average while the job ran
        :param concurrency: the most jobs that were seen to run at once
        """
        self._ended.append((observation, mean, concurrency))
        self._measured.add(observation, concurrency)

    @property
    def overlaps(self) -> bool:
        """Whether the jobs have run together, as the constraint allows, without one ending before others began.

        Otherwise the storage does not limit these jobs, and their time is the time of a job with few others.
        """
        means = [mean for _, mean, _ in self._ended]
        return not means or 2 * (sum(means) / len(means) - 1) >= self.concurrency - 1

    @property
    def group(self) -> Group:
        """The observations of the jobs, scaled as if a full epoch had run during all of each job's time.

        Jobs that arrive one by one do not start together, and jobs that differ in size do not end together. The storage
        is taken as saturated: jobs that ran with fewer others had a larger share of the bandwidth. T(n, c) needs this
        group, which is the number of jobs by time.
        """
        # An epoch that is not full may have any number of jobs, and this property is read for each of them.
        if not self.full or not self.overlaps:
            return self._measured
        group = Group()
        for observation, mean, concurrency in self._ended:
            factor = max(1.0, self.concurrency / mean)
            group.add(replace(observation, seconds=observation.seconds * factor), concurrency)
        return group


class Grid(Struct, frozen=True):
    """The constraints that can be tried.

    :ivar bandwidth: bandwidth of the storage, in MB/s
    :ivar executors: the most jobs that may run at once
    :ivar bounds: the bounds of `auto(min,max,delta)`. None: `auto`
    :ivar first: how many jobs run at once in the first epoch of `auto`. 0: as many as there are executors
    """

    bandwidth: float
    executors: int
    bounds: Bounds | None
    first: int = 0

    def concurrency(self, constraint: float) -> int:
        """Return how many jobs run at once under a constraint."""
        return min(self.executors, bytes_per_second(self.bandwidth) // bytes_per_second(constraint))

    def growing(self, above: float = 0.0) -> Iterator[float]:
        """Yield the constraints above a value, ascending. Each lets fewer jobs run at once than the one before."""
        yield from (constraint for constraint in reversed(self.climb()) if constraint > above)
        constraint, maximum, delta = self._first(), self.bandwidth, DOUBLE
        if self.bounds is not None:
            delta, maximum = self.bounds.delta, min(maximum, self.bounds.maximum)
        before = 0
        while bytes_per_second(constraint) <= bytes_per_second(maximum):
            concurrency = self.concurrency(constraint)
            if concurrency != before and constraint > above:
                yield constraint
            constraint, before = constraint * delta, concurrency

    def climb(self) -> Sequence[float]:
        """Return the constraints of `auto` below the first one, highest first. The last lets all executors run."""
        first = min(self.first or self.executors, self.executors)
        if self.bounds is not None or first == self.executors:
            return ()
        found, concurrency = list[float](), 2 * first
        while 3 * concurrency <= 2 * self.executors:
            found.append(self._share(concurrency))
            concurrency *= 2
        return [*found, self._share(self.executors)]

    def _first(self) -> float:
        if self.bounds is not None:
            return self.bounds.minimum
        return self._share(min(self.first or self.executors, self.executors))

    def _share(self, concurrency: int) -> float:
        # Round down to the unit of the ledger, so that `concurrency` jobs do fit.
        return max(1, bytes_per_second(self.bandwidth) // concurrency) / bytes_per_second(1)
