"""Admission by storage bandwidth and I/O executors: who may start now, where, and with how much.

Jobs are admitted in order of arrival, but for those of which it is known when they are needed: these change their
places with each other. A job that lacks a resource holds back all later ones that need the same
resource, so that none starves. Jobs of one step are alike; only the first of them that waits is looked at, and the
best location is kept in a heap: the time of a decision does not depend on how many jobs wait.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from streamflow_io.hints.bandwidth import StaticConstraint
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.models import Way

from .demand import AdmissionRequest, Capacity, Demand, Grant, Placement, Queued
from .learners import LearnerFactory, Learners, LearningEvent, make_learner
from .leases import Need
from .observations import Observation
from .resources import Resources
from .storages import BYTES_PER_MEGABYTE, ONE_WAY, bytes_per_second
from .workload import NextStart


@dataclass(frozen=True)
class _Blocked:
    """A job cannot start for want of these resources; none: it is behind another job, or some step learns.

    :ivar needs: of storages that are leased
    """

    resources: frozenset[str] = frozenset()
    needs: tuple[tuple[StorageConfig, Need], ...] = ()


@dataclass(frozen=True)
class _Fit:
    placement: Placement
    locations: tuple[str, ...]
    constraint: float | None
    turn: NextStart | None = None


@dataclass
class _Job:
    """A job that waits or runs.

    :ivar asks: it waits for something else, too, and what it needs here is asked for when it has that: no I/O task, or
        one that was granted what it could not use
    :ivar ready_at: the locations where it has all else that it needs, and the placement that was asked about; of jobs
        that ask
    :ivar lacked: what it has lacked when it was the first to wait. It keeps that from others until it starts: while it
        waits for one resource, it must not lose another
    """

    request: AdmissionRequest
    arrival: int
    asks: bool
    fit: _Fit | None = None
    ready_at: set[tuple[str, Placement | None]] = field(default_factory=set)
    lacked: frozenset[str] = frozenset()


class Admission:
    """Decides which jobs start.

    I/O tasks are submitted and then granted by :meth:`decide`. Other jobs with a storageBW are submitted, asked about
    with :meth:`could_start`, and started with :meth:`start`: whether they have cores is decided elsewhere. An I/O task
    that lacks something else, as memory, gives back what it was granted (:meth:`give_back`), and is asked about from
    then on. Call :meth:`decide` after whatever else is called.

    Guarantees: what is granted fits; :meth:`release` returns all that a job holds, whatever became of it; every job is
    granted at last if those before it end.

    :ivar leases: what this run was given of storages that others use, too; as for the methods, :meth:`decide` follows

    :param io_executors: the most I/O tasks at once on one location; none: four for each core
    :param learner_factory: makes the learner of a step on a storage
    """

    def __init__(self, io_executors: int | None = None, learner_factory: LearnerFactory = make_learner) -> None:
        self._resources = Resources(io_executors)
        self.leases = self._resources.leases
        self._learners = Learners(learner_factory, self._resources)
        self._jobs: dict[str, _Job] = {}
        # Those that wait, by demand, in order of arrival. Jobs that are no I/O tasks: if all they lack is bandwidth.
        self._queues: dict[Demand, list[tuple[int, str]]] = {}
        self._arrivals = 0
        # The job that was asked about last, and what earlier ones keep from it; none: something has changed since.
        self._kept: tuple[_Job, Set[str]] | None = None

    def set_locations(self, pool: str, cores: Mapping[str, float], slots: Mapping[str, int] | None = None) -> None:
        """The locations of a pool, in order of preference, with their cores.

        :param slots: how many jobs at once the locations take that limit them
        """
        self._kept = None
        self._resources.set_locations(pool, cores, slots or {})
        self._learners.relocated()

    def submit(self, request: AdmissionRequest, now: float, ready: int = 0) -> None:
        """A job arrives; its pools are known. It has to end with :meth:`release`.

        :param ready: how many jobs more of its step will be submitted when this one has started
        :raises ValueError: if it is here already
        """
        if request.job in self._jobs:
            raise ValueError(f"{request.job} has been submitted already")
        self._kept = None
        self._arrivals += 1
        self._jobs[request.job] = _Job(request, self._arrivals, asks=not request.demand.io_task)
        demand = request.demand
        for placement in demand.placements:
            self._resources.open(placement)
        self._learners.submitted(demand, now, ready)
        if demand.io_task:
            self._enqueue(self._jobs[request.job])
            if request.due is not None:
                self._order_by_need()

    def decide(self, now: float) -> list[Grant]:
        """Admit the I/O tasks that may start now, in order of arrival; each is granted once."""
        self._kept = None
        self.leases.forget_needs()
        grants = []
        blocked: set[str] = set()
        heads = [(queue[0], queue) for queue in self._queues.values()]
        heapq.heapify(heads)
        while heads:
            (_, name), queue = heapq.heappop(heads)
            job = self._jobs[name]
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

    def could_start(self, job: str, location: str, placement: Placement | None = None) -> bool:
        """Whether a job that asks could start on a location, when it has all else there.

        A job that could not waits from now on for bandwidth, until :meth:`start` or :meth:`stand_down`.

        :param placement: the one that the job would use of those with this location; none: any
        """
        waiting = self._jobs[job]
        if self._kept is None or self._kept[0] is not waiting:
            # Once for all locations: there may be thousands, and it is asked about one after the other.
            self._kept = waiting, self._kept_from(waiting)
        if isinstance(self._find(waiting, self._kept[1], [location], placement), _Fit):
            return True
        if not waiting.ready_at:
            self._enqueue(waiting)
        waiting.ready_at.add((location, placement))
        return False

    def stand_down(self, job: str, location: str, placement: Placement | None = None) -> bool:
        """A job lacks something else on a location: it does not wait for bandwidth there for the time being.

        :return: whether it did, and waits nowhere now: others may start
        """
        waiting = self._jobs[job]
        if (location, placement) not in waiting.ready_at:
            return False
        self._kept = None
        waiting.ready_at.remove((location, placement))
        return not waiting.ready_at and self._dequeue(waiting)

    def give_back(self, job: str, now: float) -> None:
        """An I/O task lacks something else where it was granted to start: it holds nothing, and asks from now on."""
        granted = self._jobs[job]
        assert granted.fit is not None, "it was granted"
        demand, fit = granted.request.demand, granted.fit
        self._kept = None
        granted.fit, granted.asks, granted.lacked = None, True, frozenset()
        self._resources.release(job)
        self._learners.returned(demand, fit.placement, job, now)

    def start(self, job: str, locations: Sequence[str], now: float, placement: Placement | None = None) -> Grant:
        """Start a job that could start on each of these locations.

        :param placement: as for :meth:`could_start`
        :raises ValueError: if it does not fit
        """
        waiting = self._jobs[job]
        fit = self._find(waiting, set(), locations, placement)
        if isinstance(fit, _Blocked):
            raise ValueError(f"{job} does not fit on {', '.join(locations)}")
        return self._take(waiting, fit, now)

    def release(
        self,
        job: str,
        now: float,
        observation: Observation | None = None,
        no_more: bool = False,
        ready: int | None = None,
    ) -> bool:
        """A job has ended, or will not start; what it holds is free. Does nothing for a job that is not here.

        :param observation: how it went, if it succeeded
        :param no_more: no further job of its step will be submitted
        :param ready: how many jobs more of its step will be submitted when the one that waits has started; none: as
            many as were said before
        :return: whether it was here
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
            self._learners.withdrawn(demand, now)
        else:
            self._resources.release(job)
            self._learners.ended(demand, fit.placement, job, observation, now)
        if no_more:
            self._learners.no_more(demand, now)
        return True

    def capacity(self, storage: StorageConfig, way: Way, location: str) -> Capacity:
        """What nobody holds of a storage that some job may use, and of a location that is known."""
        return self._resources.capacity(storage, way, location)

    def executors(self, placement: Placement) -> int:
        """The most I/O tasks at once on the storage of a placement."""
        pool = placement.pool
        found = [self._resources.executors(pool, location) for location in self._resources.locations(pool)]
        is_shared = placement.storage is not None and placement.storage.scope == "shared"
        return max(1, sum(found) if is_shared else max(found, default=1))

    def waiting(self, step: str) -> int:
        """How many jobs of a step wait."""
        return sum(len(queue) for demand, queue in self._queues.items() if demand.step == step)

    def queued(self, storage: StorageConfig) -> Iterator[Queued]:
        """The jobs that wait for bandwidth of a storage; not those of which nobody can say how much they will have."""
        for demand, queue in self._queues.items():
            for placement in demand.placements:
                constraint, _ = next(self._turns(demand, placement), (None, None))
                if placement.storage == storage and constraint is not None:
                    yield Queued(demand.step, bytes_per_second(constraint), len(queue))
                    break

    def drain(self) -> list[LearningEvent]:
        """What was learned and chosen since the last call."""
        return self._learners.drain()

    # Waiting

    def _enqueue(self, job: _Job) -> None:
        insort(self._queues.setdefault(job.request.demand, []), (job.arrival, job.request.job))

    def _dequeue(self, job: _Job) -> bool:
        queue, entry = self._queues.get(job.request.demand, []), (job.arrival, job.request.job)
        index = bisect_left(queue, entry)
        if queue[index : index + 1] != [entry]:
            return False
        del queue[index]
        if not queue:
            del self._queues[job.request.demand]
        return True

    def _order_by_need(self) -> None:
        """Let those that are needed first be first, at the places in the order of arrival that they have together."""
        names = [name for queue in self._queues.values() for _, name in queue]
        needed = [job for name in names if (job := self._jobs[name]).request.due is not None]
        places = sorted(job.arrival for job in needed)
        needed.sort(key=lambda job: (job.request.due or 0.0, job.arrival))
        for job in needed:
            self._dequeue(job)
        for job, job.arrival in zip(needed, places, strict=True):
            self._enqueue(job)

    # Deciding

    def _kept_from(self, job: _Job) -> Set[str]:
        """What jobs that arrived before and wait keep from a job."""
        blocked: set[str] = set()
        for arrival, name in sorted(queue[0] for queue in self._queues.values()):
            if arrival >= job.arrival:
                break
            fit = self._find_first(self._jobs[name], blocked)
            blocked |= fit.resources if isinstance(fit, _Blocked) else frozenset()
        return blocked

    def _find_first(self, job: _Job, blocked: Set[str]) -> _Fit | _Blocked:
        """Where the first waiting job of a demand can start, or what nobody behind it may take."""
        demand = job.request.demand
        if not job.asks:
            return self._find(job, blocked)
        # It starts when it is asked about, which is soon if there is enough: until then it keeps what it needs.
        kept: set[str] = set()
        needs: list[tuple[StorageConfig, Need]] = []
        for placement in demand.placements:
            names = self._resources.names(demand, placement)
            if blocked.isdisjoint(names) and (next_turn := self._next_turn(job, placement)) is not None:
                kept.update(names)
                needs += self._needed(demand, placement, *next_turn)
        return _Blocked(frozenset(kept), tuple(needs))

    def _next_turn(self, job: _Job, placement: Placement) -> tuple[float | None, NextStart | None] | None:
        """How a job that asks may start that has all else on some location; none: it is kept out of too many.

        One that needs several locations, and waits for who learns on one of them, keeps nothing: who learns may wait
        for just that.
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
        """What a job needs of a storage, if that is leased."""
        storage = placement.storage
        if storage is None or constraint is None or not self.leases.has(storage):
            return []
        if turn is not None and turn.is_alone:
            return [(storage, self.leases.whole(storage, demand.step))]
        amount = bytes_per_second(constraint)
        return [(storage, Need(demand.step, dict.fromkeys(ONE_WAY[demand.direction], amount), amount))]

    def _find(
        self, job: _Job, blocked: Set[str], locations: Sequence[str] = (), placement: Placement | None = None
    ) -> _Fit | _Blocked:
        """Where a job can start now.

        :param blocked: resources that earlier jobs wait for
        :param locations: just these
        :param placement: just this one
        """
        lacking: frozenset[str] = frozenset()
        needs: tuple[tuple[StorageConfig, Need], ...] = ()
        for candidate in job.request.demand.placements if placement is None else (placement,):
            fit = self._find_in(job, candidate, blocked, locations)
            if isinstance(fit, _Fit):
                return fit
            lacking |= fit.resources
            needs += fit.needs
        return _Blocked(lacking, needs)

    def _find_in(self, job: _Job, placement: Placement, blocked: Set[str], locations: Sequence[str]) -> _Fit | _Blocked:
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
                return _Fit(placement, tuple(found), constraint, turn)
            if lacking is None:
                lacking = resources.lacking(demand, placement, found, amount)
                needs = needed if enough and not is_held else []
        if locations or lacking is None:
            return _Blocked()
        job.lacked |= lacking
        return _Blocked(job.lacked, tuple(needs))

    def _turns(self, demand: Demand, placement: Placement) -> Iterator[tuple[float | None, NextStart | None]]:
        """The constraints under which the next job may start, the best first, and what learning says of it."""
        if demand.constraint is None or placement.storage is None:
            yield None, None
        elif isinstance(demand.constraint, StaticConstraint):
            yield demand.constraint.value, None
        else:
            for turn in self._learners.turns(demand, placement):
                yield turn.constraint, turn

    def _locations(
        self, job: _Job, placement: Placement, turn: NextStart | None, amount: int, locations: Sequence[str]
    ) -> Sequence[str] | None:
        """Where a job might start; none: it is kept out.

        :param locations: just these
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

    def _take(self, job: _Job, fit: _Fit, now: float) -> Grant:
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
