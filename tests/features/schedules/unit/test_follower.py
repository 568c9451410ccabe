"""When a run follows a schedule, and when it leaves it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from streamflow_io.features.schedules.burst_profile import BurstProfile
from streamflow_io.features.schedules.followed import STILL_SECONDS, FollowedPlan
from streamflow_io.features.schedules.model import Slots
from streamflow_io.features.schedules.turns import ScheduleTurns
from streamflow_io.storage.sharing.allocation import LeaseRequest
from streamflow_io.storage.sharing.entries import Entry
from streamflow_io.storage.sharing.participant import Participant

ONE = BurstProfile(direction="write", bursts=8, jobs=1, storage_bw=4, volume=8, rate=4, work=8, error=0.01)
OTHER = ONE.model_copy(update={"work": 3.0})
BANDWIDTH = {"write": 16.0, "read": 16.0}
REQUEST = LeaseRequest({}, {"write": 5}, False, {"write": 5}, 1.0, began=1.0)


class MadePlans:
    """Plans that are made when they are asked for."""

    def __init__(self, is_followed: bool = True) -> None:
        self.made: list[str] = []
        self._slots = Slots(10.0, (0.0,)) if is_followed else None

    def of(self, name: str, profiles: Mapping[str, BurstProfile], own: str) -> FollowedPlan | None:
        assert own in profiles
        return FollowedPlan(self._slots, 0.0, "because") if name in self.made else None

    def make(self, name: str, profiles: Mapping[str, BurstProfile], bandwidth: float) -> None:
        assert bandwidth == 16.0
        self.made.append(name)

    def close(self) -> None:
        self.made.clear()


def entry(profile: BurstProfile | None) -> Entry:
    """The entry of another run, as it is read."""
    facts = {"run": "you", "host": "there", "pid": 1, "started": 0.0, "now": 0.0, "beat": 0, "bandwidth": {}}
    return Entry.model_validate_json(Entry.model_validate({**facts, "profile": profile}).to_bytes())


class Driver:
    def __init__(self, is_followed: bool = True) -> None:
        self.plans = MadePlans(is_followed)
        self.participant = Participant("me")
        self.follower = ScheduleTurns("me", self.plans, lambda: self.profile)
        self.participant.turns = self.follower
        self.publish(ONE)

    def look(self, now: float, apart: float = 0.0, **others: BurstProfile | None) -> None:
        entries = {name: entry(profile) for name, profile in others.items()}
        self.follower.look(entries, BANDWIDTH, apart, now, now)

    def publish(self, profile: BurstProfile) -> None:
        """A burst is over, and the entry of the run is written."""
        self.profile = profile
        self.follower.over()
        assert "profile" in self.follower.fields()

    def follow(self) -> None:
        self.look(0.0, you=OTHER)
        self.look(STILL_SECONDS, you=OTHER)
        self.look(STILL_SECONDS + 1, you=OTHER)
        assert self.follower.following is not None


def test_a_schedule_is_made_when_nobody_has_come_or_gone_for_a_while() -> None:
    driver = Driver()
    driver.look(0.0, you=OTHER)
    driver.look(STILL_SECONDS - 1, you=OTHER)
    assert driver.plans.made == []
    driver.look(STILL_SECONDS - 0.5, you=OTHER, they=ONE)
    driver.look(STILL_SECONDS + 1, you=OTHER, they=ONE)
    assert driver.plans.made == []
    driver.look(2 * STILL_SECONDS, you=OTHER, they=ONE)
    assert len(driver.plans.made) == 1


def test_who_comes_goes_or_is_not_periodic_ends_it() -> None:
    for others in ({}, {"you": OTHER, "they": ONE}, {"you": None}, {"you": ONE}):
        driver = Driver()
        driver.follow()
        driver.look(50.0, **others)
        assert driver.follower.following is None


def test_a_schedule_that_does_not_pay_is_not_followed() -> None:
    driver = Driver(is_followed=False)
    for now in (0.0, STILL_SECONDS, STILL_SECONDS + 1, STILL_SECONDS + 2):
        driver.look(now, you=OTHER)
    assert len(driver.plans.made) == 1
    assert driver.follower.following is None


def test_runs_whose_clocks_differ_follow_none() -> None:
    driver = Driver()
    driver.follow()
    state = driver.follower.state
    assert state is not None
    assert (state.since, state.reason) == (STILL_SECONDS + 1, "because")
    driver.look(STILL_SECONDS + 2, apart=0.9, you=OTHER)
    assert driver.follower.following is not None
    driver.look(STILL_SECONDS + 3, apart=1.1, you=OTHER)
    assert driver.follower.following is None
    state = driver.follower.state
    assert state is not None
    assert (state.since, state.reason) == (None, "the clocks of the runs differ by 1.1 s")
    other = Driver()
    for now in (0.0, STILL_SECONDS, STILL_SECONDS + 1):
        other.look(now, apart=5.0, you=OTHER)
    assert len(other.plans.made) == 1
    assert other.follower.following is None


def test_a_run_that_does_not_fit_its_slots_any_more_says_so() -> None:
    driver = Driver()
    driver.follow()
    for number in range(4, 9):
        driver.participant.request(replace(REQUEST, began=10.0 * number + (0 if number < 7 else 3)))
        driver.participant.request(LeaseRequest())
    driver.participant.request(replace(REQUEST, began=93.0))
    driver.look(94.0, you=OTHER)
    assert driver.follower.published is None
    assert driver.follower.following is None
    driver.publish(ONE.model_copy(update={"bursts": 11}))
    assert driver.follower.published is None
    driver.publish(ONE.model_copy(update={"bursts": 12}))
    assert driver.follower.published is not None
