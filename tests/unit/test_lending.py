"""Loans of idle cores to jobs, and their return."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.storage.admission.lending import IDLE, Holder, Lending, Loan, LoanAnswer, Wish

NODE = "node"


def holder(job: str, cores: int = 1, held: int | None = None, lends: bool = True) -> Holder:
    return Holder(job, step_of(job), {NODE}, cores, cores if held is None else held, lends)


def step_of(job: str) -> str:
    return job.rpartition("/")[0]


def wish(job: str = "/work/9", cores: int = 1, lacking: int = 1, capacity: float = 2.0) -> Wish:
    return Wish(job, step_of(job), cores, {NODE: capacity}, {NODE: lacking})


def two_cores(longest: float | None = 1.0) -> Lending:
    """Two cores: one job waits, one works; what jobs of its step take is known."""
    lending = Lending()
    if longest is not None:
        lending.started(holder("/work/0"))
        lending.ended("/work/0", longest)
    lending.started(holder("/wait/0"))
    lending.started(holder("/work/1"))
    return lending


def test_who_waits_lends() -> None:
    lending = two_cores()
    assert lending.ask(wish(), 100.0) == LoanAnswer()
    lending.needs("/wait/0", 0, 100.0)
    answer = lending.ask(wish(), 100.0)
    assert answer.loans == [Loan("/wait/0", "/work/9", 1)]
    lending.started(holder("/work/9", held=0), answer.loans)
    assert lending.borrowed("/work/9") == 1
    assert lending.ask(wish("/work/10"), 100.0) == LoanAnswer()
    lending.ended("/work/9", 0.5)
    assert lending.loans == ()
    assert lending.ask(wish("/work/10"), 100.0).loans


def test_who_needs_its_core_again_gets_it_by_the_next_that_is_free() -> None:
    lending = two_cores()
    lending.needs("/wait/0", 0, 100.0)
    lending.started(holder("/work/9", held=0), lending.ask(wish(), 100.0).loans)
    assert list(lending.due()) == []
    lending.needs("/wait/0", 1, 101.0)
    assert list(lending.due()) == [("/work/9", 1)]
    assert lending.ask(wish("/work/10"), 200.0) == LoanAnswer()
    lending.ended("/work/1", 1.0)
    lending.repay("/work/9", 1)
    assert (list(lending.due()), lending.loans, lending.borrowed("/work/9")) == ([], (), 0)
    with pytest.raises(ValueError, match="has not borrowed"):
        lending.repay("/work/9", 1)


def test_what_one_that_has_ended_has_lent_is_due() -> None:
    lending = two_cores()
    lending.needs("/wait/0", 0, 100.0)
    lending.started(holder("/work/9", held=0), lending.ask(wish(), 100.0).loans)
    lending.ended("/wait/0", 100.0)
    assert list(lending.due()) == [("/work/9", 1)]


def test_nobody_borrows_for_longer_than_the_lender_has_waited() -> None:
    lending = two_cores(longest=60.0)
    lending.needs("/wait/0", 0, 100.0)
    assert lending.ask(wish(), 100.0) == LoanAnswer(again=100.0 - IDLE + 60.0)
    assert lending.ask(wish(), 100.0 - IDLE + 60.0).loans


def test_one_of_which_nobody_knows_how_long_it_takes_leaves_a_core_idle() -> None:
    lending = two_cores(longest=None)
    lending.needs("/wait/0", 0, 100.0)
    assert lending.ask(wish(), 1000.0) == LoanAnswer()
    # Two that wait: the second core stays.
    lending = Lending()
    for job in ("/wait/0", "/look/0"):
        lending.started(holder(job))
        lending.needs(job, 0, 100.0)
    answer = lending.ask(wish(), 100.0)
    assert [loan.lender for loan in answer.loans] == ["/wait/0"]
    lending.started(holder("/work/9", held=0), answer.loans)
    assert lending.ask(wish("/work/10"), 100.0) == LoanAnswer()


def test_jobs_of_one_step_lend_each_other_nothing() -> None:
    # Cores may be what keeps a thousand of them from running at once.
    lending = two_cores()
    lending.needs("/work/1", 0, 100.0)
    assert lending.ask(wish("/work/9"), 100.0) == LoanAnswer()
    lending.ended("/wait/0", 1.0)
    lending.started(holder("/work/2"))
    assert lending.ask(wish("/wait/9"), 100.0).loans == [Loan("/work/1", "/wait/9", 1)]


def test_what_is_borrowed_is_not_lent() -> None:
    lending = two_cores()
    lending.needs("/wait/0", 0, 100.0)
    lending.started(holder("/work/9", held=0), lending.ask(wish(), 100.0).loans)
    lending.needs("/work/9", 0, 100.0)
    lending.needs("/work/1", 1, 100.0)
    lending.started(holder("/other/0"))
    lending.ended("/other/0", 1.0)
    assert lending.ask(wish("/other/1"), 100.0) == LoanAnswer()


def test_who_may_not_lend_does_not() -> None:
    lending = Lending()
    lending.started(holder("/work/0"))
    lending.ended("/work/0", 1.0)
    lending.started(holder("/wait/0", lends=False))
    lending.needs("/wait/0", 0, 100.0)
    assert lending.ask(wish(), 200.0) == LoanAnswer()


def test_those_that_hold_no_core_but_use_one_count() -> None:
    # A consumer of a stream that has started without a core.
    lending = two_cores()
    lending.started(holder("/read/0", held=0))
    lending.needs("/wait/0", 0, 100.0)
    assert lending.ask(wish(), 200.0) == LoanAnswer()
    lending.needs("/read/0", 0, 200.0)
    assert lending.ask(wish(), 200.0).loans


def test_a_container_has_to_lend_what_is_lacking_in_it() -> None:
    lending = Lending()
    lending.started(Holder("/work/0", "/work", {"one", "host"}, 1, 1))
    lending.ended("/work/0", 1.0)
    lending.started(Holder("/wait/0", "/wait", {"other", "host"}, 1, 1))
    lending.needs("/wait/0", 0, 100.0)
    capacities = {"one": 1.0, "host": 1.0}
    assert lending.ask(Wish("/work/9", "/work", 1, capacities, {"host": 1}), 100.0).loans
    assert lending.ask(Wish("/work/9", "/work", 1, capacities, {"host": 1, "one": 1}), 100.0) == LoanAnswer()


def test_several_lend_what_one_has_not() -> None:
    lending = Lending()
    lending.started(holder("/work/0", 4))
    lending.ended("/work/0", 1.0)
    for number, cores in enumerate((3, 4)):
        lending.started(holder(f"/wait{number}/0", cores))
        lending.needs(f"/wait{number}/0", 1, 100.0 + number)
    answer = lending.ask(wish(cores=4, lacking=3, capacity=8.0), 110.0)
    assert answer.loans == [Loan("/wait0/0", "/work/9", 2), Loan("/wait1/0", "/work/9", 1)]
    assert lending.ask(wish(cores=7, lacking=6, capacity=8.0), 110.0) == LoanAnswer()


class Node:
    """A node with some cores whose jobs start where they are free, or lent: as the adapter does it."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.lending = Lending()
        self.held: dict[str, int] = {}
        self.declared: dict[str, int] = {}
        self.told: dict[str, int] = {}
        self.now = 0.0
        self.number = 0

    @property
    def free(self) -> int:
        return self.cores - sum(self.held.values())

    def needed(self, job: str) -> int:
        return min(self.declared[job], self.told.get(job, self.declared[job]))

    def start(self, step: str, cores: int) -> None:
        job, self.number = f"/{step}/{self.number}", self.number + 1
        loans: tuple[Loan, ...] = ()
        if (lacking := cores - self.free) > 0:
            answer = self.lending.ask(Wish(job, f"/{step}", cores, {NODE: self.cores}, {NODE: lacking}), self.now)
            loans = tuple(answer.loans)
            if not loans:
                return
            assert sum(loan.cores for loan in loans) == lacking
            # Never more than is idle, of each lender and of all together.
            lent = Counter[str]()
            for loan in (*self.lending.loans, *loans):
                lent[loan.lender] += loan.cores
            for loan in loans:
                assert lent[loan.lender] <= self.held[loan.lender] - self.needed(loan.lender)
                assert step_of(loan.lender) != f"/{step}"
            assert cores + sum(map(self.needed, self.held)) <= self.cores
        self.held[job] = cores - sum(loan.cores for loan in loans)
        self.declared[job] = cores
        self.lending.started(Holder(job, f"/{step}", {NODE}, cores, self.held[job]), loans)

    def end(self, job: str) -> None:
        del self.held[job], self.declared[job]
        self.told.pop(job, None)
        self.lending.ended(job, 1.0)

    def settle(self) -> None:
        for job, cores in tuple(self.lending.due()):
            if (repaid := min(cores, self.free)) > 0:
                self.lending.repay(job, repaid)
                self.held[job] += repaid

    def check(self) -> None:
        borrowed = {job: self.lending.borrowed(job) for job in self.held}
        assert self.free >= 0
        assert all(self.held[job] + borrowed[job] == self.declared[job] for job in self.held)
        assert sum(loan.cores for loan in self.lending.loans) == sum(borrowed.values())
        # At most twice as many cores are used as there are, by job.
        assert sum(self.declared.values()) <= 2 * self.cores
        # What is due is due for want of free cores.
        assert not list(self.lending.due()) or self.free == 0


_Act = tuple[str, int, int]


@given(
    st.integers(1, 6), st.lists(st.tuples(st.sampled_from("snest"), st.integers(0, 9), st.integers(0, 4)), max_size=80)
)
def test_never_more_is_lent_than_is_idle_and_all_is_accounted_for(cores: int, acts: list[_Act]) -> None:
    node = Node(cores)
    for act, one, other in acts:
        jobs = list(node.held)
        if act == "s":
            node.start("abc"[one % 3], 1 + other % cores)
        elif act == "t":
            node.now += one
        elif jobs and act == "n":
            job = jobs[one % len(jobs)]
            node.told[job] = other
            node.lending.needs(job, other, node.now)
        elif jobs:
            node.end(jobs[one % len(jobs)])
        node.settle()
        node.check()
    for job in list(node.held):
        node.end(job)
        node.settle()
        node.check()
    assert node.free == node.cores
    assert node.lending.loans == ()
