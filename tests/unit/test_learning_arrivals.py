"""Learning while jobs come one by one, as the compute before them lets them: the disk of the benchmark `io-tasks`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulation import Disk, Outcome, Task, simulate
from streamflow_io.hints.bandwidth import AutoConstraint, Bounds, StaticConstraint, StorageBW
from streamflow_io.hints.config import StorageConfig
from streamflow_io.storage.admission.admission import Admission
from streamflow_io.storage.admission.demand import Demand, Placement
from streamflow_io.storage.admission.epochs import Crowd
from streamflow_io.storage.admission.learners import make_learner

STORAGE = StorageConfig(name="disk", path="/disk", scope="node", write=16)
# One writer gets 5.5 MB/s, two 11, four 12.2, eight 9.1.
DISK = Disk(bandwidth=13.5, writer=5.5, congestion=0.07)
EXECUTORS, TASKS, MEGABYTES = 8, 64, 8.0


def run(constraint: StorageBW, rate: float) -> Outcome:
    """:param rate: jobs per second that come"""
    demand = Demand("/checkpoint", True, constraint, "write", (Placement("hpc", STORAGE),))
    tasks = [Task(f"/checkpoint/{index}", demand, MEGABYTES, index / rate) for index in range(TASKS)]
    admission = Admission(EXECUTORS, make_learner)
    admission.set_locations("hpc", {"node": 2})
    return simulate(admission, tasks, lambda disk, now: DISK, in_turn=True)


@pytest.mark.parametrize("constraint", [AutoConstraint(), AutoConstraint(Bounds(2, 8, 2))])
@pytest.mark.parametrize("rate", [1.4, 1.6, 1.75, 1.9, 2.2, 3.0, 1000.0])
def test_what_is_learned_is_near_the_best_however_fast_jobs_come(rate: float, constraint: AutoConstraint) -> None:
    best = min(run(StaticConstraint(limit), rate).seconds for limit in (2.0, 4.0, 8.0, 16.0))
    learned = run(constraint, rate)
    assert learned.seconds <= 1.10 * best
    # Where they come more slowly than one after the other could be written, there is nothing to learn.
    assert learned.chosen("/checkpoint", "learned") in ([4.0], [] if rate < 1.7 else [4.0])


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0.001, 100)), min_size=1, max_size=12))
def test_the_mean_of_a_crowd_is_what_a_job_shared_the_storage_with(jobs: list[tuple[float, float]]) -> None:
    intervals = [(start, start + seconds) for start, seconds in jobs]
    moments = sorted([(end, 0, index) for index, (_, end) in enumerate(intervals)]
                     + [(start, 1, index) for index, (start, _) in enumerate(intervals)])  # fmt: skip
    crowd, entered = Crowd(), {}
    for now, enters, index in moments:
        if enters:
            entered[index] = crowd.enter(now)
            continue
        start, end = intervals[index]
        overlaps = (max(0.0, min(end, other[1]) - max(start, other[0])) for other in intervals)
        assert crowd.leave(now, start, entered[index]) == pytest.approx(sum(overlaps) / (end - start), rel=1e-6)
    assert crowd.running == 0
