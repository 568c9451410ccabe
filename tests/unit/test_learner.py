"""The learner of one step's constraint: tables of epochs, and what ends, repeats, skips or re-opens them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from streamflow_io.hints.bandwidth import Bounds
from streamflow_io.storage.admission.demand import bytes_per_second
from streamflow_io.storage.admission.epochs import EpochEnded, Observation
from streamflow_io.storage.admission.learner import Chosen, Learner
from streamflow_io.storage.admission.registry import ConstraintRegistry, RegisteredConstraint

MEGABYTE = 1e6
# The time of a job, by the number of jobs that run: the storage serves two well, more of them hinder each other.
Times = Callable[[int], float]


def congested(running: int) -> float:
    return {1: 1.0, 2: 1.1}.get(running, 1.1 * (running / 2) ** 2)


def may_start(learner: Learner) -> bool:
    return next(learner.turns(), None) is not None


class Bench:
    """Jobs of one step that start as soon as they may, and end together.

    :param times: of a job of size 1, by the number of jobs that run at once
    :param sizes: of one job after the other, in units of 100 MB; none: not measured
    """

    def __init__(self, learner: Learner, times: Times = congested, sizes: Iterator[float] | None = None) -> None:
        self.learner = learner
        self.times = times
        self.sizes = sizes
        self.epochs: list[EpochEnded] = []
        self.choices: list[Chosen] = []
        self.waiting = 0
        self.running: list[tuple[str, float]] = []
        self.now = 0.0
        self._names = count()

    def submit(self, jobs: int) -> Bench:
        for _ in range(jobs):
            self.waiting += 1
            self.learner.submitted(self.now)
        return self

    def start(self) -> int:
        """Let start what may, up to the bandwidth; return how many run."""
        while self.waiting and may_start(self.learner) and len(self.running) < at_once(self.learner.constraint):
            name = f"/step/{next(self._names)}"
            self.waiting -= 1
            self.learner.started(name, self.now)
            self.running.append((name, next(self.sizes) if self.sizes else 1.0))
        return len(self.running)

    def end(self, succeeds: bool = True, no_more: bool = False) -> None:
        """All that run end."""
        seconds = self.times(len(self.running))
        self.now += seconds
        for name, size in self.running:
            measured = 100 * MEGABYTE * size if self.sizes else None
            self.learner.ended(name, Observation(seconds * size, measured) if succeeds else None, self.now)
        self.running = []
        if no_more:
            self.learner.no_more(self.now)
        for event in self.learner.drain():
            if isinstance(event, EpochEnded):
                self.epochs.append(event)
            else:
                self.choices.append(event)

    def run(self, groups: int | None = None, succeeds: bool = True) -> Bench:
        """Run this many groups, or all that wait."""
        while self.waiting and groups != 0:
            assert self.start() > 0
            self.end(succeeds)
            groups = None if groups is None else groups - 1
        return self

    @property
    def tried(self) -> list[tuple[float, int, bool]]:
        """Constraint, jobs and whether it was registered, of each epoch."""
        return [(epoch.constraint, epoch.jobs, epoch.registered) for epoch in self.epochs]

    @property
    def reasons(self) -> list[tuple[str, float]]:
        return [(choice.reason, choice.constraint) for choice in self.choices]


BANDWIDTH, EXECUTORS = 80.0, 8


def at_once(constraint: float) -> int:
    return min(EXECUTORS, bytes_per_second(BANDWIDTH) // bytes_per_second(constraint))


def learner(bounds: Bounds | None = None, remembered: ConstraintRegistry | None = None) -> Learner:
    return Learner(BANDWIDTH, EXECUTORS, bounds, remembered)


def registry(times: Times = congested, job_bytes: float | None = None) -> ConstraintRegistry:
    """The registry when all has been learned."""
    entries = [(constraint, at_once(constraint)) for constraint in (10.0, 20.0, 40.0, 80.0)]
    return ConstraintRegistry(
        tuple(RegisteredConstraint(constraint, times(jobs), jobs, jobs) for constraint, jobs in entries), job_bytes
    )


# Epochs


@pytest.mark.parametrize(
    ("ratio", "epochs"),
    [(0.4, [10, 20, 40, 80]), (0.5, [10, 20, 40, 80]), (0.51, [10, 20]), (1.0, [10, 20]), (3.0, [10, 20])],
)
def test_the_stop_rule(ratio: float, epochs: list[float]) -> None:
    times = {8: 10.0, 4: 10 * ratio, 2: 10 * ratio**2, 1: 10 * ratio**3}
    bench = Bench(learner(), lambda running: times.get(running, 10.0)).submit(15).run()
    assert [epoch.constraint for epoch in bench.epochs] == epochs
    assert [epoch.registered for epoch in bench.epochs] == [True] * (len(epochs) - 1) + [ratio <= 0.5]


@pytest.mark.parametrize(
    ("bounds", "epochs"),
    [
        (Bounds(10, 80, 2), [(10, 8), (20, 4), (40, 2), (80, 1)]),
        (Bounds(10, 79, 2), [(10, 8), (20, 4), (40, 2)]),
        (Bounds(20, 500, 2), [(20, 4), (40, 2), (80, 1)]),
        (Bounds(11, 70, 3), [(11, 7), (33, 2)]),
        (Bounds(20, 20, 2), [(20, 4)]),
        # Executors let no more run at once: there is nothing to learn below 10.
        (Bounds(2, 20, 2), [(2, 8), (16, 5)]),
    ],
)
def test_bounded_goes_to_the_maximum(bounds: Bounds, epochs: list[tuple[float, int]]) -> None:
    bench = Bench(learner(bounds)).submit(60).run()
    assert bench.tried == [(constraint, jobs, True) for constraint, jobs in epochs]
    assert len([reason for reason, _ in bench.reasons if reason == "learned"]) == 1


def test_the_maximum_is_reached_whatever_the_rounding() -> None:
    # In floating point this is above the maximum, which is the whole bandwidth.
    assert 0.1 * 3 * 3 > 0.9
    single = Learner(0.9, 100, Bounds(0.1, 0.9, 3))
    for constraint in (0.1, 0.3, 0.9):
        assert single.constraint == pytest.approx(constraint)
        for _ in range(round(0.9 / constraint)):
            single.submitted(0.0)
        for number in range(round(0.9 / constraint)):
            single.started(str(number), 0.0)
        for number in range(round(0.9 / constraint)):
            single.ended(str(number), Observation(1.0), 0.0)
    assert not single.is_learning
    assert single.registry.constraints == pytest.approx((0.1, 0.3, 0.9))


def test_a_full_epoch_is_exclusive_and_takes_no_more_than_fit() -> None:
    bench = Bench(learner()).submit(7)
    assert not bench.learner.is_exclusive
    assert bench.start() == 7
    bench.submit(6)
    assert bench.learner.is_exclusive
    # Running jobs started one by one, when fewer ran than fit. Such jobs end first, and do not count.
    for name, _ in bench.running:
        assert not may_start(bench.learner)
        bench.learner.ended(name, Observation(1.0), 0.0)
    bench.running.clear()
    bench.submit(3)
    assert bench.start() == 8
    assert not may_start(bench.learner)
    assert (bench.waiting, bench.learner.outstanding) == (1, 9)
    bench.end()
    assert [(epoch.jobs, epoch.mean_seconds) for epoch in bench.epochs] == [(8, pytest.approx(congested(8)))]


def test_fewer_jobs_than_fit_run_and_teach_nothing() -> None:
    bench = Bench(learner())
    for _ in range(10):
        bench.submit(7)
        assert bench.start() == 7
        bench.end()
    assert bench.epochs == []
    assert not bench.learner.registry
    # What they took does not count in the epoch that comes.
    bench.submit(8).run(1)
    assert bench.tried == [(10, 8, True)]
    assert bench.epochs[0].mean_seconds == pytest.approx(congested(8))


def test_an_epoch_ends_with_the_jobs_that_there_are() -> None:
    bench = Bench(learner()).submit(10).run(1)
    bench.submit(1).run(1)
    # Three, then two of four: the second epoch was never full.
    assert bench.tried == [(10, 8, True)]
    bench.submit(2)
    assert bench.start() == 2
    bench.end(no_more=True)
    assert bench.tried == [(10, 8, True), (20, 5, True)]


def test_a_full_epoch_whose_jobs_are_cancelled_ends_with_the_rest() -> None:
    bench = Bench(learner()).submit(8)
    for number in range(5):
        bench.learner.started(str(number), bench.now)
    for number in range(3):
        bench.learner.withdrawn(f"cancelled {number}", 0.0)
    assert bench.learner.is_exclusive
    for number in range(5):
        bench.learner.ended(str(number), Observation(1.0), 0.0)
    bench.waiting = 0
    bench.end()
    assert bench.tried == [(10, 5, True)]
    assert not bench.learner.is_exclusive


def test_an_epoch_of_failures_is_repeated() -> None:
    bench = Bench(learner()).submit(30).run(2, succeeds=False)
    assert bench.tried == [(10, 0, False), (10, 0, False)]
    assert [epoch.mean_seconds for epoch in bench.epochs] == [None, None]
    bench.run(2)
    assert bench.tried[2:] == [(10, 8, True), (20, 4, True)]
    assert [epoch.number for epoch in bench.epochs] == [1, 1, 1, 2]


def test_what_still_runs_under_another_constraint_must_end_before_an_epoch() -> None:
    bench = Bench(learner(remembered=registry())).submit(40)
    bench.start()
    (first, *rest), bench.running = bench.running, []
    for name in ("x1", "x2", "x3"):
        bench.learner.submitted(0.0)
        bench.learner.started(name, bench.now)
        bench.learner.ended(name, Observation(100.0), 0.0)
    assert bench.learner.is_learning
    assert not may_start(bench.learner)
    for name, _ in (first, *rest):
        bench.learner.ended(name, Observation(1.0), 0.0)
    assert may_start(bench.learner)


# Where the storage is not what jobs wait for


@pytest.mark.parametrize("seconds", [0.02, 0.05, 0.2])
def test_of_short_jobs_as_many_as_may_run_at_once(seconds: float) -> None:
    # The first are slow: what they read is not in memory yet.
    slow_at_first = iter([2.0] * 8 + [1.3] * 4 + [1.0] * 1000)
    bench = Bench(learner(), lambda running: seconds * next(slow_at_first)).submit(60).run()
    assert bench.tried == [(10, 8, True), (20, 4, False)]
    assert bench.reasons[-1] == ("learned", 10)


@pytest.mark.parametrize("seconds", [0.05, 0.2, 1.0, 10.0])
@pytest.mark.parametrize("between", [0.3, 0.7, 1.0, 2.0])
def test_jobs_that_are_over_before_the_next_ones_start_teach_that_no_limit_is_needed(
    seconds: float, between: float
) -> None:
    """However many may run: the driver starts them one after the other, and each takes as long as one that is alone."""
    single, running, now = learner(), list[tuple[float, str]](), 0.0
    for _ in range(100):
        single.submitted(0.0)
    for number in range(100):
        now += between * seconds
        while running and (running[0][0] <= now or not may_start(single) or len(running) >= 8):
            now = max(now, running[0][0])
            single.ended(running.pop(0)[1], Observation(seconds), now)
        single.started(str(number), now)
        running.append((now + seconds, str(number)))
    assert not single.is_learning
    assert single.constraint == 10


# Runs too small for all epochs


def test_what_few_jobs_have_taught_is_kept_and_the_next_run_goes_on() -> None:
    # Eight, then four at once; there are no more for two at once.
    first = Bench(learner()).submit(12).run()
    assert first.tried == [(10, 8, True), (20, 4, True)]
    known = first.learner.registry
    assert (known.constraints, known.is_complete) == ((10, 20), False)
    second = Bench(learner(remembered=known)).submit(12)
    assert second.learner.is_learning
    second.run()
    assert second.tried == [(40, 2, True), (80, 1, False)]
    assert [epoch.number for epoch in second.epochs] == [3, 4]
    assert second.reasons[0] == ("remembered", 40)
    assert second.learner.registry == Bench(learner()).submit(40).run().learner.registry
    third = Bench(learner(remembered=second.learner.registry)).submit(12).run()
    assert third.epochs == []


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.sampled_from([None, Bounds(10, 80, 2)]))
def test_many_small_runs_learn_what_a_large_one_does(runs: list[int], bounds: Bounds | None) -> None:
    known, tried = None, list[float]()
    for jobs in runs:
        bench = Bench(learner(bounds, known)).submit(jobs).run()
        bench.learner.no_more(bench.now)
        bench.end()
        assert "contradicted" not in dict(bench.reasons)
        known = bench.learner.registry
        tried += [epoch.constraint for epoch in bench.epochs if epoch.jobs == epoch.concurrency]
    # None twice, and in order, whatever came to its end.
    whole = Bench(learner(bounds)).submit(60).run()
    assert tried == [constraint for constraint, _, _ in whole.tried][: len(tried)]
    if known is not None and known.is_complete:
        assert known == whole.learner.registry


# Jobs of different sizes


# With what was learned before


@pytest.mark.parametrize(
    ("factor", "contradicted"), [(0.4, True), (0.6, False), (1.0, False), (1.9, False), (2.1, True), (10.0, True)]
)
def test_a_registry_that_is_wrong_by_more_than_two_is_learned_anew(factor: float, contradicted: bool) -> None:
    bench = Bench(learner(remembered=registry()), lambda running: factor * congested(running)).submit(50).run(2)
    assert (("contradicted", 10) in bench.reasons) == contradicted
    assert bench.learner.is_learning == contradicted
    bench.run()
    if contradicted:
        assert bench.learner.registry.get(20).seconds == pytest.approx(factor * congested(4))  # type: ignore[union-attr]


def test_fewer_jobs_than_fit_may_be_faster() -> None:
    # All that is known is a full group of eight; alone, a job takes a fraction of it.
    known = ConstraintRegistry((RegisteredConstraint(10.0, congested(8), 8, 8),))
    bench = Bench(learner(Bounds(10, 10, 2), known))
    for _ in range(20):
        bench.submit(1).run()
    assert bench.reasons == [("remembered", 10)]
    # Slower is wrong with any number.
    bench = Bench(learner(Bounds(10, 10, 2), known), lambda running: 2.5 * congested(8))
    for _ in range(20):
        bench.submit(1).run()
    assert ("contradicted", 10) in bench.reasons


@pytest.mark.parametrize("known", [10.0, 80.0])
def test_one_slow_job_does_not_open_learning_again(known: float) -> None:
    single = ConstraintRegistry((RegisteredConstraint(known, 2.0, at_once(known), 8),))
    bench = Bench(learner(Bounds(known, known, 2), single), lambda running: 2.0)
    for slow in (2.0, 200.0, 2.0, 2.0, 200.0, 2.0, 2.0):
        bench.times = lambda running, seconds=slow: seconds  # type: ignore[misc]
        bench.submit(1).run()
    assert [reason for reason, _ in bench.reasons] == ["remembered"]


@pytest.mark.parametrize(("remembered", "tried"), [(None, 4), (registry(), 0)])
def test_only_the_first_jobs_are_compared_with_what_an_earlier_run_has_learned(
    remembered: ConstraintRegistry | None, tried: int
) -> None:
    bench = Bench(learner(remembered=remembered)).submit(200).run(4)
    assert not bench.learner.is_learning
    bench.times = lambda running: 5 * congested(running)
    bench.run()
    assert len(bench.tried) == tried
    assert not {reason for reason, _ in bench.reasons} & {"contradicted"}


@pytest.mark.parametrize(("slow", "contradicted"), [(2, False), (4, True)])
def test_as_many_jobs_are_compared_as_run_at_once(slow: int, contradicted: bool) -> None:
    single = learner(Bounds(10, 10, 2), ConstraintRegistry((RegisteredConstraint(10.0, 2.0, 8, 8),)))
    for number in range(8):
        single.submitted(0.0)
        single.started(str(number), 0.0)
    for number in range(8):
        single.ended(str(number), Observation(9.0 if number < slow else 2.0), 9.0)
    reasons = {event.reason for event in single.drain() if isinstance(event, Chosen)}
    assert ("contradicted" in reasons) is contradicted


def test_where_more_jobs_at_once_were_better_a_later_run_does_not_try_fewer() -> None:
    known = replace(registry(), entries=registry().entries[1:2], is_complete=False)
    single = learner(remembered=known)
    single.resized(EXECUTORS, first=2)
    bench = Bench(single).submit(60).run()
    assert [constraint for constraint, _, _ in bench.tried] == [10]
    assert not single.is_learning


def test_what_an_earlier_run_has_learned_in_part_is_compared_once_the_rest_is_known() -> None:
    known = replace(registry(), entries=registry().entries[:2], is_complete=False)
    bench = Bench(learner(remembered=known), lambda running: 5 * congested(running)).submit(60).run()
    assert bench.reasons[:3] == [("remembered", 40), ("learned", 20), ("contradicted", 10)]


@pytest.mark.parametrize("is_disturbed", [False, True])
def test_jobs_that_others_disturb_contradict_nothing(is_disturbed: bool) -> None:
    """A registered limit holds for a storage that no other run uses; beside others all takes longer."""
    single = learner(remembered=registry())
    for number in range(40):
        single.submitted(0.0)
        single.started(str(number), 0.0)
        single.ended(str(number), Observation(99.0, is_disturbed=is_disturbed), 0.0)
    reasons = {event.reason for event in single.drain() if isinstance(event, Chosen)}
    assert ("contradicted" in reasons) is not is_disturbed


# The objective


def test_locations_share_the_jobs() -> None:
    # Fifty jobs on fifty locations are one on each.
    spread, together = learner(remembered=registry()), learner(remembered=registry())
    spread.resized(EXECUTORS, spread=50)
    for _ in range(50):
        spread.submitted(0.0)
        together.submitted(0.0)
    assert (spread.constraint, together.constraint) == (80, 40)
