"""How fast a storage is, by the number of jobs that use it at once."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

from msgspec import Struct

from .burst_profile import SeenRate

# A rate that is off by a larger factor, up or down, is none of this storage. Its jobs do not keep the storage busy,
# their data stays in memory, or others used the storage, too.
_MOST_OFF = 1.5


class StorageCurve(Struct, frozen=True):
    """MB/s of all together, for some numbers of writers (or readers): between them linear, beyond them constant.

    :ivar points: (number, MB/s) by number, at least one; both above 0
    """

    points: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, points: Iterable[tuple[int, float]]) -> StorageCurve:
        """:raises ValueError: if there are none, or one is not above 0, or a number is there twice; says which"""
        ordered = sorted(points)
        if not ordered:
            raise ValueError("no number of writers is given")
        for (count, rate), before in zip(ordered, [0, *(count for count, _ in ordered)], strict=False):
            if count <= 0 or not 0 < rate < float("inf"):
                raise ValueError(f"{count}:{rate:g} is not above 0")
            if count == before:
                raise ValueError(f"{count} writers are there twice")
        return cls(tuple(ordered))

    @classmethod
    def unmeasured(cls, bandwidth: float, storage_bw: float) -> StorageCurve:
        """The curve of a storage that gives each job its storageBW, until its bandwidth is used up.

        :param bandwidth: above 0, MB/s
        :param storage_bw: above 0, MB/s
        """
        each = min(bandwidth, storage_bw)
        return cls.of({1: each, math.ceil(bandwidth / each): bandwidth}.items())

    def total(self, count: int) -> float:
        """MB/s of some jobs together. Fewer jobs than ever measured are each as fast as in the smallest measurement."""
        (least, first), (_, last) = self.points[0], self.points[-1]
        if count <= least:
            return first * count / least
        index = bisect_left(self.points, (count, 0.0))
        if index == len(self.points):
            return last
        (left, low), (right, high) = self.points[index - 1], self.points[index]
        return low + (high - low) * (count - left) / (right - left)

    def explains(self, seen: SeenRate) -> bool:
        """Whether a rate that was seen may be that of this storage, in another state or under another use."""
        return 1 / _MOST_OFF <= seen.rate / self.total(seen.jobs) <= _MOST_OFF

    def corrected(self, seen: Iterable[SeenRate]) -> StorageCurve:
        """The curve through what was seen, as far as it explains it.

        It is as many times as fast as it was with the numbers of jobs that were seen; between them by linear
        interpolation of that factor, beyond them by that of the nearest: its form there is as it was.
        """
        seconds: defaultdict[int, float] = defaultdict(float)
        weighted: defaultdict[int, float] = defaultdict(float)
        for one in filter(self.explains, seen):
            seconds[one.jobs] += one.seconds
            weighted[one.jobs] += one.seconds * one.rate / self.total(one.jobs)
        if not seconds:
            return self
        factors = StorageCurve.of((count, weighted[count] / own) for count, own in seconds.items())
        least = factors.points[0][0]
        counts = {count for count, _ in (*self.points, *factors.points)}
        return StorageCurve.of((count, self.total(count) * factors.total(max(least, count))) for count in counts)
