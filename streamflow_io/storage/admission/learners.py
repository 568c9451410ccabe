"""The learners of all tools, and the locations where they learn."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from streamflow_io.hints.bandwidth import AutoConstraint
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.models import Direction

from .demand import Demand, Placement
from .epochs import Epoch, EpochEnded, Observation
from .learner import Learner
from .registry import ConstraintRegistry
from .resources import Resources
from .workload import Chosen, NextStart


class Subject(Struct, frozen=True):
    """The subject of a learner: the constraint of the jobs of one tool on one storage.

    :ivar tool: a name for all jobs that are alike, across steps
    :ivar constraint: the constraint as the user wrote it
    """

    tool: str
    storage: StorageConfig
    constraint: AutoConstraint
    direction: Direction


LearnerFactory = Callable[[Subject, int], Learner]


def make_learner(subject: Subject, executors: int) -> Learner:
    """Make a learner without remembered times.

    :param executors: the most jobs at once: on one location, or on all locations that share the storage
    """
    return Learner(subject.storage.bandwidth(subject.direction), executors, subject.constraint.bounds)


class LearningEvent(Struct, frozen=True):
    """An event of a learner.

    :ivar step: the first step that the learner has learned for
    :ivar executors: the most jobs at once
    :ivar registry: the constraint registry after the event
    """

    step: str
    subject: Subject
    executors: int
    event: EpochEnded | Chosen
    registry: ConstraintRegistry


class _Lock(Struct):
    """Locations where an epoch keeps other I/O tasks away.

    :ivar awaits: jobs that ran there before, and have to end before the epoch begins
    """

    epoch: Epoch
    locations: tuple[str, ...]
    awaits: set[Hashable]


@dataclass(eq=False)
class _SubjectState:
    """The learner of a subject, with the jobs and locations that concern it.

    :ivar has_place: full epochs keep other I/O tasks away from their locations
    :ivar ready: how many further jobs of each step will be submitted
    :ivar open: steps that may submit further jobs
    :ivar pools: the pools where the jobs may run
    :ivar locations: the locations of these pools, with their I/O executors
    :ivar executors: the most jobs at once there. 0: not known yet, and there is no learner
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
        """Return the locations that can run a whole epoch at once.

        All locations, if none can, or if they share the storage.
        """
        large = [where for where, executors in self.locations.items() if executors >= epoch.concurrency]
        return tuple(self.locations) if self.is_shared or not large else large

    @property
    def is_shared(self) -> bool:
        return self.subject.storage.scope == "shared"

    @property
    def spread(self) -> int:
        """How many locations with a bandwidth of their own the jobs are spread over."""
        return 1 if self.is_shared else len(self.locations)

    @property
    def places(self) -> int:
        """How many epochs may be on at the same time, each on an assigned location."""
        return self.spread if self.has_place else 0


