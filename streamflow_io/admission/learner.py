"""The learner: finds the storageBW of a tool's jobs while they run. Pure.

H. Elshazly et al., "Towards enabling I/O awareness in task-based programming models" (2021), 4.2.3: epochs of jobs
that run concurrently under one constraint; the constraint grows from epoch to epoch; the mean times go into a
constraint registry, over which an objective function chooses. Beyond the paper: epochs of several locations at the same
time, times proportional to bytes, registries that are remembered, and learning that is re-opened when the storage
drifts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from streamflow_io.hints.bandwidth import Bounds

from .epochs import Epoch, EpochEnded, Grid
from .objective import best_constraint, estimates
from .observations import Crowd, Group, Observation
from .registry import ConstraintRegistry, RegisteredConstraint

Reason = Literal["first", "learning", "learned", "remembered", "objective", "contradicted", "drifted"]

# Remembered times that are wrong by more than this factor are forgotten.
CONTRADICTION = 2.0
# A mean time that departs from the registered one by more than this part re-opens learning.
DRIFT = 0.5
# So many jobs tell whether what is remembered still holds; fewer than the least tell nothing: one may be an exception.
_FIRST_JOBS, _LEAST_JOBS = 8, 3


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


@dataclass(frozen=True)
class Turn:
    """How the next job may start.

    :ivar constraint: its storageBW, MB/s
    :ivar epoch: whose job it is then; none: of no epoch
    :ivar location: where it has to run; none: anywhere, if the epoch is full, else where no other job is kept out
    """

    constraint: float
    epoch: Epoch | None = None
    location: str | None = None

    @property
    def is_alone(self) -> bool:
        """Whether it is of a full epoch from which others are kept away."""
        return self.epoch is not None and self.epoch.full and self.epoch.alone


@dataclass
class _Running:
    """:ivar concurrency: how many ran with it when it started
    :ivar job_seconds: of its location, when it started
    """

    turn: Turn
    location: str
    started: float
    concurrency: int
    job_seconds: float


class Learner:
    """The constraint of one tool's jobs on one storage.

    Tell it of every job: :meth:`submitted`, then :meth:`started` and :meth:`ended`, or :meth:`withdrawn`. A job starts
    by one of the :meth:`turns`.

    As long as fewer jobs are outstanding than fit at once on all locations, they run anywhere, and nothing is learned:
    the storage is not what they wait for. When there are enough, the epoch is full and nothing should disturb it
    (:attr:`is_exclusive`). If no more jobs come than there were, the epoch ends with those. Where each location has a
    storage of its own, several epochs are on at the same time, each on another location; what is registered is the same
    as if they had been one after the other.

    :param bandwidth: of the storage, MB/s
    :param executors: the most jobs that may run at once
    :param bounds: of `auto(min,max,delta)`; none: `auto`
    :param remembered: what was learned in earlier runs; if that is not complete, learning goes on where it ended
    """

    def __init__(
        self,
        bandwidth: float,
        executors: int,
        bounds: Bounds | None = None,
        remembered: ConstraintRegistry | None = None,
    ) -> None:
        self._grid = Grid(bandwidth, executors, bounds)
        self._waiting = 0
        self._ready = 0
        self._spread = 1
        self._places = 0
        self._running: dict[str, _Running] = {}
        self._crowds: defaultdict[str, Crowd] = defaultdict(Crowd)
        self._events: list[EpochEnded | Chosen] = []
        # Those that are open, or not evaluated because one before is open, in the order of the plan.
        self._epochs: list[Epoch] = []
        # What is registered, and what epochs tell that are over but not evaluated.
        self._known = ConstraintRegistry()
        self._plan: Iterator[float] = iter(())
        self._last_number = 0
        self._reopened = False
        self._group = Group()
        self._current = 0.0
        self.registry = self._usable(remembered) if remembered else ConstraintRegistry()
        self._unproven = bool(self.registry)
        if self.registry.is_complete and self.registry:
            self._set(best_constraint(1, self.registry), "remembered")
        elif self.registry:
            self._last_number = len(self.registry.entries)
            self._start(self._grid.growing(above=self.registry.constraints[-1]), "remembered")
        else:
            self._learn("first")

    @property
    def is_learning(self) -> bool:
        return bool(self._epochs)

    @property
    def is_exclusive(self) -> bool:
        """Whether a full epoch is on: other I/O tasks would disturb it."""
        return any(epoch.is_on for epoch in self._epochs)

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
        """The storageBW of the next job, MB/s; if none may start now, that of the last one."""
        turn = next(self.turns(), None)
        return self._current if turn is None else turn.constraint

    def may_start(self) -> bool:
        """Whether a job may start now somewhere, as far as epochs are concerned."""
        return next(self.turns(), None) is not None

    def turns(self) -> Iterator[Turn]:
        """How the next job may start, the best way first; there may be no way now."""
        if not self._epochs:
            yield Turn(self._current)
            return
        for epoch in self._epochs:
            if epoch.is_on and epoch.lacks and epoch.ground is not None and self._is_alone(epoch, epoch.ground):
                yield Turn(epoch.constraint, epoch, epoch.ground or None)
        if (free := self._free_turn()) is not None:
            yield free

    def unplaced(self) -> Iterator[Epoch]:
        """Full epochs that have no ground yet: somebody has to give them one, and to keep others away from it."""
        return (epoch for epoch in self._epochs if epoch.is_on and epoch.ground is None)

    def holds(self, epoch: Epoch) -> bool:
        """Whether an epoch still is full, and needs its ground."""
        return epoch.is_on and epoch in self._epochs

    def submitted(self, now: float, ready: int = 0) -> None:
        """One more job waits.

        :param ready: how many jobs more will be submitted when this one has started
        """
        self._waiting += 1
        self._ready = ready
        self._fill(now)
        if not self._epochs:
            self._set(best_constraint(self._share, self.registry), "objective")

    def expect(self, ready: int) -> None:
        """So many jobs more will be submitted when the one that waits has started."""
        self._ready = ready

    def resized(self, executors: int, spread: int = 1, places: int = 0) -> None:
        """The locations of the jobs are others than before.

        :param executors: the most jobs that may run at once
        :param spread: over how many locations the jobs are spread, each with a bandwidth of its own
        :param places: how many epochs may be on at the same time, each on a ground that it is given; 0: one, which
            needs no ground
        """
        self._grid = replace(self._grid, executors=executors)
        self._spread = spread
        self._places = places
        if self.registry.is_complete:
            self.registry = self._usable(self.registry)

    def withdrawn(self, now: float) -> None:
        """A job that waited will not start."""
        self._waiting -= 1
        self._settle(now)

    def started(self, job: str, now: float, location: str = "", turn: Turn | None = None) -> None:
        """A job that waited has started.

        :param location: whose bandwidth it uses; of a storage that all locations share, always the same
        :param turn: how; none: by the first of the turns
        """
        turn = turn or next(self.turns(), Turn(self._current))
        self._waiting -= 1
        crowd = self._crowds[location]
        job_seconds = crowd.enter(now)
        self._running[job] = _Running(turn, location, now, crowd.running, job_seconds)
        if turn.epoch is not None:
            turn.epoch.admitted += 1
            turn.epoch.members.add(job)

    def returned(self, job: str, now: float) -> None:
        """A job has not started after all, and waits again."""
        returned = self._running.pop(job)
        self._crowds[returned.location].leave(now, returned.started, returned.job_seconds)
        self._waiting += 1
        if (epoch := returned.turn.epoch) is not None:
            epoch.admitted -= 1
            epoch.members.discard(job)
        self._settle(now)

    def no_more(self, now: float) -> None:
        """No further job will be submitted."""
        self._ready = 0
        self._settle(now, no_more=True)

    def ended(self, job: str, observation: Observation | None, now: float) -> None:
        """A job has ended.

        :param observation: none if it failed: it does not count
        """
        ended = self._running.pop(job)
        crowd = self._crowds[ended.location]
        concurrency = max(ended.concurrency, crowd.running)
        mean = crowd.leave(now, ended.started, ended.job_seconds)
        if (epoch := ended.turn.epoch) is not None:
            epoch.members.discard(job)
            if observation is not None:
                epoch.add(observation, mean, concurrency)
        elif not self._epochs and observation is not None and ended.turn.constraint == self._current:
            self._group.add(observation, concurrency)
            self._compare(now)
        self._settle(now)

    def drain(self) -> list[EpochEnded | Chosen]:
        """What has happened since the last call."""
        events, self._events = self._events, []
        return events

    # Turns

    def _is_alone(self, epoch: Epoch, ground: str) -> bool:
        """Whether of our own jobs, too, none but those of the epoch run there."""
        crowd = self._crowds[ground].running if ground else len(self._running)
        return crowd == len(epoch.members)

    def _free_turn(self) -> Turn | None:
        """How a job may start that is not of a full epoch, while there are epochs."""
        full = [epoch for epoch in self._epochs if epoch.is_on]
        if full and (len(full) >= self._places or self._left <= sum(epoch.lacks for epoch in full)):
            return None
        if full and self._known:
            return Turn(best_constraint(self._share, self._known))
        waiting = next((epoch for epoch in self._epochs if not epoch.full and not epoch.over), None)
        return None if waiting is None else Turn(waiting.constraint, waiting)

    # Epochs

    def _learn(self, reason: Reason) -> None:
        self.registry = ConstraintRegistry(is_complete=False)
        self._last_number = 0
        self._start(self._grid.growing(), reason)

    def _reopen(self, constraint: float) -> None:
        """Learn again at the neighbours of a constraint only."""
        self._reopened = True
        self._last_number = 0
        self._start(self._grid.neighbours(constraint), "drifted")

    def _start(self, plan: Iterable[float], reason: Reason) -> None:
        self._plan = iter(plan)
        self._known = self.registry
        if not self._next(reason):
            self._end_learning()

    def _next(self, reason: Reason) -> bool:
        """Open the next epoch of the plan, if there is one."""
        constraint = next(self._plan, None)
        if constraint is None:
            return False
        self._last_number += 1
        self._epochs.append(Epoch(self._last_number, constraint, self._grid.concurrency(constraint)))
        self._set(constraint, reason)
        return True

    def _fill(self, now: float) -> None:
        """Let all epochs be full that there are jobs and grounds for."""
        while self._epochs and sum(epoch.is_on for epoch in self._epochs) < max(1, self._places):
            epoch = next((epoch for epoch in self._epochs if not epoch.full and not epoch.over), None)
            if epoch is None:
                if not self._next("learning"):
                    return
                continue
            left = self._left - sum(other.lacks for other in self._epochs) + len(epoch.members)
            if left < epoch.concurrency or self._share < epoch.concurrency:
                return
            # Those that run started one by one, when fewer ran: they end first, uncounted. Then all start at once.
            ground = None if self._places else ""
            full = Epoch(epoch.number, epoch.constraint, epoch.concurrency, full=True, ground=ground, started=now)
            self._epochs[self._epochs.index(epoch)] = full

    def _settle(self, now: float, no_more: bool = False) -> None:
        """End the epochs whose jobs have all ended, and begin the next ones."""
        if not self._epochs:
            return
        for epoch in self._epochs:
            if not epoch.over and self._is_over(epoch, no_more):
                epoch.over = True
                if self._is_enough(epoch, group := epoch.group):
                    self._known = self._known.register(self._entry(epoch, group))
        while self._epochs and self._epochs[0].over:
            self._evaluate(self._epochs.pop(0), now)
        if any(map(self._tells_to_stop, self._epochs, self._epochs[1:])):
            self._plan = iter(())
        self._fill(now)

    def _is_over(self, epoch: Epoch, no_more: bool) -> bool:
        if epoch.members:
            return False
        if not epoch.admitted:
            if epoch.full and self._left <= 0:
                epoch.full, epoch.ground, epoch.alone = False, None, False
            return False
        complete = epoch.full and epoch.admitted >= epoch.concurrency
        return complete or (self._left <= 0 and (epoch.full or no_more))

    def _evaluate(self, epoch: Epoch, now: float) -> None:
        group = epoch.group
        if self.registry.job_bytes is None and not self.registry:
            self.registry = replace(self.registry, job_bytes=group.job_bytes)
        mean, enough = group.seconds(self.registry.job_bytes), self._is_enough(epoch, group)
        last = self.registry.entries[-1].seconds if self.registry and not self._reopened else None
        stop = mean is not None and self._grid.bounds is None and last is not None and mean > last / 2
        registered = enough and not stop
        if registered:
            self.registry = self.registry.register(self._entry(epoch, group))
        self._events.append(
            EpochEnded(
                number=epoch.number,
                constraint=epoch.constraint,
                concurrency=epoch.concurrency,
                jobs=len(group),
                mean_seconds=mean,
                job_bytes=self.registry.job_bytes,
                uneven=group.is_uneven,
                registered=registered,
                started=now if epoch.started is None else epoch.started,
                location=epoch.ground or None,
            )
        )
        if not enough:
            self._epochs.insert(0, Epoch(epoch.number, epoch.constraint, epoch.concurrency))
        elif stop or (last is None and self._is_unhindered(epoch)) or not (self._epochs or self._next("learning")):
            self._end_learning()

    def _is_enough(self, epoch: Epoch, group: Group) -> bool:
        """Whether at least half of what fits at once did: fewer have not seen the storage as a full epoch does."""
        if not epoch.full and self._spread > 1:
            # They were on all locations, and on none as many as fit.
            return False
        at_once = len(group) if epoch.full else min(len(group), group.concurrency)
        return at_once > 0 and 2 * at_once >= epoch.concurrency

    def _entry(self, epoch: Epoch, group: Group) -> RegisteredConstraint:
        seconds = group.seconds(self.registry.job_bytes)
        assert seconds is not None, "only of what has enough jobs"
        return RegisteredConstraint(epoch.constraint, seconds, epoch.concurrency, len(group))

    def _is_unhindered(self, epoch: Epoch) -> bool:
        """Whether jobs are over before so many run as may: then fewer at once are no better."""
        return self._grid.bounds is None and not self._reopened and epoch.full and not epoch.overlaps

    def _tells_to_stop(self, before: Epoch, after: Epoch) -> bool:
        """Whether learning will end with the later of two epochs, at the latest: no further one is needed."""
        if self._grid.bounds is not None or self._reopened or not (before.over and after.over):
            return False
        groups = before.group, after.group
        job_bytes = groups[0].job_bytes
        first, second = (group.seconds(job_bytes) for group in groups)
        if first is None or second is None or not self._is_enough(after, groups[1]):
            return False
        return second > first / 2

    def _end_learning(self) -> None:
        self._epochs.clear()
        self._plan = iter(())
        self._reopened = False
        self._group = Group()
        self.registry = replace(self.registry, is_complete=True)
        self._set(best_constraint(self._share, self.registry), "learned")

    # With a registry

    def _usable(self, registry: ConstraintRegistry) -> ConstraintRegistry:
        """What holds for this bandwidth and so many executors."""
        entries = [replace(entry, concurrency=self._grid.concurrency(entry.constraint)) for entry in registry.entries]
        entries = [entry for entry in entries if entry.concurrency > 0]
        # With the fewer jobs that there were at its end it was the best guess; now there may be enough.
        while entries and not registry.is_complete and entries[-1].jobs < entries[-1].concurrency:
            entries.pop()
        return replace(registry, entries=tuple(entries))

    def _compare(self, now: float) -> None:
        """Compare the last group with what is registered of it."""
        entry = self.registry.get(self._current)
        assert entry is not None, "without an epoch the constraint is a registered one"
        whole_group = min(entry.concurrency, _FIRST_JOBS) if self._unproven else entry.concurrency
        if len(self._group) < max(whole_group, _LEAST_JOBS):
            return
        group, self._group = self._group, Group()
        job_bytes = self.registry.job_bytes
        # One job may be slow for any reason.
        mean, usual = group.seconds(job_bytes), group.without_slowest().seconds(job_bytes)
        assert mean is not None
        assert usual is not None
        # With fewer at once than fit, jobs may be faster than registered, and that says nothing.
        expected = self.registry.seconds_at(group.concurrency)
        whole = group.concurrency >= entry.concurrency
        unproven, self._unproven = self._unproven, False
        if unproven:
            if usual > expected * CONTRADICTION or (whole and mean < expected / CONTRADICTION):
                self._learn("contradicted")
        elif usual > expected * (1 + DRIFT) or (whole and mean < expected * (1 - DRIFT)):
            # What is far away has probably drifted as far; what is near is learned again.
            found = usual if usual > expected else mean
            self.registry = self.registry.scaled(found / expected, self.registry.constraints)
            self._reopen(entry.constraint)
        self._fill(now)

    def _set(self, constraint: float, reason: Reason) -> None:
        if constraint == self._current and reason == "objective":
            return
        self._current = constraint
        self._group = Group()
        times = estimates(max(self._share, 1), self.registry)
        self._events.append(Chosen(constraint, reason, self.outstanding, times))
