"""The learner: finds the storageBW of a step's jobs while they run. Pure.

H. Elshazly et al., "Towards enabling I/O awareness in task-based programming models" (2021), 4.2.3: epochs of jobs
that run concurrently under one constraint; the constraint grows from epoch to epoch; the mean times go into a
constraint registry, over which an objective function chooses. Beyond the paper: times proportional to bytes, registries
that are remembered, and learning that is re-opened when the storage drifts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from streamflow_io.hints.bandwidth import Bounds

from .objective import best_constraint, estimates
from .observations import Crowd, Group, Observation
from .registry import ConstraintRegistry, RegisteredConstraint
from .storages import bytes_per_second

Reason = Literal["first", "learning", "learned", "remembered", "objective", "contradicted", "drifted"]

DOUBLE = 2.0
# Remembered times that are wrong by more than this factor are forgotten.
CONTRADICTION = 2.0
# A mean time that departs from the registered one by more than this part re-opens learning.
DRIFT = 0.5
# So many jobs tell whether what is remembered still holds; one alone may be an exception.
_FIRST_JOBS = 8


@dataclass(frozen=True)
class EpochEnded:
    """An epoch has ended.

    :ivar concurrency: how many jobs fit at once
    :ivar jobs: how many the mean is of
    :ivar mean_seconds: none if no job succeeded
    :ivar job_bytes: of the job that the mean stands for, where bytes were measured
    :ivar uneven: its jobs differ in size
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


@dataclass(frozen=True)
class Chosen:
    """The constraint is another one from now on.

    :ivar outstanding: jobs that run, wait, or are about to be submitted
    :ivar estimates: seconds until all of them have ended, by registered constraint
    """

    constraint: float
    reason: Reason
    outstanding: int
    estimates: dict[float, float]


@dataclass
class _Running:
    """:ivar concurrency: how many ran with it when it started
    :ivar job_seconds: of its location, when it started
    """

    constraint: float
    location: str
    started: float
    concurrency: int
    job_seconds: float


@dataclass
class _Epoch:
    """The jobs that run concurrently under one constraint.

    :ivar full: there are as many jobs as fit at once: when those that run have ended, so many start, and no others
    """

    number: int
    constraint: float
    concurrency: int
    full: bool = False
    started: float | None = None
    admitted: int = 0
    members: set[str] = field(default_factory=set)
    group: Group = field(default_factory=Group)

    def of_a_full_group(self, observation: Observation, mean: float) -> Observation:
        """What a job would have taken, had as many run as fit at once all the time that it ran.

        Jobs that come one by one do not start together; those that differ in size do not end together. The storage is
        taken as saturated: what fewer jobs had to share, each had more of. (It is what T(n, c) needs: jobs by time.)

        :param mean: how many ran on average
        """
        if not self.full:
            return observation
        return replace(observation, seconds=observation.seconds * max(1.0, self.concurrency / mean))


