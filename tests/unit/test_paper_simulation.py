"""The learner over the settings of the paper (Elshazly et al., 5.3: HMMER), on a simulated disk with the paper's curve.

225 I/O executors, a disk of 450 MB/s, 2304 checkpoints of 290 MB. A writer alone reaches 10 MB/s; each one beyond those
45 that saturate the disk makes all of them 2 percent slower.
"""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.simulation import Disk, Outcome, Task, simulate
from streamflow_io.hints.bandwidth import AutoConstraint, Bounds, StaticConstraint, StorageBW
from streamflow_io.hints.config import StorageConfig
from streamflow_io.storage.admission.admission import Admission
from streamflow_io.storage.admission.demand import Demand, Placement
from streamflow_io.storage.admission.learner import Chosen, Learner
from streamflow_io.storage.admission.learners import Subject
from streamflow_io.storage.admission.registry import ConstraintRegistry

EXECUTORS, TASKS, MEGABYTES = 225, 2304, 290.0
#: Enough for all epochs of a step, and for those after them.
FEWER = TASKS // 2
PAPER = Disk(bandwidth=450, writer=10, congestion=0.02)
SSD = StorageConfig(name="ssd", path="/ssd", scope="node", write=450)
UNBOUNDED, BOUNDED = AutoConstraint(), AutoConstraint(Bounds(2, 256, 2))


def checkpoint(constraint: StorageBW | None, storage: StorageConfig = SSD, step: str = "/checkpoint") -> Demand:
    return Demand(step, True, constraint, "write", (Placement("hpc", storage if constraint is not None else None),))


def tasks(demand: Demand, number: int = TASKS, arrival: float = 0.0) -> list[Task]:
    return [Task(f"{demand.step}/{index}", demand, MEGABYTES, arrival) for index in range(number)]


def admission(locations: int = 1, remembered: ConstraintRegistry | None = None, cores: int = EXECUTORS) -> Admission:
    """:param cores: of a location; as many as executors: the first epoch is that of the paper, of all executors"""

    def learner(subject: Subject, executors: int) -> Learner:
        return Learner(subject.storage.bandwidth("write"), executors, subject.constraint.bounds, remembered)

    made = Admission(EXECUTORS, learner)
    made.set_locations("hpc", {f"n{index}": cores for index in range(locations)})
    return made


@cache
def run(constraint: StorageBW | None, in_turn: bool = False) -> Outcome:
    return simulate(admission(), tasks(checkpoint(constraint)), lambda disk, now: PAPER, in_turn=in_turn)


def best_static() -> float:
    """With the best constraint: `test_the_disk_congests` compares it with the others."""
    return run(StaticConstraint(8.0)).seconds


@pytest.mark.parametrize("in_turn", [False, pytest.param(True, marks=pytest.mark.long)])
def test_unbounded_stops_after_four_epochs_and_chooses_eight(in_turn: bool) -> None:
    outcome = run(UNBOUNDED, in_turn)
    epochs = outcome.epochs("/checkpoint")
    assert [(epoch.constraint, epoch.jobs) for epoch in epochs] == [(2, 225), (4, 112), (8, 56), (16, 28)]
    assert [epoch.registered for epoch in epochs] == [True, True, True, False]
    assert outcome.chosen("/checkpoint", "learned") == [8]


@pytest.mark.parametrize("in_turn", [pytest.param(False, marks=pytest.mark.long), True])
def test_bounded_takes_eight_epochs_and_chooses_eight(in_turn: bool) -> None:
    outcome = run(BOUNDED, in_turn)
    epochs = outcome.epochs("/checkpoint")
    assert [epoch.constraint for epoch in epochs] == [2, 4, 8, 16, 32, 64, 128, 256]
    assert [epoch.jobs for epoch in epochs] == [225, 112, 56, 28, 14, 7, 3, 1]
    assert all(epoch.registered for epoch in epochs)
    assert outcome.chosen("/checkpoint", "learned") == [8]


@pytest.mark.parametrize(("constraint", "factor"), [(UNBOUNDED, 1.31), (BOUNDED, 1.37)])
def test_learning_costs_no_more_than_its_epochs(constraint: AutoConstraint, factor: float) -> None:
    # The first epoch runs 225 writers: a third of the best total time. What is left runs as under the best constraint.
    outcome = run(constraint)
    assert outcome.seconds <= factor * best_static()
    assert outcome.seconds < 0.4 * run(None).seconds
    learned = next(time for time, told in outcome.events if told.event in outcome.epochs("/checkpoint")[-1:])
    left = TASKS - sum(epoch.jobs for epoch in outcome.epochs("/checkpoint"))
    assert outcome.seconds - learned <= 1.03 * best_static() * left / TASKS


