"""The disk space of removed files is free again for StreamFlow's scheduler."""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from streamflow.core.scheduling import Hardware, Storage

from streamflow_io.runtime.protocol import CommittedEvent
from streamflow_io.storage.intermediates.scheduled_space import ScheduledSpace

MIB = 2**20


class State(SimpleNamespace):
    """The state of a job."""

    __hash__ = object.__hash__


class Disks:
    """The figures of a scheduler."""

    def __init__(self) -> None:
        self.used: dict[str, Hardware] = {}
        self.woken = 0
        self.free = 0
        self.space = ScheduledSpace(self.used, self.wake, lambda directory: self.free)
        self.states: dict[str, Any] = {}

    def wake(self) -> None:
        self.woken += 1

    def size(self, location: str = "n1") -> float:
        return float(self.used[location].storage["/"].size)

    def start(self, job: str, asked: float, *locations: str) -> None:
        places = locations or ("n1",)
        with self.space.reserving(job, places):
            for place in places:
                self.used[place] = self.used.get(place, Hardware()) + disk(asked)

    def end(self, job: str, asked: float, written: float, *locations: str) -> None:
        """:param written: MiB, as StreamFlow measures it"""
        directories = {"output_directory": f"/w/{job}-out", "tmp_directory": f"/w/{job}-tmp"}
        self.states[job] = state = State(name=job, job=SimpleNamespace(**directories))
        self.space.ended(cast(Any, state))
        asyncio.run(self.count(job, asked, written, *(locations or ("n1",))))

    async def count(self, job: str, asked: float, written: float, *locations: str) -> None:
        async with self.space.counting(job):
            for place in locations:
                self.used[place] = self.used[place] - disk(asked) + disk(written)

    def measure(self, **sizes: int | None) -> None:
        """Measure jobs, in MiB; None: a job cannot be measured."""
        assert {state.name for state in self.space.unmeasured()} >= sizes.keys()
        written = {self.states[job]: None if size is None else size * MIB for job, size in sizes.items()}
        self.space.measured({}, cast(Any, written))
        self.space.give_back()

    def remove(self, **sizes: int) -> None:
        """Remove whole directories, by job and MiB."""
        for job, size in sizes.items():
            self.space.freed({f"/w/{job}-out": size * MIB})
            self.space.removed([f"/w/{job}-out", f"/w/{job}-tmp"])
        self.space.give_back()


def disk(size: float) -> Hardware:
    return Hardware(storage={"/": Storage("/", size)})


def test_what_a_removed_job_has_written_is_free() -> None:
    disks = Disks()
    for job, written in (("a", 30), ("b", 50)):
        disks.start(job, 100)
        disks.end(job, 100, written)
    disks.start("c", 100)
    assert disks.size() == 180
    disks.remove(a=20)
    # Files have holes and blocks: no file of the job is left, so its whole space is free.
    assert disks.size() == 150
    assert disks.woken > 0
    disks.end("c", 100, 7)
    disks.remove(b=50, c=7)
    assert disks.size() == 0


def test_a_part_of_a_directory_that_is_removed_is_free() -> None:
    disks = Disks()
    disks.start("a", 100)
    disks.end("a", 100, 40)
    disks.space.freed({"/w/a-out": 30 * MIB, "/w/elsewhere": 5 * MIB})
    assert disks.size() == 40
    disks.space.give_back()
    assert disks.size() == 10
    disks.remove(a=10)
    assert disks.size() == 0


def test_what_a_window_has_removed_is_free() -> None:
    disks = Disks()
    disks.start("a", 100)
    job = cast(Any, State(name="a"))
    for attempt, discarded in enumerate((500, 180)):
        assert disks.space.starting(job, cast(Any, attempt), cast(Any, None)) == attempt
        disks.space.event(
            job, CommittedEvent(job="", time=0.0, port="out", path=Path("/w/o"), size=9, discarded=discarded * MIB)
        )
    disks.end("a", 100, 200)
    assert disks.size() == 20
    # Without holes, the file has as many bytes as StreamFlow has counted.
    disks.measure(a=20)
    assert disks.size() == 20


