"""`auto` with more jobs than cores: one location learns, the others work, and few jobs are enough.

Nodes of 4 cores and 16 executors, with a disk of 16 MB/s each; a writer alone gets 4.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.simulation import Disk, Outcome, Task, simulate
from streamflow_io.hints.bandwidth import AutoConstraint, StaticConstraint, StorageBW
from streamflow_io.hints.config import StorageConfig
from streamflow_io.storage.admission.admission import Admission
from streamflow_io.storage.admission.demand import Demand, Placement
from streamflow_io.storage.admission.epochs import Observation
from streamflow_io.storage.admission.learner import Learner
from streamflow_io.storage.admission.registry import ConstraintRegistry, RegisteredConstraint

CORES, EXECUTORS, MEGABYTES = 4.0, 16, 8.0
CONGESTS, SHARES, AMPLE = Disk(16, 4, 0.3), Disk(16, 4, 0.0), Disk(1000, 4, 0.0)
SSD = StorageConfig(name="ssd", path="/ssd", scope="node", write=16)
NFS = StorageConfig(name="nfs", path="/nfs", scope="shared", write=16)
AUTO = AutoConstraint()


def run(
    jobs: int,
    locations: int = 1,
    constraint: StorageBW | None = AUTO,
    disk: Disk = CONGESTS,
    storage: StorageConfig = SSD,
    cores: tuple[float, ...] = (),
    every: float = 0.0,
    steps: int = 1,
    executors: int | None = None,
) -> Outcome:
    """:param every: seconds between two jobs; 0: all are ready at once"""
    admission = Admission(executors)
    sizes = cores or (CORES,) * locations
    admission.set_locations("hpc", {f"n{index}": size for index, size in enumerate(sizes)})
    tasks = []
    for number in range(jobs):
        step = f"/s{number % steps}"
        placement = Placement("hpc", storage if constraint is not None else None)
        demand = Demand(step, True, constraint, "write", (placement,))
        tasks.append(Task(f"{step}/{number}", demand, MEGABYTES, number * every))
    outcome = simulate(admission, tasks, lambda name, now: disk, in_turn=True)
    assert len(outcome.ended) == jobs
    return outcome


def best_static(jobs: int, locations: int = 1) -> float:
    return min(run(jobs, locations, StaticConstraint(limit)).seconds for limit in (1.0, 2.0, 4.0, 8.0))


def test_it_begins_with_one_job_per_core_and_then_tries_twice_as_many() -> None:
    outcome = run(200)
    epochs = [(epoch.constraint, epoch.jobs, epoch.registered) for epoch in outcome.epochs("/s0")]
    # Twice as many are slower, and so are half as many.
    assert epochs == [(4, 4, True), (2, 8, True), (8, 2, False)]
    assert outcome.chosen("/s0", "learned") == [4]


@pytest.mark.parametrize("disk", [SHARES, AMPLE])
def test_where_more_jobs_at_once_are_no_slower_there_is_no_limit_at_last(disk: Disk) -> None:
    outcome = run(200, disk=disk)
    assert [epoch.constraint for epoch in outcome.epochs("/s0")] == [4, 2, 1]
    assert outcome.chosen("/s0", "learned") == [1]
    if disk is SHARES:
        assert outcome.seconds <= 1.02 * run(200, disk=disk, constraint=None).seconds


def test_one_location_learns_while_the_others_work_and_are_not_counted() -> None:
    outcome = run(300, 6)
    first, second, *_ = outcome.epochs("/s0")
    assert first.location == second.location
    assert first.mean_seconds == pytest.approx(MEGABYTES / CONGESTS.rate(4))
    assert second.mean_seconds == pytest.approx(MEGABYTES / CONGESTS.rate(8))
    at_once = Counter(grant.locations[0] for now, grant in outcome.grants if now == 0.0)
    assert at_once == {f"n{index}": 4 for index in range(6)}
    end = second.started + MEGABYTES / CONGESTS.rate(8) - 1e-6
    during = [grant for now, grant in outcome.grants if second.started < now < end]
    assert during
    assert all(grant.constraint == 4 and grant.locations[0] != second.location for grant in during)


@pytest.mark.parametrize(
    ("jobs", "locations", "factor"),
    [(100, 1, 1.25), (300, 6, 1.25), (1000, 6, 1.1), (40, 1, 1.4), (16, 1, 1.0), (192, 12, 1.0)],
)
def test_it_is_near_the_best_limit(jobs: int, locations: int, factor: float) -> None:
    assert run(jobs, locations).seconds <= factor * best_static(jobs, locations)


@pytest.mark.parametrize(
    ("jobs", "locations", "executors"), [(2, 4, 1), (40, 4, 1), (16, 4, 4), (32, 8, 4), (34, 4, 4), (25, 3, 4)]
)
@pytest.mark.parametrize("disk", [SHARES, AMPLE])
def test_few_jobs_keep_no_location_idle_for_what_they_cannot_use(
    jobs: int, locations: int, executors: int, disk: Disk
) -> None:
    """Where no more jobs than cores may run at once."""
    unlimited = run(jobs, locations, None, disk=disk, executors=executors).seconds
    assert run(jobs, locations, disk=disk, executors=executors).seconds <= 1.02 * unlimited


def test_few_jobs_do_not_all_start_at_once() -> None:
    # Four, and then the other eight, since it is not known that eight are too many.
    assert run(12).seconds <= 0.6 * run(12, constraint=None).seconds


@pytest.mark.parametrize("left", [{"n1": 1.0}, {}])
def test_an_epoch_ends_where_the_location_that_is_large_enough_goes_away(left: dict[str, float]) -> None:
    """Another location is left of the same pool, or only of another pool."""
    admission = Admission()
    admission.set_locations("hpc", {"n0": 4.0} | left)
    admission.set_locations("cloud", {"c0": 1.0})
    placements = (Placement("hpc", SSD), *([] if left else [Placement("cloud", SSD)]))
    demand = Demand("/s0", True, AUTO, "write", placements)
    gone: list[float] = []

    def leave(now: float) -> None:
        if now > 5 and not gone:
            gone.append(now)
            admission.set_locations("hpc", left)

    tasks = [Task(f"/s0/{number}", demand, MEGABYTES) for number in range(100)]
    outcome = simulate(admission, tasks, lambda name, now: CONGESTS, in_turn=True, each=leave)
    assert gone
    assert len(outcome.ended) == 100


@pytest.mark.parametrize(("jobs", "locations"), [(3, 1), (9, 1), (12, 1), (40, 6)])
def test_too_few_jobs_to_learn_is_said_once(jobs: int, locations: int) -> None:
    outcome = run(jobs, locations)
    assert len(outcome.chosen("/s0", "too few jobs")) == 1
    assert not outcome.chosen("/s0", "learned")
    # Together they are never more than twice as many as there are cores.
    assert outcome.seconds <= run(jobs, locations, None).seconds + 1e-6


def test_jobs_that_come_faster_than_they_can_be_written_are_learned() -> None:
    outcome = run(200, every=0.4)
    assert outcome.chosen("/s0", "learned") == [4]
    assert outcome.seconds <= 1.15 * run(200, every=0.4, constraint=StaticConstraint(4.0)).seconds


def test_an_epoch_has_a_location_that_is_large_enough() -> None:
    outcome = run(300, cores=(1.0, 4.0, 0.5, 4.0))
    assert {epoch.location for epoch in outcome.epochs("/s0") if epoch.concurrency > 4} <= {"n1", "n3"}
    assert outcome.chosen("/s0", "learned")


def test_a_shared_storage_begins_with_the_cores_of_all_locations() -> None:
    outcome = run(200, 2, storage=NFS)
    assert outcome.epochs("/s0")[0].concurrency == 8
    assert outcome.chosen("/s0", "learned") == [4]


def test_what_is_left_to_learn_is_learned_in_the_next_run() -> None:
    known = ConstraintRegistry((RegisteredConstraint(4.0, 2.0, 4, 4),), is_complete=False)
    learner = Learner(16.0, 16, remembered=known)
    learner.resized(16, first=4)
    for _ in range(60):
        learner.submitted(0.0)
    assert learner.constraint == 2.0
    assert learner.is_exclusive
    for number in range(8):
        learner.started(str(number), 0.0)
    for number in range(8):
        learner.ended(str(number), Observation(3.0), 3.0)
    # More at once are better: all 16 are next, and 4 are not tried again.
    assert learner.registry.constraints == (2.0,)
    assert learner.constraint == 1.0


@given(
    jobs=st.integers(1, 120),
    cores=st.lists(st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=1, max_size=4).map(tuple),
    disk=st.builds(Disk, st.just(16.0), st.floats(0.5, 16), st.floats(0, 0.5)),
    storage=st.sampled_from([SSD, NFS]),
    every=st.sampled_from([0.0, 0.1, 1.0]),
    steps=st.integers(1, 3),
)
@settings(max_examples=max(10, settings().max_examples // 3))
def test_all_jobs_end_within_the_bandwidth_and_always_in_the_same_way(
    jobs: int, cores: tuple[float, ...], disk: Disk, storage: StorageConfig, every: float, steps: int
) -> None:
    first, second = (run(jobs, 1, AUTO, disk, storage, cores, every, steps) for _ in range(2))
    assert first.grants == second.grants
    assert all(grant.allocated is not None and grant.allocated <= 16 for _, grant in first.grants)
    executors = {f"n{index}": max(1, int(4 * size)) for index, size in enumerate(cores)}
    assert all(grant.running <= executors[grant.locations[0]] for _, grant in first.grants)