def test_a_second_run_is_as_fast_as_the_best_static_one() -> None:
    known = run(UNBOUNDED).events[-1][1].registry
    again = simulate(admission(remembered=known), tasks(checkpoint(UNBOUNDED)), lambda disk, now: PAPER)
    assert again.epochs("/checkpoint") == []
    assert again.seconds <= 1.03 * best_static()


def test_jobs_of_different_sizes_are_learned_alike_when_measured() -> None:
    demand = checkpoint(UNBOUNDED)
    sizes = [MEGABYTES * (0.5 + (index * 37 % 64) / 63) for index in range(FEWER)]
    uneven = [Task(f"/checkpoint/{index}", demand, size) for index, size in enumerate(sizes)]
    outcome = simulate(admission(), uneven, lambda disk, now: PAPER, measured=True)
    assert [epoch.constraint for epoch in outcome.epochs("/checkpoint")] == [2, 4, 8, 16]
    assert all(epoch.uneven for epoch in outcome.epochs("/checkpoint"))
    assert outcome.chosen("/checkpoint", "learned") == [8]


# Several steps and locations


def test_two_steps_learn_on_one_location_one_after_the_other() -> None:
    one, other = checkpoint(UNBOUNDED, step="/one"), checkpoint(UNBOUNDED, step="/other")
    outcome = simulate(admission(), [*tasks(one, FEWER), *tasks(other, FEWER)], lambda disk, now: PAPER)
    for step in ("/one", "/other"):
        assert [epoch.constraint for epoch in outcome.epochs(step)] == [2, 4, 8, 16]
        assert outcome.chosen(step, "learned") == [8]
    # The mean times are those of a step that is alone: nothing has disturbed them.
    alone = [epoch.mean_seconds for epoch in run(UNBOUNDED).epochs("/checkpoint")]
    for step in ("/one", "/other"):
        assert [epoch.mean_seconds for epoch in outcome.epochs(step)] == pytest.approx(alone)
    assert len(outcome.ended) == 2 * FEWER


@given(
    disk=st.builds(Disk, st.just(48.0), st.floats(1, 48), st.floats(0.001, 0.3)),
    locations=st.integers(2, 8),
)
@settings(max_examples=settings().max_examples // 5)
def test_epochs_at_the_same_time_learn_the_same(disk: Disk, locations: int) -> None:
    """With bounds, and enough jobs: until the first epoch has ended, jobs elsewhere show nothing.

    Without bounds one location learns, for as many jobs as there are.
    """
    small = StorageConfig(name="ssd", path="/ssd", scope="node", write=48)

    def learn(locations: int) -> Outcome:
        made = Admission(24)
        made.set_locations("hpc", {f"n{index}": 6 for index in range(locations)})
        return simulate(made, tasks(checkpoint(BOUNDED, small), 48 * locations + 60), lambda name, now: disk)

    def registered(outcome: Outcome) -> list[tuple[float, float | None, bool]]:
        epochs = outcome.epochs("/checkpoint")
        return [(epoch.constraint, pytest.approx(epoch.mean_seconds), epoch.registered) for epoch in epochs]

    alone, together = learn(1), learn(locations)
    first = registered(alone)
    assert registered(together) == first
    learned = next(
        now for now, told in together.events if isinstance(told.event, Chosen) and told.event.reason == "learned"
    )
    if locations >= 5:
        # Each on a location of its own: together they take as long as the longest of them.
        assert learned == pytest.approx(max(epoch.mean_seconds or 0 for epoch in together.epochs("/checkpoint")))


def test_failures_neither_count_nor_stop_anything() -> None:
    demand = checkpoint(UNBOUNDED)
    some = [Task(f"/checkpoint/{index}", demand, MEGABYTES, fails=index % 10 == 0) for index in range(FEWER)]
    outcome = simulate(admission(), some, lambda disk, now: PAPER)
    assert [epoch.constraint for epoch in outcome.epochs("/checkpoint")] == [2, 4, 8, 16]
    assert all(epoch.jobs < epoch.concurrency for epoch in outcome.epochs("/checkpoint"))
    assert outcome.chosen("/checkpoint", "learned") == [8]
