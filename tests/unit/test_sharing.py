"""The right to use a storage that several runs share: the table, due dates, and any interleaving of runs."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from streamflow_io.hints.models import WAYS, Way
from streamflow_io.storage.admission.demand import Amounts
from streamflow_io.storage.sharing.allocation import (
    Lease,
    LeaseRequest,
    Tenant,
    amount,
    contended,
    decide,
    due,
    plus,
    total,
)
from streamflow_io.storage.sharing.entries import ENTRY_BYTES, Entry, LedgerFile, shortened
from streamflow_io.storage.sharing.lease_holder import LeaseBurst, LeaseHolder
from streamflow_io.storage.sharing.participant import Participant
from streamflow_io.storage.sharing.session import Silence

BANDWIDTH: dict[Way, int] = {"read": 10, "write": 10}


def writes(much: int) -> dict[Way, int]:
    return {"write": much}


def request(
    kept: Amounts, lacks: Amounts, useful: Amounts, seconds: float = 1, seen: int = 0, began: float = 1.0
) -> LeaseRequest:
    return LeaseRequest(kept, lacks, True, useful, seconds, seen, began)


def both(read: int, write: int) -> dict[Way, int]:
    return {"read": read, "write": write}


@pytest.mark.parametrize(
    ("mine", "others", "useful", "expected"),
    [
        pytest.param(Tenant("a", {}, writes(4)), [], None, writes(4), id="alone"),
        pytest.param(Tenant("a", {}, writes(4)), [], writes(20), writes(10), id="alone it gets what it can use"),
        pytest.param(Tenant("a", writes(3), writes(4)), [], writes(20), writes(7), id="beyond what it holds"),
        pytest.param(Tenant("a", {}, writes(4)), [Tenant("b", writes(6))], None, writes(4), id="what is free"),
        pytest.param(Tenant("a", {}, writes(5)), [Tenant("b", writes(6))], None, {}, id="not what others hold"),
        pytest.param(Tenant("a", writes(3), writes(8)), [], None, {}, id="its own jobs hold it"),
        pytest.param(
            Tenant("a", {}, writes(2), due=2), [Tenant("b", {}, writes(9), due=1)], None, {}, id="who is due first"
        ),
        pytest.param(
            Tenant("a", {}, writes(2), due=1, ticket=2), [Tenant("b", {}, writes(9), due=1, ticket=1)], None, {},
            id="of those due at the same time who asked first",
        ),
        pytest.param(
            Tenant("a", {}, writes(2), due=1), [Tenant("b", {}, writes(9), due=2)], writes(9), writes(2),
            id="no more than wanted if others want something",
        ),
        pytest.param(
            Tenant("a", {}, writes(2), due=2), [Tenant("b", {}, writes(9), due=1, silent=True)], writes(9), writes(9),
            id="who is silent holds back nobody",
        ),
        pytest.param(
            Tenant("a", {}, writes(2), due=2), [Tenant("b", {}, {"read": 9}, due=1)], None, writes(2), id="another way"
        ),
        pytest.param(Tenant("a", {}, both(2, 5)), [Tenant("b", writes(6))], None, {}, id="both or nothing"),
        pytest.param(
            Tenant("a", {}, writes(2), due=2),
            [Tenant("b", {}, both(5, 5), due=1), Tenant("c", {"read": 10})],
            None,
            {},
            id="who lacks one way keeps both",
        ),
        pytest.param(Tenant("a", {}, writes(30)), [], None, writes(30), id="above the bandwidth, if nobody holds any"),
        pytest.param(Tenant("a", {}, writes(30)), [Tenant("b", writes(1))], None, {}, id="above it, somebody does"),
        pytest.param(Tenant("a", {}, {}), [], writes(5), {}, id="wants nothing"),
    ],
)  # fmt: skip
def test_what_is_given(mine: Tenant, others: list[Tenant], useful: Amounts | None, expected: dict[Way, int]) -> None:
    assert decide(mine, others, BANDWIDTH, useful) == expected


def test_due_is_three_times_as_long_as_it_takes_alone() -> None:
    assert due(100, 2) == 106
    assert due(100, 0) == due(100, float("nan")) == due(100, float("inf")) == due(100, -1) == 103


def test_a_burst_lasts_until_nothing_is_used_or_wanted() -> None:
    participant = Participant("a")
    participant.request(request({}, writes(2), writes(2), 1, began=100))
    assert participant.due == 103
    participant.request(request(writes(2), writes(2), writes(2), 4, 1, began=100))  # more jobs join
    assert participant.due == 112
    participant.request(request(writes(2), {}, {}, 4, 1, began=100))
    assert participant.due == 112
    participant.request(LeaseRequest(seen=1))
    assert participant.due == 0
    participant.request(request({}, writes(2), writes(2), 1, 1, began=107))
    assert participant.due == 110


def test_a_lease_that_is_kept_through_a_pause_does_not_make_the_next_burst_due_early() -> None:
    participant = Participant("a")
    participant.request(request({}, writes(2), writes(2), 1, began=100))
    participant.request(request(writes(2), {}, {}, 1, 1, began=0))  # none of it in use
    participant.request(request(writes(2), writes(2), writes(2), 1, 1, began=100.5))
    assert participant.due == 103.5


def test_a_burst_begins_anew_when_nothing_is_used_or_lacked() -> None:
    burst = LeaseBurst()
    assert burst.began(False, 1.0) == 0
    assert [burst.began(True, now) for now in (2.0, 3.0)] == [2.0, 2.0]
    burst.started("job", "step", 5, 4.0)
    assert burst.began(False, 4.0) == 2.0
    burst.ended("job", 5.0)
    assert burst.began(False, 5.0) == 0
    burst.started("other", "step", 5, 5.5)
    assert burst.began(False, 5.5) == 5.5


def test_what_is_kept_is_asked_for_anew_behind_who_is_due_first() -> None:
    """A long queue does not keep the storage: what a job held is returned first."""
    participant = Participant("a")
    participant.request(request({}, writes(5), writes(50), 100))
    lease = participant.look([], BANDWIDTH)
    assert lease is not None
    assert lease.given == writes(10)
    other = Tenant("b", {}, writes(5), due=10, ticket=1)
    participant.request(request(writes(5), writes(5), writes(45), 100, lease.number))
    lease = participant.look([other], BANDWIDTH)
    assert participant.tenant.held == writes(5)
    assert participant.tenant.wanted == writes(5)
    assert lease is not None
    assert lease.contended == {"write"}


def test_what_a_run_was_not_told_when_it_wished_stays_its_own() -> None:
    participant = Participant("a")
    participant.request(request({}, writes(5), writes(5), 1))
    assert participant.look([], BANDWIDTH) is not None
    participant.request(request({}, {}, {}, 1, 0))
    assert participant.look([], BANDWIDTH) is None
    assert participant.tenant.held == writes(5)
    participant.request(request({}, {}, {}, 1, 1))
    assert participant.look([], BANDWIDTH) is None
    assert participant.tenant.held == {}


def test_who_wishes_nothing_leaves_without_a_look_at_others() -> None:
    participant = Participant("a")
    participant.request(request({}, writes(5), writes(5), 1))
    assert not participant.leave()
    assert participant.look([], BANDWIDTH) is not None
    participant.request(LeaseRequest())  # it had not been told
    assert not participant.leave()
    participant.request(LeaseRequest(seen=1))
    participant.watches = True
    assert not participant.leave()
    participant.watches = False
    assert participant.leave()
    assert (participant.tenant.held, participant.tenant.wanted, participant.tenant.ticket) == ({}, {}, 0)


def test_a_wish_is_granted_once() -> None:
    participant = Participant("a")
    participant.request(request({}, writes(3), writes(3), 1))
    assert participant.look([], BANDWIDTH) is not None
    assert participant.look([], BANDWIDTH) is None
    assert participant.tenant.held == writes(3)
    assert participant.tenant.wanted == {}


def test_each_ask_has_a_ticket_of_its_own() -> None:
    participant, other = Participant("a"), Tenant("b", writes(10), writes(1), due=1, ticket=7)
    participant.request(request({}, writes(5), writes(5), 1))
    participant.look([other], BANDWIDTH)
    assert participant.tenant.ticket == 8
    participant.request(request({}, writes(6), writes(6), 1))
    participant.look([Tenant("b", writes(10), writes(1), due=1, ticket=9)], BANDWIDTH)
    assert participant.tenant.ticket == 8
    participant.look([], BANDWIDTH)
    participant.request(request(writes(6), writes(6), writes(6), 1, 9))
    participant.look([Tenant("b", {}, writes(1), due=1, ticket=9)], BANDWIDTH)
    assert participant.tenant.ticket == 10


def test_silence_is_on_the_clock_of_the_observer_while_it_runs() -> None:
    silence = Silence()
    assert silence.look({"a": 1}, 1000) == {"a": 0}
    assert silence.look({"a": 1}, 1002) == {"a": 2}
    assert silence.look({"a": 2, "b": 1}, 1004) == {"a": 0, "b": 0}
    # This run was stopped itself: all news of others are as old.
    assert silence.look({"a": 2, "b": 1}, 1104) == {"a": 3, "b": 3}
    assert silence.look({"b": 2}, 1105) == {"b": 0}
    assert silence.look({"a": 2, "b": 2}, 1106) == {"a": 0, "b": 1}


def entry(**fields: object) -> Entry:
    known = {"run": "r", "host": "h", "pid": 1, "started": 0.0, "now": 0.0, "beat": 1, "bandwidth": {"write": 10}}
    return Entry.model_validate({**known, **fields})


def test_an_entry_always_has_the_same_length() -> None:
    odd = entry(run=shortened("\U0001f600\n\x00" * 100), host=shortened("é" * 300))
    assert len(odd.to_bytes()) == ENTRY_BYTES
    assert Entry.model_validate_json(odd.to_bytes()) == odd


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"held": {"write": -1}},
        {"held": {"write": 1.5}},
        {"held": {"write": True}},
        {"held": {"delete": 1}},
        {"held": {"write": 10**30}},
        {"due": "NaN"},
        {"due": None},
        {"due": -1e300},
        {"started": 1e12},
        {"pid": 10**3800},
        {"ticket": 2**60},
        {"beat": "1"},
        {"run": "x" * 101},
        {"run": ["x"]},
    ],
)
def test_what_is_no_entry(change: dict[str, object]) -> None:
    fields = {**json.loads(entry().to_bytes()), **change}
    with pytest.raises(ValidationError):
        Entry.model_validate_json(json.dumps(fields))
    with pytest.raises(ValidationError):
        Entry.model_validate_json(entry().to_bytes().replace(b'"due":0.0', b'"due":NaN'))


def test_nobody_holds_more_than_there_is() -> None:
    tenant = entry(held={"write": 10**18, "read": 3}, wanted={"write": 10**18}).tenant("a", BANDWIDTH)
    assert tenant.held == both(3, 10)
    assert tenant.wanted == writes(10)


def test_one_bandwidth_of_a_ledger_holds_for_both_directions() -> None:
    assert LedgerFile(path="/scratch").bandwidth is None
    assert LedgerFile(path="/scratch", write=3).bandwidth == both(3, 3)
    assert LedgerFile(path="/scratch", write=3, read=4).bandwidth == both(4, 3)


# Any interleaving


@dataclass
class Run:
    """A run that does what a run is to do: what lies between it and its participant takes any time."""

    participant: Participant
    holding: LeaseHolder = field(default_factory=LeaseHolder)
    waiting: deque[dict[Way, int]] = field(default_factory=deque)
    running: list[dict[Way, int]] = field(default_factory=list)
    leases: deque[Lease] = field(default_factory=deque)
    requests: deque[LeaseRequest] = field(default_factory=deque)
    began: float = 0.0
    lives: bool = True
    is_stopped: bool = False

    @property
    def used(self) -> dict[Way, int]:
        return summed(self.running)

    def settle(self, now: float) -> None:
        """Start what can start, and request."""
        self.holding.returned(self.used)
        while self.waiting and all(
            amount(self.used, way) + much <= amount(self.holding.held, way) for way, much in self.waiting[0].items()
        ):
            self.running.append(self.waiting.popleft())
        first = self.waiting[0] if self.waiting else {}
        self.began = (self.began or now) if self.running or self.waiting else 0.0
        if request := self.holding.settle(self.used, first, summed(self.waiting), True, 1.0, now, self.began):
            self.requests.append(request)

    def told(self, now: float) -> None:
        if self.leases:
            self.holding.told(self.leases.popleft(), now)
            self.settle(now)

    def ask(self, job: dict[Way, int], now: float) -> None:
        self.waiting.append(job)
        self.settle(now)

    def end(self, which: int, now: float) -> None:
        if self.running:
            self.running.pop(which % len(self.running))
            self.settle(now)

    def look(self, runs: list[Run], now: float) -> None:
        """The thread of a run: takes the last request, and looks."""
        while self.requests:
            self.participant.request(self.requests.popleft())
        others = [run for run in runs if run is not self and run.lives]
        if self.participant.leave():
            return
        if (lease := self.participant.look([seen(other) for other in others], BANDWIDTH)) is not None:
            self.leases.append(lease)


def summed(jobs: Iterable[dict[Way, int]]) -> dict[Way, int]:
    together: dict[Way, int] = {}
    for job in jobs:
        together = plus(together, job)
    return together


def seen(run: Run) -> Tenant:
    """Return the view that others have of a run."""
    tenant = run.participant.tenant
    held, wanted = (
        {way: min(much, BANDWIDTH[way]) for way, much in amounts.items()} for amounts in (tenant.held, tenant.wanted)
    )
    return Tenant(tenant.run, held, wanted, tenant.due, tenant.ticket, run.is_stopped)


def check(runs: list[Run]) -> None:
    living = [run for run in runs if run.lives]
    held = total(run.participant.tenant for run in living)
    for way in WAYS:
        users = [run for run in living if amount(run.participant.tenant.held, way)]
        # A single job above the bandwidth has the storage for itself.
        assert amount(held, way) <= BANDWIDTH[way] or len(users) == 1, (way, [run.participant.tenant for run in users])
        for run in living:
            assert amount(run.used, way) <= amount(run.participant.tenant.held, way)


def job(chance: Random) -> dict[Way, int]:
    one: dict[Way, int] = {way: chance.randint(1, 10) for way in WAYS}
    return chance.choice([{"write": one["write"]}, {"read": one["read"]}, one, {"write": 15}])


EVENTS = ["ask"] * 8 + ["look"] * 24 + ["told"] * 12 + ["end"] * 8 + ["time"] * 4 + ["die", "stop", "go on", "go on"]


# Of a seed, because lists of events that hypothesis draws are short.
@given(st.integers(0, 2**32))
def test_any_interleaving_stays_within_the_bandwidth_and_serves_everybody(seed: int) -> None:
    chance, now = Random(seed), 0.0
    runs = [Run(Participant(f"run {number}")) for number in range(4)]
    for _ in range(chance.randint(1, 150)):
        run, event = chance.choice(runs), chance.choice(EVENTS)
        now += chance.choice([0.0, 0.01, 0.5])
        if not run.lives or (run.is_stopped and event != "go on"):
            continue
        if event == "ask":
            run.ask(job(chance), now)
        elif event == "look":
            run.look(runs, now)
        elif event == "told":
            run.told(now)
        elif event == "end":
            run.end(chance.randint(0, 9), now)
        elif event == "time":
            run.settle(now)
        run.lives = event != "die"
        run.is_stopped = event == "stop"
        check(runs)
    serve(runs, now)


def serve(runs: list[Run], now: float) -> None:
    """All go on, and look again and again: then every run has had its turn."""
    for run in runs:
        run.is_stopped = False
    living = [run for run in runs if run.lives]
    rounds = 20 + 8 * sum(len(run.waiting) + len(run.running) for run in living)
    for _ in range(rounds):
        if not any(run.waiting or run.running for run in living):
            return
        now += 0.4
        for run in living:
            run.look(runs, now)
            check(runs)
            while run.leases:
                run.told(now)
            run.settle(now)
            check(runs)
            run.end(0, now)
    pytest.fail("somebody was not served")


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 10), st.integers(0, 5)), min_size=1, max_size=8))
def test_of_those_that_wait_one_is_next(wants: list[tuple[int, int, int]]) -> None:
    """If no run holds anything, the first in order gets what it wants, and each grant is within."""
    tenants = [Tenant(f"{n}", {}, writes(much), float(when), ticket) for n, (when, much, ticket) in enumerate(wants)]
    first = min(tenants, key=lambda tenant: tenant.order)
    for tenant in tenants:
        others = [other for other in tenants if other is not tenant]
        assert bool(decide(tenant, others, BANDWIDTH)) == (tenant is first)
        assert contended(others) == (frozenset({"write"}) if others else frozenset())


def test_the_fields_of_features_stay_in_an_entry() -> None:
    facts = {"run": "one", "host": "there", "pid": 1, "started": 0.0, "now": 0.0, "beat": 0, "bandwidth": {}}
    text = Entry.model_validate({**facts, "profile": {"jobs": 1}}).to_bytes()
    read = Entry.model_validate_json(text)
    assert read.model_extra == {"profile": {"jobs": 1}}
    assert read.model_copy(update={"beat": 1, "profile": None}).model_extra == {"profile": None}
