"""A job says when it needs no more of a window, or needs the file once more."""

from __future__ import annotations

import asyncio
from pathlib import PurePosixPath

from streamflow_io.adapters.attempts import Attempt, ReadWindows


def attempt(*windows: str) -> Attempt:
    return Attempt(PurePosixPath("/out"), windows=frozenset(windows))


async def test_a_producer_waits_until_its_window_is_read() -> None:
    producer, windows = attempt("out"), ReadWindows("/r/0")
    windows.begin([producer])
    assert windows
    reading = asyncio.create_task(producer.has_been_read())
    await asyncio.sleep(0)
    assert not reading.done()
    windows.end()
    assert await reading


async def test_a_reader_that_begins_again_has_its_producer_begin_again() -> None:
    producer, windows = attempt("out"), ReadWindows("/r/0")
    windows.begin([producer])
    again = asyncio.create_task(windows.read_again())
    assert not await producer.has_been_read()
    assert not again.done()
    producer.end(False)
    await again
    assert not windows


async def test_a_reader_knows_that_its_producer_waits_for_it() -> None:
    producer, windows = attempt("out"), ReadWindows("/r/0")
    windows.begin([producer])
    asking = {name: asyncio.create_task(producer.has_succeeded(name)) for name in ("/r/0", "/other/0")}
    ending = asyncio.create_task(producer.has_been_read())
    assert not await asking["/r/0"]
    assert not asking["/other/0"].done()
    windows.end()
    assert await ending
    producer.end(True)
    assert await asking["/other/0"]
