"""How fast a storage is, by the number of jobs that use it at once. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class StorageCurve:
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
        """Of a storage that gives each job its storageBW, until its bandwidth is used up; both above 0, MB/s."""
        each = min(bandwidth, storage_bw)
        return cls.of({1: each, math.ceil(bandwidth / each): bandwidth}.items())

    def total(self, count: int) -> float:
        """MB/s of so many together; one that was not measured alone is as fast as one of the fewest that were."""
        (least, first), (_, last) = self.points[0], self.points[-1]
        if count <= least:
            return first * count / least
        index = bisect_left(self.points, (count, 0.0))
        if index == len(self.points):
            return last
        (left, low), (right, high) = self.points[index - 1], self.points[index]
        return low + (high - low) * (count - left) / (right - left)
