"""Epochs: jobs that run concurrently under one constraint, and the times that they show for it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from streamflow_io.hints.bandwidth import Bounds

from .observations import Group, Observation
from .storages import bytes_per_second

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
    :ivar ground: where the jobs of a full epoch start: a location, or `""` for any location of the step. None: the
        epoch waits for a ground
    :ivar alone: other I/O tasks are kept away from the ground
    :ivar over: all jobs of the epoch have ended
    :ivar is_climb: more jobs run at once than in any epoch before
    """

    number: int
    constraint: float
    concurrency: int
    is_climb: bool = False
    full: bool = False
    ground: str | None = None
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
