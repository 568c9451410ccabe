"""The best pattern that is found in so many seconds of CPU time. Has a clock; what searches is `planner`, and pure."""

from __future__ import annotations

import time

from msgspec import Struct

from .model import ApplicationSet, Goal, Pattern
from .persched import Sweep


class SolverMissingError(Exception):
    """`highspy` is not installed, which solves the linear programs."""


class Found(Struct, frozen=True):
    """:ivar algorithm: what has found the pattern; :ivar most_instances: of the patterns that were tried"""

    pattern: Pattern
    algorithm: str
    most_instances: float


class Clock:
    """Tells which part of so many seconds of CPU time, from now, is left; less than 0 when they are over."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.process_time() + seconds

    def left(self) -> float:
        return (self._end - time.process_time()) / self._seconds


def search(applications: ApplicationSet, goal: Goal, seconds: float, least_period: float) -> Found | None:
    """Look for a pattern that is better than PerSched's.

    :param least_period: the shortest period that is tried
    :return: none: nothing was found in that time
    :raises SolverMissingError: if what searches is not installed
    """
    try:
        from .planner import most_instances, plan
    except ModuleNotFoundError as error:
        if error.name != "highspy":
            raise
        raise SolverMissingError from None
    clock, most = Clock(seconds), most_instances(applications, least_period)
    planned = plan(applications, goal, clock.left, Sweep(least_period, most_instances=most))
    return None if planned is None else Found(planned.pattern, planned.algorithm, most)
