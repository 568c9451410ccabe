"""Which of two patterns serves a goal better. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .model import ApplicationSet, Goal

_LEAST_GAIN = 1e-6
_SAME = 1e-7
# Of the other goal, among equals.
_LEAST_OTHER_GAIN = 1e-4
_OTHER: dict[Goal, Goal] = {"efficiency": "dilation", "dilation": "efficiency"}


def merit(goal: Goal, applications: ApplicationSet, rates: Sequence[float]) -> float:
    """How well rates serve a goal: the larger, the better."""
    return applications.efficiency(rates) if goal == "efficiency" else -applications.dilation(rates)


def better(goal: Goal, applications: ApplicationSet, one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether rates serve a goal better than others, and not by a rounding only; of equals, the other goal."""
    gain = merit(goal, applications, one) - merit(goal, applications, other)
    if abs(gain) > _SAME:
        return gain > _LEAST_GAIN
    return merit(_OTHER[goal], applications, one) > merit(_OTHER[goal], applications, other) + _LEAST_OTHER_GAIN
