"""How large a file a proof holds for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.records.learned.extents import (
    ENOUGH,
    UNBOUNDED,
    Extent,
    Extents,
    bound_of,
    extents_of,
    hold_for,
    raised,
)

SIZES = st.integers(0, 2 * ENOUGH)
EXTENTS = st.lists(st.builds(lambda one, other: Extent(min(one, other), max(one, other)), SIZES, SIZES), max_size=4)


@pytest.mark.parametrize(
    ("extents", "sizes", "expected"),
    [
        ([(9, 9)], [9], True),
        ([(9, 9)], [10], False),
        ([(5, 9)], [9], True),
        ([(ENOUGH - 1, ENOUGH - 1)], [ENOUGH], False),
        ([(ENOUGH, ENOUGH)], [2**50], True),
        # The tool has read little of a large file.
        ([(5, ENOUGH)], [2**50], True),
        ([(9, 9), (5, 5)], [9, 5], True),
        ([(9, 9), (5, 5)], [5, 9], False),
        # The order of the two is unknown.
        ([(9, 9), (5, 5)], [5, 5, 5], True),
        ([(9, 9), (5, 5)], [9], False),
        ([], [], True),
        ([], [1], False),
    ],
)
def test_what_a_proof_holds_for(extents: list[tuple[int, int]], sizes: list[int], expected: bool) -> None:
    assert hold_for(tuple(Extent(*each) for each in extents), sizes) is expected


@given(EXTENTS, st.lists(SIZES, max_size=4))
def test_no_more_is_fed_than_was_read(extents: list[Extent], sizes: list[int]) -> None:
    for each in extents_of(tuple(extents), len(sizes)):
        assert each.most == (each.read if each.read < ENOUGH else None)
        assert any(each.read <= one.read for one in extents)
        assert any(each.size <= one.size for one in extents)


@given(EXTENTS, EXTENTS, st.lists(SIZES, max_size=4))
def test_another_proof_takes_nothing_away(known: list[Extent], found: list[Extent], sizes: list[int]) -> None:
    both: Extents = raised(tuple(known), tuple(found))
    assert not hold_for(tuple(found), sizes) or hold_for(both, sizes)
    if len(known) == len(found):
        assert not hold_for(tuple(known), sizes) or hold_for(both, sizes)


def test_up_to_where_it_holds_in_any_case() -> None:
    assert bound_of((Extent(5, 7), Extent(9, 9), Extent(ENOUGH, ENOUGH))) == 7
    assert bound_of(UNBOUNDED) is None