class Learners:
    """The learners, one for each tool with an auto constraint and each storage that its jobs use.

    A full epoch of I/O tasks is alone where its storage is: on one location, or on all locations that share the
    storage. No other I/O task starts there. The jobs of the epoch start when the jobs that ran there have ended.

    Jobs that use several locations each would keep each other from them. Such jobs learn where they run, without being
    alone.
    """

    def __init__(self, factory: LearnerFactory, resources: Resources) -> None:
        self._factory = factory
        self._resources = resources
        self._learning: dict[tuple[Subject, bool], _SubjectState] = {}
        # The learners that have locks or want some, in the order in which they began to.
        self._exclusive: dict[_SubjectState, None] = {}
        self._events: list[LearningEvent] = []
        self._by_step: dict[str, tuple[Demand, Sequence[_SubjectState]]] = {}
        resources.leases.changed = self.relocated

    def turns(self, demand: Demand, placement: Placement) -> Iterator[NextStart]:
        """Yield how the next job may start, best first. Nothing: the job must wait.

        The demand must have an auto constraint.
        """
        learning = next(learning for learning in self._of(demand) if learning.concerns(placement))
        if not learning.learner.is_learning:
            return learning.learner.turns()
        return self._possible(learning, placement)

    def _possible(self, learning: _SubjectState, placement: Placement) -> Iterator[NextStart]:
        waiting = [lock.epoch for lock in learning.locks if lock.awaits]
        locations = self._resources.locations(placement.pool)
        for turn in learning.learner.turns():
            if turn.epoch not in waiting and (turn.location is None or turn.location in locations):
                yield turn

    def submitted(self, demand: Demand, now: float, ready: int) -> None:
        """Record a submitted job.

        :param ready: how many further jobs of the step will be submitted when this job has started
        """
        for learning in self._of(demand):
            self._admit_pools(learning, demand)
            learning.open.add(demand.step)
            learning.ready[demand.step] = ready
            learning.learner.submitted(now, sum(learning.ready.values()))
        self._update(demand)

    def withdrawn(self, demand: Demand, job: Hashable, now: float) -> None:
        """Remove a waiting job that will not start."""
        for learning in self._of(demand):
            learning.learner.withdrawn(job, now)
        self._update(demand)

    def no_more(self, demand: Demand, now: float) -> None:
        """Note that no further job of a step will be submitted."""
        for learning in self._of(demand):
            learning.open.discard(demand.step)
            learning.ready.pop(demand.step, None)
            if learning.open:
                learning.learner.expect(sum(learning.ready.values()))
            else:
                learning.learner.no_more(now)
        self._update(demand)

    def started(
        self, demand: Demand, placement: Placement, job: Hashable, location: str, now: float, turn: NextStart | None
    ) -> None:
        """Record the start of a job.

        :param turn: one of :meth:`turns`. None: nothing is learned from the job
        """
        for learning in self._of(demand):
            if turn is None or not learning.concerns(placement):
                learning.learner.withdrawn(job, now)
            else:
                learning.learner.started(job, now, "" if learning.is_shared else location, turn)
        self._update(demand)

    def returned(self, demand: Demand, job: Hashable, now: float) -> None:
        """Take back the start of a job, which waits again, for something else."""
        self._forget(job)
        for learning in self._of(demand):
            learning.learner.returned(job, now)
        self._update(demand)

    def expect(self, demand: Demand, ready: int) -> None:
        """Set how many further jobs of a step will be submitted when the waiting job has started."""
        for learning in self._of(demand):
            learning.ready[demand.step] = ready
            learning.learner.expect(sum(learning.ready.values()))

    def ended(
        self, demand: Demand, placement: Placement, job: Hashable, observation: Observation | None, now: float
    ) -> None:
        self._forget(job)
        for learning in self._of(demand):
            if learning.concerns(placement):
                learning.learner.ended(job, observation, now)
        self._update(demand)

    def relocated(self) -> None:
        """Look at the locations and storages again, which have changed."""
        for learning in self._learning.values():
            self._look_at_locations(learning)
            if learning.has_place and learning.executors and learning.learner.is_exclusive:
                self._exclusive[learning] = None
        self._keep_locks(tuple(self._learning.values()))

    def drain(self) -> list[LearningEvent]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    # Choice of learners

    def _of(self, demand: Demand) -> Sequence[_SubjectState]:
        """Return the learners of a demand, one for each storage that its jobs may use."""
        if not isinstance(demand.constraint, AutoConstraint):
            return ()
        # The search for storages takes time, and the demands of a step are alike.
        known = self._by_step.get(demand.step)
        if known is None or known[0] != demand:
            storages = {
                placement.storage.name: placement.storage for placement in demand.placements if placement.storage
            }
            keys = [_key(demand, storage) for storage in storages.values()]
            for key in keys:
                self._learning.setdefault(key, _SubjectState(key[0], demand.step, key[1]))
            known = self._by_step[demand.step] = demand, [self._learning[key] for key in keys]
        return known[1]

    def _admit_pools(self, learning: _SubjectState, demand: Demand) -> None:
        """Add the pools where the jobs of a demand may run."""
        pools = [placement.pool for placement in demand.placements if learning.concerns(placement)]
        if not learning.pools.keys() >= set(pools):
            learning.pools |= dict.fromkeys(pools)
            self._look_at_locations(learning)

    def _look_at_locations(self, learning: _SubjectState) -> None:
        resources = self._resources
        where = {location: pool for pool in learning.pools for location in resources.locations(pool)}
        executors = {location: resources.executors(pool, location) for location, pool in where.items()}
        if not executors:
            return
        learning.locations = {location: count for location, count in executors.items() if count} or executors
        # Plain StreamFlow runs this many at once.
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
        bandwidth = resources.bandwidth(learning.subject.storage, learning.subject.direction)
        learning.learner.resized(most, learning.spread, learning.places, first, bandwidth)

    def _forget(self, job: Hashable) -> None:
        """Let no epoch wait for a job that has ended."""
        for learning in self._exclusive:
            for lock in learning.locks:
                lock.awaits.discard(job)

    # Events and locks

    def _update(self, demand: Demand) -> None:
        """Collect the events of the learners of a demand. Other learners have no new events meanwhile."""
        told = self._of(demand)
        for learning in told:
            self._events += [
                LearningEvent(learning.step, learning.subject, learning.executors, event, learning.learner.registry)
                for event in learning.learner.drain()
            ]
            if learning.has_place and (learning.locks or learning.learner.is_exclusive):
                self._exclusive[learning] = None
        self._keep_locks(told)

    def _keep_locks(self, changed: Iterable[_SubjectState]) -> None:
        """Assign locations to full epochs, and unlock the locations of epochs that have ended."""
        if not self._exclusive:
            return
        changed = [learning for learning in changed if learning in self._exclusive]
        # Other learners may wait for the locations that are free now.
        if sum(map(self._give_back, changed)):
            changed = list(self._exclusive)
        for learning in changed:
            self._give_locations(learning)

    def _give_back(self, learning: _SubjectState) -> bool:
        """Unlock the locations of epochs that have ended or lost all locations. Next epochs may take these locations.

        :return: whether other learners may now get locations
        """
        kept, free = [], []
        for lock in learning.locks:
            is_gone = not lock.epoch.members and not any(where in learning.locations for where in lock.locations)
            if learning.learner.holds(lock.epoch) and not is_gone:
                kept.append(lock)
                continue
            if is_gone:
                lock.epoch.location, lock.epoch.alone = None, False
            free.append(lock)
        learning.locks = kept
        wanting = list(learning.learner.unplaced())
        for lock in free:
            self._resources.unlock(lock.locations, learning.subject.storage if learning.is_shared else None)
        # A learner keeps its locations, so that another learner's epoch does not come between its epochs.
        for lock, epoch in zip(free, wanting, strict=False):
            if all(where in learning.holding(epoch) for where in lock.locations):
                self._lock(learning, epoch, lock.locations)
        if learning.locks or learning.learner.is_exclusive:
            return bool(free)
        # Remove a learner that never had a lock, too: its jobs may have been cancelled before.
        del self._exclusive[learning]
        return True

    def _give_locations(self, learning: _SubjectState) -> None:
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

    def _is_reserved(self, learning: _SubjectState, locations: Iterable[str]) -> bool:
        """Whether an earlier learner waits until all of its locations are free. Such a learner gets them first."""
        for other in self._exclusive:
            if other is learning:
                return False
            if other.is_shared and not other.locks and any(where in other.locations for where in locations):
                return True
        return False

    def _lock(self, learning: _SubjectState, epoch: Epoch, locations: tuple[str, ...]) -> None:
        storage = learning.subject.storage if learning.is_shared else None
        awaits = self._resources.lock(locations, storage)
        epoch.location, epoch.alone = "" if learning.is_shared else locations[0], True
        learning.locks.append(_Lock(epoch, locations, awaits))


def _key(demand: Demand, storage: StorageConfig) -> tuple[Subject, bool]:
    assert isinstance(demand.constraint, AutoConstraint)
    subject = Subject(demand.tool or demand.step, storage, demand.constraint, demand.direction)
    return subject, demand.io_task and demand.locations == 1
