"""The planner: counts, orders, linear programs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamflow_io.features.schedules.check import check
from streamflow_io.features.schedules.files import paper_set
from streamflow_io.features.schedules.model import (
    Algorithm,
    Application,
    ApplicationSet,
    Goal,
    Pattern,
    Platform,
    Schedule,
    figures,
)
from streamflow_io.features.schedules.orders import PhaseChange, counts_of, order_of, paced_order
from streamflow_io.features.schedules.persched import Sweep, merit, pattern, persched
from streamflow_io.features.schedules.planner import PlannedPattern, candidates, most_instances, plan, reachable
from streamflow_io.features.schedules.polish import Program
from tests.features.schedules.periodic_sets import application_sets

GOALS: tuple[Goal, ...] = ("efficiency", "dilation")
PAIR = ApplicationSet(Platform(3, 10, 10), (Application("a", 1, 3, 20), Application("b", 2, 4, 30)))


def solves(count: int) -> Callable[[], float]:
    """A budget: a number of looks at the time that is left."""
    looks = iter(range(count, 0, -1))
    return lambda: next(looks, 0) / count


def valid(applications: ApplicationSet, found: Pattern) -> bool:
    made = Algorithm("plan", {}, 0)
    return check(Schedule(applications, "efficiency", found, figures(applications, found), made)) == []


def planned(applications: ApplicationSet, goal: Goal, looks: int = 400, factor: float = 3) -> PlannedPattern:
    least = max(applications.durations)
    sweep = Sweep(least, factor, 0.1, most_instances(applications, least))
    found = plan(applications, goal, solves(looks), sweep)
    assert found is not None
    return found


def solved(applications: ApplicationSet, order: list[PhaseChange]) -> float:
    program = Program(applications, order)
    assert program.solve()
    return program.period


def orders(first: int, second: int) -> list[list[PhaseChange]]:
    """All cyclic orders of two applications with these numbers of instances."""
    size = 2 * (first + second)
    found = []
    for places in combinations(range(size), 2 * first):
        for begins in (False, True):
            for other in (False, True):
                kinds = [begins, other]
                order = []
                for place in range(size):
                    application = 0 if place in places else 1
                    order.append(PhaseChange(application, kinds[application]))
                    kinds[application] = not kinds[application]
                found.append(order)
    return found


@pytest.mark.parametrize("counts", [(1, 1), (2, 1), (2, 2)])
def test_exchanges_find_what_all_orders_have_at_best(counts: tuple[int, int]) -> None:
    best = min(solved(PAIR, order) for order in orders(*counts))
    assert best >= PAIR.least_period(counts) * (1 - 1e-9)
    order = paced_order(PAIR, counts)
    assert order is not None
    assert counts_of(PAIR, order) == list(counts)
    program = Program(PAIR, order)
    program.solve()
    while program.improve():
        program.solve()
    assert program.period == pytest.approx(best, rel=1e-6)


def test_the_program_of_an_order_is_as_short_as_by_hand() -> None:
    # One after the other on a storage for one: b computes 4 s and moves for 3 s, a has room for 3 s and 2 s beside it.
    order = [PhaseChange(0, False), PhaseChange(0, True), PhaseChange(1, False), PhaseChange(1, True)]
    assert solved(PAIR, order) == pytest.approx(7)
    # Both compute at the same time, then a transfers, then b.
    both = ApplicationSet(Platform(3, 10, 10), (Application("a", 1, 3, 20), Application("b", 2, 3, 30)))
    assert solved(
        both, [PhaseChange(0, False), PhaseChange(1, False), PhaseChange(0, True), PhaseChange(1, True)]
    ) == pytest.approx(6)
    # Two instances of a within one of b: 2 x 2 s and 3 s of the storage, but a has to compute twice: 2 x (3 + 2) s.
    twice = [
        PhaseChange(0, False),
        PhaseChange(0, True),
        PhaseChange(1, False),
        PhaseChange(0, False),
        PhaseChange(0, True),
        PhaseChange(1, True),
    ]
    assert solved(PAIR, twice) == pytest.approx(10)


@given(application_sets(), st.floats(1, 5))
def test_the_program_of_a_pattern_is_never_longer(applications: ApplicationSet, factor: float) -> None:
    found = pattern(applications, max(applications.durations) * factor)
    if found is None or sum(found.counts) > 60:
        return
    order = order_of(found)
    assert counts_of(applications, order) == found.counts
    program = Program(applications, order)
    assert program.solve()
    assert program.period <= found.period * (1 + 1e-6)
    assert program.period >= applications.least_period(found.counts) * (1 - 1e-6)
    made = program.pattern()
    assert made.counts == found.counts
    assert made.period == pytest.approx(program.period, rel=1e-5)
    assert valid(applications, made)


@given(application_sets(), st.floats(1, 4))
def test_exchanges_never_make_it_longer(applications: ApplicationSet, factor: float) -> None:
    found = pattern(applications, max(applications.durations) * factor)
    if found is None or sum(found.counts) > 40:
        return
    program = Program(applications, order_of(found))
    program.solve()
    for _ in range(4):
        before = program.period
        if not program.improve():
            break
        assert program.solve()
        assert program.period <= before * (1 + 1e-6)
        # Solved anew, without what was there before: it is the program of its order.
        assert solved(applications, program.order) == pytest.approx(program.period, rel=1e-6)
    assert counts_of(applications, program.order) == found.counts
    assert valid(applications, program.pattern())


def test_exchanges_make_a_period_as_short_as_it_can_be() -> None:
    applications, counts = paper_set(6), [35, 35, 1, 1, 1, 1]
    order = paced_order(applications, counts)
    assert order is not None
    program = Program(applications, order)
    assert program.solve()
    assert program.period > applications.least_period(counts) * 1.001
    while program.improve():
        assert program.solve()
        if program.period < applications.least_period(counts) * (1 + 1e-6):
            break
    assert program.period == pytest.approx(applications.least_period(counts), rel=1e-6)


def test_what_the_solver_does_not_know_exactly_is_made_exact() -> None:
    applications = paper_set(6)
    order = paced_order(applications, [35, 35, 1, 1, 1, 1])
    assert order is not None
    program = Program(applications, order)
    assert program.solve()
    solver = program._solver
    solver.values = [value * (1 - 1e-7 * (index % 3)) for index, value in enumerate(solver.values)]
    found = program.pattern()
    assert valid(applications, found)
    assert found.period == pytest.approx(program.period, rel=1e-5)


@settings(max_examples=settings.default.max_examples // 5)
@given(application_sets(most=4), st.sampled_from(GOALS))
def test_a_plan_is_never_worse_than_persched_nor_better_than_a_bound(applications: ApplicationSet, goal: Goal) -> None:
    least = max(applications.durations)
    sweep = Sweep(least, 2, 0.2, most_instances(applications, least))
    other = persched(applications, sweep, goal)
    # PerSched has a fifth of the time.
    found = plan(applications, goal, solves(200), sweep)
    if found is None:
        assert other is None
        return
    assert valid(applications, found.pattern)
    rates = found.pattern.rates
    if other is not None:
        assert merit(goal, applications, rates) >= merit(goal, applications, other.rates) - 1e-6
    assert applications.efficiency(rates) <= applications.bounds.efficiency * (1 + 1e-6)
    assert applications.dilation(rates) >= applications.bounds.dilation * (1 - 1e-6)


@given(application_sets(), st.sampled_from(GOALS))
def test_counts_keep_to_the_bounds_and_the_most_promising_are_first(applications: ApplicationSet, goal: Goal) -> None:
    least = max(applications.durations)
    found = candidates(applications, goal, least, 3, 200)
    assert all(min(counts) >= 1 and sum(counts) <= 200 for counts in found)
    merits = [merit(goal, applications, reachable(applications, counts)) for counts in found]
    for one in merits:
        assert one <= merits[0] + 0.0003 * abs(max(merits)) + 1e-12
    bounds = applications.bounds
    for counts in found:
        rates = reachable(applications, counts)
        assert applications.efficiency(rates) <= bounds.efficiency * (1 + 1e-9)
        assert applications.dilation(rates) >= bounds.dilation * (1 - 1e-9)


@pytest.mark.parametrize(
    ("number", "goal", "expected"),
    [
        (1, "efficiency", 0.09771),
        (6, "efficiency", 0.81759),
        (9, "efficiency", 0.97892),
        (10, "efficiency", 0.98651),
        (6, "dilation", 1.0002),
        (7, "dilation", 1.0035),
        (10, "dilation", 1.0072),
    ],
)
def test_small_sets_of_the_paper_come_near_to_the_bounds(number: int, goal: Goal, expected: float) -> None:
    applications = paper_set(number)
    found = planned(applications, goal, 400, 10)
    assert valid(applications, found.pattern)
    figure = merit(goal, applications, found.pattern.rates)
    assert figure >= (expected - 0.0003 if goal == "efficiency" else -expected - 0.001)


def test_equal_efficiencies_are_told_apart_by_the_dilation() -> None:
    applications = paper_set(1)
    found = planned(applications, "efficiency")
    assert applications.dilation(found.pattern.rates) == pytest.approx(applications.bounds.dilation, abs=1e-3)


def test_no_time_no_plan() -> None:
    assert plan(PAIR, "efficiency", lambda: 0.0, Sweep(7)) is None
