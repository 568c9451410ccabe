"""Writes of compute jobs themselves: requests, and the part of a storage that others cannot have meanwhile."""

from __future__ import annotations

import pytest

from streamflow_io.bandwidth.writes import WriteBursts, Writer, Writes, Written

MB = 10**6


def writer(job: str = "/a/0", location: str = "here", holds: bool = False) -> Writer:
    return Writer(job, "/a", "disk", location, holds)


def writes(*starts: float, of: Writer | None = None, size: int = 30 * MB) -> tuple[Writes, WriteBursts]:
    found = Writes()
    job = found.started(of or writer())
    for start in starts:
        job.bursts.append(Written(start, start + 0.5, size))
    return found, job


def test_bursts_are_exposed_requests() -> None:
    found, job = writes(1.0, 4.0)
    first, second = found.ended(job, succeeded=True)
    assert (first.kind, first.rule, first.channel, first.storage, first.direction) == (
        "write",
        "exposed",
        "/a/0",
        "disk",
        "write",
    )
    assert [(one.phase, one.ready, one.ended, one.bytes) for one in (first, second)] == [
        (0, 1.0, 1.5, 30 * MB),
        (1, 4.0, 4.5, 30 * MB),
    ]


def test_what_does_not_count() -> None:
    found, job = writes(1.0)
    assert found.ended(job, succeeded=False) == []


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        ((0, 3, 6, 9), 10 * MB),
        ((0, 3, 6), 0),
        ((0, 1, 6, 9.5), 0),
        ((0, 3, 6.2, 9, 12.1), pytest.approx(30 * MB / 3.05)),
    ],
)
def test_what_is_written_in_a_rhythm_is_expected_to_go_on(starts: tuple[float, ...], expected: float) -> None:
    found, job = writes(*starts)
    assert found.expected(lambda one: one.storage == "disk") == expected
    assert found.expected(lambda one: one.storage == "other") == 0
    found.ended(job, succeeded=True)
    assert found.expected(lambda one: True) == 0


def test_who_holds_bandwidth_is_not_counted_twice() -> None:
    assert writes(0, 3, 6, 9, of=writer(holds=True))[0].expected(lambda one: True) == 0
