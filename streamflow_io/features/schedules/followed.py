"""Decides which runs follow a schedule of their bursts together, and when each holds back a burst.

A schedule is made for just the runs that are there. Only the beginnings of bursts are held, by the slots of the
schedule. A burst that is late is never held, and comes first. The module
:mod:`streamflow_io.features.schedules.plan_program` says when that pays.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from math import inf
from statistics import median
from typing import Protocol

from msgspec import Struct

from streamflow_io.storage.sharing.turns import BurstDelay

from .burst_profile import BurstProfile
from .model import Slots

#: The largest error of a profile from which a schedule is made.
MOST_ERROR = 0.05
#: Before a schedule is made, no run has come or gone, and no profile has changed, for this time.
STILL_SECONDS = 30.0
# A time of a profile that is new differs by this part of a period from the one before, and by more than both errors.
_OTHER = 0.05
# Beginnings that are later than they were by this part of a period do not fit slots, nor do clocks that differ by it.
_DRIFT = 0.1
_SOME = 3


def unsteady(runs: Mapping[str, str], profiles: Mapping[str, BurstProfile | None]) -> str | None:
    """Why no schedule could be made for these runs; None: all are periodic, in one direction, and well known.

    :param runs: what they are called, for people, by the names of their entries
    """
    if len(profiles) < 2:
        return "it needs two runs at least"
    for name, profile in profiles.items():
        if profile is None:
            return f"no periodic bursts of run {runs[name]} are known"
        if profile.error > MOST_ERROR:
            return f"the bursts of run {runs[name]} are known to {profile.error:.0%}, not to {MOST_ERROR:.0%}"
    if len({profile.direction for profile in profiles.values() if profile is not None}) > 1:
        return "some runs read, others write"
    return None


def are_steady(profiles: Mapping[str, BurstProfile | None]) -> bool:
    """Whether a schedule could be made for these runs: all are periodic, in one direction, and well known."""
    return unsteady({name: name for name in profiles}, profiles) is None


def digest(profiles: Mapping[str, BurstProfile]) -> str:
    """The name of the schedule of some runs.

    :param profiles: by the names of their entries
    """
    rows = [
        (name, own.direction, own.jobs, *(f"{number:.3g}" for number in (own.work, own.volume, own.rate)))
        for name, own in sorted(profiles.items())
    ]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def is_another(before: BurstProfile | None, now: BurstProfile) -> bool:
    """Whether a profile differs enough from its published version to be published again."""
    if before is None or (before.direction, before.jobs) != (now.direction, now.jobs):
        return True
    times = [(own.work, own.volume / own.rate) for own in (before, now)]
    # Medians of few bursts move within their errors from burst to burst: each move would end a schedule.
    other = max(_OTHER, before.error + now.error) * max(map(sum, times))
    return before.error > MOST_ERROR >= now.error or any(abs(a - b) > other for a, b in zip(*times, strict=True))


class FollowedSchedule:
    """A run that follows a schedule.

    :param start: when the pattern begins, by the wall clock
    """

    def __init__(self, slots: Slots, start: float) -> None:
        self._slots = slots
        self._start = start
        # The slot of the burst that begins next. None: the burst takes the next slot that comes. A run that begins late
        # stays late, and in the way of others, where the period is as short as possible.
        self._next: int | None = None
        self._last: deque[float] = deque(maxlen=_SOME)
        self._least = inf

    def begin(self, now: float) -> BurstDelay:
        """Begin a burst of the run. No burst waits for longer than a period."""
        number = self._first(now) if self._next is None else self._next
        slot = self._start + self._slots.at(number)
        self._next = number + 1
        self._last.append(now - slot)
        if len(self._last) == _SOME:
            self._least = min(self._least, median(self._last))
        return BurstDelay(max(now, min(slot, now + self._slots.period)), slot)

    def _first(self, now: float) -> int:
        """The first slot that is not over. The slots of a cycle are less than a period apart."""
        starts = self._slots.starts
        cycles = int((now - self._start - starts[0]) // self._slots.period)
        # One cycle more on both sides, because numbers are rounded.
        numbers = range(max(0, cycles - 1) * len(starts), max(0, cycles + 2) * len(starts))
        return numbers.start + bisect_left(numbers, now, key=lambda number: self._start + self._slots.at(number))

    def suits(self, apart: float) -> bool:
        """Whether slots mean the same for all.

        :param apart: by how many seconds the clocks of the runs differ
        """
        return apart <= _DRIFT * self._slots.period

    @property
    def has_drifted(self) -> bool:
        """Whether bursts fall behind their slots.

        Those of a run that begins to follow come nearer to them, which is none; nor is it if they are too early: then
        they are held.
        """
        return len(self._last) == _SOME and median(self._last) - self._least > _DRIFT * self._slots.period


class FollowedPlan(Struct, frozen=True):
    """A schedule for just the runs that are there.

    :ivar slots: of this run; none: the schedule is not followed
    :ivar start: when it begins, by the wall clock
    :ivar reason: why it is followed or not, for people
    """

    slots: Slots | None
    start: float
    reason: str


class Plans(Protocol):
    """The schedules of a shared directory; whoever needs one that is not there makes it, for all."""

    def of(self, name: str, profiles: Mapping[str, BurstProfile], own: str) -> FollowedPlan | None:
        """The schedule with a name; none: there is none yet, or it cannot be kept.

        :param own: the run whose slots are asked for
        """

    def make(self, name: str, profiles: Mapping[str, BurstProfile], bandwidth: float) -> None:
        """Begin to make a schedule, unless another run does. Returns at once.

        :param bandwidth: of the storage, MB/s
        """

    def close(self) -> None:
        """Do not finish a schedule that was begun."""
