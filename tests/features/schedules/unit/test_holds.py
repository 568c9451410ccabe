"""Runs that follow a schedule hold back what is early, never what is late, and not for ever."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import example, given
from hypothesis import strategies as st

from streamflow_io.features.schedules.burst_profile import BurstProfile
from streamflow_io.features.schedules.followed import FollowedSchedule, are_steady, digest, is_another
from streamflow_io.features.schedules.model import Slots
from streamflow_io.features.schedules.turns import ScheduleTurns
from streamflow_io.storage.sharing.allocation import LeaseRequest
from streamflow_io.storage.sharing.participant import Participant

SLOTS = Slots(10.0, (2.0, 7.0))
REQUEST = LeaseRequest({}, {"write": 5}, False, {"write": 5}, 1.0, began=1.0)


class NoPlans:
    """The plans of a directory in which no run makes one."""

    def of(self, name: str, profiles: Mapping[str, BurstProfile], own: str) -> None: ...
    def make(self, name: str, profiles: Mapping[str, BurstProfile], bandwidth: float) -> None: ...
    def close(self) -> None: ...


def profile(work: float = 8.0, error: float = 0.01, **fields: object) -> BurstProfile:
    facts = {"direction": "write", "bursts": 8, "jobs": 4, "storage_bw": 4.0, "volume": 32.0, "rate": 16.0}
    return BurstProfile.model_validate({**facts, "work": work, "error": error, **fields})


def test_a_burst_that_is_early_is_held_until_its_slot() -> None:
    following = FollowedSchedule(SLOTS, 100.0)
    holds = [following.begin(now) for now in (104.0, 111.0, 118.5)]
    assert [(hold.until, hold.due) for hold in holds] == [(107.0, 107.0), (112.0, 112.0), (118.5, 117.0)]


def test_nobody_is_held_for_longer_than_a_period() -> None:
    assert FollowedSchedule(SLOTS, 1_000.0).begin(0.0).until == 10.0


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.lists(st.floats(0.1, 50), min_size=1, max_size=30))
def test_slots_come_one_after_the_other(start: float, now: float, pauses: list[float]) -> None:
    following = FollowedSchedule(SLOTS, start)
    dues = []
    for pause in pauses:
        hold = following.begin(now)
        assert now <= hold.until <= now + SLOTS.period
        assert hold.until == now or hold.until <= hold.due
        dues.append(hold.due)
        now = hold.until + pause
    assert dues == sorted(set(dues))
    assert dues[0] >= start


def test_the_first_burst_is_not_late() -> None:
    """Where the period is what the run needs, it would be late for ever."""
    for now in (99.0, 105.0, 1_234.5, 1_237.0):
        hold = FollowedSchedule(SLOTS, 100.0).begin(now)
        assert now <= hold.due < now + SLOTS.period


@given(st.lists(st.floats(0, 9), min_size=1, max_size=4, unique=True), st.floats(0, 9), st.floats(-20, 100))
@example([0.1], 0.0, 30.1)
def test_the_first_burst_takes_the_first_slot_that_is_not_over(starts: list[float], after: float, now: float) -> None:
    slots = Slots(10.0, tuple(sorted(after + start for start in starts)))
    first = next(slot for slot in map(slots.at, range(100)) if slot >= now)
    assert FollowedSchedule(slots, 0.0).begin(now).due == first


def test_bursts_that_move_do_not_follow_any_more() -> None:
    following = FollowedSchedule(Slots(10.0, (0.0,)), 0.0)
    for number in range(5):
        following.begin(10.0 * number - 1)
    assert not following.has_drifted
    for number in range(5, 9):
        following.begin(10.0 * number + 1)
    assert following.has_drifted


def test_who_comes_nearer_to_its_slots_has_not_drifted() -> None:
    """A run begins to follow where it happens to be; from then on it is early, and held."""
    following = FollowedSchedule(Slots(10.0, (0.0,)), 0.0)
    for number, late in enumerate((9.0, 5.0, 1.0, -3.0, -4.0, -4.0, -4.0)):
        following.begin(10.0 * number + late)
        assert not following.has_drifted
    for number in range(7, 9):
        following.begin(10.0 * number - 2.0)
    assert following.has_drifted


def following_participant() -> tuple[Participant, ScheduleTurns]:
    participant, follower = Participant("one"), ScheduleTurns("one", NoPlans(), lambda: None)
    follower.following, participant.turns = FollowedSchedule(SLOTS, 0.0), follower
    participant.request(REQUEST)
    return participant, follower


def test_what_is_held_back_is_not_wanted() -> None:
    participant, _ = following_participant()
    told = participant.look([], {"write": 10}, 1.5)
    assert told is not None
    assert told.given == {}
    assert participant.tenant.wanted == {}
    lease = participant.look([], {"write": 10}, 2.0)
    assert lease is not None
    assert lease.given == {"write": 5}
    assert participant.due == 2.0


def test_without_a_schedule_nothing_is_held_any_more() -> None:
    participant, follower = following_participant()
    assert participant.due == 2.0
    follower.look({}, {"write": 10.0}, 0.0, 1.5, 1.5)
    lease = participant.look([], {"write": 10}, 1.5)
    assert lease is not None
    assert lease.given == {"write": 5}
    assert participant.due == participant.tenant.due == 4.0


def test_who_is_steady() -> None:
    assert are_steady({"a": profile(), "b": profile(2.0)})
    assert not are_steady({"a": profile()})
    assert not are_steady({"a": profile(), "b": None})
    assert not are_steady({"a": profile(), "b": profile(error=0.06)})
    assert not are_steady({"a": profile(), "b": profile(direction="read")})


def test_a_schedule_is_for_just_these_runs() -> None:
    both = {"a": profile(), "b": profile(2.0)}
    assert digest(both) == digest({"b": profile(2.0001), "a": profile(bursts=9)})
    others = ({"a": profile()}, {"a": profile(), "c": profile(2.0)}, {"a": profile(2.1), "b": profile(2.0)})
    assert len({digest(both), *map(digest, others)}) == 4


def test_others_are_told_what_matters() -> None:
    assert is_another(None, profile())
    assert not is_another(profile(), profile(8.3, bursts=12))
    assert is_another(profile(), profile(8.6))
    assert is_another(profile(error=0.2), profile())
    # What matters is how much of a period it is.
    assert not is_another(profile(volume=3.2), profile(volume=4.8))
    assert is_another(profile(volume=32.0), profile(volume=48.0))
    # Of few bursts, the medians move within their errors.
    assert not is_another(profile(error=0.04), profile(8.8, error=0.06))
    assert is_another(profile(error=0.04), profile(9.3, error=0.06))
