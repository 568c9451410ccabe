"""The event loop waits for processes without a thread for each."""

from __future__ import annotations

import asyncio
import sys
import threading
import warnings
from collections.abc import Iterator

import pytest

from streamflow_io.run.child_watcher import watch_children_without_threads


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
