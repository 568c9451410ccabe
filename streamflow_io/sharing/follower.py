"""Lets a run follow the schedule for the runs that are there, as long as they are. Decides; the files are `Plans`."""

from __future__ import annotations

from collections.abc import Mapping

from streamflow_io.hints.models import Way

from .burst_profile import BurstProfile
from .holds import STILL_SECONDS, Following, Plan, Plans, are_steady, digest, is_another
from .schedule_state import MOST_OF_REASON, ScheduleState
from .standing import Standing

# Bursts after which a run that did not fit its schedule any more says again what its bursts are like.
_NEW_BURSTS = 4


class Follower:
    """A run in a directory with `holds: auto`.

    :param own: the name of its entry
    :param standing: which holds back its bursts
    :param plans: of the directory
    """

    def __init__(self, own: str, standing: Standing, plans: Plans) -> None:
        self._own = own
        self._standing = standing
        self._plans = plans
        #: What others are told of the bursts of this run.
        self.published: BurstProfile | None = None
        #: What others are told of the schedule for those that are there; none: there is none yet.
        self.state: ScheduleState | None = None
        self._least_bursts = 0
        self._name: str | None = None
        self._since = 0.0

    def say(self, profile: BurstProfile | None) -> None:
        """What the bursts of the run are like, as far as is known."""
        if profile is None or profile.bursts < self._least_bursts:
            self.published = None
        elif is_another(self.published, profile):
            self.published = profile

    def look(
        self,
        others: Mapping[str, BurstProfile | None],
        bandwidth: Mapping[Way, float],
        apart: float,
        monotonic: float,
        now: float,
    ) -> None:
        """See who is there.

        :param others: by the names of their entries; None: not periodic
        :param bandwidth: of the storage, MB/s
        :param apart: by how many seconds the clocks of the runs differ
        :param monotonic: seconds of a clock that never goes back; `now`: on the wall clock
        """
        following = self._standing.following
        if following is not None and following.has_drifted and self.published is not None:
            # With new bursts there is another profile, and another schedule.
            self._least_bursts, self.published = self.published.bursts + _NEW_BURSTS, None
        profiles = {**others, self._own: self.published}
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
        elif (following := self._standing.following) is not None and not following.suits(apart):
            self._standing.follow(None)
            self.state = ScheduleState(name=name, since=None, reason=_apart(apart))

    def close(self) -> None:
        """The run ends."""
        self._plans.close()

    def _decide(self, name: str, plan: Plan, apart: float, now: float) -> None:
        since, reason = None, plan.reason
        if plan.slots is not None:
            following = Following(plan.slots, plan.start)
            if following.suits(apart):
                self._standing.follow(following)
                since = now
            else:
                reason = _apart(apart)
        self.state = ScheduleState(name=name, since=since, reason=reason[:MOST_OF_REASON])

    def _leave(self, name: str | None, monotonic: float) -> None:
        self._standing.follow(None)
        if name is None or name != self._name:
            self._name, self._since, self.state = name, monotonic, None


def _apart(seconds: float) -> str:
    return f"the clocks of the runs differ by {seconds:.1f} s"
