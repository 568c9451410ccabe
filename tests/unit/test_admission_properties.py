"""The admission under anything that may happen: jobs of random steps come, start, end, fail and are cancelled."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamflow_io.hints.bandwidth import AutoConstraint, Bounds, StaticConstraint, StorageBW
from streamflow_io.hints.config import StorageConfig
from streamflow_io.storage.admission.admission import Admission
from streamflow_io.storage.admission.demand import ONE_WAY, AdmissionRequest, Demand, Grant, Placement
from streamflow_io.storage.admission.epochs import Epoch, Observation
from streamflow_io.storage.admission.learner import Learner
from streamflow_io.storage.admission.learners import Subject, make_learner

POOLS = {"p": ["n1", "n2"], "q": ["n3"], "r": ["n2", "n3", "n4"]}
CORES = 0.5
STORAGES = (
    StorageConfig(name="nfs", path="/nfs", scope="shared", write=100, read=60),
    StorageConfig(name="ssd", path="/ssd", scope="node", write=50),
)
STATIC = st.sampled_from([5.0, 12.5, 20.0, 35.0, 50.0]).map(StaticConstraint)
AUTO = st.sampled_from([AutoConstraint(), AutoConstraint(Bounds(5, 50, 2)), AutoConstraint(Bounds(12.5, 50, 4))])
PLACEMENTS = st.builds(Placement, st.sampled_from(sorted(POOLS)), st.sampled_from([*STORAGES, None]))

# What is given out: a storage in one direction, at one location or at all of them.
Key = tuple[str, str, str | None]


@st.composite
def demands(draw: st.DrawFn, first: st.SearchStrategy[StorageBW], rest: st.SearchStrategy[StorageBW]) -> list[Demand]:
    def one(number: int) -> Demand:
        io_task = number == 0 or draw(st.booleans())
        placements = draw(st.lists(PLACEMENTS, min_size=1, max_size=2, unique_by=lambda placement: placement.pool))
        if not io_task:
            # Whoever asks about a location does not say for which storage.
            placements = [placement for placement in placements if placement.pool != "r"] or placements[:1]
        most = min(len(POOLS[placement.pool]) for placement in placements)
        return Demand(
            step=f"/step{number}",
            io_task=io_task,
            constraint=draw(first if number == 0 else rest | st.none() if io_task else rest),
            direction=draw(st.sampled_from(["read", "write", "both"])),
            placements=tuple(placements),
            locations=draw(st.sampled_from([1, 1, min(most, 2)])),
        )

    return [one(number) for number in range(draw(st.integers(1, 5)))]


@dataclass
class Job:
    """:ivar asked: where it waits for bandwidth, if it asks
    :ivar asks: no I/O task, or one that could not use what it was granted
    :ivar alone: the full epoch in which it started
    """

    name: str
    demand: Demand
    arrival: int
    grant: Grant | None = None
    asked: list[tuple[str, Placement | None]] = field(default_factory=list)
    asks: bool = False
    alone: Epoch | None = None

    def about(self, placement: Placement) -> Placement | None:
        """Description of the place where it would start; for an I/O task its placement."""
        return placement if self.demand.io_task else None

    @property
    def waits(self) -> bool:
        return self.grant is None and (not self.asks or bool(self.asked))


class AdmissionMachine(RuleBasedStateMachine):
    """Drives an admission, and keeps its own account of all that was granted."""

    first: st.SearchStrategy[StorageBW] = AUTO
    rest: st.SearchStrategy[StorageBW] = STATIC | AUTO

    @initialize(data=st.data(), io_executors=st.sampled_from([None, 1, 2, 3, 4]))
    def begin(self, data: st.DataObject, io_executors: int | None) -> None:
        self.demands = data.draw(demands(self.first, self.rest))
        self.executors = io_executors or int(4 * CORES)
        self.learners: list[tuple[Subject, Learner]] = []
        self.pools = {pool: list(locations) for pool, locations in POOLS.items()}
        self.admission = Admission(io_executors, self.make_learner)
        for pool in self.pools:
            self.tell_locations(pool)
        self.jobs: dict[str, Job] = {}
        self.arrivals = 0
        self.now = 0.0
        self.open = True
        self.closed: set[str] = set()
        self.ready: Counter[str] = Counter()

    def make_learner(self, subject: Subject, executors: int) -> Learner:
        learner = make_learner(subject, executors)
        self.learners.append((subject, learner))
        return learner

    def tell_locations(self, pool: str) -> None:
        self.admission.set_locations(pool, dict.fromkeys(self.pools[pool], CORES))

    # What happens

    @rule(data=st.data(), count=st.integers(1, 8), at_once=st.booleans())
    def submit(self, data: st.DataObject, count: int, at_once: bool) -> None:
        """Jobs of one step: at once, or each when the one before has started."""
        if not (able := [demand for demand in self.demands if demand.step not in self.closed]):
            return
        demand = data.draw(st.sampled_from(able))
        preferred = tuple(data.draw(st.lists(st.sampled_from(["n1", "n2", "n3", "nowhere"]), max_size=2, unique=True)))
        if not at_once:
            self.ready[demand.step] += count - 1
            count = 1
        for _ in range(count):
            self.arrive(demand, preferred)

    def arrive(self, demand: Demand, preferred: tuple[str, ...] = ()) -> None:
        self.arrivals += 1
        job = Job(f"{demand.step}/{self.arrivals}", demand, self.arrivals, asks=not demand.io_task)
        self.jobs[job.name] = job
        self.admission.submit(AdmissionRequest(job.name, demand, preferred), self.now, self.ready[demand.step])
        with pytest.raises(ValueError, match=job.name):
            self.admission.submit(AdmissionRequest(job.name, demand), self.now)
        self.settle()

    @precondition(lambda self: self.compute())
    @rule(data=st.data(), start=st.booleans())
    def ask(self, data: st.DataObject, start: bool) -> None:
        """Another scheduler has free cores for a job that is no I/O task."""
        job = data.draw(st.sampled_from(self.compute()))
        placement = data.draw(st.sampled_from(job.demand.placements))
        wide = st.permutations(self.pools[placement.pool]).map(lambda names: names[: job.demand.locations])
        self.try_to_start(job, placement, data.draw(wide), start)

    def try_to_start(self, job: Job, placement: Placement, locations: Sequence[str], start: bool = True) -> None:
        about = job.about(placement)
        answers = [self.admission.could_start(job.name, location, about) for location in locations]
        for location, answer in zip(locations, answers, strict=True):
            if not answer and (location, about) not in job.asked:
                job.asked.append((location, about))
        if start and all(answers):
            self.granted(self.admission.start(job.name, locations, self.now, about))
            assert set(job.grant.locations if job.grant else ()) == set(locations)
            self.follow(job.demand)
        self.settle()

    @precondition(lambda self: self.compute())
    @rule(data=st.data())
    def stand_down(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(self.compute()))
        asked = data.draw(st.sampled_from(job.asked or [("n1", None)]))
        was_last = job.asked == [asked]
        assert self.admission.stand_down(job.name, *asked) == was_last
        job.asked = [other for other in job.asked if other != asked]
        self.settle()

    @precondition(lambda self: any(not job.asks for job in self.running()))
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        """There is no memory for an I/O task where it was granted to start."""
        job = data.draw(st.sampled_from([job for job in self.running() if not job.asks]))
        self.admission.give_back(job.name, self.now)
        job.grant, job.alone, job.asks = None, None, True
        self.settle()

    @precondition(lambda self: self.running())
    @rule(
        data=st.data(),
        count=st.integers(1, 4),
        succeeds=st.booleans(),
        seconds=st.sampled_from([1.0, 2.0, 5.0, 20.0]),
        size=st.sampled_from([None, 1e8, 2e8]),
    )
    def end(self, data: st.DataObject, count: int, succeeds: bool, seconds: float, size: float | None) -> None:
        for _ in range(min(count, len(self.running()))):
            job = data.draw(st.sampled_from(self.running()))
            self.release(job, Observation(seconds, size) if succeeds else None)

    @precondition(lambda self: any(job.grant is None for job in self.jobs.values()))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """A job that waits will not start, and none of its step that is not here yet will come."""
        job = data.draw(st.sampled_from([job for job in self.jobs.values() if job.grant is None]))
        self.end_step(job.demand)
        self.release(job, None)

    def end_step(self, demand: Demand) -> None:
        self.closed.add(demand.step)
        del self.ready[demand.step]

    @rule(data=st.data())
    def no_more(self, data: st.DataObject) -> None:
        if not self.ready[(demand := data.draw(st.sampled_from(self.demands))).step]:
            self.end_step(demand)

    @rule(pool=st.sampled_from(sorted(POOLS)))
    def grow(self, pool: str) -> None:
        if len(self.pools[pool]) < 5:
            self.pools[pool].append(f"{pool}{len(self.pools[pool])}")
            self.tell_locations(pool)
            self.settle()

    # What must hold

    def settle(self) -> None:
        """Start every job that may start."""
        grants = self.decide()
        while more := self.decide():
            # A step that learns in two pools has left one of them: there others may start now.
            granted = [self.jobs[grant.job].demand for grant in grants]
            assert any(isinstance(demand.constraint, AutoConstraint) and demand.placements[1:] for demand in granted)
            grants += more
        for grant in grants:
            self.follow(self.jobs[grant.job].demand)

    def decide(self) -> list[Grant]:
        self.now += 1
        for grant in (grants := self.admission.decide(self.now)):
            self.check_order(grant)
            self.granted(grant)
        self.admission.drain()
        return grants

    def follow(self, demand: Demand) -> None:
        """The next job of a step comes when the one before has started."""
        if self.ready[demand.step]:
            self.ready[demand.step] -= 1
            self.arrive(demand)

    def granted(self, grant: Grant) -> None:
        job = self.jobs[grant.job]
        demand = job.demand
        assert job.grant is None
        assert grant.placement in demand.placements
        assert len(set(grant.locations)) == len(grant.locations) == demand.locations
        assert set(grant.locations) <= set(self.pools[grant.placement.pool])
        if isinstance(demand.constraint, StaticConstraint) and grant.placement.storage is not None:
            assert grant.constraint == demand.constraint.value
        job.grant, fit = grant, self.admission._jobs[grant.job].fit
        if demand.io_task and demand.locations == 1 and fit is not None and fit.turn is not None:
            job.alone = fit.turn.epoch if fit.turn.is_alone else None
        assert grant.running == self.io_tasks()[grant.locations[0]]
        if grant.constraint is not None:
            used = self.used()
            there = keys(demand, grant.placement, grant.locations[0])
            assert grant.allocated == pytest.approx(max(used[key] for key in there))

    def check_order(self, grant: Grant) -> None:
        job = self.jobs[grant.job]
        for older in self.jobs.values():
            assert not (older.demand == job.demand and older.waits and older.arrival < job.arrival)

    @invariant()
    def bandwidth_suffices(self) -> None:
        for (name, way, _), amount in self.used().items():
            (storage,) = [storage for storage in STORAGES if storage.name == name]
            assert amount <= storage.bandwidth("write" if way == "write" else "read") + 1e-9

    @invariant()
    def executors_suffice(self) -> None:
        assert all(count <= self.executors for count in self.io_tasks().values())

    @invariant()
    def full_epochs_are_undisturbed(self) -> None:
        for member in self.running():
            if member.alone is None or member.grant is None:
                continue
            epoch, storage = member.alone, member.grant.placement.storage
            assert storage is not None
            if not any(learner.holds(epoch) for _, learner in self.learners):
                continue  # Learning has ended without it: whoever disturbs it now disturbs nothing.
            for other in self.running():
                if other.demand.io_task and other.grant is not None and other.alone is not epoch:
                    assert not set(other.grant.locations) & set(member.grant.locations)
                    assert storage.scope == "node" or other.grant.placement.storage != storage

    @invariant()
    def nobody_waits_for_what_a_job_without_memory_may_use(self) -> None:
        """An I/O task that gave back its grant keeps nothing from others until the task asks for bandwidth again."""
        if not self.running() and not any(job.asked for job in self.jobs.values()):
            assert all(job.asks for job in self.jobs.values())

    def teardown(self) -> None:
        """All running jobs have ended: then jobs start, until none is left; and then all is as in the beginning."""
        if not hasattr(self, "jobs"):
            return
        self.open = False
        while self.jobs:
            before = self.arrivals, len(self.jobs)
            for job in self.running():
                self.release(job, Observation(1.0), settle=False)
            self.settle()
            for job in self.compute():
                for placement, locations in self.places(job):
                    if job.grant is None:
                        self.try_to_start(job, placement, locations)
            assert self.running() or (self.arrivals, len(self.jobs)) != before
        assert all(learner.outstanding == 0 and not learner.is_exclusive for _, learner in self.learners)
        assert all(self.admission.waiting(demand.step) == 0 for demand in self.demands)
        fresh = Admission(self.executors)
        for pool, locations in self.pools.items():
            fresh.set_locations(pool, dict.fromkeys(locations, CORES))
        assert probe(self.admission) == probe(fresh)

    # The account

    def release(self, job: Job, observation: Observation | None, settle: bool = True) -> None:
        del self.jobs[job.name]
        closed = job.demand.step in self.closed or not (self.ready[job.demand.step] or self.open)
        assert self.admission.release(job.name, self.now, observation, no_more=closed)
        assert not self.admission.release(job.name, self.now, observation, no_more=closed)
        if settle:
            self.settle()

    def running(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.grant is not None]

    def compute(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.grant is None and job.asks]

    def places(self, job: Job) -> Iterator[tuple[Placement, list[str]]]:
        for placement in job.demand.placements:
            for locations in combinations(self.pools[placement.pool], job.demand.locations):
                yield placement, list(locations)

    def io_tasks(self) -> Counter[str]:
        tasks = [job.grant for job in self.running() if job.demand.io_task and job.grant is not None]
        return Counter(location for grant in tasks for location in grant.locations)

    def used(self) -> dict[Key, float]:
        used: dict[Key, float] = defaultdict(float)
        for job in self.running():
            if (grant := job.grant) is not None and grant.constraint is not None:
                for key in {key for where in grant.locations for key in keys(job.demand, grant.placement, where)}:
                    used[key] += grant.constraint
        return used


def keys(demand: Demand, placement: Placement, location: str) -> list[Key]:
    storage = placement.storage
    if storage is None or demand.constraint is None:
        return []
    return [(storage.name, way, location if storage.scope == "node" else None) for way in ONE_WAY[demand.direction]]


def at(job: Job, location: str) -> bool:
    return job.grant is not None and location in job.grant.locations


def probe(admission: Admission) -> list[tuple[str, tuple[str, ...], float | None, int]]:
    """Grants for far too many jobs of all kinds."""
    for pool in POOLS:
        for storage in (None, *STORAGES):
            constraint = None if storage is None else StaticConstraint(5.0)
            demand = Demand(f"/probe/{pool}/{storage}", True, constraint, "both", (Placement(pool, storage),))
            for number in range(30):
                admission.submit(AdmissionRequest(f"{demand.step}/{number}", demand), 0.0)
    return [(grant.job, grant.locations, grant.allocated, grant.running) for grant in admission.decide(0.0)]


class StaticAdmissionMachine(AdmissionMachine):
    """Nothing is learned: then the waits of all jobs are known, and so are those that must not be overtaken."""

    first = STATIC
    rest = STATIC

    def check_order(self, grant: Grant) -> None:
        super().check_order(grant)
        job = self.jobs[grant.job]
        taken = {key[:2] for key in keys(job.demand, grant.placement, grant.locations[0])}
        waiting = [other for other in self.jobs.values() if other.waits and other.arrival < job.arrival]
        for older in waiting:
            others = [other for other in waiting if other.arrival < older.arrival]
            if not any(resources(other.demand) & resources(older.demand) for other in others):
                assert not (self.lacks_bandwidth(older) and resources(older.demand) & taken)

    def lacks_bandwidth(self, job: Job) -> bool:
        """Whether bandwidth is all that a job waits for."""
        (placement, *others), constraint = job.demand.placements, job.demand.constraint
        if others or job.demand.locations > 1 or placement.storage is None or constraint is None:
            return False
        assert isinstance(constraint, StaticConstraint)
        storage, used, tasks = placement.storage, self.used(), self.io_tasks()
        if not job.asks:
            locations = [name for name in self.pools[placement.pool] if tasks.get(name, 0) < self.executors]
        else:
            locations = [name for name, _ in job.asked if name in self.pools[placement.pool]]
        return bool(locations) and not any(
            all(
                used.get((name, way, where), 0) + constraint.value <= storage.bandwidth(way)  # type: ignore[arg-type]
                for name, way, where in keys(job.demand, placement, location)
            )
            for location in locations
        )


def resources(demand: Demand) -> set[tuple[str, str]]:
    found = {key[:2] for placement in demand.placements for key in keys(demand, placement, "")}
    return found | {("executors", "")} if demand.io_task else found


PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
AdmissionMachine.TestCase.settings = settings(stateful_step_count=25, phases=PHASES)
StaticAdmissionMachine.TestCase.settings = settings(
    AdmissionMachine.TestCase.settings, max_examples=settings().max_examples // 2
)
TestAdmission = AdmissionMachine.TestCase
TestStaticAdmission = StaticAdmissionMachine.TestCase
