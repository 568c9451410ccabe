"""PerSched: makes a pattern for each of many periods, and keeps the best.

Source: the paper, section 3.2. The program of its authors tells what the paper does not say: where a first instance is
put, the order of instances, and how the best pattern is shrunk at the end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from math import floor

from msgspec import Struct

from .model import ApplicationSet, Goal, Instance, Pattern, Transfer

# Times that differ by less than this part of the period are one, as are volumes by this part of their own.
_SAME_TIME = 1e-12
_SAME_VOLUME = 1e-10


class SlotUsage:
    """The free bandwidth, a step function of the time, which repeats itself after the period.

    :ivar breakpoints: where it changes, in s; the first is 0
    """

    def __init__(self, period: float, bandwidth: float) -> None:
        self.period = period
        self.breakpoints = [0.0]
        self._free = [bandwidth]

    def fill(self, start: float, end: float, volume: float, peak: float) -> list[Transfer] | None:
        """Transfers that move a volume as soon as possible, interrupted where nothing is free: equation 4.

        :param start: the earliest beginning
        :param end: the latest end, at most a period later
        :param peak: MB/s that can be reached
        :return: None if not all of it fits
        """
        times, free, period = self.breakpoints, self._free, self.period
        base = floor(start / period) * period
        index = bisect_right(times, start - base) - 1
        latest = end + _SAME_TIME * period
        transfers: list[Transfer] = []
        now, left, enough = start, volume, volume * _SAME_VOLUME
        while now < latest:
            index_after = index + 1
            following = base + (times[index_after] if index_after < len(times) else period)
            rate = min(peak, free[index])
            if rate > 0 and following > now:
                moved = rate * (following - now)
                is_last = moved >= left - enough
                until = now + left / rate if is_last else following
                if until > latest:
                    return None
                if transfers and transfers[-1].end == now and transfers[-1].rate == rate:
                    transfers[-1] = Transfer(transfers[-1].start, until, rate)
                else:
                    transfers.append(Transfer(now, until, rate))
                if is_last:
                    return transfers
                left -= moved
            now = following
            index = index_after
            if index == len(times):
                index, base = 0, base + period
        return None

    def take(self, transfers: list[Transfer]) -> None:
        """Take bandwidth away: as much as :meth:`fill` has found."""
        for one in transfers:
            first, last = self._split(one.start), self._split(one.end)
            is_long = one.end - one.start > self.period / 2
            wraps = last < first or (last == first and is_long)
            for index in [*range(first, len(self._free) if wraps else last), *range(last if wraps else 0)]:
                left = self._free[index] - one.rate
                self._free[index] = left if left > _SAME_VOLUME * one.rate else 0.0

    def _split(self, time: float) -> int:
        """Make a time a breakpoint.

        :return: the index of the interval that begins there
        """
        times = self.breakpoints
        position = time - floor(time / self.period) * self.period
        near = _SAME_TIME * self.period
        if position > self.period - near:
            return 0
        index = bisect_left(times, position - near)
        if index < len(times) and times[index] <= position + near:
            return index
        times.insert(index, position)
        self._free.insert(index, self._free[index - 1])
        return index


_LEAST_GAIN = 1e-6
_EQUAL = 1e-7
# Of the other goal, among equals.
_LEAST_OTHER_GAIN = 1e-4
_OTHER: dict[Goal, Goal] = {"efficiency": "dilation", "dilation": "efficiency"}


def merit(goal: Goal, applications: ApplicationSet, rates: Sequence[float]) -> float:
    """How well rates serve a goal: the larger, the better."""
    return applications.efficiency(rates) if goal == "efficiency" else -applications.dilation(rates)


def better(goal: Goal, applications: ApplicationSet, one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether rates serve a goal better than others, and not by a rounding only; of equals, the other goal."""
    gain = merit(goal, applications, one) - merit(goal, applications, other)
    if abs(gain) > _EQUAL:
        return gain > _LEAST_GAIN
    return merit(_OTHER[goal], applications, one) > merit(_OTHER[goal], applications, other) + _LEAST_OTHER_GAIN


LARGEST_FACTOR = 10.0
STEP = 0.01
# In an order of floats that should be equal, so that patterns do not depend on roundings.
_DIGITS = 9
_SAME = 1e-9


