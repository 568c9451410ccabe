"""The learners of all steps, and where they learn. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from streamflow_io.hints.bandwidth import AutoConstraint
from streamflow_io.hints.config import StorageConfig

from .demand import Demand, Placement
from .learner import Chosen, EpochEnded, Learner
from .observations import Observation
from .registry import ConstraintRegistry
from .resources import Resources

LearnerFactory = Callable[[Demand, Placement, int], Learner]


def make_learner(demand: Demand, placement: Placement, executors: int) -> Learner:
    """A learner that remembers nothing.

    :param demand: with an auto constraint
    :param placement: with a storage
    :param executors: the most jobs at once on one location
    """
    assert isinstance(demand.constraint, AutoConstraint)
    assert placement.storage is not None
    return Learner(placement.storage.bandwidth(demand.direction), executors, demand.constraint.bounds)


@dataclass(frozen=True)
class LearningEvent:
    """Something that a learner did.

    :ivar location: where it learns, if it does
    :ivar registry: what it knows now
    """

    step: str
    placement: Placement
    storage: str
    location: str | None
    event: EpochEnded | Chosen
    registry: ConstraintRegistry


@dataclass(frozen=True)
class LearningPlace:
    """What learning means for the next job of a step.

    :ivar closed: it must wait
    :ivar location: it must run there; none: anywhere
    :ivar holds: the location is locked for its step
    """

    closed: bool = False
    location: str | None = None
    holds: bool = False


@dataclass
class _Learning:
    """:ivar has_place: it learns on one location: the active learning location
    :ivar location: this one
    """

    learner: Learner
    step: str
    placement: Placement
    storage: str
    has_place: bool
    location: str | None = None
    locked: bool = False

    @property
    def wants_lock(self) -> bool:
        return self.has_place and self.learner.is_exclusive


class Learners:
    """One learner for each step with an auto constraint and each storage that its jobs use.

    A learning step of I/O tasks has one active learning location, unless each of its jobs uses several. While an epoch
    is full, that location is locked: no other I/O task starts there, and the epoch's jobs start when those that ran
    have ended.
    """

    def __init__(self, factory: LearnerFactory, resources: Resources) -> None:
        self._factory = factory
        self._resources = resources
        self._learning: dict[tuple[str, Placement], _Learning] = {}
        self._events: list[LearningEvent] = []

    def constraint(self, demand: Demand, placement: Placement) -> float:
        """The storageBW of the next job, MB/s."""
        return self._learning[demand.step, placement].learner.constraint

    def place(self, demand: Demand, placement: Placement) -> LearningPlace:
        """What learning means for the next job."""
        learning = self._learning.get((demand.step, placement))
        if learning is None or not learning.learner.is_learning:
            return LearningPlace()
        if not learning.learner.may_start():
            return LearningPlace(closed=True)
        if not learning.has_place:
            return LearningPlace()
        if not learning.wants_lock:
            return LearningPlace(location=learning.location)
        if not learning.locked or learning.location is None:
            return LearningPlace(closed=True)
        others = self._resources.io_tasks(learning.location) - learning.learner.running
        return LearningPlace(closed=others > 0, location=learning.location, holds=True)

    def submitted(self, demand: Demand, now: float, ready: int) -> None:
        """:param ready: how many jobs more will be submitted when this one has started"""
        for placement, storage in _learned(demand):
            key = demand.step, placement
            if key not in self._learning:
                learner = self._factory(demand, placement, self._resources.executors(placement.pool))
                # Jobs that need several locations each would keep each other from them: they learn where they run.
                has_place = demand.io_task and demand.locations == 1
                self._learning[key] = _Learning(learner, demand.step, placement, storage.name, has_place)
            spread = 1 if storage.scope == "shared" else len(self._resources.locations(placement.pool))
            self._learning[key].learner.submitted(now, ready, spread)
        self._update(demand)

    def withdrawn(self, demand: Demand, now: float) -> None:
        """A job that waited will not start."""
        self._withdraw(demand, None, now)
        self._update(demand)

    def no_more(self, demand: Demand, now: float) -> None:
        """No further job will be submitted."""
        for placement, _ in _learned(demand):
            self._learning[demand.step, placement].learner.no_more(now)
        self._update(demand)

    def started(self, demand: Demand, placement: Placement, job: str, location: str, now: float) -> None:
        self._withdraw(demand, placement, now)
        if (learning := self._learning.get((demand.step, placement))) is not None:
            shared = placement.storage is not None and placement.storage.scope == "shared"
            learning.learner.started(job, now, "" if shared else location)
            if learning.has_place and learning.learner.is_learning and learning.location is None:
                learning.location = location
        self._update(demand)

    def expect(self, demand: Demand, ready: int) -> None:
        """So many jobs more will be submitted when the one that waits has started."""
        for placement, _ in _learned(demand):
            self._learning[demand.step, placement].learner.expect(ready)

    def ended(
        self, demand: Demand, placement: Placement, job: str, observation: Observation | None, now: float
    ) -> None:
        if (learning := self._learning.get((demand.step, placement))) is not None:
            learning.learner.ended(job, observation, now)
        self._update(demand)

    def relocated(self) -> None:
        """There are other locations than before."""
        self._keep_locks(self._learning.values())

    def drain(self) -> list[LearningEvent]:
        """What has happened since the last call."""
        events, self._events = self._events, []
        return events

    def _withdraw(self, demand: Demand, but: Placement | None, now: float) -> None:
        for placement, _ in _learned(demand):
            if placement != but:
                self._learning[demand.step, placement].learner.withdrawn(now)

    def _update(self, demand: Demand) -> None:
        """Take what the learners of a demand have done: those of others do nothing meanwhile."""
        told = [self._learning[demand.step, placement] for placement, _ in _learned(demand)]
        for learning in told:
            self._events += [
                LearningEvent(
                    learning.step,
                    learning.placement,
                    learning.storage,
                    learning.location,
                    event,
                    learning.learner.registry,
                )
                for event in learning.learner.drain()
            ]
        if told:
            self._keep_locks(told)

    def _keep_locks(self, changed: Iterable[_Learning]) -> None:
        """Lock the active learning locations of full epochs, and unlock those of epochs that have ended."""
        for learning in changed:
            is_gone = (
                learning.location not in self._resources.locations(learning.placement.pool)
                and not learning.learner.running
            )
            if learning.locked and learning.location is not None and (is_gone or not learning.wants_lock):
                self._resources.unlock(learning.location)
                learning.locked = False
                # Others may wait for it.
                changed = self._learning.values()
            if is_gone or not learning.learner.is_learning:
                learning.location = None
        for learning in changed:
            if learning.wants_lock and not learning.locked:
                if learning.location is None or (
                    learning.learner.running == 0 and self._resources.is_locked(learning.location)
                ):
                    learning.location = self._resources.quietest(learning.placement.pool)
                if learning.location is not None and not self._resources.is_locked(learning.location):
                    self._resources.lock(learning.location)
                    learning.locked = True


def _learned(demand: Demand) -> Iterator[tuple[Placement, StorageConfig]]:
    """The placements where the constraint is learned, and their storages."""
    if isinstance(demand.constraint, AutoConstraint):
        for placement in demand.placements:
            if placement.storage is not None:
                yield placement, placement.storage
