"""How far byte streams are, and what jobs wait for, while a run goes on."""

from __future__ import annotations

import asyncio
import itertools

from lab.jobs import job_state
from streamflow_io.jobs.early_records import Progress
from streamflow_io.records.records import ProgressRecord
from streamflow_io.runtime.protocol import FedEvent


def fed(size: int, at: float, stalled: bool = False) -> FedEvent:
    last = at - 1 if stalled else at
    return FedEvent(job="1", time=at, name="s", bytes=size, last=last, stalled=stalled, waits="producer")


class Shown:
    """A listener that keeps the records."""

    def __init__(self) -> None:
        self.records: list[ProgressRecord] = []
        self._more = asyncio.Event()

    def __call__(self, record: ProgressRecord) -> None:
        self.records.append(record)
        self._more.set()

    async def next(self) -> ProgressRecord:
        self._more.clear()
        await self._more.wait()
        return self.records[-1]


async def test_the_rate_is_that_of_the_last_moments() -> None:
    shown = Shown()
    progress, job = Progress(shown), job_state("/b/0")
    progress.reads(job, "s", "/a/0", "/a/out", "/b/in")
    assert (await shown.next()).streams[0].rate is None
    # The clock of the node is another one.
    progress.fed(job, fed(1_000_000, 5000.0))
    progress.fed(job, fed(5_000_000, 5002.0))
    stream = (await shown.next()).streams[0]
    assert (stream.bytes, stream.rate, stream.input, stream.output) == (5_000_000, 2_000_000.0, "/b/in", "/a/out")
    progress.fed(job, fed(5_000_000, 5003.0, stalled=True))
    record = await shown.next()
    assert (record.streams[0].rate, record.streams[0].waits) == (0.0, "producer")
    assert record.streams[0].since >= stream.since
    progress.ended(job, "s")
    assert (await shown.next()).streams == ()
    progress.close()


async def test_what_jobs_wait_for_is_counted_by_step() -> None:
    shown = Shown()
    progress, jobs = Progress(shown), [job_state(f"/b/0.{number}") for number in range(3)]
    for job in jobs:
        progress.waits(job, "cores")
    progress.waits(jobs[1], "storage")
    progress.waits(jobs[2], None)
    assert (await shown.next()).waiting == {"/b": {"cores": 1, "storage": 1}}
    for job in jobs:
        progress.job_ended(job)
    assert (await shown.next()).waiting == {}
    progress.close()


async def test_it_is_told_seldom_and_of_so_many_streams_only() -> None:
    shown = Shown()
    progress = Progress(shown)
    for number in range(1000):
        progress.reads(job_state(f"/b/0.{number}"), "s", "/a/0", "/a/out", None)
        await asyncio.sleep(0)
    await shown.next()
    progress.waits(job_state("/c/0"), "cores")
    record = await shown.next()
    assert len(record.streams) + record.more == 1000
    assert len(record.streams) == 200
    moments = [record.time for record in shown.records]
    assert all(later - earlier > 0.4 for earlier, later in itertools.pairwise(moments))
    progress.close()
