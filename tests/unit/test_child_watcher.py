"""The event loop waits for processes without a thread for each."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamflow_io.runtime.child_watcher import exit_code_of, watch_children_without_threads


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


async def test_a_process_has_ended_though_its_child_holds_its_pipes() -> None:
    watch_children_without_threads()
    pipe = asyncio.subprocess.PIPE
    words = ["sh", "-c", "sleep 100 & echo $!; wait"]
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    child = int(await process.stdout.readline())
    try:
        process.kill()
        assert await asyncio.wait_for(exit_code_of(process), 30) == -signal.SIGKILL
    finally:
        os.kill(child, signal.SIGKILL)
    await process.stdout.read()
    # The loop closes the pipe after its end was read.
    await asyncio.sleep(0)


async def test_pipes_are_closed_when_no_other_process_holds_them() -> None:
    watch_children_without_threads()
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec("cat", stdin=pipe, stdout=pipe)
    process.kill()
    assert await exit_code_of(process) == -signal.SIGKILL
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdin.is_closing()
    assert await asyncio.wait_for(process.stdout.read(), 30) == b""


async def test_a_child_that_holds_the_input_only_is_not_waited_for() -> None:
    """All is closed then: nothing is left for the end of the event loop."""
    watch_children_without_threads()
    reading, writing = os.pipe()
    words = ["sh", "-c", "sleep 600 <&0 >/dev/null & echo $!; wait"]
    process = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.PIPE, stdout=writing)
    os.close(writing)
    child = int(await asyncio.to_thread(os.read, reading, 100))
    os.close(reading)
    try:
        process.kill()
        assert await exit_code_of(process) == -signal.SIGKILL
        assert await asyncio.wait_for(process.wait(), 30) == -signal.SIGKILL
    finally:
        os.kill(child, signal.SIGKILL)


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
