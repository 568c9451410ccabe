"""How long a user may keep others from their fair share of a storage: any adversary, and honest users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from streamflow_io.hints.models import Way
from streamflow_io.storage.sharing.allocation import (
    GRACE_SECONDS,
    LARGE_SECONDS,
    Lease,
    Patience,
    Tenant,
    amount,
    decide,
    fair_shares,
    longest_wait,
    stands_in_the_way,
    takes,
)
from streamflow_io.storage.sharing.lease_holder import LeaseHolder
from streamflow_io.storage.sharing.participant import Participant

BANDWIDTH: dict[Way, int] = {"read": 100, "write": 100}
ME, OTHER, THIRD = 1, 2, 3
#: An example simulates minutes of several users, in steps of a look.
EXAMPLES = settings().max_examples // 3
LOOK = 0.2


def writes(much: int) -> dict[Way, int]:
    return {"write": much} if much else {}


def mine(held: int = 0, wanted: int = 10, due: float = 10.0) -> Tenant:
    return Tenant("me", writes(held), writes(wanted), due, owner=ME)


def other(held: int = 0, wanted: int = 0, due: float = 0.0, owner: int = OTHER, seconds: float = 0.0) -> Tenant:
    return Tenant(f"other {owner} {held}", writes(held), writes(wanted), due, owner=owner, seconds=seconds)


def test_a_share_is_that_of_an_owner_who_uses_the_storage() -> None:
    many = [replace(other(1, 1), run=f"{number}") for number in range(1500)]
    assert fair_shares([mine(), *many], BANDWIDTH) == {"read": 100, "write": 50}
    assert fair_shares([mine(), other(), other(1, owner=THIRD)], BANDWIDTH)["write"] == 50
    assert fair_shares([mine(), replace(other(0, 5), silent=True)], BANDWIDTH)["write"] == 100


@pytest.mark.parametrize(
    ("tenant", "others", "expected"),
    [
        pytest.param(mine(), [other(50)], set(), id="no more than its share"),
        pytest.param(mine(), [other(51)], {OTHER}, id="more than its share"),
        pytest.param(mine(), [other(30), other(30)], {OTHER}, id="in several entries"),
        pytest.param(mine(), [other(30), other(30, owner=THIRD)], set(), id="of several owners"),
        pytest.param(mine(50), [other(100)], set(), id="it has its share"),
        pytest.param(mine(), [replace(other(100), owner=ME)], set(), id="its own owner's"),
        pytest.param(mine(wanted=0), [other(100)], set(), id="it waits for nothing"),
        pytest.param(mine(), [Tenant("o", {"read": 100}, owner=OTHER)], set(), id="another way"),
        pytest.param(mine(), [other(0, 100, due=9)], {OTHER}, id="wants something before"),
        pytest.param(mine(), [other(0, 100, due=11)], set(), id="wants something after"),
        pytest.param(mine(), [replace(other(0, 100, due=9), silent=True)], set(), id="who is silent"),
        pytest.param(mine(20), [other(0, 100, due=9)], {OTHER}, id="it has less than half of its share"),
        pytest.param(mine(25), [other(0, 100, due=9)], set(), id="it has half of its share"),
        pytest.param(mine(wanted=60), [other(1)], {OTHER}, id="a job that needs more than the share"),
    ],
)
def test_who_stands_in_the_way(tenant: Tenant, others: list[Tenant], expected: set[int]) -> None:
    assert stands_in_the_way(tenant, others, BANDWIDTH) == expected


@pytest.mark.parametrize(
    ("tenant", "others", "expected"),
    [
        pytest.param(mine(), [other(100)], 10, id="what is held counts up to its share"),
        pytest.param(mine(45), [other(100)], 0, id="up to its own share"),
        pytest.param(mine(wanted=60), [other(100)], 60, id="a single job may be above"),
        pytest.param(mine(10, 60), [other(100)], 0, id="but not beside another one of its owner"),
        pytest.param(mine(wanted=60), [other(100), other(1, owner=THIRD)], 0, id="nor beside who has not overstayed"),
        pytest.param(mine(), [other(0, 100, due=0)], 10, id="who wants something keeps nothing back"),
        pytest.param(mine(45), [other(0, 100, due=0)], 0, id="and has its share"),
        pytest.param(mine(45), [other(20)], 10, id="who has overstayed and has its share"),
        pytest.param(mine(), [other(100), other(60, owner=THIRD)], 0, id="who has not overstayed counts"),
        pytest.param(mine(), [other(100), other(20, owner=THIRD)], 10, id="a third part of all"),
    ],
)
def test_what_is_given_beside_an_owner_that_has_overstayed(tenant: Tenant, others: list[Tenant], expected: int) -> None:
    assert decide(tenant, others, BANDWIDTH, overstayed={OTHER}) == writes(expected)


def patient(seconds: float, others: Sequence[Tenant], tenant: Tenant | None = None, looks: float = 0.5) -> float:
    """The number of seconds after which a run has overstayed."""
    patience, now = Patience(), 0.0
    while not patience.overstayed:
        patience.look(tenant or mine(), others, BANDWIDTH, seconds, now)
        now += looks
        assert now < 10_000
    return now - looks


def test_how_long_is_waited() -> None:
    assert patient(100, [other(100)]) == GRACE_SECONDS  # it says nothing
    assert patient(100, [other(100, seconds=20)]) == 40  # twice as long as it says
    assert patient(100, [other(100, seconds=1e300)]) == 150  # shorter than the burst takes with half of the bandwidth
    assert patient(1, [other(100, seconds=1e300)]) == GRACE_SECONDS
    assert patient(1, [other(100, seconds=1e300)], mine(wanted=60)) == LARGE_SECONDS
    # A run that looks rarely has been stopped, maybe.
    assert patient(100, [other(100)], looks=60) == 120
    assert longest_wait(mine(), [other(100)], BANDWIDTH, 0) == 0
    assert takes(-1e308, 1e308) > 1e300
    assert takes(5, 2) == 0


def test_what_an_owner_has_needed_before_it_may_need_again() -> None:
    patience, now = Patience(), 0.0

    def look(tenant: Tenant, others: list[Tenant], looks: int) -> None:
        nonlocal now
        for _ in range(looks):
            patience.look(tenant, others, BANDWIDTH, 1000, now)
            now += 1.0

    look(mine(), [other(100)], 41)
    assert patience.overstayed == {OTHER}
    look(mine(10), [other(40)], 15)
    assert patience.overstayed == {OTHER}  # the run has used the storage for too short a time
    look(mine(10), [other(40)], 10)
    assert patience.overstayed == frozenset()
    look(mine(), [other(100)], 80)
    assert patience.overstayed == frozenset()
    look(mine(), [other(100)], 2)
    assert patience.overstayed == {OTHER}


def test_who_never_gives_way_is_waited_for_once_and_for_a_part_of_what_is_used() -> None:
    patience, now, waited, used = Patience(), 0.0, 0, 0
    for _ in range(20):
        for tenant in [mine()] * 5 + [mine(50)] * 3 + [mine(wanted=0)] * 2:
            patience.look(tenant, [other(100)], BANDWIDTH, 1, now)
            waited += tenant == mine() and not patience.overstayed
            used += tenant == mine(50)
            now += 1.0
    assert waited <= GRACE_SECONDS + 1 + used / 4


# Any adversary


@dataclass
class User:
    """An honest run with many jobs that are alike.

    :ivar seconds: how long the burst takes if the storage is its alone
    """

    participant: Participant
    owner: int
    jobs: int
    each: int
    took: float
    waiting: int = 0
    holding: LeaseHolder = field(default_factory=LeaseHolder)
    running: list[float] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)
    asked: float = 0.0

    def __post_init__(self) -> None:
        self.waiting = self.jobs

    @property
    def seconds(self) -> float:
        return self.jobs * self.each * self.took / BANDWIDTH["write"]

    @property
    def is_over(self) -> bool:
        return not self.waiting and not self.running

    def step(self, others: Sequence[Tenant], now: float) -> None:
        """Ended jobs return, startable jobs start, and the run looks."""
        self.running = [end for end in self.running if end > now]
        self._settle(now)
        if (lease := self.participant.look(others, BANDWIDTH, now, now)) is not None:
            self.holding.told(lease, now)
            self._settle(now)

    def _settle(self, now: float) -> None:
        self.holding.returned(self._used)
        while self.waiting and amount(self._used, "write") + self.each <= amount(self.holding.held, "write"):
            self.running.append(now + self.took)
            self.waiting -= 1
        needed = writes(self.each if self.waiting else 0)
        useful = writes(self.each * self.waiting)
        request = self.holding.settle(self._used, needed, useful, True, self.seconds, now, self.asked or 0.001)
        if request is not None:
            self.participant.request(request)

    @property
    def _used(self) -> dict[Way, int]:
        return writes(self.each * len(self.running))

    def seen(self) -> Tenant:
        return replace(self.participant.tenant, seconds=self.seconds)


def user(owner: int, jobs: int, each: int, took: float) -> User:
    return User(Participant(f"user {owner}", owner), owner, jobs, each, took)


Adversary = Callable[[float, Random], list[Tenant]]


def holds(now: float, chance: Random) -> list[Tenant]:
    return [other(100, seconds=1e300)]


def wants(now: float, chance: Random) -> list[Tenant]:
    return [other(0, 100, -1e300, seconds=1e300)]


def holds_a_little_and_wants(now: float, chance: Random) -> list[Tenant]:
    return [other(1), other(0, 100, -1e300, seconds=1e300)]


def comes_and_goes(now: float, chance: Random) -> list[Tenant]:
    return [other(100, 100, -1e300, seconds=1e300)] if now % 13 < 8 else []


def is_many(now: float, chance: Random) -> list[Tenant]:
    return [replace(other(100, 100, -1e300, seconds=1e300), run=f"{number}") for number in range(30)]


def does_anything(now: float, chance: Random) -> list[Tenant]:
    return [
        replace(
            other(chance.choice([0, 1, 50, 51, 100]), chance.choice([0, 1, 100]), chance.choice([-1e300, 1e300])),
            run=f"{number}",
            silent=chance.random() < 0.2,
            seconds=chance.choice([0.0, 7.0, 1e300]),
        )
        for number in range(chance.randint(0, 4))
    ]


ADVERSARIES = [holds, wants, holds_a_little_and_wants, comes_and_goes, is_many, does_anything]


@pytest.mark.parametrize("adversary", ADVERSARIES)
@settings(max_examples=EXAMPLES)
@given(jobs=st.integers(5, 30), each=st.sampled_from([5, 10, 25]), took=st.sampled_from([0.6, 2.0]), seed=st.integers())
def test_a_burst_has_half_of_its_fair_share_beside_any_adversary(
    adversary: Adversary, jobs: int, each: int, took: float, seed: int
) -> None:
    one, chance, now = user(ME, jobs, each, took), Random(seed), 0.0
    # So long it takes with its share; a look follows the end of a job, and one lets the next begin.
    shared = ceil(jobs * each / 50) * (took + 2 * LOOK)
    while not one.is_over:
        one.step(adversary(now, chance), now)
        assert amount(one.participant.tenant.held, "write") <= 100
        now += LOOK
        assert now < GRACE_SECONDS + 2 * shared + jobs * LOOK, (one.waiting, shared)


@settings(max_examples=EXAMPLES)
@given(
    st.lists(st.tuples(st.integers(5, 30), st.sampled_from([5, 10, 25]), st.floats(0.6, 5)), min_size=2, max_size=4),
    st.integers(),
)
def test_honest_users_end(jobs: list[tuple[int, int, float]], seed: int) -> None:
    """Each gets what it waits for, in bounded time; beyond the bandwidth no run has more than its fair share."""
    users = [user(owner, *each) for owner, each in enumerate(jobs, 1)]
    most = GRACE_SECONDS + 3 * sum(one.seconds + one.took for one in users) + LOOK * sum(one.jobs for one in users)
    assert together(users, Random(seed), most) <= 100 * len(users)


@settings(max_examples=EXAMPLES)
@given(jobs=st.integers(16, 30), each=st.just(25), number=st.integers(2, 4), seed=st.integers())
def test_honest_users_that_are_alike_never_have_more_than_there_is(
    jobs: int, each: int, number: int, seed: int
) -> None:
    """A run that gives way as its jobs end is not overrun: bursts take at least the time of four jobs."""
    users = [user(owner, jobs, each, 2.0) for owner in range(1, number + 1)]
    assert together(users, Random(seed), 1000) <= 100


def together(users: list[User], chance: Random, most: float) -> int:
    """Run to the end.

    :return: the most that all have held together
    """
    now, held = 0.0, 0
    while not all(one.is_over for one in users):
        chance.shuffle(users)
        for one in users:
            one.step([each.seen() for each in users if each is not one], now)
        held = max(held, sum(amount(one.participant.tenant.held, "write") for one in users))
        now += LOOK
        assert now < most
    return held
