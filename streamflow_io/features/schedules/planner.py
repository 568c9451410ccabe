"""The best pattern that is found in a time: PerSched's, then those of counts and orders that promise more.

PerSched puts instances in one by one and never moves them again. Here counts come first, then an order in which all
keep pace with them, then the linear program of that order, then better orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import floor

from msgspec import Struct

from .model import ApplicationSet, Goal, Pattern
from .orders import Order, counts_of, order_of, paced_order
from .persched import Sweep, better, merit, persched
from .polish import Program

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


MOST_INSTANCES = 500
# Of what the shortest period has: so many are allowed where that has more than MOST_INSTANCES already.
_MORE_THAN_LEAST = 2.2
# The part of the time that is left when PerSched has to end, and then the candidates.
_AFTER_PERSCHED = 0.9
_AFTER_CANDIDATES = 0.15
# An order is left when its period has not become shorter by this part in so many solutions.
_PATIENCE = 6
_LEAST_PART = 1e-6
_KEPT = 3
# Turns times applications, of orders: the small ones are tried first. Linear programs of larger ones take longer than
# there is time.
_SIZES = (0, 8_000, 30_000)

#: The part of the time that is left: 1 at first, 0 or less at the end.
Left = Callable[[], float]


class PlannedPattern(Struct, frozen=True):
    """:ivar algorithm: what has found the pattern"""

    pattern: Pattern
    algorithm: str


def most_instances(applications: ApplicationSet, least_period: float) -> float:
    """How many instances a pattern may have at most, so that it is found soon."""
    return max(MOST_INSTANCES, _MORE_THAN_LEAST * least_period * sum(applications.fair_rates()))


def plan(applications: ApplicationSet, goal: Goal, left: Left, sweep: Sweep) -> PlannedPattern | None:
    """The best pattern that is found.

    Asked for the time that is left before each period of PerSched and each linear program. Without end of the time the
    result is no worse than PerSched's of the same sweep.

    :return: None if there was no time for one
    :raises ModuleNotFoundError: if `highspy` is not installed
    """
    planner = _Planner(applications, goal, left)
    planner.try_persched(sweep)
    planner.try_candidates(sweep)
    planner.go_on()
    return planner.best


class _Planner:
    """:ivar best: so far"""

    def __init__(self, applications: ApplicationSet, goal: Goal, left: Left) -> None:
        self._set, self._goal, self._left = applications, goal, left
        self.best: PlannedPattern | None = None
        self._open: list[Program] = []

    def _keep(self, pattern: Pattern | None, algorithm: str) -> None:
        if pattern is not None and self._is_better(pattern.rates):
            self.best = PlannedPattern(pattern, algorithm)

    def _is_better(self, rates: Sequence[float]) -> bool:
        return self.best is None or better(self._goal, self._set, rates, self.best.pattern.rates)

    def _promises(self, counts: Sequence[int]) -> bool:
        """Whether these counts can be better than the best that was found."""
        return self._is_better(reachable(self._set, counts))

    def try_persched(self, sweep: Sweep) -> None:
        found = persched(
            self._set, sweep, self._goal, lambda best: self._left() > (0 if best is None else _AFTER_PERSCHED)
        )
        self._keep(found, "persched")
        if found is not None and self._left() > 0:
            self._try(order_of(found))

    def try_candidates(self, sweep: Sweep) -> None:
        most = sweep.most_instances
        found = candidates(self._set, self._goal, sweep.least_period, sweep.largest_factor, most)
        for larger_than, at_most in pairwise(_SIZES):
            for counts in found:
                size = 2 * sum(counts) * len(counts)
                if not larger_than < size <= at_most or not self._promises(counts):
                    continue
                if self._left() <= _AFTER_CANDIDATES:
                    return
                for alternate in (True, False):
                    self._try(paced_order(self._set, counts, alternate=alternate))

    def go_on(self) -> None:
        """Until the end of the time, with the orders that were best."""
        while self._open and self._left() > 0:
            self._improve(self._open.pop(0), 4 * _PATIENCE)

    def _try(self, order: Order | None) -> None:
        if order is None or len(order) * len(self._set.applications) > _SIZES[-1] or self._left() <= 0:
            return
        if not self._promises(counts_of(self._set, order)):
            return
        program = Program(self._set, order)
        if program.solve() and self._improve(program, _PATIENCE):
            self._open = sorted([*self._open, program], key=self._merit, reverse=True)[:_KEPT]

    def _merit(self, program: Program) -> float:
        counts = counts_of(self._set, program.order)
        return merit(self._goal, self._set, [count / program.period for count in counts])

    def _improve(self, program: Program, patience: int) -> bool:
        """Exchange neighbours until nothing has become better for some time.

        :return: whether more could be found
        """
        counts = counts_of(self._set, program.order)
        least = self._set.least_period(counts) * (1 + _LEAST_PART)
        best, waited = program.period, 0
        go_on = True
        while go_on and waited < patience and program.period > least and self._left() > 0:
            go_on = program.improve() > 0 and program.solve()
            waited = 0 if program.period < best * (1 - _LEAST_PART) else waited + 1
            best = min(best, program.period)
        self._keep(program.pattern(), "linear program")
        return go_on and program.period > least
