"""How many instances of each application a pattern should have. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor

from .merit import merit
from .model import ApplicationSet, Goal

# Periods, and roundings for each; fewer periods for many applications: it takes as long for each of them.
_MOST_PERIODS = 250
_PERIODS_TIMES_APPLICATIONS = 50_000
_ROUNDINGS = 12
# How much slower than the fairest an application may be, where the efficiency counts.
_SLACKS = (None, 0.0005, 0.003, 0.01)
# Counts whose merits differ by less than this part are tried by their size: small patterns are found sooner.
_STEP = 0.0003


def candidates(
    applications: ApplicationSet, goal: Goal, least_period: float, largest_factor: float, most_instances: float
) -> list[list[int]]:
    """Counts that could have a good pattern, the most promising first.

    For many periods, as often as each application would be at its best, rounded in several ways.

    :param least_period: the shortest period, in s
    :param largest_factor: the longest is so many times this
    :param most_instances: of all applications
    """
    found: dict[tuple[int, ...], float] = {}
    periods = min(_MOST_PERIODS, 2 + _PERIODS_TIMES_APPLICATIONS // len(applications.applications))
    for rates in _rates(applications, goal):
        for number in range(periods):
            period = least_period * largest_factor ** (number / (periods - 1))
            for counts in _rounded([rate * period for rate in rates]):
                if counts not in found and sum(counts) <= most_instances:
                    found[counts] = merit(goal, applications, reachable(applications, counts))
    best = max(found.values(), default=0.0)
    step = _STEP * abs(best) or 1.0
    return sorted(map(list, found), key=lambda counts: (floor((best - found[tuple(counts)]) / step), sum(counts)))


def reachable(applications: ApplicationSet, counts: Sequence[int]) -> list[float]:
    """The rates of a pattern with these counts, if it was as short as it can be."""
    period = applications.least_period(counts)
    return [count / period for count in counts]


def _rates(applications: ApplicationSet, goal: Goal) -> Iterator[list[float]]:
    if goal == "dilation":
        yield applications.fair_rates()
    else:
        yield from map(applications.best_rates, _SLACKS)


def _rounded(wanted: Sequence[float]) -> Iterator[tuple[int, ...]]:
    """Rounded down, then up one after the other, by their remainders; at least one of each."""
    counts = [max(1, floor(value)) for value in wanted]
    yield tuple(counts)
    by_remainder = sorted(range(len(wanted)), key=lambda index: counts[index] - wanted[index])
    many = -(-len(wanted) // _ROUNDINGS)
    for begin in range(0, len(wanted), many):
        for index in by_remainder[begin : begin + many]:
            counts[index] += 1
        yield tuple(counts)
