"""A run's own account of a shared storage is never more than the belief of others, whatever is under way."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.hints.models import Way
from streamflow_io.storage.admission.demand import Amounts
from streamflow_io.storage.sharing.allocation import Lease, LeaseRequest, amount, plus, positive
from streamflow_io.storage.sharing.lease_holder import UNUSED_SECONDS, LeaseHolder

BANDWIDTH = 10


class Other:
    """Other runs' belief about a run: by its requests as they arrive, and the amounts that it was given."""

    def __init__(self) -> None:
        self.held: Amounts = {}
        self._given: dict[int, Amounts] = {}
        self.request = LeaseRequest()

    def arrived(self, request: LeaseRequest) -> None:
        self.request, self.held = request, request.kept
        self._given = {number: given for number, given in self._given.items() if number > request.seen}
        for amounts in self._given.values():
            self.held = plus(self.held, amounts)

    def give(self, amounts: Amounts, contended: bool) -> Lease:
        lease = Lease(
            len(self._given) + self.request.seen + 1, amounts, {}, {}, frozenset({"write"} if contended else ())
        )
        self._given[lease.number] = amounts
        self.held = plus(self.held, amounts)
        return lease

    @property
    def knows_all(self) -> bool:
        return not self._given


class Run:
    """Jobs that each need 2, and the messages that are on their way."""

    def __init__(self) -> None:
        self.holding = LeaseHolder()
        self.other = Other()
        self.running = self.waiting = 0
        self.now = 0.0
        self.requests: deque[LeaseRequest] = deque()
        self.leases: deque[Lease] = deque()

    def settle(self) -> None:
        self.holding.returned(self.used)
        while self.waiting and amount(self.holding.held, "write") >= 2 * (self.running + 1):
            self.running, self.waiting = self.running + 1, self.waiting - 1
        needed: Amounts = {"write": 2} if self.waiting else {}
        useful: Amounts = {"write": 2 * self.waiting} if self.waiting else {}
        if (request := self.holding.settle(self.used, needed, useful, False, 1.0, self.now)) is not None:
            self.requests.append(request)

    @property
    def used(self) -> Amounts:
        return {"write": 2 * self.running}

    def look(self, contended: bool) -> None:
        if self.requests:
            self.other.arrived(self.requests.popleft())
        lacks = amount(self.other.request.lacks, "write")
        if lacks and self.other.knows_all and amount(self.other.held, "write") + lacks <= BANDWIDTH:
            self.leases.append(self.other.give({"write": lacks}, contended))


@given(st.lists(st.tuples(st.sampled_from(["submit", "end", "look", "hear", "wait"]), st.booleans()), max_size=60))
def test_what_a_run_holds_is_known_to_others(steps: list[tuple[str, bool]]) -> None:
    run = Run()
    for what, contended in steps:
        if what == "submit":
            run.waiting += 1
        elif what == "end":
            run.running = max(0, run.running - 1)
        elif what == "look":
            run.look(contended)
        elif what == "wait":
            run.now += UNUSED_SECONDS / 2
        elif run.leases:
            run.holding.told(run.leases.popleft(), run.now)
        run.settle()
        held, believed = amount(run.holding.held, "write"), amount(run.other.held, "write")
        assert 2 * run.running <= held <= believed <= BANDWIDTH
    # When all messages have arrived, both say the same, and every run has had a turn.
    for _ in range(200):
        run.look(False)
        while run.leases:
            run.holding.told(run.leases.popleft(), run.now)
        run.running = 0
        run.now += UNUSED_SECONDS
        run.settle()
    assert run.waiting == run.running == 0
    assert positive(run.holding.held) == positive(run.other.held) == {}


def _holding(contended: frozenset[Way]) -> LeaseHolder:
    holding = LeaseHolder()
    holding.told(Lease(1, {"write": 10}, {}, {}, contended), 0.0)
    holding.settle({"write": 10}, {"write": 5}, {"write": 5}, False, 1.0, 0.0)
    return holding


def test_what_a_job_returns_is_for_others_first() -> None:
    holding = _holding(frozenset({"write"}))
    holding.returned({"write": 5})
    assert amount(holding.held, "write") == 5
    request = holding.settle({"write": 5}, {"write": 5}, {"write": 5}, False, 1.0, 0.1)
    assert request == LeaseRequest({"write": 5}, {"write": 5}, False, {"write": 5}, 1.0, 1)


def test_what_a_job_returns_is_used_again_while_nobody_else_wants_it() -> None:
    holding = _holding(frozenset({"read"}))
    holding.returned({"write": 5})
    assert amount(holding.held, "write") == 10


def test_what_nobody_uses_goes_back_after_a_while() -> None:
    holding = _holding(frozenset())
    holding.returned({"write": 5})
    assert holding.settle({"write": 5}, {}, {}, False, 0.0, 1.0) is not None
    assert amount(holding.held, "write") == 10
    assert not holding.is_idle
    request = holding.settle({"write": 5}, {}, {}, False, 0.0, 1.0 + UNUSED_SECONDS)
    assert request == LeaseRequest({"write": 5}, seen=1)
    assert holding.is_idle


def test_what_nobody_uses_is_not_kept_for_a_burst_that_may_be_held_back() -> None:
    holding = LeaseHolder()
    holding.told(Lease(1, {"write": 8}, {}, {}), 0.0)
    assert holding.settle({"write": 8}, {}, {}, False, 0.0, 0.0) is not None
    holding.returned({})
    holding.over()
    request = holding.settle({}, {}, {}, False, 0.0, 0.1)
    assert request is not None
    assert request.is_empty
    assert holding.is_idle


def test_who_needs_more_than_is_free_waits_with_nothing() -> None:
    """Another run may wait for the same, and hold the rest."""
    holding = _holding(frozenset())
    holding.returned({"write": 4})
    request = holding.settle({"write": 4}, {"write": 8}, {"write": 8}, False, 1.0, 0.1)
    assert request == LeaseRequest({"write": 4}, {"write": 8}, False, {"write": 8}, 1.0, 1)
    assert amount(holding.held, "write") == 4
