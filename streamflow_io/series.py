"""Series of numbers: work spread over bins, steps up and down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def rates(amounts: Iterable[tuple[float, float, float]], seconds: float, bins: int) -> list[float]:
    """The mean amount per second in each of `bins` bins of equal width.

    :param amounts: start, end, amount, each spread evenly from its start to its end; within 0 and `seconds`
    """
    if seconds <= 0:
        return [0.0] * bins
    width = seconds / bins
    partial = [0.0] * bins
    slopes = [0.0] * (bins + 1)
    for start, end, amount in amounts:
        first, last = (min(int(time / width), bins - 1) for time in (start, end))
        if first == last:
            partial[first] += amount
            continue
        slope = amount / (end - start)
        partial[first] += slope * ((first + 1) * width - start)
        partial[last] += slope * (end - last * width)
        slopes[first + 1] += slope
        slopes[last] -= slope
    slope, result = 0.0, []
    for here, change in zip(partial, slopes, strict=False):
        slope += change
        result.append(max(0.0, here / width + slope))
    return result


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """The length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def sums(changes: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The sum of all changes so far, at each time that has some; what changes at one time counts together."""
    points: list[tuple[float, float]] = []
    level = 0.0
    for time, change in sorted(changes):
        level += change
        if points and points[-1][0] == time:
            points.pop()
        # Sums of floats do not come back to 0 by themselves.
        points.append((time, 0.0 if abs(level) < 1e-9 else level))
    return points


def highest(points: list[tuple[float, float]], limit: int) -> list[tuple[float, float]]:
    """Thin out points: keep the highest of each group of neighbours, and the last point.

    The result has at most `limit` points.

    :param limit: at least 2
    """
    if len(points) <= limit:
        return points
    *others, last = points
    stride = -(-len(others) // (limit - 1))
    groups = [others[index : index + stride] for index in range(0, len(others), stride)]
    return [(group[0][0], max(level for _, level in group)) for group in groups] + [last]


def levels(changes: Iterable[tuple[float, float]], limit: int) -> list[tuple[float, float]]:
    """The sum of all changes so far, as at most `limit` points."""
    return highest(sums(changes), limit)


def thinned(items: Sequence[T], limit: int) -> list[T]:
    """At most `limit` of the items, evenly chosen, with the first and the last."""
    if len(items) <= limit:
        return list(items)
    return [items[index * (len(items) - 1) // (limit - 1)] for index in range(limit)]