def test_what_streamflow_counts_too_much_is_free() -> None:
    """A file with three names, or with holes that its tool has left."""
    disks = Disks()
    for job in "abc":
        disks.start(job, 100)
        disks.end(job, 100, 60)
    disks.measure(a=20, b=None, c=70)
    assert disks.size() == 20 + 60 + 60
    disks.remove(a=20, b=20)
    assert disks.size() == 60


def test_attempts_are_compared_when_all_are_measured() -> None:
    disks = Disks()
    disks.start("a", 100)
    disks.end("a", 100, 60)
    disks.start("a", 100)
    first = disks.states["a"]
    disks.end("a", 100, 30)
    disks.measure(a=10)
    assert disks.size() == 90
    disks.states["a"] = first
    disks.measure(a=20)
    assert disks.size() == 30


def test_a_job_may_be_measured_before_streamflow_counts_its_files() -> None:
    disks = Disks()
    disks.start("a", 100)
    disks.states["a"] = State(name="a", job=SimpleNamespace(output_directory="/w/a-out", tmp_directory=""))
    disks.space.ended(disks.states["a"])
    disks.measure(a=20)
    assert disks.size() == 100
    asyncio.run(disks.count("a", 100, 60, "n1"))
    assert disks.size() == 20


def test_files_that_are_removed_before_they_are_measured_count_for_nothing() -> None:
    disks = Disks()
    disks.start("a", 100)
    job = cast(Any, State(name="a", job=SimpleNamespace(output_directory="/w/a-out", tmp_directory="")))

    async def measure() -> None:
        async with disks.space.counting("a"):
            disks.space.removed(["/w/a-out"])
            disks.used["n1"] = disks.used["n1"] - disk(100) + disk(40)

    disks.space.ended(job)
    asyncio.run(measure())
    disks.space.give_back()
    assert disks.size() == 0


def test_a_container_and_its_host_have_the_same_files() -> None:
    disks = Disks()
    disks.start("a", 100, "container", "host")
    disks.end("a", 100, 40, "container", "host")
    disks.remove(a=40)
    assert (disks.size("container"), disks.size("host")) == (0, 0)


def test_a_job_that_lacks_space_waits_until_it_is_placed() -> None:
    disks = Disks()
    disks.space.waits("a", True)
    assert disks.space.is_short
    disks.space.waits("a", False)
    assert not disks.space.is_short
    disks.space.waits("a", True)
    disks.start("a", 1)
    assert not disks.space.is_short


def test_a_job_waits_for_files_that_are_about_to_go() -> None:
    """Each job may write as much as the largest one before."""
    disks, hurried = Disks(), list[bool]()
    disks.space.is_removing, disks.space.hurry = lambda: True, lambda: hurried.append(True)
    disks.free = 59 * MIB
    assert disks.space.may_start("/w")
    for job, written in (("a", 30), ("b", 20)):
        disks.start(job, 100)
        disks.end(job, 100, written)
    disks.start("c", 100)
    assert not disks.space.may_start("/w")
    assert hurried
    disks.free += MIB
    assert disks.space.may_start("/w")
    disks.free -= MIB
    disks.measure(a=30)
    assert not disks.space.may_start("/w")
    woken = disks.woken
    disks.measure(b=20)
    assert disks.woken > woken
    assert disks.space.may_start("/w")


def test_no_job_waits_for_files_that_nobody_removes() -> None:
    disks = Disks()
    disks.free = 0
    disks.start("a", 100)
    disks.end("a", 100, 30)
    assert disks.space.may_start("/w")
    disks.space.is_removing = lambda: True
    assert not disks.space.may_start("/w")
    woken = disks.woken
    disks.space.give_up()
    assert disks.woken > woken
    assert disks.space.may_start("/w")


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(0, 50), st.integers(0, 80), st.booleans()),
        unique_by=lambda each: each[0],
    )
)
def test_never_more_than_was_counted(jobs: list[tuple[str, int, int, bool]]) -> None:
    disks = Disks()
    left = 0
    for job, written, freed, is_whole in jobs:
        disks.start(job, 100)
        disks.end(job, 100, written)
        disks.space.freed({str(PurePath("/w", f"{job}-out")): freed * MIB})
        if is_whole:
            disks.remove(**{job: 0})
        disks.space.give_back()
        left += 0 if is_whole else max(written - freed, 0)
        assert disks.size() == left
