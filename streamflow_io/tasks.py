"""Tasks of asyncio that are cancelled, and looks at files in a thread, because a file system may not answer."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

_T = TypeVar("_T")
_Calls = SimpleQueue[Callable[[], None] | None]


class FileThread:
    """Runs calls one after the other in a thread that no end of the driver waits for.

    A call that does not end in time is left alone. The next calls get another thread.
    """

    def __init__(self) -> None:
        self._calls: _Calls | None = None

    async def run(self, call: Callable[[], _T], seconds: float) -> _T:
        """Run a call, and return what it returns or raise what it raises.

        :raises TimeoutError: if it does not end within this time
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[_T] = loop.create_future()
        if (calls := self._calls) is None:
            calls = self._calls = SimpleQueue()
            threading.Thread(target=_run, args=(calls,), daemon=True).start()
        calls.put(lambda: _tell(call, ended, loop))
        try:
            return await asyncio.wait_for(ended, seconds)
        except asyncio.TimeoutError:
            if self._calls is calls:
                self._calls = None
                calls.put(None)
            raise TimeoutError(errno.ETIMEDOUT, f"a file system has not answered within {seconds:g} s") from None


def _run(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        call()


def _tell(call: Callable[[], _T], ended: asyncio.Future[_T], loop: asyncio.AbstractEventLoop) -> None:
    """Run a call that is still waited for."""

    def settle() -> None:
        if not ended.done():
            if error is None:
                ended.set_result(result)
            else:
                ended.set_exception(error)

    error: Exception | None = None
    if ended.done():
        return
    try:
        result = call()
    except Exception as raised:
        error = raised
    with suppress(RuntimeError):  # The event loop may be closed.
        loop.call_soon_threadsafe(settle)


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
