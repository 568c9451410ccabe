"""Jobs that run as with plain StreamFlow because a stream would gain nothing."""

from __future__ import annotations

import pytest

from streamflow_io.jobs.short_jobs import ENOUGH, SAMPLED, SHORT, ShortJobs

STEP, KIB = "/step", 1024


def seen(*seconds: float, read: int = KIB) -> ShortJobs:
    jobs = ShortJobs([STEP])
    for each in seconds:
        jobs.measured(STEP, read, each)
    return jobs


def test_a_step_is_short_after_enough_short_jobs() -> None:
    assert not seen(*[0.01] * (ENOUGH - 1)).is_short(STEP, KIB)
    assert seen(*[0.01] * ENOUGH).is_short(STEP, KIB)


def test_a_long_job_begins_the_count_anew() -> None:
    assert not seen(*[0.01] * ENOUGH, 5.0).is_short(STEP, KIB)
    assert not seen(*[0.01] * ENOUGH, 5.0, *[0.01] * (ENOUGH - 1)).is_short(STEP, KIB)
    assert seen(*[0.01] * ENOUGH, 5.0, *[0.01] * ENOUGH).is_short(STEP, KIB)


def test_one_job_may_take_longer_now_and_then() -> None:
    assert seen(*[0.01] * ENOUGH, SHORT).is_short(STEP, KIB)
    assert not seen(*[0.01] * ENOUGH, SHORT, SHORT).is_short(STEP, KIB)
    assert seen(*[0.01] * ENOUGH, SHORT, SHORT, *[0.01] * (ENOUGH - 1)).is_short(STEP, KIB)


def test_of_many_short_jobs_a_few_are_measured() -> None:
    jobs = seen(*[0.01] * ENOUGH)
    decided = [jobs.is_short(STEP, KIB) for _ in range(40 * SAMPLED)]
    assert decided.count(False) == 40


def test_a_long_job_that_was_not_measured_is_noticed() -> None:
    jobs = seen(*[0.01] * ENOUGH)
    jobs.ran_plainly(STEP, 0.5)
    assert jobs.is_short(STEP, KIB)
    jobs.ran_plainly(STEP, 5.0)
    assert not jobs.is_short(STEP, KIB)


@pytest.mark.parametrize(("read", "short"), [(2**21, True), (2**21 + 1, False), (0, True)])
def test_a_larger_input_may_take_longer(read: int, short: bool) -> None:
    assert seen(*[0.01] * ENOUGH, read=2**20).is_short(STEP, read) is short


def test_where_a_hint_asks_for_streams_no_job_is_short() -> None:
    jobs = ShortJobs([])
    for _ in range(2 * ENOUGH):
        jobs.measured(STEP, 0, 0.01)
        jobs.ran_plainly(STEP, 5.0)
    assert not jobs.is_short(STEP, 0)
