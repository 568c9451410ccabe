"""Whether processes do anything, as it is told from what they have done."""

from __future__ import annotations

import os

import pytest

from streamflow_io.features.capio.runtime.job import Activity, is_idle

SECOND = os.sysconf("SC_CLK_TCK")
BEFORE = Activity(frozenset([1, 2]), 100 * SECOND, 1000)


@pytest.mark.parametrize(
    ("processes", "ticks", "transferred", "idle"),
    [
        ([1, 2], 0, 0, True),
        ([1, 2], SECOND // 50, 60_000, True),  # a thread of a language's runtime, that writes a line now and then
        ([1, 2], SECOND // 10, 0, False),
        ([1, 2], 0, 100_000, False),
        ([1, 3], 0, 0, False),
        ([1], 0, 0, False),
    ],
)
def test_two_seconds(processes: list[int], ticks: int, transferred: int, idle: bool) -> None:
    now = Activity(frozenset(processes), BEFORE.ticks + ticks, BEFORE.transferred + transferred)
    assert is_idle(BEFORE, now, 2.0) is idle


def test_nothing_is_not_idle() -> None:
    nothing = Activity(frozenset(), 0, 0)
    assert not is_idle(nothing, nothing, 2.0)
