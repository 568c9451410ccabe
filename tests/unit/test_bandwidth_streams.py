"""Byte streams: the bursts that readers were given, and how fast they are fed."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.bandwidth.expectations import Learned
from streamflow_io.bandwidth.growths import GrowingFile, StreamBurst, StreamName
from streamflow_io.bandwidth.phases import phases
from streamflow_io.bandwidth.streams import StreamRate, Streams
from streamflow_io.hints.bandwidth import RequiredConstraint

MB = 10**6
SOURCE = GrowingFile("/a/0", "out", "/a/out.bin")
READER = StreamName("/b/0", "0")
EXACT = RequiredConstraint(1.0)


def opened(limit: RequiredConstraint | None = EXACT, at: float = 0.0, name: StreamName = READER) -> Streams:
    streams = Streams()
    streams.opened(name, "/b", "file", SOURCE, limit, at)
    return streams


def told(rates: list[StreamRate]) -> list[tuple[float | None, str]]:
    return [(one.rate, one.reason) for one in rates]


def burst(streams: Streams, number: int, every: float = 10.0, size: int = 20 * MB) -> None:
    streams.burst(SOURCE, StreamBurst(number * every, size, (number + 1) * size))


def test_the_window_of_a_burst_is_the_limit_of_the_next() -> None:
    streams = opened()
    burst(streams, 0)
    streams.drained(READER, 20 * MB, 0.5)
    assert streams.rates(1.0) == []
    burst(streams, 1)
    streams.drained(READER, 40 * MB, 10.5)
    assert streams.rates(10.6) == [StreamRate(READER, "/b", "file", 2 * MB, "strategy")]
    # It is fed with this from now on, also before the next burst is told.
    assert streams.rates(20.5) == []
    assert streams.is_idle
    burst(streams, 2)
    assert streams.rates(20.6) == []
    assert not streams.is_idle


def test_who_is_behind_gets_what_it_needs_and_who_is_late_all() -> None:
    streams = opened()
    for number in (0, 1):
        burst(streams, number)
        streams.drained(READER, (number + 1) * 20 * MB, number * 10 + 0.5)
    streams.rates(10.5)
    streams.burst(SOURCE, StreamBurst(20.0, 20 * MB, 60 * MB))
    assert streams.rates(20.6) == []
    # What it was given since is an estimate; that all of it has come is told.
    streams.drained(READER, 40 * MB, 25.0)
    assert told(streams.rates(25.0)) == [(4 * MB, "need")]
    assert streams.rates(27.0) == []
    streams.drained(READER, 41 * MB, 27.0)
    assert told(streams.rates(30.0)) == [(None, "late")]
    streams.drained(READER, 60 * MB, 31.0)
    assert told(streams.rates(31.0)) == [(2 * MB, "strategy")]


def test_at_the_commit_a_limit_ends() -> None:
    streams = opened()
    for number in range(3):
        burst(streams, number)
    assert told(streams.rates(20.5)) != []
    streams.committed(SOURCE, 21.0)
    assert told(streams.rates(21.0)) == [(None, "commit")]
    assert streams.is_idle


def test_a_lower_limit_goes_half_of_the_way() -> None:
    streams, found = opened(), list[float | None]()
    for start, end in ((0.0, 20), (2.0, 40), (6.0, 60)):
        streams.burst(SOURCE, StreamBurst(start, 20 * MB, end * MB))
        streams.drained(READER, end * MB, start + 0.1)
        found += [one.rate for one in streams.rates(start + 0.1)]
    assert found == [10 * MB, 7.5 * MB]


def test_the_requests_of_a_reader() -> None:
    streams = opened(at=1.0)
    for number in range(3):
        burst(streams, number)
        streams.rates(number * 10 + 0.3)
        streams.drained(READER, (number + 1) * 20 * MB, number * 10 + 4.0)
    streams.committed(SOURCE, 22.0)
    found = streams.ended("/b/0", succeeded=True)
    assert [(one.ready, one.ended, one.required, one.rule) for one in found] == [
        (1.0, 4.0, 10.0, "next"),
        (10.0, 14.0, 20.0, "next"),
        (20.0, 24.0, 22.0, "exposed"),
    ]
    assert {(one.job, one.step, one.channel) for one in found} == {("/b/0", "/b", "/b/0/file of /a/0")}
    # More than 2 MB/s, since it was told a while after the burst had begun.
    assert [one.limit for one in found] == [None, None, pytest.approx(20 * MB / 9.7)]
    assert [phase.needed for phase in phases(found)] == [pytest.approx(20 * MB / 9), 2 * MB]
    assert streams.ended("/b/0", succeeded=True) == []


def test_what_does_not_count() -> None:
    """Bytes of an attempt that has failed do not count, and neither do bytes without a reader."""
    streams = opened()
    burst(streams, 0)
    burst(streams, 1)
    streams.drained(READER, 20 * MB, 3.0)
    assert [one.phase for one in streams.ended("/b/0", succeeded=True)] == [0]
    streams = opened()
    burst(streams, 0)
    streams.drained(READER, 20 * MB, 3.0)
    assert streams.ended("/b/0", succeeded=False) == []


def test_a_reader_that_is_given_all_before_the_burst_is_told() -> None:
    streams = opened()
    for fed, at in ((5, 0.1), (20, 0.4), (21, 0.9)):
        streams.drained(READER, fed * MB, at)
    burst(streams, 0)
    streams.committed(SOURCE, 5.0)
    assert [one.ended for one in streams.ended("/b/0", succeeded=True)] == [0.4]


def test_what_is_not_limited() -> None:
    for limit, every in ((None, 10.0), (EXACT, 0.01)):
        streams = opened(limit)
        for number in range(4):
            burst(streams, number, every)
            assert streams.rates(number * every + 0.5) == []
        assert streams.is_idle


def test_a_reader_that_comes_later_begins_with_the_newest_window() -> None:
    streams = opened()
    for number in range(3):
        burst(streams, number)
    late = StreamName("/b/1", "0")
    streams.opened(late, "/b", "file", SOURCE, EXACT, 21.0)
    # All that there is, before the next burst is expected.
    assert [one.rate for one in streams.rates(21.0) if one.name == late] == [pytest.approx(60 * MB / 9)]
    streams.drained(late, 60 * MB, 22.0)
    burst(streams, 3)
    assert [one.rate for one in streams.rates(30.0) if one.name == late] == [2 * MB]
    assert [one.limit for one in streams.ended("/b/1", succeeded=True)] == [pytest.approx(60 * MB / 9)] * 3


def test_the_first_burst_is_limited_by_what_an_earlier_run_has_learned() -> None:
    streams = Streams()
    streams.opened(READER, "/b", "file", SOURCE, EXACT, 0.0, "/a/out", Learned(4.0, None, 3, 20 * MB))
    assert told(streams.rates(0.0)) == [(5 * MB, "strategy")]
    assert streams.rate(READER) == 5 * MB
    streams.burst(SOURCE, StreamBurst(1.0, 40 * MB, 40 * MB))
    # Twice as much as it had then; some of it was given since it has begun.
    assert told(streams.rates(2.0)) == [(pytest.approx(35 / 3 * MB), "need")]
    streams.committed(SOURCE, 3.0)
    assert told(streams.rates(3.0)) == [(None, "commit")]
    streams.drained(READER, 40 * MB, 4.0)
    assert [one.limit for one in streams.ended("/b/0", succeeded=True)] == [5 * MB]


def test_a_file_that_is_complete_is_not_limited_by_what_was_learned() -> None:
    streams = Streams()
    streams.opened(READER, "/b", "file", SOURCE, EXACT, 0.0, "/a/out", Learned(4.0, None, 3, 20 * MB), True)
    assert told(streams.rates(0.0)) == []
    assert streams.is_idle


def test_what_is_learned_is_the_first_window_of_each_file() -> None:
    streams = Streams()
    for number, every in enumerate((2.0, 4.0, 10.0)):
        source = GrowingFile(f"/a/{number}", "out", "/a/out.bin")
        streams.opened(StreamName(f"/b/{number}", "0"), "/b", "file", source, EXACT, 0.0, "/a/out")
        for start, size in ((0.0, 20), (every, 30), (every + 1, 40)):
            streams.burst(source, StreamBurst(start, size * MB, 0))
    # Nothing follows its first burst; readers of the second one are not limited; and a small one is none.
    for number, limit, bursts in ((3, EXACT, 1), (4, None, 2)):
        source = GrowingFile(f"/a/{number}", "out", "/a/out.bin")
        streams.opened(StreamName(f"/b/{number}", "0"), "/b", "file", source, limit, 0.0, "/a/out")
        for start in range(bursts):
            streams.burst(source, StreamBurst(start, 20 * MB, 0))
    assert streams.learned == {"/a/out": Learned(4.0, None, 3, 20 * MB)}


def test_time_between_bursts_is_no_time_in_which_it_was_fed() -> None:
    streams = opened()
    for number in range(2):
        burst(streams, number)
        streams.drained(READER, (number + 1) * 20 * MB, number * 10 + 0.5)
        streams.rates(number * 10 + 0.5)
    # The end is told in the middle of the next one, with 2 MB a second granted.
    burst(streams, 2)
    assert told(streams.rates(23.0)) == []
    assert streams._streams[READER].left == 14 * MB


def test_a_reader_that_begins_again_reads_another_file() -> None:
    streams = opened()
    again = GrowingFile("/a/0", "out", "/a-2/out.bin")
    streams.opened(READER, "/b", "file", again, EXACT, 1.0)
    burst(streams, 0)
    streams.drained(READER, 20 * MB, 5.0)
    assert streams.ended("/b/0", succeeded=True) == []
    assert streams.ended("/a/0", succeeded=True) == []


def test_thousands_of_files_that_nobody_streams_cost_nothing() -> None:
    """Beside streams that nothing is told of: neither time, nor memory."""
    streams = Streams()
    for number in range(1_000):
        name, source = StreamName(f"/b/{number}", "0"), GrowingFile("/a/0", "out", f"/a/{number}")
        streams.opened(name, "/b", "file", source, EXACT, 0.0)
        for start in (0.0, 10.0):
            streams.burst(source, StreamBurst(start, 20 * MB, 20 * MB))
        streams.drained(name, 20 * MB, 10.5)
    assert len(streams.rates(10.5)) == 1_000
    tracemalloc.start()
    began = time.process_time()
    try:
        for number in range(10_000):
            streams.committed(GrowingFile("/c/0", "files", f"/c/{number}"), 11.0)
            assert streams.rates(11.0) == []
        seconds, (left, _) = time.process_time() - began, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Looking at all streams each time takes ten times as long, and a growth of each file has 5 MB.
    assert seconds < 3
    assert left < MB


def test_nothing_is_kept_of_jobs_that_have_ended() -> None:
    streams = Streams()
    tracemalloc.start()
    try:
        for number in range(500):
            source = GrowingFile(f"/a/{number}", "out", "/a")
            streams.opened(StreamName(f"/b/{number}", "0"), "/b", "file", source, EXACT, 0.0)
            for start in range(20):
                streams.burst(source, StreamBurst(float(start), 20 * MB, start * 20 * MB))
            streams.committed(source, 30.0)
            streams.rates(30.0)
            for job in (f"/a/{number}", f"/b/{number}"):
                streams.ended(job, succeeded=True)
            # A reader that begins now reads a complete file.
            streams.opened(StreamName(f"/d/{number}", "0"), "/d", "file", source, None, 40.0, is_complete=True)
            streams.ended(f"/d/{number}", succeeded=True)
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # One in twenty of its bursts: the first, which is to be remembered.
    assert left < MB / 4


@given(
    st.lists(st.tuples(st.floats(0.3, 20), st.integers(1, 300)), min_size=2, max_size=12),
    st.floats(1, 2),
)
def test_a_reader_that_takes_what_it_may_is_never_later_than_the_next_burst_but_one(
    bursts: list[tuple[float, int]], tolerance: float
) -> None:
    """Bursts come at once; the reader takes what it may, looked at each 50 ms, and what was late has no limit."""
    streams, rate = opened(RequiredConstraint(tolerance)), float("inf")
    starts = [sum(gap for gap, _ in bursts[:number]) for number in range(len(bursts))]
    sizes = [sum(size for _, size in bursts[: number + 1]) * MB for number in range(len(bursts))]
    fed, told_of, now, drained = 0.0, 0, 0.0, -1
    while now < starts[-1] + 60:
        there = sizes[sum(start <= now for start in starts) - 1]
        fed = min(there, fed + (rate if rate != float("inf") else there) * 0.05)
        while told_of < len(bursts) and now >= starts[told_of] + 0.25:
            streams.burst(SOURCE, StreamBurst(starts[told_of], bursts[told_of][1] * MB, sizes[told_of]))
            told_of += 1
        if fed == there and drained != there:
            streams.drained(READER, int(fed), now)
            drained = there
        for one in streams.rates(now):
            rate = float("inf") if one.rate is None else one.rate
        now += 0.05
    # Nothing is left, though no commit has ended the limit.
    assert fed == sizes[-1]
    assert all(rate is None or rate > 0 for _, rate in streams._streams[READER].rates)
