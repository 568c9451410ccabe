"""How much of a storage's bandwidth is free at which time of a period. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import floor

from .model import Transfer

# Times that differ by less than this part of the period are one, as are volumes by this part of their own.
_SAME_TIME = 1e-12
_SAME_VOLUME = 1e-10


class Usage:
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

        :return: the index of what begins there
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
