"""Lets a run follow the schedule for the runs that are there, as long as they are. Decides; the files are `Plans`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from streamflow_io.hints.models import Way
from streamflow_io.storage.sharing.entries import Entry
from streamflow_io.storage.sharing.turns import BurstDelay

from .burst_profile import BurstProfile, profile_of
from .followed import STILL_SECONDS, FollowedPlan, FollowedSchedule, Plans, are_steady, digest, is_another

# Bursts after which a run that did not fit its schedule any more says again what its bursts are like.
_NEW_BURSTS = 4
#: Characters of a reason that others can read: an entry has one block.
MOST_OF_REASON = 200


class ScheduleState(BaseModel):
    """A schedule that was made for the runs that are there.

    :ivar since: from when on the run follows it, by its clock; none: it does not
    :ivar reason: why it does, or does not, for people
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", defer_build=True)
    name: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    since: Annotated[float, Field(allow_inf_nan=False)] | None
    reason: Annotated[str, StringConstraints(max_length=MOST_OF_REASON)]


class ScheduleTurns:
    """A run in a directory with `holds: auto`: its :class:`streamflow_io.storage.sharing.turns.Turns`.

    :param profile: gives the profile of the run's bursts. None: the run takes no turns
    """

    def __init__(self, own: str, plans: Plans, profile: Callable[[], BurstProfile | None]) -> None:
        self._own = own
        self._plans = plans
        self._profile = profile
        # As of the last burst.
        self._found: BurstProfile | None = None
        #: The schedule that the run follows. None: the run follows no schedule.
        self.following: FollowedSchedule | None = None
        #: The slot of the burst that has begun. None: the burst asks for bandwidth at once.
        self.hold: BurstDelay | None = None
        #: The profile of this run as other runs know it.
        self.published: BurstProfile | None = None
        #: What others are told of the schedule for those that are there; none: there is none yet.
        self.state: ScheduleState | None = None
        self._least_bursts = 0
        self._name: str | None = None
        self._since = 0.0

    def over(self) -> None:
        """A burst is over: see what the bursts of the run are like."""
        self._found = self._profile()

    def begin(self, now: float) -> None:
        """A burst begins, and waits for its slot if the run follows a schedule."""
        self.hold = None if self.following is None else self.following.begin(now)

    def end(self) -> None:
        """The burst is over, or asks for nothing any more."""
        self.hold = None

    def fields(self) -> Mapping[str, object]:
        """The fields for other runs: the profile of the run, and its state of the schedule."""
        self._say(self._found)
        return {"profile": self.published, "schedule": self.state}

    def _say(self, profile: BurstProfile | None) -> None:
        if profile is None or profile.bursts < self._least_bursts:
            self.published = None
        elif is_another(self.published, profile):
            self.published = profile

    def look(
        self,
        others: Mapping[str, Entry],
        bandwidth: Mapping[Way, float],
        apart: float,
        monotonic: float,
        now: float,
    ) -> None:
        """See which runs are there; follow their schedule, or no schedule any more."""
        following = self.following
        if following is not None and following.has_drifted and self.published is not None:
            # With new bursts there is another profile, and another schedule.
            self._least_bursts, self.published = self.published.bursts + _NEW_BURSTS, None
        profiles = {**{name: profile_of(entry) for name, entry in others.items()}, self._own: self.published}
        known = {name: profile for name, profile in profiles.items() if profile is not None}
        if not are_steady(profiles):
            self._leave(None, monotonic)
            return
        if (name := digest(known)) != self._name:
            self._leave(name, monotonic)
        if self.state is None:
            plan = self._plans.of(name, known, self._own)
            if plan is not None:
                self._decide(name, plan, apart, now)
            elif monotonic - self._since >= STILL_SECONDS:
                self._plans.make(name, known, bandwidth[next(iter(known.values())).direction])
        elif (following := self.following) is not None and not following.suits(apart):
            self._follow(None)
            self.state = ScheduleState(name=name, since=None, reason=_apart(apart))

    def close(self) -> None:
        """The run ends."""
        self._plans.close()

    def _follow(self, following: FollowedSchedule | None) -> None:
        """Follow a schedule from the next burst on; None: what is held back is not held back from now on."""
        self.following = following
        if following is None:
            self.hold = None

    def _decide(self, name: str, plan: FollowedPlan, apart: float, now: float) -> None:
        since, reason = None, plan.reason
        if plan.slots is not None:
            following = FollowedSchedule(plan.slots, plan.start)
            if following.suits(apart):
                self._follow(following)
                since = now
            else:
                reason = _apart(apart)
        self.state = ScheduleState(name=name, since=since, reason=reason[:MOST_OF_REASON])

    def _leave(self, name: str | None, monotonic: float) -> None:
        self._follow(None)
        if name is None or name != self._name:
            self._name, self._since, self.state = name, monotonic, None


def state_of(entry: Entry) -> ScheduleState | None:
    """The state of the schedule in the entry of a run. None: the entry has no state, or a wrong one."""
    try:
        return ScheduleState.model_validate((entry.model_extra or {}).get("schedule"), strict=False)
    except ValidationError:
        return None


def _apart(seconds: float) -> str:
    return f"the clocks of the runs differ by {seconds:.1f} s"
