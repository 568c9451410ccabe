"""Files that two nodes of an allocation both see, at the same path."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import posixpath
import shlex
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

from msgspec import Struct
from streamflow.core.exception import WorkflowExecutionException

from .commands import said

logger = logging.getLogger("streamflow")

#: Runs a script of the POSIX shell on a node; the empty name is the driver's. Returns its output and its exit code.
Run = Callable[[str, str], Awaitable[tuple[str, int]]]

#: The name of the driver's node.
DRIVER = ""
_STAT = ("stat", "-L", "-c", "%d %i %s %.9Y %.9Z", "--")
_NANOSECONDS = 10**9
_LOOK_SECONDS = 60.0
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


class _File(Struct, frozen=True):
    """A file as a node sees it.

    :ivar device: the number of its file system on this node
    :ivar rest: inode, size, and the times of the last change of its content and of its attributes
    """

    device: str
    rest: str


class SeenFiles:
    """Finds out whether two nodes see the same file at a path. No configuration is believed.

    The file has to have the same inode, size and times on both nodes. In addition, one node makes a directory with a
    random name beside the file, and the other node has to see the directory. The answer then holds for all files on
    this pair of file systems. Where no directory can be made, as beside a file of another user, the times decide.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._thread = FileThread()
        # By the names of both nodes, and the numbers of their file systems. None: no directory can be made there.
        self._proven: dict[tuple[str, str, str, str], asyncio.Task[bool | None]] = {}

    async def is_same(self, path: str, one: str, other: str) -> bool:
        """Whether two nodes see the same file, or directory, at a path."""
        if one == other:
            return True
        here, there = await asyncio.gather(self._look(path, one), self._look(path, other))
        if here is None or there is None or here.rest != there.rest:
            return False
        key = one, other, here.device, there.device
        if key not in self._proven:
            self._proven[key] = asyncio.create_task(self._prove(posixpath.dirname(path), one, other))
        proven = await asyncio.shield(self._proven[key])
        if proven is None:
            # Elsewhere on the same file system, a directory may be made.
            self._proven.pop(key, None)
        return proven is not False

    async def _look(self, path: str, node: str) -> _File | None:
        if node == DRIVER:
            try:
                return await self._thread.run(lambda: _look_here(path), _LOOK_SECONDS)
            except TimeoutError:
                logger.warning(f"The file system of {path} has not answered the driver within {_LOOK_SECONDS:.0f} s")
                return None
        printed, code = await self._run(node, f"{shlex.join([*_STAT, path])} 2>/dev/null")
        device, _, rest = printed.strip().partition(" ")
        return _File(device, rest) if code == 0 else None

    async def _prove(self, directory: str, one: str, other: str) -> bool | None:
        """Whether a node sees what another makes in a directory; None: nothing can be made there."""
        probe = posixpath.join(directory, f".sfio-{os.urandom(8).hex()}")
        if not await self._does(one, f"mkdir {shlex.quote(probe)} 2>/dev/null"):
            return None
        try:
            return await self._does(other, f"test -d {shlex.quote(probe)}")
        finally:
            await self._does(one, f"rmdir {shlex.quote(probe)}")

    async def _does(self, node: str, script: str) -> bool:
        """Whether a command succeeds."""
        if node != DRIVER:
            return (await self._run(node, script))[1] == 0
        try:
            await said(["sh", "-c", script])
        except WorkflowExecutionException:
            return False
        return True


def _look_here(path: str) -> _File | None:
    with suppress(OSError):
        status = os.stat(path)
        times = (f"{at // _NANOSECONDS}.{at % _NANOSECONDS:09d}" for at in (status.st_mtime_ns, status.st_ctime_ns))
        return _File(str(status.st_dev), " ".join([str(status.st_ino), str(status.st_size), *times]))
    return None
