"""Limits of the next phase, and how open requests share a storage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.bandwidth.expectations import Expected, next_limit
from streamflow_io.bandwidth.pacing import OpenRequest, PacedRequest, shares
from streamflow_io.bandwidth.windows import Windows


def test_a_limit_by_hand() -> None:
    """Required were 10, 6, 6, 12; as the code of TMIO has it."""
    limit, found = None, []
    for required in (10, 6, 6, 12):
        limit = next_limit(limit, 1.1, window=1.0, moved=required)
        found.append(limit)
    assert found == pytest.approx([11, 8.8, 7.7, 13.2])


@given(st.lists(st.floats(1, 1e9), min_size=1), st.floats(1, 3))
def test_a_limit_is_never_below_what_was_required(required: list[float], tolerance: float) -> None:
    """Between what is required now and the limit before; and never less than what is required."""
    limit: float | None = None
    for one in required:
        before, limit = limit, next_limit(limit, tolerance, 1.0, one)
        assert limit >= one * tolerance * (1 - 1e-9)
        assert limit <= max(one * tolerance, before or 0.0) * (1 + 1e-9)


def test_the_window_is_carried_over_without_the_time_of_streamflow() -> None:
    assert next_limit(None, 1.0, window=5.0, moved=90.0, overhead=0.5) == 20.0
    assert next_limit(None, 1.0, window=0.4, moved=10.0, overhead=0.5) == 200.0


C = 100.0


def request(job: str, remaining: float, required: float, limit: float | None = None) -> OpenRequest:
    facts = Windows().ready(job, "/save", "out", "write", 0.0, 0.0)
    of = PacedRequest(facts, 0.0, 0.0, Expected(), 0.0, is_repeated=False)
    return OpenRequest(of, remaining, required, limit)


REQUESTS = st.lists(
    st.tuples(st.floats(1, 1000), st.floats(0.1, 30), st.none() | st.floats(0.1, 200)), min_size=1, max_size=8
).map(lambda found: [request(str(n), *one) for n, one in enumerate(found)])


@given(REQUESTS, st.floats(0, 200), st.floats(0, 40))
def test_the_sum_never_exceeds_the_bandwidth(requests: list[OpenRequest], bandwidth: float, now: float) -> None:
    rates = shares(requests, bandwidth, now)
    assert rates.keys() == {one.of for one in requests}
    assert min(rates.values()) >= 0
    assert sum(rates.values()) <= bandwidth * (1 + 1e-9)


@given(REQUESTS)
def test_more_than_needed_is_given_up_to_the_limit_only(requests: list[OpenRequest]) -> None:
    rates = shares(requests, C, 0.0)
    for one in requests:
        assert rates[one.of] <= max(one.need(0.0), one.most(0.0)) * (1 + 1e-9)
    spared = C - sum(rates.values())
    if spared > 1e-6:
        assert all(one.limit is not None and rates[one.of] >= min(one.limit, C) * (1 - 1e-9) for one in requests)


def feasible(requests: list[OpenRequest]) -> bool:
    """Whether preemptive EDF serves them all, and so any schedule does."""
    moved = 0.0
    for one in sorted(requests, key=lambda one: one.required):
        moved += one.remaining
        if moved > C * one.required:
            return False
    return True


def ends(requests: list[OpenRequest]) -> dict[PacedRequest, float]:
    """When each request has ended, if the shares are found anew when one has ended."""
    now, ended = 0.0, dict[PacedRequest, float]()
    while requests:
        rates = shares(requests, C, now)
        step = min(one.remaining / rates[one.of] for one in requests if rates[one.of] > 0)
        now += step
        left = [(one, one.remaining - rates[one.of] * step) for one in requests]
        ended |= {one.of: now for one, remaining in left if remaining <= 1e-9 * one.remaining + 1e-9}
        requests = [
            OpenRequest(one.of, remaining, one.required, one.limit) for one, remaining in left if one.of not in ended
        ]
    return ended


@given(REQUESTS)
def test_none_is_late_if_any_schedule_can_serve_all(requests: list[OpenRequest]) -> None:
    # What a schedule can just serve is between those that rounding decides.
    if feasible([OpenRequest(one.of, one.remaining * (1 + 1e-6), one.required) for one in requests]):
        found = ends(requests)
        for one in requests:
            assert found[one.of] <= one.required * (1 + 1e-6)


def test_who_is_late_gets_all_there_is() -> None:
    late, other = request("late", 500.0, 1.0, 10.0), request("other", 100.0, 12.0, 20.0)
    assert shares([other, late], C, now=2.0) == {late.of: C, other.of: 0.0}


def test_what_is_spared_stays_spared() -> None:
    a, b = request("a", 100.0, 10.0, 11.0), request("b", 50.0, 10.0, 5.5)
    assert shares([a, b], C, 0.0) == {a.of: 11.0, b.of: 5.5}
