"""T(n, c), and what the registry and groups of observations give to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.storage.admission.epochs import Group, Observation
from streamflow_io.storage.admission.registry import (
    ConstraintRegistry,
    RegisteredConstraint,
    best_constraint,
    completion_seconds,
    estimates,
)

MEGABYTE = 1e6


def registry(*entries: tuple[float, float, int]) -> ConstraintRegistry:
    """A registry of constraints, seconds and concurrencies."""
    return ConstraintRegistry(tuple(RegisteredConstraint(*entry, jobs=entry[2]) for entry in entries))


# As in the paper's example of a registry: the higher the constraint, the fewer at once, the faster each.
LEARNED = registry((2, 16.0, 8), (4, 6.0, 4), (8, 2.0, 2), (16, 1.5, 1))


@pytest.mark.parametrize(
    ("jobs", "seconds"),
    [
        # A remainder takes the time learned for this number at once, but not longer than a full group.
        (1, {2: 1.5, 4: 1.5, 8: 1.5, 16: 1.5}),
        (2, {2: 2.0, 4: 2.0, 8: 2.0, 16: 3.0}),
        (3, {2: 6.0, 4: 6.0, 8: 2.0 + 1.5, 16: 4.5}),
        (4, {2: 6.0, 4: 6.0, 8: 4.0, 16: 6.0}),
        (7, {2: 16.0, 4: 6.0 + 6.0, 8: 6.0 + 1.5, 16: 10.5}),
        (8, {2: 16.0, 4: 12.0, 8: 8.0, 16: 12.0}),
        (9, {2: 16.0 + 1.5, 4: 12.0 + 1.5, 8: 8.0 + 1.5, 16: 13.5}),
        (80, {2: 160.0, 4: 120.0, 8: 80.0, 16: 120.0}),
    ],
)
def test_completion_seconds(jobs: int, seconds: dict[float, float]) -> None:
    assert estimates(jobs, LEARNED) == pytest.approx(seconds)


def test_nothing_is_chosen_from_nothing() -> None:
    with pytest.raises(ValueError, match="no constraint is registered"):
        best_constraint(5, ConstraintRegistry())
    with pytest.raises(ValueError, match="no constraint is registered"):
        ConstraintRegistry().seconds_at(1)


REGISTRIES = st.lists(
    st.tuples(st.floats(1, 100), st.floats(0.1, 100), st.integers(1, 50)),
    min_size=1,
    max_size=6,
    unique_by=lambda entry: entry[0],
).map(lambda entries: registry(*sorted(entries)))


@given(REGISTRIES, st.integers(1, 500))
def test_the_best_is_a_registered_one_and_none_is_better(known: ConstraintRegistry, jobs: int) -> None:
    best = best_constraint(jobs, known)
    times = estimates(jobs, known)
    assert all(times[best] < time or (times[best] == time and best >= other) for other, time in times.items())


@given(REGISTRIES, st.integers(1, 500))
def test_more_jobs_take_no_less_than_the_full_groups_of_them(known: ConstraintRegistry, jobs: int) -> None:
    for entry in known.entries:
        groups = jobs // entry.concurrency
        seconds = completion_seconds(jobs, entry, known)
        assert groups * entry.seconds <= seconds <= (groups + 1) * entry.seconds * (1 + 1e-9)


def test_a_registry_is_ordered_and_has_each_constraint_once() -> None:
    known = ConstraintRegistry()
    for constraint, seconds in [(8.0, 1.0), (2.0, 4.0), (8.0, 3.0)]:
        known = known.register(RegisteredConstraint(constraint, seconds, 1, 1))
    assert known.constraints == (2.0, 8.0)
    assert known.get(8.0) == RegisteredConstraint(8.0, 3.0, 1, 1)
    assert known.get(4.0) is None


# Groups of observations


def group(*observations: tuple[float, float | None]) -> Group:
    made = Group()
    for seconds, size in observations:
        made.add(Observation(seconds, size), concurrency=1)
    return made


def test_times_are_proportional_to_bytes_where_all_were_measured() -> None:
    uneven = group((1.0, 10 * MEGABYTE), (3.0, 30 * MEGABYTE))
    assert uneven.job_bytes == 20 * MEGABYTE
    assert uneven.seconds(20 * MEGABYTE) == pytest.approx(2.0)
    assert uneven.seconds(5 * MEGABYTE) == pytest.approx(0.5)
    assert uneven.is_uneven


@pytest.mark.parametrize("unmeasured", [None, 0.0, 1000.0])
def test_without_all_bytes_jobs_are_alike(unmeasured: float | None) -> None:
    some = group((1.0, 10 * MEGABYTE), (3.0, unmeasured))
    assert some.job_bytes is None
    assert some.seconds(5 * MEGABYTE) == 2.0
    assert not some.is_uneven


def test_nothing_is_known_of_an_empty_group() -> None:
    assert group().seconds(None) is None
    assert group().job_bytes is None
