"""Files that two nodes of an allocation both see, at the same path."""

from __future__ import annotations

import asyncio
import logging
import os
import posixpath
import shlex
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any

from msgspec import Struct
from streamflow.core.exception import WorkflowExecutionException

from streamflow_io.tasks import FileThread

from .commands import said

logger = logging.getLogger("streamflow")

#: Runs a script of the POSIX shell on a node; the empty name is the driver's. Returns its output and its exit code.
Run = Callable[[str, str], Awaitable[tuple[str, int]]]

#: The name of the driver's node.
DRIVER = ""
_STAT = ("stat", "-L", "-c", "%d %i %s %.9Y %.9Z", "--")
_NANOSECONDS = 10**9
_LOOK_SECONDS = 60.0


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

    @property
    def proofs(self) -> Collection[asyncio.Future[Any]]:
        """The looks at what nodes share, which go on when their callers are cancelled, and remove what they make."""
        return self._proven.values()

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
