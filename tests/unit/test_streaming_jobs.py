"""Waits for a job that others read from."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import PurePosixPath

import pytest
from streamflow.core.workflow import Token

from lab.fakes import commit
from streamflow_io.adapters.attempts import Attempt, StreamingJobs


def attempt() -> Attempt:
    jobs = StreamingJobs()

    async def collect(port: str, path: str) -> Token:
        raise NotImplementedError

    return jobs.open("/producer/0", collect).begin(PurePosixPath("/scratch/producer/0"))


async def waiting(attempt: Attempt, port: str, path: str) -> asyncio.Task[bool]:
    task = asyncio.create_task(attempt.settled(port, path))
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_a_commit_settles_its_file_alone() -> None:
    producer = attempt()
    first, second = await waiting(producer, "out", "1"), await waiting(producer, "out", "2")
    commit(producer, "out", "1")
    assert await first
    assert not second.done()
    commit(producer, "out", "2")
    assert await second
    assert await producer.settled("out", "1")


async def test_a_port_settles_all_its_files() -> None:
    producer = attempt()
    files = [await waiting(producer, "out", path) for path in "123"]
    other = await waiting(producer, "log", "1")
    commit(producer, "out")
    assert all(await asyncio.gather(*files))
    assert not other.done()
    producer.end(False)
    assert not await other


@pytest.mark.parametrize("succeeded", [True, False])
async def test_the_end_settles_all(succeeded: bool) -> None:
    producer = attempt()
    tasks = [await waiting(producer, port, "1") for port in ("a", "b")]
    producer.end(succeeded)
    assert await asyncio.gather(*tasks) == [succeeded] * 2


async def test_who_gives_up_does_not_take_others_along() -> None:
    producer = attempt()
    first, second = await waiting(producer, "out", "1"), await waiting(producer, "out", "1")
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    commit(producer, "out", "1")
    assert await second


async def test_a_job_that_others_may_read_holds_little_memory() -> None:
    jobs = StreamingJobs()

    async def collect(port: str, path: str) -> Token:
        raise NotImplementedError

    gc.collect()
    tracemalloc.start()
    try:
        for number in range(200):
            job = jobs.open(f"/producer/0.{number}", collect)
            job.begin(PurePosixPath("/scratch/producer/0")).end(True)
            jobs.close(job, may_be_read=True)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / 200 < 2000
