"""When jobs would have started: tables for what each hint gives, properties for what must never happen."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from streamflow_io.report.suggestions.simulation import (
    CommitHint,
    GateHint,
    IOTaskHint,
    ReadOutput,
    SimulatedHint,
    SimulatedJob,
    StreamHint,
    Times,
    end_of,
    saved_on_cores,
    saved_seconds,
    share_cores,
    simulate,
)

COMMIT, STREAM, GATE = CommitHint("/a/out"), StreamHint("/a/out", "/b/in"), GateHint("/a/out")


def chain(seconds: float = 4.0, tail: float = 0.0, **fields: float | None) -> list[SimulatedJob]:
    """/a from 1 to 11; it opens its output at 2 and closes it at 5; /b starts half a second after its end."""
    read = ReadOutput(0, "/a/out", "/b/in", opened=2.0, committed=5.0, tail=tail, touched=3.0)
    return [SimulatedJob("/a", 0.5, 1, 11), SimulatedJob("/b", 11.2, 11.5, 11.5 + seconds, (read,))]


@pytest.mark.parametrize(
    ("hints", "seconds", "tail", "times", "saved"),
    [
        ([], 4, 0, (11.5, 15.5), 0),
        ([COMMIT], 4, 0, (5.5, 9.5), 4.5),  # the last to end is /a now
        ([COMMIT], 20, 0, (5.5, 25.5), 6),
        ([STREAM], 4, 0, (2.5, 11), 4.5),  # it ends with its producer
        ([STREAM], 4, 1, (2.5, 12), 3.5),
        ([STREAM], 20, 0, (2.5, 22.5), 9),  # it is slower than its producer
        ([STREAM, COMMIT], 4, 1, (2.5, 6.5), 4.5),  # the stream ends at the commit
        ([GATE], 4, 0, (2.5, 12), 3.5),  # three of its four seconds are over when it begins to wait
        ([GATE], 2, 0, (2.5, 11), 2.5),  # it opens it last of all
        ([GATE, COMMIT], 4, 0, (2.5, 6.5), 4.5),
        ([CommitHint("/b/out"), StreamHint("/a/out", "/c/in"), IOTaskHint("/c")], 4, 0, (11.5, 15.5), 0),
    ],
)
def test_one_after_the_other(
    hints: list[SimulatedHint], seconds: float, tail: float, times: tuple[float, float], saved: float
) -> None:
    jobs = chain(seconds, tail)
    assert simulate(jobs, hints)[1] == Times(*times)
    assert saved_seconds(jobs, hints) == pytest.approx(saved)


def test_the_last_predecessor_counts() -> None:
    early, late = ReadOutput(0, "/a/out", "/b/in", committed=1.0), ReadOutput(1, "/c/out", "/b/other", committed=6.0)
    jobs = [
        SimulatedJob("/a", 0, 0, 10),
        SimulatedJob("/c", 0, 0, 8),
        SimulatedJob("/b", 10, 10, 15, (early, late)),
    ]
    assert simulate(jobs, [CommitHint("/a/out")])[2].started == 8
    assert simulate(jobs, [CommitHint("/a/out"), CommitHint("/c/out")])[2].started == 6


def test_an_element_waits_for_its_own_only() -> None:
    own = ReadOutput(0, "/a/out", "/b/in", committed=2.0, by_element=True)
    other = ReadOutput(1, "/a/out", "/b/in", committed=5.0, is_own=False, by_element=True)
    jobs = [SimulatedJob("/a", 0, 0, 3), SimulatedJob("/a", 0, 0, 6), SimulatedJob("/b", 6, 6, 7, (own, other))]
    assert simulate(jobs, [CommitHint("/a/out")])[2] == Times(2, 3)


def test_who_waits_for_a_core_has_it_from_the_io_task_before() -> None:
    # One core: compute, save, compute; with save as an I/O task the second compute starts when the first has ended.
    jobs = [
        SimulatedJob("/compute", 0, 0, 10),
        SimulatedJob("/save", 10, 10, 15, (ReadOutput(0, "/compute/out", "/save/in"),)),
        SimulatedJob("/compute", 0, 15, 25, core_from=1),
    ]
    assert simulate(jobs)[2] == Times(15, 25)
    assert simulate(jobs, [IOTaskHint("/save")])[2] == Times(0, 10)
    jobs[1] = SimulatedJob("/save", 9, 10, 15, core_from=0)
    assert simulate(jobs, [IOTaskHint("/save")])[1:] == [Times(9, 14), Times(10, 20)]


def test_the_reader_of_a_stream_takes_no_core() -> None:
    read = ReadOutput(0, "/a/out", "/b/in", opened=1.0)
    jobs = [
        SimulatedJob("/a", 0, 0, 10),
        SimulatedJob("/c", 10, 10, 15),
        SimulatedJob("/b", 10, 15, 16, (read,), core_from=1),
        SimulatedJob("/d", 0, 16, 20, core_from=2),
    ]
    assert simulate(jobs, [STREAM])[2:] == [Times(1, 10), Times(15, 19)]


def test_jobs_that_share_cores_slow_down_alike() -> None:
    jobs = [
        SimulatedJob("/a", 0, 0, 4, cpu_seconds=4, location="l", location_cores=1),
        SimulatedJob("/b", 4, 4, 6, cpu_seconds=1, location="l", location_cores=1),
    ]
    assert share_cores(jobs, [Times(0, 4), Times(4, 6)]) == [Times(0, 4), Times(4, 6)]
    # Both at a time want 1.5 cores for two seconds.
    assert share_cores(jobs, [Times(0, 4), Times(0, 2)]) == [Times(0, 5), Times(0, 3)]
    assert share_cores(jobs, [Times(0, 4), Times(5, 7)]) == [Times(0, 4), Times(5, 7)]


HINTS: list[SimulatedHint] = [
    *(CommitHint(f"/{step}/out") for step in "abc"),
    *(StreamHint(f"/{one}/out", f"/{other}/in") for one in "abc" for other in "abc"),
    *(GateHint(f"/{step}/out") for step in "abc"),
    *(IOTaskHint(f"/{step}") for step in "abc"),
]
seconds = st.floats(0, 20, allow_nan=False).map(lambda value: round(value, 3))


@st.composite
def runs(draw: st.DrawFn) -> list[SimulatedJob]:
    """Runs as they can be: each job starts after what it reads was delivered, and after it was given a core."""
    jobs: list[SimulatedJob] = []
    for _ in range(draw(st.integers(1, 8))):
        step = draw(st.sampled_from("abc"))
        before = draw(st.lists(st.integers(0, len(jobs) - 1), max_size=3)) if jobs else []
        reads = []
        for index in before:
            producer = jobs[index]
            reads.append(
                ReadOutput(
                    index,
                    f"{producer.step}/out",
                    f"/{step}/in",
                    opened=draw(st.none() | st.floats(producer.started, producer.ended)),
                    committed=draw(st.none() | st.floats(producer.started, producer.ended)),
                    is_own=draw(st.booleans()),
                    by_element=draw(st.booleans()),
                    tail=draw(seconds),
                    touched=draw(st.none() | seconds),
                )
            )
        early = draw(st.booleans())  # what it reads may have been delivered early in the run
        ready = max((jobs[index].started if early else jobs[index].ended for index in before), default=0.0)
        giver = draw(st.none() | st.integers(0, len(jobs) - 1)) if jobs else None
        submitted = max(ready, jobs[-1].started if jobs else 0.0) + draw(seconds)
        started = submitted + draw(seconds)
        if giver is not None:
            started = max(started, jobs[giver].ended)
        ran = draw(seconds)
        used = {"cpu_seconds": ran * draw(st.floats(0, 1)), "location_cores": draw(st.sampled_from([None, 1.0, 2.0]))}
        jobs.append(SimulatedJob(f"/{step}", submitted, started, started + ran, tuple(reads), giver, **used))
    return jobs


@given(runs())
def test_without_hints_it_is_the_run_as_it_was(jobs: list[SimulatedJob]) -> None:
    for job, times in zip(jobs, simulate(jobs), strict=True):
        assert (times.started, times.ended) == pytest.approx((job.started, job.ended))


@given(runs(), st.sets(st.sampled_from(HINTS)))
def test_nothing_is_lost_and_no_more_saved_than_there_was(jobs: list[SimulatedJob], hints: set[SimulatedHint]) -> None:
    assert 0 <= saved_seconds(jobs, hints) <= end_of(jobs)
    assert 0 <= saved_on_cores(jobs, hints) <= end_of(jobs)
    for job, times in zip(jobs, simulate(jobs, hints), strict=True):
        assert -1e-9 <= times.started <= job.started + 1e-9
        assert times.started <= times.ended + 1e-9 <= job.ended + 2e-9


@given(runs(), st.sets(st.sampled_from(HINTS)))
def test_all_together_save_at_least_what_the_best_does(jobs: list[SimulatedJob], hints: set[SimulatedHint]) -> None:
    best = max((saved_seconds(jobs, [hint]) for hint in hints), default=0.0)
    assert saved_seconds(jobs, hints) >= best - 1e-9


@given(runs(), st.sets(st.sampled_from(HINTS)))
def test_cores_only_delay_and_keep_the_order(jobs: list[SimulatedJob], hints: set[SimulatedHint]) -> None:
    enough = simulate(jobs, hints)
    shared = share_cores(jobs, enough)
    for before, after in zip(enough, shared, strict=True):
        assert after.started >= before.started - 1e-6
        assert after.ended >= before.ended - 1e-6
    ends = sorted(zip(enough, shared, strict=True), key=lambda pair: pair[0].ended)
    assert all(one[1].ended <= other[1].ended + 1e-6 for one, other in itertools.pairwise(ends))


@given(runs(), st.sets(st.sampled_from(HINTS)))
def test_no_more_is_computed_than_the_cores_can(jobs: list[SimulatedJob], hints: set[SimulatedHint]) -> None:
    jobs = [replace(job, location="l", location_cores=1.0) for job in jobs]
    shared = share_cores(jobs, simulate(jobs, hints))
    instant = [
        job.cpu_seconds for job, times in zip(jobs, simulate(jobs, hints), strict=True) if times.ended <= times.started
    ]
    first, last = min(times.started for times in shared), max(times.ended for times in shared)
    assert sum(job.cpu_seconds for job in jobs) - sum(instant) <= last - first + 1e-6
