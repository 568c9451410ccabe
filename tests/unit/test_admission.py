"""Admission of jobs, where and in which order: one decision at a time.

Properties are in test_admission_properties.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count

import pytest
from msgspec.structs import replace

from streamflow_io.hints.bandwidth import AutoConstraint, Bounds, StaticConstraint, StorageBW
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.models import Direction
from streamflow_io.storage.admission.admission import Admission
from streamflow_io.storage.admission.demand import AdmissionRequest, Capacity, Demand, Grant, Placement
from streamflow_io.storage.admission.epochs import EpochEnded, Observation

SSD = StorageConfig(name="ssd", path="/ssd", scope="node", write=100, read=60)
NFS = StorageConfig(name="nfs", path="/nfs", scope="shared", write=100, read=60)


def step(
    name: str,
    constraint: StorageBW | float | None = None,
    storage: StorageConfig | None = SSD,
    pools: Sequence[str] = ("hpc",),
    io_task: bool = True,
    direction: Direction = "write",
    locations: int = 1,
) -> Demand:
    if isinstance(constraint, float | int):
        constraint = StaticConstraint(float(constraint))
    placements = tuple(Placement(pool, storage if constraint is not None else None) for pool in pools)
    return Demand(f"/{name}", io_task, constraint, direction, placements, locations)


class Driver:
    """An admission, and short words for what happens to it."""

    def __init__(self, locations: Sequence[str] = ("n1",), io_executors: int = 4) -> None:
        self.admission = Admission(io_executors)
        # With as many cores as executors, `auto` begins with all executors.
        self.admission.set_locations("hpc", dict.fromkeys(locations, float(io_executors)))
        self._names: dict[str, Iterator[int]] = {}

    def submit(self, demand: Demand, jobs: int = 1, preferred: Sequence[str] = ()) -> list[Grant]:
        """Jobs `/step/1`, `/step/2`, ... arrive."""
        names = self._names.setdefault(demand.step, count(1))
        for _ in range(jobs):
            self.admission.submit(AdmissionRequest(f"{demand.step}/{next(names)}", demand, tuple(preferred)), 0.0)
        return self.admission.decide(0.0)

    def end(self, *jobs: str, seconds: float = 1.0) -> list[Grant]:
        for job in jobs:
            assert self.admission.release(job, 0.0, Observation(seconds))
        return self.admission.decide(0.0)


def names(grants: Sequence[Grant]) -> list[str]:
    return [grant.job for grant in grants]


def places(grants: Sequence[Grant]) -> list[str]:
    return [grant.locations[0] for grant in grants]


# Bandwidth


def test_what_nobody_holds() -> None:
    driver = Driver(("n1", "n2"), io_executors=3)
    driver.submit(step("node", 30), preferred=["n1"])
    driver.submit(step("shared", 40, NFS), preferred=["n1"])
    capacity = driver.admission.capacity
    assert capacity(SSD, "write", "n1") == Capacity(70_000_000, False, 3, 1)
    assert capacity(SSD, "write", "n2") == Capacity(100_000_000, False, 3, 3)
    assert capacity(SSD, "read", "n1").bandwidth == 60_000_000
    assert capacity(NFS, "write", "n2") == Capacity(60_000_000, True, 3, 3)
    assert driver.admission.executors(Placement("hpc", NFS)) == 6
    assert driver.admission.executors(Placement("hpc", SSD)) == 3


def test_a_grant_says_what_is_used() -> None:
    driver = Driver()
    first, second = driver.submit(step("write", 40), jobs=3)
    assert (first.job, first.locations, first.constraint, first.allocated, first.running) == (
        ("/write/1", ("n1",), 40.0, 40.0, 1)
    )
    assert (second.job, second.allocated, second.running) == ("/write/2", 80.0, 2)
    assert driver.admission.waiting("/write") == 1


def test_a_shared_storage_has_one_bandwidth_and_a_node_storage_one_per_location() -> None:
    shared, node = Driver(("n1", "n2")), Driver(("n1", "n2"))
    assert len(shared.submit(step("write", 100, NFS), jobs=3)) == 1
    assert len(node.submit(step("write", 100, SSD), jobs=3)) == 2


@pytest.mark.parametrize("io_executors", [None, 2, 16])
def test_a_location_has_no_more_executors_than_it_takes_jobs(io_executors: int | None) -> None:
    """A queue manager takes three jobs: a fourth would hold bandwidth, and wait for a place in the queue."""
    admission = Admission(io_executors)
    admission.set_locations("hpc", {"queue": 3.0}, {"queue": 3})
    for number in range(20):
        admission.submit(AdmissionRequest(f"/move/{number}", step("move")), 0.0)
    assert len(admission.decide(0.0)) == min(io_executors or 3, 3)


# Placement


def test_preferred_first_then_most_free_bandwidth_then_in_order() -> None:
    driver = Driver(("n1", "n2", "n3"))
    assert places(driver.submit(step("write", 40), preferred=("elsewhere", "n2"))) == ["n2"]
    assert places(driver.submit(step("write", 40), jobs=4)) == ["n1", "n3", "n1", "n2"]
    # The preferred one has no room: then as if there were none.
    assert places(driver.submit(step("write", 50), preferred=("n1",))) == ["n3"]


def test_of_two_preferred_locations_the_better_one_that_has_room() -> None:
    driver = Driver(("n1", "n2", "n3"))
    driver.submit(step("fill", 100), preferred=("n3",))
    assert places(driver.submit(step("write", 40), preferred=("n3", "n2"))) == ["n2"]


def test_a_shared_storage_goes_to_the_first_candidate() -> None:
    driver = Driver(("n1", "n2"), io_executors=1)
    assert places(driver.submit(step("write", 10, NFS), jobs=3)) == ["n1", "n2"]


def test_the_first_target_that_has_room() -> None:
    driver = Driver(("n1",))
    driver.admission.set_locations("cloud", {"c1": 1.0})
    grants = driver.submit(step("write", 60, pools=("hpc", "cloud")), jobs=3)
    assert places(grants) == ["n1", "c1"]
    assert [grant.placement.pool for grant in grants] == ["hpc", "cloud"]


def test_a_location_that_appears_is_used() -> None:
    driver = Driver(("n1",))
    assert places(driver.submit(step("write", 100), jobs=2)) == ["n1"]
    driver.admission.set_locations("hpc", {"n1": 1.0, "n2": 1.0})
    assert places(driver.admission.decide(0.0)) == ["n2"]


# In order of arrival


def test_who_waits_for_bandwidth_holds_back_later_jobs_for_the_same_storage_only() -> None:
    driver = Driver()
    driver.submit(step("first", 60))
    assert driver.submit(step("large", 60)) == []
    assert driver.submit(step("small", 10)) == []
    assert names(driver.submit(step("other", 10, NFS))) == ["/other/1"]
    assert names(driver.submit(step("reader", 10, direction="read"))) == ["/reader/1"]
    assert names(driver.end("/first/1")) == ["/large/1", "/small/1"]


def test_who_waits_for_a_location_holds_back_nobody_elsewhere() -> None:
    driver = Driver(("n1",), io_executors=1)
    driver.admission.set_locations("cloud", {"c1": 1.0})
    driver.submit(step("first", 10, NFS))
    assert driver.submit(step("second", 10, NFS)) == []
    assert names(driver.submit(step("third", 10, NFS, pools=("cloud",)))) == ["/third/1"]


def test_a_job_that_needs_two_resources_is_not_starved_by_those_that_need_one() -> None:
    # The executor is always wanted by one step, the bandwidth by another one, and they never come free together.
    driver = Driver(io_executors=1)
    compute = step("compute", 60, NFS, io_task=False)
    driver.submit(step("move"))
    start_compute(driver, compute)
    assert driver.submit(step("both", 60, NFS)) == []
    driver.submit(step("move"))
    # `/both` lacks bandwidth, not the executor.
    assert names(driver.end("/move/1")) == ["/move/2"]
    # Now it lacks the executor: it must not lose the bandwidth again.
    driver.submit(compute)
    driver.end("/compute/1")
    assert not driver.admission.could_start("/compute/2", "n1")
    assert names(driver.end("/move/2")) == ["/both/1"]


def start_compute(driver: Driver, demand: Demand) -> Grant:
    driver.submit(demand)
    job = f"{demand.step}/1"
    assert driver.admission.could_start(job, "n1")
    return driver.admission.start(job, ["n1"], 0.0)


@pytest.mark.parametrize("pool", ["hpc", "front"])
def test_a_job_on_two_locations_is_not_starved_by_those_on_one(pool: str) -> None:
    driver = Driver(("n1", "n2"), io_executors=1)
    # The same machines under another name.
    driver.admission.set_locations("front", {"n1": 1.0, "n2": 1.0})
    narrow = step("narrow", pools=(pool,))
    assert len(driver.submit(narrow, jobs=2)) == 2
    assert driver.submit(step("wide", locations=2)) == []
    assert driver.submit(narrow) == []
    assert driver.end("/narrow/1") == []
    assert names(driver.end("/narrow/2")) == ["/wide/1"]
    assert names(driver.end("/wide/1")) == ["/narrow/3"]


# Jobs that are no I/O tasks


def test_a_compute_job_waits_only_when_bandwidth_is_all_it_lacks() -> None:
    driver = Driver(("n1", "n2"))
    driver.submit(step("fill", 80), jobs=2)
    compute = step("compute", 60, io_task=False)
    driver.submit(compute)
    assert names(driver.submit(step("write", 20))) == ["/write/1"]
    assert not driver.admission.could_start("/compute/1", "n1")
    assert driver.submit(step("write", 20)) == []
    assert not driver.admission.stand_down("/compute/1", "n2")
    assert driver.admission.stand_down("/compute/1", "n1")
    assert names(driver.admission.decide(0.0)) == ["/write/2"]


def test_two_storages_on_the_same_locations_are_not_mixed_up() -> None:
    driver = Driver()
    fast, slow = (Placement("hpc", storage) for storage in (SSD, NFS))
    demand = replace(step("compute", 60, io_task=False), placements=(fast, slow))
    driver.submit(demand, jobs=3)
    assert driver.admission.could_start("/compute/1", "n1", slow)
    assert driver.admission.start("/compute/1", ["n1"], 0.0, slow).placement == slow
    assert not driver.admission.could_start("/compute/2", "n1", slow)
    with pytest.raises(ValueError, match="/compute/2 does not fit on n1"):
        driver.admission.start("/compute/2", ["n1"], 0.0, slow)
    # `/compute/2` waits for the slow one, and keeps nothing of the fast one from others.
    assert driver.admission.could_start("/compute/3", "n1", fast)
    assert driver.admission.could_start("/compute/2", "n1", fast)
    assert driver.admission.start("/compute/2", ["n1"], 0.0, fast).placement == fast
    assert not driver.admission.stand_down("/compute/3", "n1", fast)


# I/O tasks that lack something else


def test_what_an_io_task_cannot_use_is_for_others() -> None:
    driver = Driver(io_executors=1)
    assert names(driver.submit(step("large", 100))) == ["/large/1"]
    assert driver.submit(step("small", 60)) == []
    # There is no memory for it.
    driver.admission.give_back("/large/1", 0.0)
    assert names(driver.admission.decide(0.0)) == ["/small/1"]
    # Now there is: it waits for bandwidth, before all that come later.
    assert not driver.admission.could_start("/large/1", "n1")
    assert driver.submit(step("small", 60)) == []
    assert driver.end("/small/1") == []
    assert driver.admission.could_start("/large/1", "n1")
    grant = driver.admission.start("/large/1", ["n1"], 0.0)
    assert (grant.allocated, grant.running) == (100.0, 1)
    assert names(driver.end("/large/1")) == ["/small/2"]


def test_the_job_of_an_epoch_that_is_given_back_is_still_wanted() -> None:
    driver = Driver(("n1", "n2"))
    single = AutoConstraint(Bounds(50, 50, 2))
    assert places(driver.submit(step("learns", single), jobs=6)) == ["n1", "n1", "n2", "n2"]
    driver.admission.give_back("/learns/2", 0.0)
    # The next one of its step takes its place in the epoch, and the epoch is the only one there.
    assert places(driver.admission.decide(0.0)) == ["n1"]
    assert not driver.admission.could_start("/learns/2", "n1")
    assert names(driver.submit(step("plain"), preferred=("n1",))) == ["/plain/1"]
    driver.end("/learns/1", "/learns/5", seconds=8.0)
    (event,) = [told.event for told in driver.admission.drain() if isinstance(told.event, EpochEnded)]
    assert (event.jobs, event.registered) == (2, True)
    assert driver.admission.could_start("/learns/2", "n1")
    driver.admission.start("/learns/2", ["n1"], 0.0)
    driver.end("/learns/2")


@pytest.mark.parametrize("ended", [0, 1, 3])
def test_an_epoch_whose_jobs_lack_space_lets_those_run_that_free_it(ended: int) -> None:
    driver = Driver()
    assert len(driver.submit(step("fills", AUTO, NFS), jobs=8)) == 4
    assert driver.submit(step("frees")) == []
    assert driver.end(*(f"/fills/{number}" for number in range(1, ended + 1))) == []
    # The disk is full, and each job finds that out when its turn has come.
    granted: list[str] = []
    for number in range(ended + 1, 9):
        assert "/frees/1" not in granted
        driver.admission.give_back(f"/fills/{number}", 0.0)
        granted = names(driver.admission.decide(0.0))
    assert granted == ["/frees/1"]
    driver.end("/frees/1")
    # There is space for one job, which starts before anything is learned.
    assert driver.admission.could_start("/fills/8", "n1")
    driver.admission.start("/fills/8", ["n1"], 0.0)
    driver.end("/fills/8")


# Learning

AUTO = AutoConstraint()
SHORT = AutoConstraint(Bounds(50, 100, 2))


def test_others_wait_while_an_epoch_is_full() -> None:
    driver = Driver()
    assert len(driver.submit(step("learns", AUTO), jobs=4)) == 4
    assert driver.submit(step("plain")) == []
    assert len(driver.submit(step("learns", AUTO), jobs=4)) == 0
    # Epochs of 4, 2 and 1 jobs under 25, 50 and 100 MB/s, the location is locked for all of them.
    assert len(driver.end(*(f"/learns/{job}" for job in range(1, 5)), seconds=8.0)) == 2
    assert len(driver.end("/learns/5", "/learns/6", seconds=2.0)) == 1
    granted = driver.end("/learns/7", seconds=0.9)
    assert "/plain/1" in names(granted)


def test_an_epoch_waits_until_it_is_alone_and_elsewhere_all_goes_on() -> None:
    driver = Driver(("n1", "n2"), io_executors=8)
    driver.submit(step("plain"), jobs=2)
    assert places(driver.submit(step("learns", AutoConstraint(Bounds(25, 25, 2))), jobs=8)) == ["n2"] * 4
    (other,) = driver.submit(step("plain"))
    assert [grant.locations for grant in driver.end("/plain/1")] == [("n1",)] * 4
    assert other.locations == ("n2",)


def test_compute_goes_on_beside_an_epoch() -> None:
    driver = Driver()
    driver.submit(step("learns", SHORT, NFS), jobs=2)
    assert start_compute(driver, step("compute", 10, io_task=False)).locations == ("n1",)


def test_two_steps_learn_one_after_the_other_on_one_location() -> None:
    driver = Driver()
    assert len(driver.submit(step("a", SHORT), jobs=3)) == 2
    assert driver.submit(step("b", SHORT), jobs=3) == []
    assert names(driver.end("/a/1", "/a/2", seconds=4.0)) == ["/a/3"]
    assert names(driver.end("/a/3")) == ["/b/1", "/b/2"]


def test_nobody_is_placed_where_an_epoch_is_full() -> None:
    driver = Driver(("n1", "n2"), io_executors=4)
    assert places(driver.submit(step("learns", AutoConstraint(Bounds(50, 50, 2))), jobs=3)) == ["n1", "n1", "n2"]
    assert places(driver.submit(step("plain"), jobs=3, preferred=("n1",))) == ["n2"] * 3


def test_a_step_learns_where_the_fewest_run() -> None:
    driver = Driver(("n1", "n2"))
    driver.submit(step("plain"), preferred=("n1",))
    driver.admission.submit(AdmissionRequest("/learns/1", step("learns", SHORT)), 0.0, ready=1)
    assert places(driver.admission.decide(0.0)) == ["n2"]


@pytest.mark.parametrize("jobs", [100, 700])
def test_as_long_as_all_fit_at_once_jobs_go_to_all_locations(jobs: int) -> None:
    driver = Driver([f"n{number}" for number in range(12)], io_executors=60)
    grants = driver.submit(step("learns", AUTO), jobs=jobs)
    assert len(grants) == jobs
    assert set(Counter(places(grants)).values()) == {jobs // 12, jobs // 12 + 1}


def test_epochs_of_several_constraints_are_on_at_the_same_time() -> None:
    locations = [f"n{number}" for number in range(12)]
    driver = Driver(locations, io_executors=8)
    driver.admission.submit(AdmissionRequest("/learns/0", step("learns", AUTO)), 0.0, ready=300)
    grants = driver.admission.decide(0.0) + driver.submit(step("learns", AUTO), jobs=300)
    by_location = {where: [grant for grant in grants if grant.locations[0] == where] for where in locations}
    # 8, 4, 2 and 1 at once; elsewhere as many as in the first of these epochs.
    found = [(len(jobs), {grant.constraint for grant in jobs}) for jobs in by_location.values() if jobs]
    assert found == [(8, {12.5}), (4, {25.0}), (2, {50.0}), (1, {100.0}), *[(8, {12.5})] * 8]
    # One of them has ended: what is left goes where no epoch is, by what is known.
    (last,) = by_location["n3"]
    further = driver.end(last.job)
    assert {grant.constraint for grant in further} == {100.0}
    assert places(further) == ["n3"]


def test_an_epoch_on_a_shared_storage_has_the_executors_of_all_locations() -> None:
    locations = [f"n{number}" for number in range(12)]
    driver = Driver(locations, io_executors=16)
    elsewhere, near = step("elsewhere", 10, NFS, pools=("cloud",)), step("near")
    driver.admission.set_locations("cloud", {"c1": 1.0})
    assert len(driver.submit(elsewhere)) == 1
    assert driver.submit(step("learns", AUTO, NFS), jobs=300) == []
    # No other job uses the storage meanwhile, from wherever, nor the locations.
    assert driver.submit(elsewhere) == []
    assert driver.submit(near) == []
    grants = driver.end("/elsewhere/1")
    assert Counter(places(grants)) == dict.fromkeys(locations, 16)
    assert all(grant.constraint == pytest.approx(100 / 192, abs=1e-6) for grant in grants)
    assert len(driver.end(*names(grants), seconds=8.0)) == 96


def test_the_executors_of_locations_in_several_pools_count_once() -> None:
    driver = Driver(("n1", "n2"), io_executors=4)
    driver.admission.set_locations("more", {"n2": 4.0, "n3": 4.0})
    grants = driver.submit(step("learns", AUTO, NFS, pools=("hpc", "more")), jobs=20)
    assert Counter(places(grants)) == {"n1": 4, "n2": 4, "n3": 4}


def test_steps_with_the_same_tool_learn_together() -> None:
    driver = Driver(io_executors=4)
    one, other, foreign = (replace(step(name, AUTO), tool=tool) for name, tool in (("a", "x"), ("b", "x"), ("c", "y")))
    assert names(driver.submit(one, jobs=2)) == ["/a/1", "/a/2"]
    assert names(driver.submit(foreign)) == ["/c/1"]
    # With the other step there are enough; those that run do not count.
    assert driver.submit(other, jobs=8) == []
    first = driver.end("/a/1", "/a/2", "/c/1")
    assert names(first) == ["/b/1", "/b/2", "/b/3", "/b/4"]
    second = driver.end(*names(first), seconds=8.0)
    assert [(grant.job, grant.constraint) for grant in second] == [("/b/5", 50.0), ("/b/6", 50.0)]
    assert {event.step for event in driver.admission.drain()} == {"/a", "/c"}


def test_a_step_with_no_more_jobs_does_not_end_the_epoch_of_another_one() -> None:
    driver = Driver(io_executors=4)
    one, other = (replace(step(name, AUTO), tool="x") for name in ("a", "b"))
    driver.submit(one)
    driver.submit(other)
    driver.admission.release("/a/1", 1.0, Observation(1.0), no_more=True)
    assert not [event for event in driver.admission.drain() if isinstance(event.event, EpochEnded)]
    driver.admission.release("/b/1", 1.0, Observation(1.0), no_more=True)
    assert [event.event.jobs for event in driver.admission.drain() if isinstance(event.event, EpochEnded)] == [2]


def test_the_location_of_an_epoch_may_disappear() -> None:
    driver = Driver(("n1", "n2"))
    assert places(driver.submit(step("learns", SHORT), jobs=7)) == ["n1", "n1", "n2", "n2"]
    driver.admission.set_locations("hpc", {"n2": 1.0})
    driver.admission.release("/learns/1", 0.0)
    driver.admission.release("/learns/2", 0.0)
    assert driver.admission.decide(0.0) == []
    # The first epoch had nothing but failures, and is repeated where there is a location.
    assert driver.end("/learns/3") == []
    assert places(driver.end("/learns/4")) == ["n2", "n2"]
