"""Limits of a job that change: what it is told of them, and when."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lab.fakes import FakeRuntime, until
from lab.node import wait_for
from streamflow_io.runtime import node_runtime
from streamflow_io.runtime.embedded import EmbeddedRuntime
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeJob
from streamflow_io.runtime.protocol import ExitEvent, JobSpec, MovedEvent, RateLimit


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
    await settle()
    assert runtime.limits == []
    await job.wrap(JobSpec(name="/a/0"))
    await settle()
    job.limit(None)
    await settle()
    job.limit(7)
    await settle()
    job.limit(float("inf"))
    await settle()
    assert [limits for _, limits in runtime.limits] == [{"rate": 1}, {}, {"rate": 7}, {}]


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
    monkeypatch.setattr(node_runtime, "_RETRY_SECONDS", 0.01)
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


async def test_a_job_that_cannot_be_paused_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeRuntime, "unlimited", "jobs in containers are not paused")
    runtime = FakeRuntime("h")
    job = await launched(runtime)
    job.limit(7)
    await settle()
    assert runtime.limits == []


async def test_a_job_of_this_node(tmp_path: Path) -> None:
    """A limit pauses the job when it runs, and the job goes on when the limit is gone."""
    runtime = await EmbeddedRuntime.start(tmp_path)
    try:
        job = await runtime.create_job("/a/0")
        limit = RateLimit(direction="write", path=str(tmp_path), expected=30_000_000)
        words = await job.wrap(JobSpec(name="/a/0", limit=limit))
        script = (
            f"cd {tmp_path}; touch up; while ! test -e go; do sleep 0.01; done; head -c 30000000 /dev/zero > a; sleep 3"
        )
        process = await asyncio.create_subprocess_exec(*words, "sh", "-c", script)
        await asyncio.to_thread(wait_for, (tmp_path / "up").exists, "the job")
        job.limit(1e6)
        (tmp_path / "go").touch()
        await asyncio.sleep(1)
        job.limit(None)
        assert await process.wait() == 0
        events = [event async for event in job.events()]
    finally:
        await runtime.close()
    assert [event.bytes >= 3_000_000 for event in events if isinstance(event, MovedEvent)] == [True]
    [usage] = [event.usage for event in events if isinstance(event, ExitEvent)]
    assert usage.paused is not None
    assert usage.paused > 0.3


async def test_what_was_moved_is_handed_on() -> None:
    runtime = FakeRuntime("h")
    job = await launched(runtime)
    runtime.tell(job, "moved", bytes=12)
    runtime.exit(job)
    event, _ = [event async for event in job.events()]
    assert isinstance(event, MovedEvent)
    assert event.bytes == 12
