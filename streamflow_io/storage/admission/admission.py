"""Admission by storage bandwidth and I/O executors: which jobs start now, where, and with how much bandwidth.

Jobs are admitted in order of arrival. A job that lacks a resource holds back all later jobs that need the same
resource, so that no job starves.

The time of a decision does not depend on the number of waiting jobs. Jobs of one step are alike, so only the first
waiting job of each step is examined.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Generic

from msgspec import Struct, field

from streamflow_io.hints.bandwidth import StaticConstraint
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.models import Direction, Way

from .demand import (
    BYTES_PER_MEGABYTE,
    ONE_WAY,
    AdmissionRequest,
    Capacity,
    Demand,
    Grant,
    J,
    Placement,
    Queued,
    bytes_per_second,
)
from .epochs import Observation
from .learners import LearnerFactory, Learners, LearningEvent, make_learner
from .leases import Need
from .resources import Resources
from .workload import NextStart


class _Blocked(Struct, frozen=True):
    """Resources that a job lacks. No resources: the job is behind another job, or waits for a step that learns.

    :ivar needs: what the job lacks of leased storages
    """

    resources: frozenset[str] = frozenset()
    needs: tuple[tuple[StorageConfig, Need], ...] = ()


class _ChosenPlacement(Struct, frozen=True):
    placement: Placement
    locations: tuple[str, ...]
    constraint: float | None
    turn: NextStart | None = None


class _AdmissionState(Struct, Generic[J]):
    """A job that waits or runs.

    :ivar asks: the caller asks about the job when the job has everything else. True for a job that is no I/O task, and
        for an I/O task that has given back its grant
    :ivar ready_at: locations where the job has everything else, each with the placement that was asked about. Only for
        jobs with `asks`
    :ivar lacked: resources that the job lacked while it was the first to wait. Later jobs cannot take these resources
        until the job starts. Otherwise the job could lose one resource while it waits for another
    """

    request: AdmissionRequest[J]
    arrival: int
    asks: bool
    fit: _ChosenPlacement | None = None
    ready_at: set[tuple[str, Placement | None]] = field(default_factory=set)
    lacked: frozenset[str] = frozenset()


class Admission(Generic[J]):
    """Decides which jobs start. Any hashable object stands for a job.

    An I/O task is submitted, and :meth:`decide` grants its start. Any other job with a storageBW is submitted, asked
    about with :meth:`could_start`, and started with :meth:`start`; StreamFlow decides whether such a job has cores. An
    I/O task that lacks something else, for instance memory, gives back its grant (:meth:`give_back`). From then on the
    task is asked about like the other jobs. Call :meth:`decide` after each call of another method.

    Guarantees: grants fit. :meth:`release` returns all that a job holds, whether the job has succeeded or not. Every
    job is granted at last if the jobs before it end.

    :ivar leases: the part of each shared storage that this run holds. Call :meth:`decide` after each change
    :param io_executors: the most I/O tasks at once on one location. None: four for each core
    :param learner_factory: makes the learner of a step on a storage
    """

    def __init__(self, io_executors: int | None = None, learner_factory: LearnerFactory = make_learner) -> None:
        self._resources = Resources(io_executors)
        self.leases = self._resources.leases
        self._learners = Learners(learner_factory, self._resources)
        self._jobs: dict[J, _AdmissionState[J]] = {}
        # The waiting jobs of each demand, in order of arrival. A job that is no I/O task is here only while all it
        # lacks is bandwidth.
        self._queues: dict[Demand, list[tuple[int, J]]] = {}
        self._arrivals = 0
        # The job that was asked about last, with the resources that earlier jobs keep from it. None: something has
        # changed.
        self._kept: tuple[_AdmissionState[J], Set[str]] | None = None

    def set_locations(self, pool: str, cores: Mapping[str, float], slots: Mapping[str, int] | None = None) -> None:
        """Set the locations of a pool, in order of preference, with their cores.

        :param slots: how many jobs at once a location takes, for locations that limit them
        """
        self._kept = None
        self._resources.set_locations(pool, cores, slots or {})
        self._learners.relocated()

    def locations(self, pool: str) -> Set[str]:
        """The locations of a pool."""
        return self._resources.locations(pool)

    def submit(self, request: AdmissionRequest[J], now: float, ready: int = 0) -> None:
        """Submit a job whose pools are known. Each submitted job has to end with :meth:`release`.

        :param ready: how many further jobs of the step will be submitted when this job has started
        :raises ValueError: if the job has been submitted already
        """
        if request.job in self._jobs:
            raise ValueError(f"{request.job} has been submitted already")
        self._kept = None
        self._arrivals += 1
        self._jobs[request.job] = _AdmissionState(request, self._arrivals, asks=not request.demand.io_task)
        demand = request.demand
        for placement in demand.placements:
            self._resources.open(placement)
        self._learners.submitted(demand, now, ready)
        if demand.io_task:
            self._enqueue(self._jobs[request.job])

    def decide(self, now: float) -> list[Grant[J]]:
        """Admit the I/O tasks that may start now, in order of arrival. Each task is granted once."""
        self._kept = None
        self.leases.forget_needs()
        grants = []
        blocked: set[str] = set()
        heads = [(queue[0], queue) for queue in self._queues.values()]
        heapq.heapify(heads)
        while heads:
            (_, first), queue = heapq.heappop(heads)
            job = self._jobs[first]
            fit = self._find_first(job, blocked)
            if isinstance(fit, _Blocked):
                blocked |= fit.resources
                for storage, need in fit.needs:
                    self.leases.lacks(storage, need)
                continue
            grants.append(self._take(job, fit, now))
            if queue:
                heapq.heappush(heads, (queue[0], queue))
        return grants

    def could_start(self, job: J, location: str, placement: Placement | None = None) -> bool:
        """Whether a job that has everything else at a location could start there.

        If not, the job waits for bandwidth until :meth:`start` or :meth:`stand_down`.

        :param placement: the placement with this location that the job would use. None: any placement
        """
        waiting = self._jobs[job]
        if self._kept is None or self._kept[0] is not waiting:
            # Compute the resources once for all locations: the caller asks about thousands of locations one after the
            # other.
            self._kept = waiting, self._kept_from(waiting)
        if isinstance(self._find(waiting, self._kept[1], [location], placement), _ChosenPlacement):
            return True
        if not waiting.ready_at:
            self._enqueue(waiting)
        waiting.ready_at.add((location, placement))
        return False

    def stand_down(self, job: J, location: str, placement: Placement | None = None) -> bool:
        """Note that a job lacks something else at a location.

        The job does not wait for bandwidth there until the caller asks about it again.

        :return: whether the job waited there and waits nowhere now, so that other jobs may start
        """
        waiting = self._jobs[job]
        if (location, placement) not in waiting.ready_at:
            return False
        self._kept = None
        waiting.ready_at.remove((location, placement))
        return not waiting.ready_at and self._dequeue(waiting)

    def give_back(self, job: J, now: float) -> None:
        """Take back the grant of an I/O task that lacks something else there. From now on the task is asked about."""
        granted = self._jobs[job]
        assert granted.fit is not None, "it was granted"
        self._kept = None
        granted.fit, granted.asks, granted.lacked = None, True, frozenset()
        self._resources.release(job)
        self._learners.returned(granted.request.demand, job, now)

    def start(self, job: J, locations: Sequence[str], now: float, placement: Placement | None = None) -> Grant[J]:
        """Start a job that could start at each of these locations.

        :param placement: as for :meth:`could_start`
        :raises ValueError: if the job does not fit
        """
        waiting = self._jobs[job]
        fit = self._find(waiting, set(), locations, placement)
        if isinstance(fit, _Blocked):
            raise ValueError(f"{job} does not fit on {', '.join(locations)}")
        return self._take(waiting, fit, now)

    def release(
        self,
        job: J,
        now: float,
        observation: Observation | None = None,
        no_more: bool = False,
        ready: int | None = None,
    ) -> bool:
        """Free all that a job holds, because the job has ended or will not start. Does nothing for an unknown job.

        :param observation: time and bytes of a job that succeeded
        :param no_more: no further job of the step will be submitted
        :param ready: how many further jobs of the step will be submitted when the waiting job has started. None: the
            number from before stays
        :return: whether the job was known
        """
        ended = self._jobs.pop(job, None)
        if ended is None:
            return False
        self._kept = None
        demand, fit = ended.request.demand, ended.fit
        if ready is not None:
            self._learners.expect(demand, ready)
        if fit is None:
            self._dequeue(ended)
            self._learners.withdrawn(demand, job, now)
        else:
            self._resources.release(job)
            self._learners.ended(demand, fit.placement, job, observation, now)
        if no_more:
            self._learners.no_more(demand, now)
        return True

    def capacity(self, storage: StorageConfig, way: Way, location: str) -> Capacity:
        """Return the unallocated bandwidth of a storage that a job may use, and the free executors of a location."""
        return self._resources.capacity(storage, way, location)

    def bandwidth(self, storage: StorageConfig, direction: Direction) -> float:
        """Return the bandwidth of a storage for all runs, in MB/s."""
        return self._resources.bandwidth(storage, direction)

    def executors(self, placement: Placement) -> int:
        """Return the most I/O tasks at once on a placement's storage: on one location, or on all that share it."""
        pool = placement.pool
        found = [self._resources.executors(pool, location) for location in self._resources.locations(pool)]
        is_shared = placement.storage is not None and placement.storage.scope == "shared"
        return max(1, sum(found) if is_shared else max(found, default=1))

    def waiting(self, step: str) -> int:
        """Return how many jobs of a step wait."""
        return sum(len(queue) for demand, queue in self._queues.items() if demand.step == step)

    def queued(self, storage: StorageConfig) -> Iterator[Queued]:
        """Yield the jobs that wait for bandwidth of a storage. Jobs whose constraint is not known yet are left out."""
        for demand, queue in self._queues.items():
            for placement in demand.placements:
                constraint, _ = next(self._turns(demand, placement), (None, None))
                if placement.storage == storage and constraint is not None:
                    yield Queued(demand.step, bytes_per_second(constraint), len(queue))
                    break

    def drain(self) -> list[LearningEvent]:
        """Return the learning events since the last call."""
        return self._learners.drain()

    # Waiting

    def _enqueue(self, job: _AdmissionState[J]) -> None:
        insort(self._queues.setdefault(job.request.demand, []), (job.arrival, job.request.job))

    def _dequeue(self, job: _AdmissionState[J]) -> bool:
        queue, entry = self._queues.get(job.request.demand, []), (job.arrival, job.request.job)
        index = bisect_left(queue, entry)
        if queue[index : index + 1] != [entry]:
            return False
        del queue[index]
        if not queue:
            del self._queues[job.request.demand]
        return True

    # Deciding

    def _kept_from(self, job: _AdmissionState[J]) -> Set[str]:
        """Return the resources that earlier waiting jobs keep from a job."""
        blocked: set[str] = set()
        for arrival, first in sorted(queue[0] for queue in self._queues.values()):
            if arrival >= job.arrival:
                break
            fit = self._find_first(self._jobs[first], blocked)
            blocked |= fit.resources if isinstance(fit, _Blocked) else frozenset()
        return blocked

    def _find_first(self, job: _AdmissionState[J], blocked: Set[str]) -> _ChosenPlacement | _Blocked:
        """Find where the first waiting job of a demand can start, or the resources that no later job may take."""
        demand = job.request.demand
        if not job.asks:
            return self._find(job, blocked)
        # A job with `asks` starts when the caller asks, which is soon if there is enough. Until then the job keeps its
        # needs.
        kept: set[str] = set()
        needs: list[tuple[StorageConfig, Need]] = []
        for placement in demand.placements:
            names = self._resources.names(demand, placement)
            if blocked.isdisjoint(names) and (next_turn := self._next_turn(job, placement)) is not None:
                kept.update(names)
                needs += self._needed(demand, placement, *next_turn)
        return _Blocked(frozenset(kept), tuple(needs))

    def _next_turn(self, job: _AdmissionState[J], placement: Placement) -> tuple[float | None, NextStart | None] | None:
        """Return how a job that has everything else on some location may start. None: other jobs keep the job out.

        A job that needs several locations may have to wait for a step that learns on one of them. Such a job keeps
        nothing, because the learning step may wait for the same resources.
        """
        demand, pool = job.request.demand, self._resources.locations(placement.pool)
        ready = [where for where, asked in job.ready_at if where in pool and asked in (None, placement)]
        for constraint, turn in self._turns(demand, placement) if ready else ():
            usable = sum(self._locations(job, placement, turn, 0, (location,)) is not None for location in ready)
            if usable and (usable == len(ready) or usable >= demand.locations):
                return constraint, turn
        return None

    def _needed(
        self, demand: Demand, placement: Placement, constraint: float | None, turn: NextStart | None
    ) -> list[tuple[StorageConfig, Need]]:
        """Return what a job needs of the storage of a placement. Empty unless the storage is leased."""
        storage = placement.storage
        if storage is None or constraint is None or not self.leases.has(storage):
            return []
        amount = bytes_per_second(constraint)
        amounts = dict.fromkeys(ONE_WAY[demand.direction], amount)
        if turn is not None and turn.is_alone:
            return [(storage, self.leases.whole(storage, demand.step, amounts))]
        return [(storage, Need(demand.step, amounts, amount))]

    def _find(
        self,
        job: _AdmissionState[J],
        blocked: Set[str],
        locations: Sequence[str] = (),
        placement: Placement | None = None,
    ) -> _ChosenPlacement | _Blocked:
        """Find where a job can start now.

        :param blocked: resources that earlier jobs wait for
        :param locations: the only locations to consider. Empty: all locations
        :param placement: the only placement to consider. None: all placements of the job
        """
        lacking: frozenset[str] = frozenset()
        needs: tuple[tuple[StorageConfig, Need], ...] = ()
        for candidate in job.request.demand.placements if placement is None else (placement,):
            fit = self._find_in(job, candidate, blocked, locations)
            if isinstance(fit, _ChosenPlacement):
                return fit
            lacking |= fit.resources
            needs += fit.needs
        return _Blocked(lacking, needs)

    def _find_in(
        self, job: _AdmissionState[J], placement: Placement, blocked: Set[str], locations: Sequence[str]
    ) -> _ChosenPlacement | _Blocked:
        demand, resources = job.request.demand, self._resources
        if not blocked.isdisjoint(resources.names(demand, placement)):
            return _Blocked()
        if any(location not in resources.locations(placement.pool) for location in locations):
            return _Blocked()
        lacking: frozenset[str] | None = None
        needs: list[tuple[StorageConfig, Need]] = []
        for constraint, turn in self._turns(demand, placement):
            amount = 0 if constraint is None else bytes_per_second(constraint)
            found = self._locations(job, placement, turn, amount, locations)
            if found is None:
                continue
            enough = len(found) >= (len(locations) or demand.locations)
            needed = self._needed(demand, placement, constraint, turn)
            is_held = all(self.leases.is_held(storage, need) for storage, need in needed)
            if enough and is_held and resources.fits(demand, placement, found, amount):
                return _ChosenPlacement(placement, tuple(found), constraint, turn)
            if lacking is None:
                lacking = resources.lacking(demand, placement, found)
                needs = needed if enough and not is_held else []
        if locations or lacking is None:
            return _Blocked()
        job.lacked |= lacking
        return _Blocked(job.lacked, tuple(needs))

    def _turns(self, demand: Demand, placement: Placement) -> Iterator[tuple[float | None, NextStart | None]]:
        """Yield the constraints under which the next job may start, best first, each with the turn of the learner."""
        if demand.constraint is None or placement.storage is None:
            yield None, None
        elif isinstance(demand.constraint, StaticConstraint):
            yield demand.constraint.value, None
        else:
            for turn in self._learners.turns(demand, placement):
                yield turn.constraint, turn

    def _locations(
        self,
        job: _AdmissionState[J],
        placement: Placement,
        turn: NextStart | None,
        amount: int,
        locations: Sequence[str],
    ) -> Sequence[str] | None:
        """Return candidate locations for a start. None: other jobs keep the job out.

        :param locations: the only locations to consider. Empty: all locations
        """
        demand, resources = job.request.demand, self._resources
        holds_lock = turn is not None and turn.is_alone
        if turn is not None and turn.location is not None:
            return (turn.location,) if tuple(locations) in ((), (turn.location,)) else None
        if locations:
            return locations if resources.may_use(demand, placement, locations, holds_lock) else None
        if not holds_lock and not resources.are_enough_unlocked(demand, placement):
            return None
        return resources.choose(demand, placement, amount, job.request.preferred, holds_lock)

    def _take(self, job: _AdmissionState[J], fit: _ChosenPlacement, now: float) -> Grant[J]:
        request = job.request
        amount = 0 if fit.constraint is None else bytes_per_second(fit.constraint)
        self._kept = None
        self._dequeue(job)
        self._resources.allocate(request.job, request.demand, fit.placement, fit.locations, amount)
        self._learners.started(request.demand, fit.placement, request.job, fit.locations[0], now, fit.turn)
        job.fit = fit
        if fit.turn is not None and fit.turn.epoch is not None and fit.turn.is_alone:
            self.leases.keep(fit.placement.storage, fit.turn.epoch)
        allocated = self._resources.allocated(request.demand, fit.placement, fit.locations[0])
        return Grant(
            job=request.job,
            step=request.demand.step,
            placement=fit.placement,
            locations=fit.locations,
            constraint=fit.constraint,
            allocated=None if fit.constraint is None else allocated / BYTES_PER_MEGABYTE,
            running=self._resources.io_tasks(fit.locations[0]),
        )