class Sweep(Struct, frozen=True):
    """The periods that are tried.

    :ivar least_period: the first, in s
    :ivar largest_factor: the last period divided by the first, at most
    :ivar step: each period is larger than the one before by this part
    """

    least_period: float
    largest_factor: float = LARGEST_FACTOR
    step: float = STEP

    def periods(self, applications: ApplicationSet) -> Iterator[float]:
        """From the smallest to the largest, but for those in which not every application has room for an instance."""
        too_short = applications.least_period([1] * len(applications.applications)) * (1 - _SAME)
        period = self.least_period
        while period <= self.least_period * self.largest_factor:
            if period >= too_short:
                yield period
            period *= 1 + self.step


#: Asked before each period whether the search goes on.
GoOn = Callable[[], bool]


def persched(
    applications: ApplicationSet, sweep: Sweep, goal: Goal = "efficiency", go_on: GoOn = lambda: True
) -> Pattern | None:
    """The best pattern of all periods of a sweep, shrunk.

    :return: None if no period that was tried has room for every application
    """
    best: Pattern | None = None
    for period in sweep.periods(applications):
        if not go_on():
            break
        found = pattern(applications, period)
        if found is not None and (best is None or better(goal, applications, found.rates, best.rates)):
            best = found
    return None if best is None else shrunk(applications, best, sweep.step, go_on)


def shrunk(applications: ApplicationSet, found: Pattern, step: float, go_on: GoOn = lambda: True) -> Pattern:
    """The same counts in a shorter period, as long as they fit.

    :param step: of the sweep; the period becomes shorter by the same part of such a step
    """
    while go_on():
        shorter = pattern(applications, found.period - step * (found.period - found.period / (1 + step)))
        if shorter is None or shorter.counts != found.counts:
            break
        found = shorter
    return found


def pattern(applications: ApplicationSet, period: float) -> Pattern | None:
    """A pattern with this period: instances are put in one by one, of the application that is furthest behind.

    :return: None if no instance of some application fits
    """
    usage = SlotUsage(period, applications.platform.bandwidth)
    rows = [_Instances(applications, index, usage) for index in range(len(applications.applications))]
    open_rows = rows.copy()
    while open_rows:
        first = min(open_rows, key=_Instances.rank)
        if not first.insert():
            open_rows.remove(first)
    if not all(row.instances for row in rows):
        return None
    return Pattern(period, tuple(tuple(row.in_order()) for row in rows))


class _Instances:
    """The instances of an application in a pattern that is being made."""

    def __init__(self, applications: ApplicationSet, index: int, usage: SlotUsage) -> None:
        one = applications.applications[index]
        self._usage, self._work, self._volume, self._peak = usage, one.work, one.volume, applications.peaks[index]
        self._duration = applications.durations[index]
        self._lightness = -one.work / applications.io_times[index]
        self.instances: list[list[Transfer]] = []

    def rank(self) -> tuple[float, float]:
        return round(len(self.instances) * self._duration / self._usage.period, _DIGITS), self._lightness

    def insert(self) -> bool:
        """Put one more instance in, if there is room."""
        found = self._next() if self.instances else self._first()
        if found is None:
            return False
        self._usage.take(found)
        self.instances.append(found)
        return True

    def _first(self) -> list[Transfer] | None:
        """The transfer that ends soonest after its beginning."""
        best: list[Transfer] | None = None
        span = self._usage.period - self._work
        if span <= 0:
            return None
        for start in self._usage.breakpoints:
            found = self._usage.fill(start, start + span, self._volume, self._peak)
            if found is not None and (best is None or found[-1].end - start < span * (1 - 1e-12)):
                best, span = found, found[-1].end - start
                self._start = start
        return best

    def _next(self) -> list[Transfer] | None:
        ended = self.instances[-1][-1].end
        latest = self._start - self._work + self._usage.period
        return self._usage.fill(ended + self._work, latest, self._volume, self._peak)

    def in_order(self) -> Iterator[Instance]:
        """The instances by their beginnings, which are within the period."""
        begin = self._start - self._work
        placed = []
        for transfers in self.instances:
            shift = -(begin // self._usage.period) * self._usage.period
            if begin + shift >= self._usage.period:  # as floats round what is just before the end
                shift -= self._usage.period
                begin = -shift
            moved = tuple(Transfer(one.start + shift, one.end + shift, one.rate) for one in transfers)
            placed.append(Instance((begin + shift, begin + shift + self._work), moved))
            begin = transfers[-1].end
        yield from sorted(placed, key=lambda one: one.work)
