"""Runs that share a storage in bursts of jobs, simulated."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.io_tasks import CURVE as SLOW
from streamflow_io.features.schedules.burst_profile import SeenRate
from streamflow_io.features.schedules.jobs import PeriodicRun, StorageCurve, Way, alone, play
from streamflow_io.storage.sharing.allocation import Tenant, decide

WAYS: tuple[Way, ...] = ("own", "due")
CONGESTED = StorageCurve.of((count, SLOW.total(count) / 1e6) for count in range(1, 200))
BANDWIDTH = 16.0
# With a storageBW of 4 MB/s for each, four write at once.
OF_FOUR = CONGESTED.total(4)
FLAT = StorageCurve.of((count, min(SLOW.writer / 1e6 * count, OF_FOUR)) for count in (1, 2, 3))
BEST = max(rate for _, rate in CONGESTED.points)

runs = st.builds(
    PeriodicRun,
    st.just("any"),
    st.integers(1, 5),
    st.integers(1, 9),
    st.floats(0.5, 20),
    st.sampled_from([2.0, 4.0, 7.0, 16.0, 40.0]),
    st.floats(0.0, 30.0),
    st.just(0.0) | st.floats(0.1, 2.0),
)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_alone_is_alone(way: Way) -> None:
    one = PeriodicRun("one", 3, 16, 8, 4, 8.0)
    # 16 jobs of 8 MB, four at a time with 16/1.3 MB/s.
    assert play([one], BANDWIDTH, CONGESTED, way).seconds[0] == pytest.approx(3 * (8 + 128 / (16 / 1.3)))


@given(st.lists(runs, min_size=1, max_size=6), st.sampled_from(WAYS))
def test_all_jobs_are_done_and_nobody_is_faster_than_the_storage(some: Sequence[PeriodicRun], way: Way) -> None:
    outcome = play(some, BANDWIDTH, CONGESTED, way)
    megabytes = [one.bursts * one.jobs * one.megabytes for one in some]
    assert outcome.busy * BEST >= sum(megabytes) * (1 - 1e-9)
    for one, seconds, volume in zip(some, outcome.seconds, megabytes, strict=True):
        assert seconds >= one.bursts * one.work * (1 - 1e-9)
        assert seconds >= volume / BEST * (1 - 1e-9)


amounts = st.integers(1, 20)


@given(st.lists(st.tuples(amounts, st.integers(0, 20), st.integers(0, 30)), min_size=1, max_size=6), amounts)
def test_of_the_others_only_what_they_hold_counts_for_the_first(
    entries: list[tuple[int, int, int]], bandwidth: int
) -> None:
    """The simulation asks `decide` in that way."""
    tenants = [
        Tenant(f"{index}", {"write": held}, {"write": wanted}, due, index)
        for index, (wanted, held, due) in enumerate(entries)
    ]
    first = min(tenants, key=lambda tenant: tenant.order)
    others = [tenant for tenant in tenants if tenant is not first]
    together = Tenant("others", {"write": sum(tenant.held.get("write", 0) for tenant in others)})
    assert decide(first, others, {"write": bandwidth}) == decide(first, [together], {"write": bandwidth})


def random_set(seed: int, demand: float) -> list[PeriodicRun]:
    """2 to 8 runs with bursts of 1 to 16 jobs of 2 to 16 MB, which would use this share of the storage together."""
    chance = random.Random(seed)
    shapes = [(chance.randint(1, 16), chance.uniform(2, 16)) for _ in range(chance.randint(2, 8))]
    weights = [chance.uniform(0.3, 1.7) for _ in shapes]
    made = []
    for (jobs, megabytes), weight in zip(shapes, weights, strict=True):
        period = jobs * megabytes / (weight / sum(weights) * demand * OF_FOUR)
        io_seconds = alone([PeriodicRun("", 1, jobs, megabytes, 4, 0)], BANDWIDTH, CONGESTED)[0]
        work = max(0.1 * period, period - io_seconds)
        bursts = max(2, round(300 / (work + io_seconds)))
        made.append(PeriodicRun(f"{len(made)}", bursts, jobs, megabytes, 4, work))
    return made


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


# The dilation of the slowest run, geometric means of 60 random sets, of another simulation with other random numbers.
@pytest.mark.parametrize(
    ("curve", "demand", "expected"),
    [
        pytest.param(CONGESTED, 0.5, (1.13, 1.10), marks=pytest.mark.long),
        pytest.param(CONGESTED, 0.8, (1.35, 1.22), marks=pytest.mark.long),
        (CONGESTED, 1.0, (1.55, 1.32)),
        pytest.param(CONGESTED, 1.3, (1.91, 1.51), marks=pytest.mark.long),
        pytest.param(FLAT, 0.5, (1.08, 1.09), marks=pytest.mark.long),
        pytest.param(FLAT, 0.8, (1.20, 1.21), marks=pytest.mark.long),
        pytest.param(FLAT, 1.0, (1.30, 1.30), marks=pytest.mark.long),
        pytest.param(FLAT, 1.3, (1.49, 1.48), marks=pytest.mark.long),
    ],
)
def test_ways_to_share_on_random_sets(curve: StorageCurve, demand: float, expected: tuple[float, ...]) -> None:
    slowest: dict[Way, list[float]] = {way: [] for way in WAYS}
    for seed in range(60):
        some = random_set(seed, demand)
        sources = [random.Random(f"{seed} {index}") for index in range(len(some))]
        works = [
            [source.uniform(0.9, 1.1) for _ in range(one.bursts)] for source, one in zip(sources, some, strict=True)
        ]

        def noise(run: int, burst: int, works: list[list[float]] = works) -> float:
            return works[run][burst]

        own = alone(some, BANDWIDTH, curve, noise)
        for way in WAYS:
            slowest[way].append(max(play(some, BANDWIDTH, curve, way, noise).dilations(own)))
    found = [geometric_mean(slowest[way]) for way in WAYS]
    assert found == pytest.approx(expected, rel=0.05)
    # What follows from it: a shared ledger with due dates is better than ledgers of their own if these congest.
    assert found[1] < found[0] or curve is FLAT


def test_a_real_congestion_is_forecast() -> None:
    """Four real runs at once, each with a ledger of its own, took 90, 91, 109 and 110 s (`recorded/congested-*`)."""
    small, large = (PeriodicRun("small", 12, 1, 8, 4, 2.055), PeriodicRun("large", 5, 16, 4, 4, 6.08))
    outcome = play([small, small, large, large], BANDWIDTH, CONGESTED, "own")
    assert outcome.seconds == pytest.approx((90.4, 90.7, 109.5, 110.1), rel=0.05)


def test_a_job_keeps_its_bandwidth_while_it_is_started() -> None:
    one = PeriodicRun("one", 3, 5, 11, 16, 1.0, latency=0.5)  # one job at a time: 0.5 s and 2 s
    for way in WAYS:
        outcome = play([one], BANDWIDTH, CONGESTED, way)
        assert outcome.seconds[0] == pytest.approx(3 * (1 + 5 * 2.5))
        assert outcome.busy == pytest.approx(3 * 5 * 2)


def test_a_job_that_wants_more_than_there_is_runs_alone() -> None:
    wide = PeriodicRun("wide", 2, 2, 11, 40, 1.0)
    outcome = play([wide, wide], BANDWIDTH, CONGESTED, "due")
    assert outcome.busy == pytest.approx(8 * 2)


@pytest.mark.parametrize(("count", "rate"), [(1, 5), (2, 10), (3, 11), (4, 12), (6, 10), (8, 8), (100, 8)])
def test_a_curve_is_linear_between_what_was_measured(count: int, rate: float) -> None:
    assert StorageCurve.of([(4, 12), (2, 10), (8, 8)]).total(count) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("points", "message"),
    [([], "no number"), ([(0, 1)], "0:1 is not above 0"), ([(1, 0)], "1:0 is"), ([(2, 1)] * 2, "twice")],
)
def test_a_curve_with_a_mistake(points: list[tuple[int, float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StorageCurve.of(points)


def test_a_thousand_runs() -> None:
    some = [PeriodicRun(f"{index}", 3, 1 + index % 4, 4 + index % 8, 4, 1000.0 + index) for index in range(1000)]
    outcome = play(some, BANDWIDTH, FLAT, "due")
    assert outcome.busy == pytest.approx(sum(one.bursts * one.jobs * one.megabytes for one in some) / OF_FOUR, rel=0.1)


def test_random_sets_are_what_they_are_called() -> None:
    for seed in range(10):
        some = random_set(seed, 0.8)
        own = alone(some, BANDWIDTH, CONGESTED)
        rates = [one.jobs * one.megabytes * one.bursts / seconds for one, seconds in zip(some, own, strict=True)]
        assert sum(rates) == pytest.approx(0.8 * OF_FOUR, rel=0.05)


def seen(jobs: int, rate: float, seconds: float = 1.0) -> SeenRate:
    return SeenRate(jobs=jobs, rate=rate, seconds=seconds)


def test_a_curve_goes_through_what_was_seen_and_keeps_its_form() -> None:
    curve = StorageCurve.of({1: 5.0, 2: 10.0, 4: 12.0, 8: 9.0}.items())
    corrected = curve.corrected([seen(1, 5.0), seen(4, 14.4)])
    assert [corrected.total(count) for count in (1, 4, 8)] == [pytest.approx(rate) for rate in (5, 14.4, 10.8)]
    assert corrected.total(2) == pytest.approx(10 * (1 + 0.2 / 3))
    both = curve.corrected([seen(4, 14.4, 3), seen(4, 12.0, 1)])
    assert both.total(4) == pytest.approx(12 * 1.15)
    assert both.total(1) == pytest.approx(5 * 1.15)
    assert curve.corrected([seen(3, 11.0)]).total(3) == pytest.approx(11)


def test_what_is_far_off_is_not_of_this_storage() -> None:
    """Jobs that do not keep it busy, that write to memory, or were not alone."""
    curve = StorageCurve.of({1: 5.0, 4: 12.0}.items())
    assert curve.corrected([seen(1, 0.1), seen(4, 100.0)]) is curve
    assert not curve.explains(seen(1, 3.3))
    assert curve.explains(seen(1, 3.4))
    assert curve.explains(seen(4, 17.9))


@given(
    st.dictionaries(st.integers(1, 30), st.floats(0.1, 1e3), min_size=1, max_size=5),
    st.lists(st.builds(seen, st.integers(1, 40), st.floats(0.1, 1e3), st.floats(0.1, 1e3)), max_size=5),
)
def test_a_corrected_curve_is_nowhere_further_off_than_what_was_seen(
    points: dict[int, float], rates: list[SeenRate]
) -> None:
    curve = StorageCurve.of(points.items())
    corrected = curve.corrected(rates)
    for count in range(1, 41):
        assert 0.6 <= corrected.total(count) / curve.total(count) <= 1.7
