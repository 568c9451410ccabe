"""Epochs: jobs that run concurrently under one constraint, and what they tell of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from streamflow_io.hints.bandwidth import Bounds

from .observations import Group, Observation
from .storages import bytes_per_second

DOUBLE = 2.0


@dataclass(frozen=True)
class EpochEnded:
    """An epoch has ended. Epochs of one learning are told in the order of their constraints.

    :ivar concurrency: how many jobs fit at once
    :ivar jobs: how many the mean is of
    :ivar mean_seconds: none if no job succeeded
    :ivar job_bytes: of the job that the mean stands for, where bytes were measured
    :ivar uneven: its jobs differ in size
    :ivar location: where it was alone; none: on all locations, or nowhere
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


@dataclass(eq=False)
class Epoch:
    """The jobs that run concurrently under one constraint.

    :ivar full: there are as many jobs as fit at once: so many start together, and no others with them
    :ivar ground: where they do: a location, or `""` for wherever the step's jobs run; none: that is not known yet
    :ivar alone: other I/O tasks are kept away from there
    :ivar over: all its jobs have ended
    :ivar is_climb: it lets more jobs run at once than any epoch before
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
    members: set[str] = field(default_factory=set)
    _ended: list[tuple[Observation, float, int]] = field(default_factory=list)
    _measured: Group = field(default_factory=Group)

    @property
    def is_on(self) -> bool:
        """Whether it is full, and not over."""
        return self.full and not self.over

    @property
    def lacks(self) -> int:
        """How many jobs it has still to start."""
        return max(0, self.concurrency - self.admitted) if self.is_on else 0

    def add(self, observation: Observation, mean: float, concurrency: int) -> None:
        """One of its jobs has succeeded.

        :param mean: how many ran on average while it did
        :param concurrency: the most that were seen to run at once
        """
        self._ended.append((observation, mean, concurrency))
        self._measured.add(observation, concurrency)

    @property
    def overlaps(self) -> bool:
        """Whether its jobs have run together, as the constraint lets them; none of which has ended before others began.

        Otherwise the storage is not what they wait for, and their time is that of a job with few others.
        """
        means = [mean for _, mean, _ in self._ended]
        return not means or 2 * (sum(means) / len(means) - 1) >= self.concurrency - 1

    @property
    def group(self) -> Group:
        """What its jobs took, or would have taken, had as many run as fit at once all the time that they ran.

        Jobs that come one by one do not start together; those that differ in size do not end together. The storage is
        taken as saturated: what fewer jobs had to share, each had more of. (It is what T(n, c) needs: jobs by time.)
        """
        # An epoch that is not full may have any number of jobs, and is looked at for each of them.
        if not self.full or not self.overlaps:
            return self._measured
        group = Group()
        for observation, mean, concurrency in self._ended:
            factor = max(1.0, self.concurrency / mean)
            group.add(replace(observation, seconds=observation.seconds * factor), concurrency)
        return group


@dataclass(frozen=True)
class Grid:
    """The constraints that can be tried.

    :ivar bandwidth: of the storage, MB/s
    :ivar executors: the most jobs that may run at once
    :ivar bounds: of `auto(min,max,delta)`; none: `auto`
    :ivar first: how many jobs run at once in the first epoch of `auto`; 0: as many as there are executors
    """

    bandwidth: float
    executors: int
    bounds: Bounds | None
    first: int = 0

    def concurrency(self, constraint: float) -> int:
        """How many jobs run at once under a constraint."""
        return min(self.executors, bytes_per_second(self.bandwidth) // bytes_per_second(constraint))

    def growing(self, above: float = 0.0) -> Iterator[float]:
        """Those above one, in ascending order; none that lets as many jobs run at once as the one before."""
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
        """Those of `auto` below the first one, in descending order; the last lets all executors run."""
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
        # Rounded down to what the ledger counts in: so many jobs do fit then.
        return max(1, bytes_per_second(self.bandwidth) // concurrency) / bytes_per_second(1)

    def neighbours(self, constraint: float) -> Sequence[float]:
        """The next lower and the next higher one."""
        grid = list(self.growing())
        nearest = min(range(len(grid)), key=lambda index: abs(grid[index] - constraint))
        return [*grid[max(nearest - 1, 0) : nearest], *grid[nearest + 1 : nearest + 2]]
