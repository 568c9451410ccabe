"""Tasks of asyncio that are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

_Result = TypeVar("_Result")


async def to_the_end(work: Coroutine[object, object, _Result]) -> _Result:
    """Do something to its end, also when the task that does it is cancelled meanwhile; then it ends afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            # No other task asks for the exception.
            task.exception()
        raise


async def end(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks, and wait until they have ended.

    :raises Exception: what one of them had failed with
    """
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
