"""The best of many locations, against a search of all of them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.storage.admission.resources import FreeLocations

LOCATIONS = ["a", "b", "c", "d"]
changes = st.lists(
    st.tuples(st.sampled_from(LOCATIONS), st.none() | st.tuples(st.integers(0, 3), st.integers(0, 2))), max_size=80
)


def locations_of(free: dict[str, tuple[int, ...] | None]) -> FreeLocations:
    return FreeLocations(list(free), lambda location: free[location])


def best(free: dict[str, tuple[int, ...] | None], count: int) -> list[str]:
    usable: Iterable[tuple[tuple[int, ...], int, str]] = (
        (tuple(-amount for amount in amounts), index, location)
        for index, (location, amounts) in enumerate(free.items())
        if amounts is not None
    )
    return [location for *_, location in sorted(usable)[:count]]


@given(changes, st.integers(1, 5))
def test_the_best_are_those_of_a_search(made: list[tuple[str, tuple[int, int] | None]], count: int) -> None:
    free: dict[str, tuple[int, ...] | None] = dict.fromkeys(LOCATIONS, (1, 1))
    locations = locations_of(free)
    for location, amounts in made:
        free[location] = amounts
        locations.touch(location)
        assert locations.best(count) == best(free, count)


@pytest.mark.parametrize("count", [1, 100])
def test_asking_measures_nothing(count: int) -> None:
    measured = 0

    def measure(location: str) -> tuple[int, ...]:
        nonlocal measured
        measured += 1
        return (len(location),)

    locations = FreeLocations([f"node{index}" for index in range(200)], measure)
    assert measured == 200
    assert len(locations.best(count)) == count
    assert measured == 200
