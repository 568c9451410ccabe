"""Processes are waited for without threads, and without their children."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import threading
import warnings
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress

import pytest
import uvloop

from streamflow_io import processes
from streamflow_io.processes import (
    end_process,
    kill_process,
    mend_interrupted_starts,
    start_process,
    watch_children_without_threads,
)


@pytest.fixture(autouse=True)
def _watcher_is_put_back() -> Iterator[None]:
    if sys.version_info >= (3, 12):
        yield
        return
    watcher = asyncio.get_child_watcher()
    yield
    asyncio.set_child_watcher(watcher)


async def test_no_thread_waits_for_a_process() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        watch_children_without_threads()
    process = await asyncio.create_subprocess_exec("sh", "-c", "read x; exit 3", stdin=asyncio.subprocess.PIPE)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("waitpid")]
    await process.communicate(b"\n")
    assert process.returncode == 3


async def test_a_process_that_runs_already_is_not_forgotten() -> None:
    watch_children_without_threads()
    process = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        watch_children_without_threads()
    await asyncio.wait_for(process.communicate(b""), 10)
    assert process.returncode == 0


@asynccontextmanager
async def holding(
    script: str, stdin: int | None = None, stderr: int | None = None, limit: int = 2**16
) -> AsyncIterator[Process]:
    """A process whose child holds its pipes: the first line of its output is the number of the child."""
    process = await start_process(["sh", "-c", script], stdin, PIPE, stderr, limit=limit)
    assert process.stdout is not None
    child = int(await process.stdout.readline())
    try:
        yield process
    finally:
        os.kill(child, signal.SIGKILL)


async def test_the_output_of_a_process_ends_though_its_child_holds_it() -> None:
    async with holding("sleep 600 & echo $!; echo printed; echo failed >&2; exit 3", stderr=PIPE) as process:
        assert await asyncio.wait_for(process.communicate(), 30) == (b"printed\n", b"failed\n")
        assert process.returncode == 3


async def _drain_until_closed(pipe: asyncio.StreamWriter) -> None:
    """Wait for an error of a pipe."""
    while True:
        await pipe.drain()
        await asyncio.sleep(0)


async def test_a_process_has_ended_though_its_child_holds_its_pipes() -> None:
    async with holding("sleep 600 <&0 & echo $!; wait", stdin=PIPE) as process:
        assert process.stdin is not None
        # More than the pipe takes.
        process.stdin.write(bytes(2**20))
        process.kill()
        assert await asyncio.wait_for(process.wait(), 30) == -signal.SIGKILL
        # The loop closes the pipe in one of its next turns.
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(_drain_until_closed(process.stdin), 30)
        # Python 3.11.2 logs the error of this pipe if the error is not asked for.
        with suppress(BrokenPipeError):
            await asyncio.wait_for(process.stdin.wait_closed(), 30)


async def test_a_slow_reader_gets_all_that_a_process_has_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer of the event loop is full. The rest is still in the pipe when the process has ended."""
    monkeypatch.setattr(processes, "_PIPES_SECONDS", 0.01)
    script = 'sleep 600 & printf "%s\\n%0200d" $! 0; read -r line; exec head -c 65536 /dev/zero'
    async with holding(script, stdin=PIPE, limit=64) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        await asyncio.wait_for(process.wait(), 30)
        # The pipes of the process are looked at several times.
        await asyncio.sleep(0.05)
        assert len(await asyncio.wait_for(process.stdout.read(), 30)) == 200 + 65536


async def test_the_end_of_a_process_whose_output_nobody_reads() -> None:
    async with holding("sleep 600 & echo $!; exec cat /dev/zero") as process:
        await asyncio.wait_for(end_process(process), 30)
        assert process.returncode == -signal.SIGTERM
        assert process.stdout is not None
        while await process.stdout.read(2**16):
            pass


async def test_a_process_that_does_not_want_to_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_END_SECONDS", 0.05)
    async with holding("trap '' TERM; sleep 600 & echo $!; wait") as process:
        await asyncio.wait_for(end_process(process), 30)
        assert await process.wait() == -signal.SIGKILL


async def test_a_process_may_end_of_itself_first() -> None:
    process = await start_process(["sh", "-c", "read -r line; exit 3"], PIPE)
    assert process.stdin is not None
    process.stdin.close()
    await end_process(process, 60)
    assert process.returncode == 3


async def test_a_process_that_a_device_holds_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(processes, "_END_SECONDS", 0.05)
    process = await start_process(["sleep", "600"])
    with monkeypatch.context() as patched:
        patched.setattr(process, "kill", lambda: None)
        await asyncio.wait_for(kill_process(process), 30)
    assert caplog.messages == [
        f"Process {process.pid} was killed and does not end: a file system or a device of this machine does not "
        f"answer. `ps -fp {process.pid}` shows the process"
    ]
    await kill_process(process)
    assert await process.wait() == -signal.SIGKILL


async def test_pipes_are_closed_when_no_other_process_holds_them() -> None:
    process = await start_process(["cat"], PIPE, PIPE)
    process.kill()
    assert await process.wait() == -signal.SIGKILL
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdin.is_closing()
    assert await asyncio.wait_for(process.stdout.read(), 30) == b""


async def test_a_process_of_another_loop_while_this_one_is_blocked() -> None:
    watch_children_without_threads()

    async def run() -> int:
        process = await asyncio.create_subprocess_exec("sh", "-c", "exit 4")
        return await asyncio.wait_for(process.wait(), 10)

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(asyncio.run, run()).result() == 4
    assert await run() == 4


class _PolicyOfAnotherLoop(asyncio.events.BaseDefaultEventLoopPolicy):
    """Has no watcher of child processes, as uvloop's policy."""


def test_another_event_loop_keeps_its_own_way() -> None:
    policy = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(_PolicyOfAnotherLoop())
    try:
        watch_children_without_threads()
    finally:
        asyncio.set_event_loop_policy(policy)


@pytest.mark.parametrize(
    "test",
    [
        test_the_output_of_a_process_ends_though_its_child_holds_it,
        test_a_process_has_ended_though_its_child_holds_its_pipes,
        test_a_slow_reader_gets_all_that_a_process_has_printed,
        test_the_end_of_a_process_whose_output_nobody_reads,
        test_a_process_that_does_not_want_to_end_is_killed,
        test_pipes_are_closed_when_no_other_process_holds_them,
    ],
)
def test_the_same_with_uvloop(test: Callable[..., Coroutine[None, None, None]], request: pytest.FixtureRequest) -> None:
    fixtures = {name: request.getfixturevalue(name) for name in inspect.signature(test).parameters}
    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(test(**fixtures))
    finally:
        loop.close()


async def test_the_start_of_a_process_ends_when_all_tasks_are_cancelled() -> None:
    mend_interrupted_starts()
    starting = asyncio.ensure_future(asyncio.create_subprocess_exec("sleep", "300", stdout=asyncio.subprocess.PIPE))
    connecting: list[asyncio.Task[object]] = []
    for _ in range(1000):
        await asyncio.sleep(0)
        if connecting := [task for task in asyncio.all_tasks() if "_connect_pipes" in repr(task)]:
            break
    assert connecting
    for task in (starting, *connecting):
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(starting, 20)
