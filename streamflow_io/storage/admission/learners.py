"""The learners of all tools, and where they learn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from streamflow_io.hints.bandwidth import AutoConstraint
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.models import Direction

from .demand import Demand, Placement
from .epochs import Epoch, EpochEnded
from .learner import Learner
from .observations import Observation
from .registry import ConstraintRegistry
from .resources import Resources
from .workload import Chosen, NextStart


@dataclass(frozen=True)
class Subject:
    """What is learned: the constraint of the jobs of one tool on one storage.

    :ivar tool: a name for all jobs that are alike, whichever step they are of
    :ivar constraint: as written
    """

    tool: str
    storage: StorageConfig
    constraint: AutoConstraint
    direction: Direction


LearnerFactory = Callable[[Subject, int], Learner]


def make_learner(subject: Subject, executors: int) -> Learner:
    """A learner that remembers nothing.

    :param executors: the most jobs at once: on one location, or on all that share the storage
    """
    return Learner(subject.storage.bandwidth(subject.direction), executors, subject.constraint.bounds)


@dataclass(frozen=True)
class LearningEvent:
    """Something that a learner did.

    :ivar step: the first that it has learned for
    :ivar executors: the most jobs at once
    :ivar registry: what it knows now
    """

    step: str
    subject: Subject
    executors: int
    event: EpochEnded | Chosen
    registry: ConstraintRegistry


@dataclass
class _Lock:
    """An epoch that keeps other I/O tasks away.

    :ivar awaits: jobs that ran there before, and have to end before it begins
    """

    epoch: Epoch
    locations: tuple[str, ...]
    awaits: set[str]


@dataclass(eq=False)
class _Learning:
    """:ivar has_place: its full epochs keep other I/O tasks away from where they are
    :ivar ready: by step, how many jobs more will be submitted
    :ivar open: steps of which jobs may still come
    :ivar pools: where its jobs may run
    :ivar locations: all of these pools together, with their I/O executors
    :ivar executors: the most jobs at once there; 0: that is not known yet, and there is no learner
    """

    subject: Subject
    step: str
    has_place: bool
    ready: dict[str, int] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    pools: dict[str, None] = field(default_factory=dict)
    locations: dict[str, int] = field(default_factory=dict)
    executors: int = 0
    learner: Learner = field(init=False, repr=False)
    locks: list[_Lock] = field(default_factory=list)

    def concerns(self, placement: Placement) -> bool:
        return placement.storage is not None and placement.storage.name == self.subject.storage.name

    def holding(self, epoch: Epoch) -> Sequence[str]:
        """The locations that run an epoch all at once; all locations if there is none, or if they share the storage."""
        large = [where for where, executors in self.locations.items() if executors >= epoch.concurrency]
        return tuple(self.locations) if self.is_shared or not large else large

    @property
    def is_shared(self) -> bool:
        return self.subject.storage.scope == "shared"

    @property
    def spread(self) -> int:
        """Over how many locations its jobs are spread, each with a bandwidth of its own."""
        return 1 if self.is_shared else len(self.locations)

    @property
    def places(self) -> int:
        """How many epochs may be on at the same time, each on a ground that it is given."""
        return self.spread if self.has_place else 0


class Learners:
    """One learner for each tool with an auto constraint and each storage that its jobs use.

    While an epoch of I/O tasks is full, it is alone where its storage is: on one location, or on all that share the
    storage. No other I/O task starts there, and the epoch's jobs start when those that ran have ended. (If each job
    uses several locations, they would keep each other from them: such jobs learn where they run.)
    """

    def __init__(self, factory: LearnerFactory, resources: Resources) -> None:
        self._factory = factory
        self._resources = resources
        self._learning: dict[tuple[Subject, bool], _Learning] = {}
        # Those that have locks or want some, in the order in which they began to.
        self._exclusive: dict[_Learning, None] = {}
        self._events: list[LearningEvent] = []
        self._by_step: dict[str, tuple[Demand, Sequence[_Learning]]] = {}

    def turns(self, demand: Demand, placement: Placement) -> Iterator[NextStart]:
        """How the next job may start by what is learned, best first; none: it must wait. Its constraint is auto."""
        learning = next(learning for learning in self._of(demand) if learning.concerns(placement))
        if not learning.learner.is_learning:
            return learning.learner.turns()
        return self._possible(learning, placement)

    def _possible(self, learning: _Learning, placement: Placement) -> Iterator[NextStart]:
        waiting = [lock.epoch for lock in learning.locks if lock.awaits]
        locations = self._resources.locations(placement.pool)
        for turn in learning.learner.turns():
            if turn.epoch not in waiting and (turn.location is None or turn.location in locations):
                yield turn

    def submitted(self, demand: Demand, now: float, ready: int) -> None:
        """:param ready: how many jobs more of its step will be submitted when this one has started"""
        for learning in self._of(demand):
            self._admit_pools(learning, demand)
            learning.open.add(demand.step)
            learning.ready[demand.step] = ready
            learning.learner.submitted(now, sum(learning.ready.values()))
        self._update(demand)

    def withdrawn(self, demand: Demand, now: float) -> None:
        """A job that waited will not start."""
        for learning in self._of(demand):
            learning.learner.withdrawn(now)
        self._update(demand)

    def no_more(self, demand: Demand, now: float) -> None:
        """No further job of a step will be submitted."""
        for learning in self._of(demand):
            learning.open.discard(demand.step)
            learning.ready.pop(demand.step, None)
            if learning.open:
                learning.learner.expect(sum(learning.ready.values()))
            else:
                learning.learner.no_more(now)
        self._update(demand)

    def started(
        self, demand: Demand, placement: Placement, job: str, location: str, now: float, turn: NextStart | None
    ) -> None:
        """:param turn: as one of :meth:`turns`; none: nothing is learned of it"""
        for learning in self._of(demand):
            if turn is None or not learning.concerns(placement):
                learning.learner.withdrawn(now)
            else:
                learning.learner.started(job, now, "" if learning.is_shared else location, turn)
        self._update(demand)

    def returned(self, demand: Demand, placement: Placement, job: str, now: float) -> None:
        """A job has not started after all, and waits again."""
        self._forget(job)
        for learning in self._of(demand):
            if learning.concerns(placement):
                learning.learner.returned(job, now)
            else:
                learning.learner.submitted(now, sum(learning.ready.values()))
        self._update(demand)

    def expect(self, demand: Demand, ready: int) -> None:
        """So many jobs more of a step will be submitted when the one that waits has started."""
        for learning in self._of(demand):
            learning.ready[demand.step] = ready
            learning.learner.expect(sum(learning.ready.values()))

    def ended(
        self, demand: Demand, placement: Placement, job: str, observation: Observation | None, now: float
    ) -> None:
        self._forget(job)
        for learning in self._of(demand):
            if learning.concerns(placement):
                learning.learner.ended(job, observation, now)
        self._update(demand)

    def relocated(self) -> None:
        """There are other locations than before."""
        for learning in self._learning.values():
            self._look_at_locations(learning)
        self._keep_locks(tuple(self._learning.values()))

    def drain(self) -> list[LearningEvent]:
        """What has happened since the last call."""
        events, self._events = self._events, []
        return events

    # Which learner

    def _of(self, demand: Demand) -> Sequence[_Learning]:
        """The learners that a job of a demand concerns, one for each storage that it may use."""
        if not isinstance(demand.constraint, AutoConstraint):
            return ()
        # Looking for a storage takes its time, and the demands of a step are alike.
        known = self._by_step.get(demand.step)
        if known is None or known[0] != demand:
            storages = {
                placement.storage.name: placement.storage for placement in demand.placements if placement.storage
            }
            keys = [_key(demand, storage) for storage in storages.values()]
            for key in keys:
                self._learning.setdefault(key, _Learning(key[0], demand.step, key[1]))
            known = self._by_step[demand.step] = demand, [self._learning[key] for key in keys]
        return known[1]

    def _admit_pools(self, learning: _Learning, demand: Demand) -> None:
        """Make the places known where the jobs of a demand may run."""
        pools = [placement.pool for placement in demand.placements if learning.concerns(placement)]
        if not learning.pools.keys() >= set(pools):
            learning.pools |= dict.fromkeys(pools)
            self._look_at_locations(learning)

    def _look_at_locations(self, learning: _Learning) -> None:
        resources = self._resources
        where = {location: pool for pool in learning.pools for location in resources.locations(pool)}
        executors = {location: resources.executors(pool, location) for location, pool in where.items()}
        if not executors:
            return
        learning.locations = {location: count for location, count in executors.items() if count} or executors
        # Plain StreamFlow runs so many at once.
        cores = [min(executors[location], resources.cores(pool, location)) for location, pool in where.items()]
        if learning.is_shared:
            most, first = sum(executors.values()), sum(cores)
        else:
            most, first = max(executors.values()), max(cores)
        most, first = max(1, most), max(1, first)
        if not learning.executors:
            learning.learner = self._factory(learning.subject, most)
        learning.executors = most
        for lock in learning.locks if learning.is_shared else ():
            new = tuple(where for where in learning.locations if not self._resources.is_any_locked((where,)))
            lock.awaits |= self._resources.lock(new)
            lock.locations += new
        learning.learner.resized(most, learning.spread, learning.places, first)

    def _forget(self, job: str) -> None:
        """A job has ended: no epoch has to wait for it."""
        for learning in self._exclusive:
            for lock in learning.locks:
                lock.awaits.discard(job)

    # What has happened

    def _update(self, demand: Demand) -> None:
        """Take what the learners of a demand have done: those of others do nothing meanwhile."""
        told = self._of(demand)
        for learning in told:
            self._events += [
                LearningEvent(learning.step, learning.subject, learning.executors, event, learning.learner.registry)
                for event in learning.learner.drain()
            ]
            if learning.has_place and (learning.locks or learning.learner.is_exclusive):
                self._exclusive[learning] = None
        self._keep_locks(told)

    def _keep_locks(self, changed: Iterable[_Learning]) -> None:
        """Give grounds to full epochs, and unlock those of epochs that have ended."""
        if not self._exclusive:
            return
        changed = [learning for learning in changed if learning in self._exclusive]
        # Others may wait for what is free now.
        if sum(map(self._give_back, changed)):
            changed = list(self._exclusive)
        for learning in changed:
            self._give_grounds(learning)

    def _give_back(self, learning: _Learning) -> bool:
        """Unlock the grounds of epochs that have ended, or of which no location is left; the next ones may take them.

        :return: whether there is anything for others, who wait behind it
        """
        kept, free = [], []
        for lock in learning.locks:
            is_gone = not lock.epoch.members and not any(where in learning.locations for where in lock.locations)
            if learning.learner.holds(lock.epoch) and not is_gone:
                kept.append(lock)
                continue
            if is_gone:
                lock.epoch.ground, lock.epoch.alone = None, False
            free.append(lock)
        learning.locks = kept
        wanting = list(learning.learner.unplaced())
        for lock in free:
            self._resources.unlock(lock.locations, learning.subject.storage if learning.is_shared else None)
        # What it had it keeps, so that the epochs of one learner are not parted by those of another.
        for lock, epoch in zip(free, wanting, strict=False):
            if all(where in learning.holding(epoch) for where in lock.locations):
                self._lock(learning, epoch, lock.locations)
        if learning.locks or learning.learner.is_exclusive:
            return bool(free)
        # Also if it never had any: its jobs may have been cancelled before.
        del self._exclusive[learning]
        return True

    def _give_grounds(self, learning: _Learning) -> None:
        for epoch in learning.learner.unplaced():
            if learning.is_shared:
                locations = tuple(learning.locations)
                storage = learning.subject.storage
                if self._resources.is_any_locked(locations, storage) or self._is_reserved(learning, locations):
                    return
                self._lock(learning, epoch, locations)
            else:
                candidates = [where for where in learning.holding(epoch) if not self._is_reserved(learning, (where,))]
                if (location := self._resources.quietest(candidates)) is None:
                    return
                self._lock(learning, epoch, (location,))

    def _is_reserved(self, learning: _Learning, locations: Iterable[str]) -> bool:
        """Whether a learner that came before waits for all of its locations to be free: it gets them first."""
        for other in self._exclusive:
            if other is learning:
                return False
            if other.is_shared and not other.locks and any(where in other.locations for where in locations):
                return True
        return False

    def _lock(self, learning: _Learning, epoch: Epoch, locations: tuple[str, ...]) -> None:
        storage = learning.subject.storage if learning.is_shared else None
        awaits = self._resources.lock(locations, storage)
        epoch.ground, epoch.alone = "" if learning.is_shared else locations[0], True
        learning.locks.append(_Lock(epoch, locations, awaits))


def _key(demand: Demand, storage: StorageConfig) -> tuple[Subject, bool]:
    assert isinstance(demand.constraint, AutoConstraint)
    subject = Subject(demand.tool or demand.step, storage, demand.constraint, demand.direction)
    return subject, demand.io_task and demand.locations == 1
