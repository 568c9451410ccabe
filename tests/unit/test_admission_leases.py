"""Requests of a run for a storage that other runs use, and the jobs that may start with what the run has."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamflow_io.hints.bandwidth import AutoConstraint, Bounds, StaticConstraint, StorageBW
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.models import Direction, Way
from streamflow_io.storage.admission.admission import Admission
from streamflow_io.storage.admission.demand import AdmissionRequest, Demand, Placement, Queued
from streamflow_io.storage.admission.epochs import Observation
from streamflow_io.storage.admission.learner import Learner
from streamflow_io.storage.admission.leases import Need
from streamflow_io.storage.admission.registry import ConstraintRegistry, RegisteredConstraint

NFS = StorageConfig(name="nfs", path="/nfs", scope="shared", write=100, read=60)
MB = 1_000_000


def step(name: str, constraint: StorageBW | float, io_task: bool = True, direction: Direction = "write") -> Demand:
    if isinstance(constraint, float | int):
        constraint = StaticConstraint(float(constraint))
    return Demand(f"/{name}", io_task, constraint, direction, (Placement("hpc", NFS),))


class Driver:
    """An admission whose only storage is leased."""

    def __init__(self) -> None:
        self.admission = Admission(4)
        self.admission.set_locations("hpc", {"n1": 1.0, "n2": 1.0})
        self.leases = self.admission.leases
        self.leases.add(NFS)

    def submit(self, demand: Demand, jobs: int = 1) -> None:
        for number in range(jobs):
            self.admission.submit(AdmissionRequest(f"{demand.step}/{number}", demand), 0.0, jobs - number - 1)

    def give(self, write: int, read: int = 0) -> list[str]:
        """Let the run hold this many MB/s."""
        self.leases.give(NFS, {"write": write * MB, "read": read * MB}, {})
        return [grant.job for grant in self.admission.decide(0.0)]

    def end(self, *jobs: str) -> None:
        for job in jobs:
            assert self.admission.release(job, 0.0, Observation(1.0))

    @property
    def needs(self) -> Sequence[Need]:
        return self.leases.needs(NFS)


def test_nothing_starts_before_something_is_held() -> None:
    driver = Driver()
    driver.submit(step("save", 30), jobs=3)
    assert driver.give(0) == []
    assert driver.needs == [Need("/save", {"write": 30 * MB}, 30 * MB)]
    assert driver.give(70) == ["/save/0", "/save/1"]
    assert driver.leases.used(NFS)["write"] == 60 * MB
    assert driver.needs == [Need("/save", {"write": 30 * MB}, 30 * MB)]
    assert [*driver.admission.queued(NFS)] == [Queued("/save", 30 * MB, 1)]


def test_a_lease_that_is_taken_back_leaves_what_jobs_have() -> None:
    driver = Driver()
    driver.submit(step("save", 30), jobs=3)
    driver.give(70)
    assert driver.give(0) == []
    assert driver.leases.held(NFS)["write"] == 60 * MB
    driver.end("/save/0")
    assert driver.leases.held(NFS)["write"] == 60 * MB
    assert driver.give(30) == []


def test_the_first_that_waits_is_asked_for_in_each_direction() -> None:
    """A job that would use the same as one that waits before it, or both, is behind that job."""
    driver = Driver()
    for demand in (step("a", 30), step("b", 20), step("c", 10, direction="both"), step("d", 10, direction="read")):
        driver.submit(demand)
    assert driver.give(0) == []
    assert driver.needs == [Need("/a", {"write": 30 * MB}, 30 * MB), Need("/d", {"read": 10 * MB}, 10 * MB)]
    driver.end("/a/0", "/b/0")
    driver.give(0)
    assert driver.needs == [Need("/c", {"read": 10 * MB, "write": 10 * MB}, 10 * MB)]
    assert driver.give(10, 20) == ["/c/0", "/d/0"]


def test_who_lacks_an_executor_needs_no_lease() -> None:
    driver = Driver()
    driver.submit(step("save", 10), jobs=9)
    assert len(driver.give(80)) == 8
    assert driver.needs == []


def test_a_job_that_asks_has_its_needs_told_until_it_starts() -> None:
    """The job needs a core: it is asked about when it has that."""
    driver = Driver()
    driver.submit(step("compute", 30, io_task=False))
    driver.give(0)
    assert driver.needs == []
    assert not driver.admission.could_start("/compute/0", "n1")
    driver.give(0)
    assert driver.needs == [Need("/compute", {"write": 30 * MB}, 30 * MB)]
    # Others do not take it meanwhile.
    driver.submit(step("save", 30))
    assert driver.give(30) == []
    assert driver.needs[0].step == "/compute"
    assert driver.admission.could_start("/compute/0", "n1")
    driver.admission.start("/compute/0", ["n1"], 0.0)
    driver.give(30)
    assert [need.step for need in driver.needs] == ["/save"]


def test_a_job_that_has_no_core_any_more_needs_nothing() -> None:
    driver = Driver()
    driver.submit(step("compute", 30, io_task=False))
    driver.admission.could_start("/compute/0", "n1")
    driver.admission.stand_down("/compute/0", "n1")
    driver.give(0)
    assert driver.needs == []


def test_an_epoch_has_the_storage_for_itself_and_keeps_it() -> None:
    driver = Driver()
    driver.submit(step("learn", AutoConstraint(Bounds(25, 100, 2))), jobs=12)
    driver.give(0)
    assert driver.needs == [Need("/learn", {"write": 100 * MB, "read": 60 * MB}, 0)]
    assert driver.give(100) == []
    assert driver.give(100, 60) == [f"/learn/{number}" for number in range(4)]
    driver.end("/learn/0", "/learn/1")
    driver.give(100, 60)
    assert driver.leases.used(NFS) == {"write": 100 * MB, "read": 60 * MB}
    driver.end("/learn/2", "/learn/3")
    # The learning is over: the next job asks again, after the jobs of other runs that have waited.
    assert driver.leases.used(NFS) == {"write": 0, "read": 0}
    assert driver.give(0) == []
    assert driver.needs == [Need("/learn", {"write": 100 * MB, "read": 60 * MB}, 0)]
    assert driver.give(100, 60) == ["/learn/4", "/learn/5"]


def test_a_storage_that_is_not_shared_any_more_is_the_runs_own() -> None:
    driver = Driver()
    driver.submit(step("save", 30), jobs=4)
    assert driver.give(0) == []
    driver.leases.remove(NFS)
    assert len(driver.admission.decide(0.0)) == 3
    assert not driver.leases.has(NFS)


def test_what_is_free_for_required_is_what_no_run_holds() -> None:
    driver = Driver()
    driver.submit(step("save", 30))
    driver.leases.give(NFS, {"write": 50 * MB}, {"write": 20 * MB})
    driver.admission.decide(0.0)
    assert driver.admission.capacity(NFS, "write", "n1").bandwidth == 50 * MB
    driver.leases.share(NFS, {"write": 60 * MB})
    assert driver.admission.capacity(NFS, "write", "n1").bandwidth == 10 * MB
    assert driver.admission.capacity(NFS, "read", "n1").bandwidth == 60 * MB


@pytest.mark.parametrize(("shared", "at_once"), [(250, 8), (50, 2)])
@pytest.mark.parametrize("is_known_before", [True, False])
def test_an_epoch_has_all_that_the_runs_share(shared: int, at_once: int, is_known_before: bool) -> None:
    """The runs may share less or more than the StreamFlow file says, and this may become known while jobs wait."""
    driver = Driver()
    bandwidth: dict[Way, int] = {"write": shared * MB, "read": 60 * MB}
    if is_known_before:
        driver.leases.share(NFS, bandwidth)
    driver.submit(step("learn", AutoConstraint(Bounds(25, 100, 2))), jobs=12)
    driver.give(0)
    if not is_known_before:
        driver.leases.share(NFS, bandwidth)
        driver.give(0)
    assert driver.needs == [Need("/learn", {"write": shared * MB, "read": 60 * MB}, 0)]
    assert driver.give(shared - 1, 60) == []
    assert len(driver.give(shared, 60)) == at_once


def test_an_epoch_that_needs_more_than_the_runs_share_by_now_asks_for_what_one_job_needs() -> None:
    """A run with a lower bandwidth has come. More than the runs share is given when no run holds anything."""
    driver = Driver()
    driver.submit(step("learn", AutoConstraint(Bounds(25, 100, 2))), jobs=40)
    driver.end(*driver.give(100, 60))
    driver.leases.share(NFS, {"write": 30 * MB, "read": 60 * MB})
    driver.give(0)
    assert driver.needs == [Need("/learn", {"write": 50 * MB, "read": 60 * MB}, 0)]
    assert driver.give(50, 60) == ["/learn/4"]
    assert driver.needs == [Need("/learn", {"write": 50 * MB, "read": 60 * MB}, 0)]


@given(
    st.sampled_from([AutoConstraint(), AutoConstraint(Bounds(25, 100, 2))]),
    st.dictionaries(st.integers(0, 50), st.integers(1, 200), max_size=5),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.5, 1.0]),
)
@example(AutoConstraint(), {1: 1}, 1, 0.0)
@example(AutoConstraint(Bounds(25, 100, 2)), {1: 10}, 1, 0.0)
@example(AutoConstraint(Bounds(25, 100, 2)), {4: 1, 6: 2}, 1, 0.5)
def test_jobs_that_learn_start_whatever_other_runs_let_them_share(
    constraint: AutoConstraint, shares: dict[int, int], at_once: int, congestion: float
) -> None:
    """The runs share another bandwidth after each of these numbers of jobs. No other run holds anything."""
    driver, running, share = Driver(), list[str](), 100
    driver.submit(step("learn", constraint), jobs=60)
    ended = 0
    while ended < 60:
        running += driver.give(share, 60)
        if not running:
            (need,) = driver.needs
            running += driver.give(-(-need.amounts["write"] // MB), 60)
        assert running
        seconds = 1 + congestion * len(running)
        for job in running[:at_once]:
            assert driver.admission.release(job, float(ended), Observation(seconds))
            running.remove(job)
            ended += 1
            if (changed := shares.get(ended)) is not None:
                share = changed
                driver.leases.share(NFS, {"write": share * MB, "read": 60 * MB})


def test_a_remembered_limit_above_what_the_runs_share_is_learned_anew() -> None:
    learner = Learner(100, 4, remembered=ConstraintRegistry((RegisteredConstraint(80.0, 1.0, 1, 4),)))
    learner.submitted(0.0)
    learner.started("job", 0.0)
    learner.resized(4, bandwidth=90)
    assert (learner.is_learning, learner.constraint) == (False, 80)
    learner.resized(4, bandwidth=50)
    learner.submitted(1.0)
    assert (learner.is_learning, learner.constraint) == (True, 12.5)
    learner.ended("job", Observation(1.0), 2.0)
    assert learner.constraint == 12.5


def test_jobs_that_are_enough_for_a_lower_bandwidth_begin_an_epoch() -> None:
    driver = Driver()
    driver.submit(step("learn", AutoConstraint(Bounds(25, 100, 2))), jobs=3)
    driver.give(0)
    assert driver.needs == [Need("/learn", {"write": 25 * MB}, 25 * MB)]
    driver.leases.share(NFS, {"write": 50 * MB, "read": 60 * MB})
    driver.give(0)
    assert driver.needs == [Need("/learn", {"write": 50 * MB, "read": 60 * MB}, 0)]
    assert len(driver.give(50, 60)) == 2
