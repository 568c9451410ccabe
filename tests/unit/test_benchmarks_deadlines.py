"""The I/O tasks of the benchmark `deadlines` can all be in time; in the order of arrival they cannot."""

from __future__ import annotations

import pytest

from benchmarks.deadlines import BURST_SECONDS, BURSTS, WINDOWS, Task, tasks
from benchmarks.slow_disks import BANDWIDTH

STEP = 0.01


def waits(found: list[Task], at_once: int, *, by_deadline: bool = False) -> float:
    """The waits of jobs for a disk that they share equally: those that came first, or those needed first."""
    left = [float(task.megabytes) for task in found]
    late, now = 0.0, 0.0
    while any(left):
        now += STEP
        ready = [number for number, task in enumerate(found) if left[number] and task.ready < now]
        moving = sorted(ready, key=lambda number: found[number].ready + by_deadline * found[number].window)[:at_once]
        for number in moving:
            left[number] = max(0.0, left[number] - STEP * BANDWIDTH.megabytes / len(moving))
            if not left[number]:
                late += max(0.0, now - found[number].ready - found[number].window)
    return late


@pytest.mark.parametrize("is_random", [False, True])
def test_they_are_as_described(is_random: bool) -> None:
    found = list(tasks(is_random).values())
    assert len(found) == BURSTS * len(WINDOWS) == 24
    assert {20 <= task.megabytes <= 120 and 3 <= task.window <= 40 for task in found} == {True}
    load = sum(task.megabytes for task in found) / (BURSTS * BURST_SECONDS * BANDWIDTH.megabytes)
    assert load == pytest.approx(0.70)
    assert list(tasks()) == sorted(tasks())
    assert sorted((task.megabytes, task.window) for task in found) == sorted(
        (task.megabytes, task.window) for task in tasks().values()
    )


@pytest.mark.parametrize("is_random", [False, True])
def test_only_who_goes_by_deadlines_is_always_in_time(is_random: bool) -> None:
    found = list(tasks(is_random).values())
    assert waits(found, 1, by_deadline=True) == 0
    assert min(waits(found, at_once) for at_once in (1, 2, 4, 8)) >= 1
