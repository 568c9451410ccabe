"""Byte streams of jobs: with which rates they begin, and what is remembered of them."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import cast

import pytest
from streamflow.core.workflow import Status

from lab.fakes import FakeRuntime, commit, stream_token
from lab.jobs import job_state
from streamflow_io.adapters.attempts import Attempt
from streamflow_io.bandwidth.learned_windows import RememberedWindows
from streamflow_io.bandwidth.stream_rates import StreamRates
from streamflow_io.runtime.node_runtime import NodeJob
from streamflow_io.runtime.protocol import CommittedEvent, Event, InputStream, JobSpec, PhaseEvent

MB = 10**6


class Run:
    """A run whose /a/0 writes bursts for /b/0.

    :ivar told: the rates that /b was told while it ran
    """

    def __init__(self, path: Path) -> None:
        self.told: list[float | None] = []
        remembered = RememberedWindows(path, {"/a/out": "a1"}, {"/a/out": "stream of out"})
        self.attempt = Attempt(PurePosixPath("/a"))
        self.producer, self.reader = job_state("/a/0"), job_state("/b/0")
        self.reader.node_job = cast(NodeJob, SimpleNamespace(limit=lambda rate, _: self.told.append(rate)))
        jobs = {job.name: job for job in (self.producer, self.reader)}
        self.rates = StreamRates(True, remembered, jobs.get, lambda _: None)

    def open(self) -> float | None:
        """/b/0 begins to read: how fast it is fed at first."""
        token = stream_token(bandwidth="required(1)")
        self.rates.opened(self.reader, {"file": token}, {"0": (token, self.attempt)})
        place = {"path": "/a/out.txt", "events": "/a/events", "target": {"fifo": "/b/fifo"}}
        stream = InputStream(name="/a/0", port="out", id="0", **place)
        spec = JobSpec(name="/b/0", streams=(stream,))
        (asked,) = self.rates.starting(self.reader, spec, FakeRuntime("here")).streams
        return None if asked.limit is None else asked.limit.rate

    def happened(self, *events: Event) -> None:
        for event in events:
            self.rates.event(self.producer, event)

    def burst(self, number: int, ago: float) -> None:
        """The n-th burst, which has begun this many seconds ago."""
        start, end = 1_000.0 - ago, (number + 1) * 20 * MB
        burst = {"number": number, "start": start, "last": start + 0.1, "bytes": 20 * MB, "end": end}
        self.happened(PhaseEvent(job="a", time=1_000.0, port="out", path="/a/out.txt", **burst))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "learned.db"


async def test_a_reader_begins_with_the_rate_that_was_found_before_it_ran(path: Path) -> None:
    run = Run(path)
    assert run.open() is None
    for number in range(2):
        run.burst(number, 15 - 10 * number)
    assert run.told == [pytest.approx(8 * MB, rel=0.05)]
    # It begins again: what was told the first attempt the next one does not know.
    assert run.open() == pytest.approx(8 * MB, rel=0.05)
    run.reader.status = Status.COMPLETED
    run.rates.ended(run.reader)


async def test_the_next_run_begins_with_what_the_run_before_has_learned(path: Path) -> None:
    run = Run(path)
    run.open()
    for number in range(3):
        run.burst(number, 25 - 10 * number)
    await run.rates.run_closed()
    assert Run(path).open() == pytest.approx(2 * MB, rel=0.01)
    # A file that is complete has no bursts.
    complete = Run(path)
    commit(complete.attempt, "out", "out.txt")
    assert complete.open() is None
    # At its commit the limit ends.
    late = Run(path)
    late.open()
    late.happened(CommittedEvent(job="a", time=5.0, port="out", path="/a/out.txt", size=1))
    assert late.told[-1] is None
