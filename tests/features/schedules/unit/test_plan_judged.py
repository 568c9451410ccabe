"""Whether a schedule would pay is judged on the storage as it was measured, and as the runs have seen it."""

from __future__ import annotations

from streamflow_io.features.schedules.burst_profile import BurstProfile, SeenRate
from streamflow_io.features.schedules.model import Pattern
from streamflow_io.features.schedules.persched import Sweep, persched
from streamflow_io.features.schedules.plan_program import PlanRequest, application_set, judge

# One job gets 4 MB/s, two no more than that together.
CONGESTS = ((1, 4.0), (2, 4.0), (4, 3.0))


def profile(**fields: object) -> BurstProfile:
    """A job of 8 MB, which takes 2 s, and 2 s of work."""
    facts = {"direction": "write", "bursts": 8, "jobs": 1, "storage_bw": 4, "volume": 8, "rate": 4, "work": 2}
    return BurstProfile.model_validate({**facts, "error": 0.001, "moved": 8.0, **fields})


def request(own: BurstProfile, curve: tuple[tuple[int, float], ...] = ()) -> PlanRequest:
    return PlanRequest(bandwidth=16, seconds=1, runs={"a": own, "b": own}, curve=curve)


def pattern(of: PlanRequest) -> Pattern:
    applications = application_set(of)
    found = persched(applications, Sweep(max(applications.durations)), "dilation")
    assert found is not None
    return found


def due(of: PlanRequest) -> float:
    return judge(of, pattern(of)).due


SEEN = SeenRate(jobs=1, rate=4.0, seconds=10.0)


def test_without_a_curve_jobs_are_not_in_each_others_way() -> None:
    assert due(request(profile(seen=(SEEN,)))) < 1.01
    assert due(request(profile())) < 1.01


def test_on_a_storage_that_congests_they_are() -> None:
    assert due(request(profile(seen=(SEEN,)), CONGESTS)) > 1.3


def test_what_was_seen_corrects_the_curve() -> None:
    """The slower the storage is, the more of their time two runs are in each other's way on it."""

    def two(rate: float) -> BurstProfile:
        return profile(jobs=2, moved=16.0, volume=16, rate=8, seen=(SeenRate(jobs=2, rate=rate, seconds=10.0),))

    as_measured, slower = (due(request(two(rate), ((1, 4.0), (2, 8.0), (4, 8.0)))) for rate in (8.0, 5.5))
    assert slower > as_measured + 0.05


def test_of_jobs_that_are_slower_for_another_reason_only_their_time_is_known() -> None:
    slow = profile(seen=(SeenRate(jobs=1, rate=0.5, seconds=10.0),), volume=64, moved=8.0)
    assert due(request(slow, CONGESTS)) < 1.01


def test_a_curve_with_a_mistake_is_none() -> None:
    assert due(request(profile(seen=(SEEN,)), ((2, 4.0), (2, 4.0)))) < 1.01
