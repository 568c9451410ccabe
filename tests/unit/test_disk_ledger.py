"""Learned sizes, and the ledger that keeps the directories of jobs within a limit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from streamflow.core.scheduling import AvailableLocation
from streamflow.core.workflow import Job, Token

from streamflow_io.adapters.jobs import JobState
from streamflow_io.graph.gangs import Gang
from streamflow_io.graph.io_graph import Input, Output, OutputKind, Route
from streamflow_io.storage.intermediates.disk_ledger import DiskDemand, DiskLedger, ExpectedSize, SpaceGraph, StepSizes
from streamflow_io.storage.intermediates.disk_limit import DiskLimit
from streamflow_io.storage.intermediates.learned_sizes import JobSize
from tests.unit.test_admission_scale import counted
from tests.unit.test_disk_limit_of_nodes import alone

MEBIBYTE = 2**20


class Chain(Struct, frozen=True):
    """A chain of jobs. Each job reads only the output of the job before.

    :ivar sizes: bytes that the jobs write
    """

    sizes: Sequence[int]

    def ahead(self, index: int) -> int:
        """The bytes that have to be free beside the output of a job."""
        most = lies = 0
        for before, size in zip(self.sizes[index:], self.sizes[index + 1 :], strict=False):
            lies += size
            most = max(most, lies)
            lies -= before
        return most

    def demand(self, name: str, index: int) -> DiskDemand[str]:
        size = self.sizes[index]
        return DiskDemand(name, size, own=size, ahead=self.ahead(index), frees=self.sizes[index - 1] if index else 0)

    @property
    def peak(self) -> int:
        return self.sizes[0] + self.ahead(0)


class Simulated:
    """Runs chains of jobs under a ledger. The choices say which running job ends next."""

    def __init__(self, chains: Sequence[Chain], limit: int) -> None:
        self.chains, self.limit = chains, limit
        self.ledger = DiskLedger[str](limit)
        self.waiting = [(number, 0) for number in range(len(chains))]
        self.running: list[tuple[int, int]] = []
        self.lying: dict[tuple[int, int], int] = {}
        self.results = 0
        self.peak = 0

    def start(self) -> None:
        for job in [*self.waiting]:
            demand = self.chains[job[0]].demand(str(job), job[1])
            if self.ledger.may_start(demand):
                self.ledger.start(demand)
                self.waiting.remove(job)
                self.running.append(job)
        written = sum(self.chains[number].sizes[index] for number, index in self.running)
        self.peak = max(self.peak, written + sum(self.lying.values()))

    def end(self, choice: int) -> None:
        number, index = job = self.running.pop(choice % len(self.running))
        self.lying[job] = self.chains[number].sizes[index]
        self.lying.pop((number, index - 1), None)
        if index + 1 < len(self.chains[number].sizes):
            self.waiting.append((number, index + 1))
        else:
            del self.lying[job]
        self.ledger.end(str(job))
        self.ledger.measured(sum(self.lying.values()))


CHAINS = st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=5).map(Chain), min_size=1, max_size=8)


@given(CHAINS, st.integers(0, 100), st.lists(st.integers(0, 100), min_size=40, max_size=40))
def test_chains_go_on_within_the_limit(chains: list[Chain], more: int, choices: list[int]) -> None:
    """With right sizes, the limit is kept, and all chains end if each one alone can."""
    run = Simulated(chains, max(chain.peak for chain in chains) + more)
    for choice in choices:
        run.start()
        if not run.running and run.waiting:
            assert run.ledger.allow(1)
            run.start()
            assert len(run.running) == 1
        if not run.running:
            break
        run.end(choice)
    assert not run.waiting
    assert not run.running
    assert run.peak <= run.limit
    assert run.ledger.free == run.limit


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60), st.sampled_from(["ask", "end"])), max_size=60))
def test_reserved_space_is_never_above_the_limit(steps: list[tuple[int, int, str]]) -> None:
    ledger, held = DiskLedger[str](100), dict[int, int]()
    for number, size, act in steps:
        if act == "end":
            ledger.end(str(number))
            held.pop(number, None)
        elif number not in held:
            demand = DiskDemand(str(number), size, own=size)
            if ledger.may_start(demand):
                ledger.start(demand)
                held[number] = size
        assert ledger.free == 100 - sum(held.values()) >= 0


def test_a_job_that_frees_space_is_preferred() -> None:
    ledger = DiskLedger[str](10)
    ledger.measured(8)
    ledger.start(DiskDemand("running", 2, own=2))
    deep, broad = DiskDemand("deep", 1, own=1, frees=4), DiskDemand("broad", 1, own=1)
    assert not ledger.may_start(broad)
    assert not ledger.may_start(deep)
    ledger.end("running")
    ledger.measured(9)
    assert not ledger.may_start(broad)
    assert ledger.may_start(deep)


@pytest.mark.parametrize(("ahead", "preferred"), [(30, 0), (0, 1)])
def test_an_answer_does_not_look_at_all_that_wait(ahead: int, preferred: int) -> None:
    """Each job finds space for itself: it has to leave more for the next jobs, or for one that is preferred."""

    def lines(waiting: int) -> int:
        ledger = DiskLedger[str](20)
        demands = [DiskDemand(f"best {number}", 50, own=50, frees=90) for number in range(preferred)]
        demands += [DiskDemand(str(number), 10, own=10, ahead=ahead) for number in range(waiting)]
        for _ in range(2):
            assert not any(map(ledger.may_start, demands))
        assert ledger.waiting == demands
        return counted(lambda: ledger.may_start(demands[-1]) and None)

    assert lines(1000) <= 2 * lines(10)


def test_a_job_of_unknown_size_gets_all_that_is_free() -> None:
    ledger = DiskLedger[str](10)
    ledger.start(DiskDemand("known", 4, own=4))
    ledger.start(DiskDemand("unknown", 0, "unknown"))
    assert ledger.free == 0
    assert not ledger.may_start(DiskDemand("second", 0, "unknown"))
    ledger.end("unknown")
    assert ledger.free == 6


def test_a_job_that_writes_nothing_keeps_no_space_from_the_readers_of_its_streams() -> None:
    ledger = DiskLedger[str](10)
    ledger.start(DiskDemand("producer", 6, own=0))
    ledger.join(DiskDemand("reader", 6, own=6), "producer")
    assert ledger.free == 4


def test_what_exceeds_the_limit_is_only_what_nobody_knows() -> None:
    ledger = DiskLedger[str](10)
    ledger.measured(6)
    assert not ledger.may_start(DiskDemand("known", 5, own=5))
    assert not ledger.allow(9)
    assert ledger.exceed() is None
    assert not ledger.may_start(DiskDemand("unknown", 7, "unknown"))
    exceeding = ledger.exceed()
    assert exceeding is not None
    assert exceeding.job == "unknown"
    assert ledger.may_start(exceeding)
    ledger.start(exceeding)
    ledger.measured(10)
    ledger.end("unknown")
    assert not ledger.may_start(DiskDemand("unknown", 7, "unknown"))
    assert ledger.exceed() is None


def test_sizes_of_jobs_with_other_inputs() -> None:
    sizes = StepSizes()
    assert sizes.expect("/a", 7) == ExpectedSize(7, "unknown")
    sizes.measured("/a", 8 * MEBIBYTE, 100)
    sizes.measured("/a", 9 * MEBIBYTE, 90)
    assert sizes.expect("/a", 9 * MEBIBYTE) == ExpectedSize(113, "known")
    assert sizes.expect("/a", MEBIBYTE) == ExpectedSize(100, "estimated")
    assert sizes.expect("/a", 80 * MEBIBYTE) == ExpectedSize(1000, "estimated")
    assert sizes.expect("/b", 1).certainty == "unknown"
    sizes.measured("/b", 0, 50)
    assert sizes.expect("/b", 0) == ExpectedSize(50, "known")
    assert sizes.expect("/b", 5) == ExpectedSize(50, "known")


def test_a_size_does_not_grow_with_a_few_bytes_of_parameters() -> None:
    sizes = StepSizes()
    sizes.measured("/a", 30, 2000)
    assert sizes.expect("/a", 3000) == ExpectedSize(2000, "known")
    assert sizes.expect("/a", 8 * MEBIBYTE) == ExpectedSize(16000, "estimated")
    # A job that has read streams of unknown size.
    sizes.measured("/b", 0, 2000)
    assert sizes.expect("/b", 8 * MEBIBYTE) == ExpectedSize(2000, "estimated")


@given(st.lists(st.tuples(st.integers(0, 2**30), st.integers(0, 2**30)), min_size=1), st.data())
def test_a_size_is_not_below_a_measured_one(jobs: list[tuple[int, int]], data: st.DataObject) -> None:
    sizes = StepSizes()
    for inputs, written in jobs:
        sizes.measured("/a", inputs, written)
    inputs, written = data.draw(st.sampled_from(jobs))
    expected = sizes.expect("/a", inputs)
    assert expected.certainty == "known"
    assert expected.bytes >= written


def routes(*edges: tuple[str, str | None]) -> list[Route]:
    return [
        Route(
            Output(step=step, port="o", kind=OutputKind.FILE),
            (),
            None if reader is None else Input(step=reader, port="i"),
        )
        for step, reader in edges
    ]


def test_the_space_that_the_next_jobs_need() -> None:
    sizes = StepSizes()
    for step, written in (("/a", 100), ("/b", 30), ("/c", 90)):
        sizes.measured(step, 0, written)
    space = SpaceGraph(routes(("/a", "/b"), ("/b", "/c"), ("/c", None)), (), sizes, {("/a", "o"), ("/b", "o")})
    # When /b has ended, the output of /a goes.
    assert space.demand("j", "/a", 0) == DiskDemand("j", 100, "known", 100, 30, 0)
    assert space.demand("j", "/b", 100, frees=100) == DiskDemand("j", 30, "known", 30, 90, 100)
    shared = SpaceGraph(routes(("/a", "/b"), ("/a", "/d"), ("/b", "/c")), (), sizes, {("/b", "o")})
    assert shared.demand("j", "/a", 0).ahead == 120


@pytest.mark.parametrize(("reads", "start"), [(("trimmed",), 3), (("trimmed", "reference"), 3), (("index",), 2)])
async def test_only_files_that_go_with_their_reader_count_as_freed(reads: Sequence[str], start: int) -> None:
    """Each job writes 10 bytes, and the next job needs 20 more. Only its own trimmed file goes with the job.

    Input files of the workflow stay, and so do files that other jobs read, too.
    """
    sizes = StepSizes()
    for step, written in (("/align", 10), ("/sort", 20)):
        sizes.measured(step, 0, written)
    edges = [("/trim", "/align", "trimmed"), ("/index", "/align", "index"), ("/align", "/sort", "i")]
    ways = [
        Route(Output(step=step, port="o", kind=OutputKind.FILE), (), Input(step=reader, port=port))
        for step, reader, port in edges
    ]
    limit = DiskLimit(49, ways, (), sizes, lambda: None, {}, alone, {("/trim", "o"), ("/align", "o")})
    here = AvailableLocation("here", "local", "host", local=True)
    started = 0
    for number in range(4):
        files = {name: Token({"class": "File", "size": 1 if name == "trimmed" else 30}) for name in reads}
        job = JobState(Job(f"/align/0.{number}", 0, files, "/in", "/out", "/tmp"))
        job.keep(JobSize(31, 10))
        limit.submitted(job)
        if limit.may_start(job, here, "/work"):
            started += 1
            job.places = [here]
            limit.placed(job)
    assert started == start


def test_a_gang_asks_for_all_its_steps() -> None:
    sizes = StepSizes()
    sizes.measured("/a", 0, 100)
    gang = Gang(("/a", "/b"), ("/a",), 1.0)
    space = SpaceGraph(routes(("/a", "/b")), (gang,), sizes)
    assert space.demand("j", "/a", 0, {"/b"}) == DiskDemand("j", 200, "unknown", 100, 100, 0)
    sizes.measured("/b", 100, 5)
    assert space.demand("j", "/a", 0, {"/b"}) == DiskDemand("j", 105, "known", 100, 5, 0)


def test_a_job_whose_producers_have_ended_starts_without_them() -> None:
    """The job also starts without the other readers of these producers, unless a job reads from both."""
    sizes = StepSizes()
    for step, written in (("/a", 100), ("/b", 10), ("/c", 20), ("/d", 40)):
        sizes.measured(step, 0, written)
    steps = ("/a", "/b", "/c", "/d")
    edges = (("/a", "/b"), ("/a", "/c"), ("/b", "/d"))
    space = SpaceGraph(routes(*edges), (Gang(steps, ("/a",), 1.0),), sizes)
    assert space.together("/a", set().__contains__) == {"/b", "/c", "/d"}
    assert space.together("/b", {"/a"}.__contains__) == {"/d"}
    assert space.together("/c", {"/a"}.__contains__) == set()
    assert space.demand("j", "/b", 100, {"/d"}).size == 50
    both = SpaceGraph(routes(*edges, ("/c", "/d")), (Gang(steps, ("/a",), 1.0),), sizes)
    assert both.together("/b", {"/a"}.__contains__) == {"/c", "/d"}
    assert both.together("/b", {"/a", "/c"}.__contains__) == {"/d"}


def test_producers_of_one_reader_start_together() -> None:
    gang = Gang(("/a", "/e", "/b", "/f"), ("/a", "/e"), 2.0)
    space = SpaceGraph(routes(("/a", "/b"), ("/e", "/b"), ("/e", "/f")), (gang,), StepSizes())
    assert space.together("/a", set().__contains__) == {"/b", "/e", "/f"}
    assert space.together("/e", {"/a"}.__contains__) == {"/b", "/f"}


def test_loops_end() -> None:
    edges = routes(("/a", "/b"), ("/b", "/a"))
    assert SpaceGraph(edges, (), StepSizes()).demand("j", "/a", 5).size == 5
    space = SpaceGraph(edges, (Gang(("/a", "/b"), ("/a",), 1.0),), StepSizes())
    assert space.together("/a", set().__contains__) == set()
