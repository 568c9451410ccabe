"""The event loop waits for processes without a thread for each."""

from __future__ import annotations

import asyncio
import sys
import threading
import warnings
from collections.abc import Iterator

import pytest

from streamflow_io.runtime.child_watcher import watch_children_without_threads
from streamflow_io.runtime.conversation import ProcessConversation


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


async def test_a_process_that_is_waited_for_is_not_forgotten() -> None:
    """A node runtime that starts later asks for the same."""
    watch_children_without_threads()
    process = await asyncio.create_subprocess_exec("sh", "-c", "read x; exit 3", stdin=asyncio.subprocess.PIPE)
    serve = await ProcessConversation.start(["cat"])
    await serve.close(60)
    await asyncio.wait_for(process.communicate(b"\n"), 60)
    assert process.returncode == 3
