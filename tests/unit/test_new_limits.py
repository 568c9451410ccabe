"""Limits of a job that change: what it is told of them, and when."""

from __future__ import annotations

import asyncio

import pytest

from streamflow_io.runtime import JobSpec, NodeJob, NodeRuntimeError, new_limits
from streamflow_io.runtime.protocol import EVENT, MovedEvent
from tests.streaming_fakes import FakeRuntime, until


class Slow(FakeRuntime):
    """Each telling takes until it is let go on."""

    def __init__(self) -> None:
        super().__init__("h")
        self.gate = asyncio.Semaphore(0)
        self.failures = 0

    async def write_limits(self, job: NodeJob, text: str) -> None:
        await self.gate.acquire()
        if self.failures > 0:
            self.failures -= 1
            raise NodeRuntimeError("no space")
        await super().write_limits(job, text)


async def launched(runtime: FakeRuntime) -> NodeJob:
    job = await runtime.create_job("/a/0")
    await job.wrap(JobSpec(name="/a/0"))
    return job


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_what_counts_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = FakeRuntime("h")
    job = await runtime.create_job("/a/0")
    job.limit(5.4e6)
    job.limit(0.2)
    job.limit(None, "frames")
    await settle()
    assert runtime.limits == []
    await job.wrap(JobSpec(name="/a/0"))
    await settle()
    job.limit(None)
    await settle()
    job.limit(float("inf"), "other")
    await settle()
    assert [limits for _, limits in runtime.limits] == [
        {"rate": 1, "inputs": {"frames": None}},
        {"rate": None, "inputs": {"frames": None}},
        {"rate": None, "inputs": {"frames": None, "other": None}},
    ]


async def test_what_it_was_meanwhile_is_not_told() -> None:
    runtime = Slow()
    job = await launched(runtime)
    for rate in (1, 2, 3, 4):
        job.limit(rate)
        await settle()
    runtime.gate.release()
    runtime.gate.release()
    await until(lambda: len(runtime.limits) == 2)
    await settle()
    assert [limits["rate"] for _, limits in runtime.limits] == [1, 4]


async def test_elsewhere_it_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeRuntime, "limit_seconds", 0.2)
    runtime, loop = FakeRuntime("h"), asyncio.get_running_loop()
    job = await launched(runtime)
    begun, count = loop.time(), 0
    while loop.time() < begun + 0.5:
        count += 1
        job.limit(count)
        await asyncio.sleep(0.005)
    await until(lambda: runtime.limits[-1][1]["rate"] == count)
    assert 3 <= len(runtime.limits) <= 4


async def test_what_cannot_be_told_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_limits, "_RETRY_SECONDS", 0.01)
    runtime = Slow()
    runtime.failures = 2
    job = await launched(runtime)
    job.limit(7)
    for _ in range(3):
        runtime.gate.release()
    await until(lambda: runtime.limits)
    assert [limits["rate"] for _, limits in runtime.limits] == [7]


@pytest.mark.parametrize("ends", ["exit", "lose"])
async def test_a_job_that_has_ended_is_told_nothing(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeRuntime, "limit_seconds", 60.0)
    runtime = FakeRuntime("h")
    job = await launched(runtime)
    job.limit(7)
    await settle()
    job.limit(8)
    before = {task for task in asyncio.all_tasks() if "tell" in str(task)}
    assert before
    runtime.exit(job) if ends == "exit" else runtime.lose("gone")
    await asyncio.wait(before, timeout=5)
    job.limit(9)
    await settle()
    assert [limits["rate"] for _, limits in runtime.limits] == [7]
    assert not {task for task in asyncio.all_tasks() if "tell" in str(task)}


async def test_a_job_that_cannot_be_paused_is_told_of_its_streams_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeRuntime, "unlimited", "jobs in containers are not paused")
    runtime = FakeRuntime("h")
    job = await launched(runtime)
    job.limit(7)
    await settle()
    assert runtime.limits == []
    job.limit(8, "frames")
    await settle()
    assert [limits for _, limits in runtime.limits] == [{"inputs": {"frames": 8}}]


async def test_what_was_moved_is_handed_on() -> None:
    runtime = FakeRuntime("h")
    job = await launched(runtime)
    runtime.tell(job, "moved", bytes=12)
    runtime.exit(job)
    event, _ = [event async for event in job.events()]
    assert isinstance(event, MovedEvent)
    assert (event.bytes, EVENT.validate_python(event.model_dump())) == (12, event)
