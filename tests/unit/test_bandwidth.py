"""Phases, regions and rhythm, against slow and obvious definitions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from streamflow_io.bandwidth.windows import is_exposed
from streamflow_io.bandwidth.write_channels import period
from streamflow_io.records.records import RequestRecord
from streamflow_io.report.analysis.phases import (
    most,
    overlap,
    phases,
    regions,
    required_spans,
    throughput_spans,
)

MB = 1_000_000
REQUEST = RequestRecord(
    time=9.0,
    job="/save/0.0",
    step="/save",
    channel="/save/0.*",
    phase=0,
    direction="write",
    bytes=10 * MB,
    ready=0.0,
    started=1.0,
    ended=3.0,
    required=5.0,
    rule="next",
)


def request(
    ready: float, started: float, ended: float, required: float, phase: int = 0, size: int = 10
) -> RequestRecord:
    times = {"ready": ready, "started": started, "ended": ended, "required": required}
    return replace(REQUEST, phase=phase, bytes=size * MB, **times)


# Times are whole seconds, so that the definitions can count them.
@st.composite
def some_requests(draw: st.DrawFn) -> list[RequestRecord]:
    found = []
    for number in range(draw(st.integers(0, 6))):
        ready = draw(st.integers(0, 20))
        started = ready + draw(st.integers(0, 5))
        times = request(
            ready, started, started + draw(st.integers(0, 8)), ready + draw(st.integers(1, 10)), draw(st.integers(0, 2))
        )
        channel = draw(st.sampled_from(["a", "b"]))
        found.append(replace(times, job=str(number), channel=channel, bytes=draw(st.integers(1, 9)) * MB))
    return found


SPANS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 9)).map(
        lambda one: (min(one[:2]), max(one[:2]), one[2])
    )
)


def test_of_one_request() -> None:
    [phase] = phases([REQUEST])
    assert (phase.window, phase.needed, phase.throughput) == (5.0, 2 * MB, 5 * MB)
    assert (phase.wait, phase.moving) == (0.0, 2.0)
    [late] = phases([request(0, 4, 8, 5)])
    assert late.wait == 3.0
    [much_too_late] = phases([request(0, 6, 8, 5)])
    assert much_too_late.wait == 3.0


def test_requests_of_one_phase_need_what_they_need_together() -> None:
    """The earliest required end counts for all; what moves at the same time moves once."""
    [phase] = phases([request(0, 0, 2, 5), request(0, 1, 3, 10)])
    assert phase.needed == 4 * MB
    assert phase.throughput == pytest.approx(20 * MB / 3)
    assert (phase.required, phase.wait) == (5, 0)


def test_what_is_exposed_is_in_no_phase() -> None:
    assert phases([replace(REQUEST, rule="exposed")]) == []
    assert is_exposed(0.049, 10 * MB)
    assert is_exposed(5.0, MB - 1)
    assert not is_exposed(0.05, MB)


def test_what_took_no_time_has_no_throughput() -> None:
    [phase] = phases([request(0, 1, 1, 5)])
    assert phase.throughput is None
    assert throughput_spans([phase]) == []


@given(some_requests())
def test_phases_are_as_defined(requests: list[RequestRecord]) -> None:
    found = phases(requests)
    assert sorted(one.job for phase in found for one in phase.requests) == sorted(one.job for one in requests)
    assert len({(phase.first.channel, phase.first.phase) for phase in found}) == len(found)
    for phase in found:
        moving = {second for one in phase.requests for second in range(int(one.started), int(one.ended))}
        assert phase.moving == len(moving)
        assert phase.wait == max(
            0, max(one.ended for one in phase.requests) - min(one.required for one in phase.requests)
        )


@given(SPANS)
def test_regions_are_the_sums_at_every_time(spans: list[tuple[float, float, float]]) -> None:
    found = regions(spans)

    def rate(time: float) -> float:
        return next((rate for since, rate in reversed(found) if since <= time), 0.0)

    sums = [sum(one for start, end, one in spans if start <= time < end) for time in range(21)]
    assert [rate(time) for time in range(21)] == sums
    assert most(spans) == max(sums)
    assert [rate for _, rate in found][-1:] in ([], [0.0])


def test_phases_that_follow_each_other_do_not_count_together() -> None:
    assert most(required_spans(phases([request(0, 0, 1, 5, 0), request(5, 5, 6, 10, 1)]))) == 2 * MB


INTERVALS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda one: (min(one), max(one))))


@given(INTERVALS, INTERVALS)
def test_overlap_counts_seconds(computing: list[tuple[float, float]], moving: list[tuple[float, float]]) -> None:
    computed, moved = (
        {second for start, end in some for second in range(int(start), int(end))} for some in (computing, moving)
    )
    found = overlap(computing, moving)
    if not computed:
        assert found is None
    else:
        assert found == pytest.approx(len(computed & moved) / len(computed))


# Rhythm


def test_a_rhythm_needs_four_times() -> None:
    assert period([0, 8, 16]) is None
    assert period([16, 0, 8, 24]) == 8


@given(st.floats(0.1, 100), st.lists(st.floats(-0.04, 0.04), min_size=6, max_size=30))
def test_a_period_is_found_in_what_is_about_regular(seconds: float, noise: list[float]) -> None:
    found = period(seconds * (number + off) for number, off in enumerate(noise))
    assert found is not None
    assert math.isclose(found, seconds, rel_tol=0.1)


def test_one_late_time_does_not_change_it() -> None:
    assert period([0, 8, 16, 24, 47, 55, 63]) == 8


def test_no_time_between_times_is_no_rhythm() -> None:
    for times in ((0, 1, 8, 9, 30, 31, 34), (3, 3, 3, 3, 3)):
        assert period(times) is None