class Learner:
    """The constraint of one step's jobs on one storage.

    Tell it of every job: :meth:`submitted`, then :meth:`started` and :meth:`ended`, or :meth:`withdrawn`. Before a job
    starts, ask :meth:`may_start`, and take :attr:`constraint`.

    As long as fewer jobs are outstanding than fit at once, they run, and nothing is learned: the storage is not what
    they wait for. When there are enough, the epoch is full and nothing should disturb it (:attr:`is_exclusive`). If
    no more jobs come than there were, the epoch ends with those.

    :param bandwidth: of the storage, MB/s
    :param executors: the most jobs that may run at once
    :param bounds: of `auto(min,max,delta)`; none: `auto`
    :param remembered: what was learned in earlier runs
    """

    def __init__(
        self,
        bandwidth: float,
        executors: int,
        bounds: Bounds | None = None,
        remembered: ConstraintRegistry | None = None,
    ) -> None:
        self._bandwidth = bandwidth
        self._executors = executors
        self._bounds = bounds
        self._waiting = 0
        self._ready = 0
        self._spread = 1
        self._running: dict[str, _Running] = {}
        self._crowds: defaultdict[str, Crowd] = defaultdict(Crowd)
        self._events: list[EpochEnded | Chosen] = []
        self._epoch: _Epoch | None = None
        self._plan: Iterator[float] = iter(())
        self._reopened = False
        self._group = Group()
        self._current = 0.0
        self.registry = self._usable(remembered) if remembered else ConstraintRegistry()
        self._unproven = bool(self.registry)
        if self.registry:
            self._set(best_constraint(1, self.registry), "remembered")
        else:
            self._learn("first")

    @property
    def is_learning(self) -> bool:
        return self._epoch is not None

    @property
    def is_exclusive(self) -> bool:
        """Whether a full epoch is on: other I/O tasks would disturb it."""
        return self._epoch is not None and self._epoch.full

    @property
    def outstanding(self) -> int:
        """Jobs that run, wait, or are about to be submitted."""
        return self._left + len(self._running)

    @property
    def _share(self) -> int:
        """How many of these jobs are for one location."""
        return -(-self.outstanding // self._spread)

    @property
    def _left(self) -> int:
        return self._waiting + self._ready

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def constraint(self) -> float:
        """The storageBW of the next job, MB/s."""
        return self._current

    def may_start(self) -> bool:
        """Whether a job may start now, as far as the epoch is concerned."""
        epoch = self._epoch
        if epoch is None:
            return True
        # What still runs under an earlier constraint would be measured, too.
        return len(self._running) == len(epoch.members) and (not epoch.full or epoch.admitted < epoch.concurrency)

    def submitted(self, now: float, ready: int = 0, spread: int = 1) -> None:
        """One more job waits.

        :param ready: how many jobs more will be submitted when this one has started
        :param spread: over how many locations the jobs are spread, each with a bandwidth of its own
        """
        self._waiting += 1
        self._ready = ready
        self._spread = spread
        self._fill(now)
        if self._epoch is None:
            self._set(best_constraint(self._share, self.registry), "objective")

    def expect(self, ready: int) -> None:
        """So many jobs more will be submitted when the one that waits has started."""
        self._ready = ready

    def withdrawn(self, now: float) -> None:
        """A job that waited will not start."""
        self._waiting -= 1
        self._end_epoch(now)

    def started(self, job: str, now: float, location: str = "") -> None:
        """A job that waited has started.

        :param location: whose bandwidth it uses; of a storage that all locations share, always the same
        """
        self._waiting -= 1
        crowd = self._crowds[location]
        job_seconds = crowd.enter(now)
        self._running[job] = _Running(self._current, location, now, crowd.running, job_seconds)
        if self._epoch is not None:
            self._epoch.admitted += 1
            self._epoch.members.add(job)

    def no_more(self, now: float) -> None:
        """No further job will be submitted."""
        self._ready = 0
        self._end_epoch(now, no_more=True)

    def ended(self, job: str, observation: Observation | None, now: float) -> None:
        """A job has ended.

        :param observation: none if it failed: it does not count
        """
        ended = self._running.pop(job)
        crowd = self._crowds[ended.location]
        concurrency = max(ended.concurrency, crowd.running)
        mean = crowd.leave(now, ended.started, ended.job_seconds)
        if (epoch := self._epoch) is not None:
            if job in epoch.members:
                epoch.members.remove(job)
                if observation is not None:
                    epoch.group.add(epoch.of_a_full_group(observation, mean), concurrency)
            self._end_epoch(now)
        elif observation is not None and ended.constraint == self._current:
            self._group.add(observation, concurrency)
            self._compare(now)

    def drain(self) -> list[EpochEnded | Chosen]:
        """What has happened since the last call."""
        events, self._events = self._events, []
        return events

    # Epochs

    def _concurrency(self, constraint: float) -> int:
        return min(self._executors, bytes_per_second(self._bandwidth) // bytes_per_second(constraint))

    def _growing(self) -> Iterator[float]:
        """The constraints to try; none that lets as many jobs run at once as the one before."""
        # Rounded down to what the ledger counts in: so many executors do fit then.
        first = max(1, bytes_per_second(self._bandwidth) // self._executors) / bytes_per_second(1)
        maximum, delta = self._bandwidth, DOUBLE
        if self._bounds is not None:
            first, delta = self._bounds.minimum, self._bounds.delta
            maximum = min(maximum, self._bounds.maximum)
        constraint, before = first, 0
        while bytes_per_second(constraint) <= bytes_per_second(maximum):
            concurrency = self._concurrency(constraint)
            if concurrency != before:
                yield constraint
            constraint, before = constraint * delta, concurrency

    def _learn(self, reason: Reason) -> None:
        self.registry = ConstraintRegistry()
        self._start(self._growing(), reason)

    def _reopen(self, constraint: float) -> None:
        """Learn again at the neighbours of a constraint only."""
        grid = list(self._growing())
        place = min(range(len(grid)), key=lambda index: abs(grid[index] - constraint))
        self._reopened = True
        self._start(iter([*grid[max(place - 1, 0) : place], *grid[place + 1 : place + 2]]), "drifted")

    def _start(self, plan: Iterator[float], reason: Reason) -> None:
        self._plan = plan
        self._next(1, reason)

    def _next(self, number: int, reason: Reason) -> None:
        constraint = next(self._plan, None)
        if constraint is None:
            self._end_learning()
            return
        self._epoch = _Epoch(number, constraint, self._concurrency(constraint))
        self._set(constraint, reason)

    def _fill(self, now: float) -> None:
        epoch = self._epoch
        if epoch is None or epoch.full or self._left + len(epoch.members) < epoch.concurrency:
            return
        # Those that run started one by one, when fewer ran: they end first, uncounted. Then all start at once.
        self._epoch = _Epoch(epoch.number, epoch.constraint, epoch.concurrency, full=True, started=now)

    def _end_epoch(self, now: float, no_more: bool = False) -> None:
        """End the epoch if all its jobs have ended, and begin the next one."""
        epoch = self._epoch
        if epoch is None or epoch.members:
            return
        if not epoch.admitted:
            epoch.full = epoch.full and (self._left > 0 or bool(self._running))
            return
        complete = epoch.full and epoch.admitted >= epoch.concurrency
        if complete or (self._left == 0 and (epoch.full or no_more)):
            self._evaluate(epoch, now)
            self._fill(now)

    def _evaluate(self, epoch: _Epoch, now: float) -> None:
        group = epoch.group
        if not self.registry:
            self.registry = replace(self.registry, job_bytes=group.job_bytes)
        mean = group.seconds(self.registry.job_bytes)
        # Fewer than half of what fits at once have not seen the storage as a full epoch does.
        at_once = len(group) if epoch.full else min(len(group), group.concurrency)
        enough = mean is not None and 2 * at_once >= epoch.concurrency
        last = self.registry.entries[-1].seconds if self.registry and not self._reopened else None
        stop = mean is not None and self._bounds is None and last is not None and mean > last / 2
        if mean is not None and enough and not stop:
            entry = RegisteredConstraint(epoch.constraint, mean, epoch.concurrency, len(group))
            self.registry = self.registry.register(entry)
        self._events.append(
            EpochEnded(
                number=epoch.number,
                constraint=epoch.constraint,
                concurrency=epoch.concurrency,
                jobs=len(group),
                mean_seconds=mean,
                job_bytes=self.registry.job_bytes,
                uneven=group.is_uneven,
                registered=enough and not stop,
                started=now if epoch.started is None else epoch.started,
            )
        )
        if not enough:
            self._epoch = _Epoch(epoch.number, epoch.constraint, epoch.concurrency)
        elif stop:
            self._end_learning()
        else:
            self._next(epoch.number + 1, "learning")

    def _end_learning(self) -> None:
        self._epoch = None
        self._reopened = False
        self._group = Group()
        self._set(best_constraint(self._share, self.registry), "learned")

    # With a registry

    def _usable(self, registry: ConstraintRegistry) -> ConstraintRegistry:
        """What holds for this bandwidth and so many executors."""
        entries = (replace(entry, concurrency=self._concurrency(entry.constraint)) for entry in registry.entries)
        return replace(registry, entries=tuple(entry for entry in entries if entry.concurrency > 0))

    def _compare(self, now: float) -> None:
        """Compare the last group with what is registered of it."""
        entry = self.registry.get(self._current)
        assert entry is not None, "without an epoch the constraint is a registered one"
        if len(self._group) < (min(entry.concurrency, _FIRST_JOBS) if self._unproven else entry.concurrency):
            return
        group, self._group = self._group, Group()
        mean = group.seconds(self.registry.job_bytes)
        assert mean is not None
        # With fewer at once than fit, jobs may be faster than registered, and that says nothing.
        expected = self.registry.seconds_at(group.concurrency)
        whole = group.concurrency >= entry.concurrency
        unproven, self._unproven = self._unproven, False
        if unproven:
            if mean > expected * CONTRADICTION or (whole and mean < expected / CONTRADICTION):
                self._learn("contradicted")
        elif mean > expected * (1 + DRIFT) or (whole and mean < expected * (1 - DRIFT)):
            # What is far away has probably drifted as far; what is near is learned again.
            self.registry = self.registry.scaled(mean / expected, self.registry.constraints)
            self._reopen(entry.constraint)
        self._fill(now)

    def _set(self, constraint: float, reason: Reason) -> None:
        if constraint == self._current and reason == "objective":
            return
        self._current = constraint
        self._group = Group()
        times = estimates(max(self._share, 1), self.registry)
        self._events.append(Chosen(constraint, reason, self.outstanding, times))
