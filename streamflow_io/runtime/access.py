"""The driver's access to other locations: small commands, files, and a program that the driver talks with.

Everything goes through StreamFlow's connectors, so that it is the same over SSH, on login nodes and in containers.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import PurePath, PurePosixPath
from typing import TYPE_CHECKING

from streamflow_io._streamflow import abandon, container_command, own_hosts, own_shell

from .conversation import Conversation, ProcessConversation, ShellConversation
from .node_commands import NodeRuntimeError

if TYPE_CHECKING:
    from streamflow.core.data import StreamWrapper
    from streamflow.core.deployment import Connector, ExecutionLocation

#: Seconds. Other work of StreamFlow at the location, as copying large files, may come first.
SECONDS = 600.0
_WRITE_SECONDS = 60.0
_SLOWEST = 50_000  # bytes per second that a connection carries at least
# Waits until the file has all its bytes: that a writer has ended is not told by all connectors, nor how.
# The node runtime removes the directory when the run ends.
_FINISH = (
    'i=0; until test "$(wc -c < {part})" -eq {size}; do i=$((i+1)); '
    "test $i -lt 100 && test -d {directory} || {{ rm -f {part}; exit 1; }}; "
    "sleep 0.1 || sleep 1; done 2>/dev/null; {finish}mv -f {part} {path}"
)
# Moves the first bytes to a file of their own.
_SPLIT = (
    "umask 077 && head -c {size} {part} > {path} && tail -c +$(({size} + 1)) {part} > {part}.rest && "
    "mv -f {part}.rest {part} && "
)
_LACK = (
    "rm -f {part}; free=$(df -Pk {directory} | awk 'END {{ print $4 }}'); "
    'if test "$free" -lt {size}; then echo "only $free KiB are free there"; fi 2>/dev/null'
)


class Access:
    """A location, as far as its connector gives access.

    :param name: None: the name of the location is used
    :param verbatim: whether the connector passes the words of a command on unchanged; others let a shell read them
    """

    def __init__(
        self, connector: Connector, location: ExecutionLocation, verbatim: bool = False, name: str | None = None
    ) -> None:
        self.name = name or str(location)
        self._connector = connector
        self._location = location
        self._verbatim = verbatim
        self._running: set[asyncio.Task[tuple[str, int] | None]] = set()

    async def run(self, script: str, seconds: float = SECONDS) -> tuple[str, int]:
        """Run a script of the POSIX shell.

        :return: its output, and its exit code
        :raises NodeRuntimeError: if the script cannot be run, or takes longer
        """
        command = ["sh", "-c", shlex.quote(script)]
        task = asyncio.ensure_future(self._connector.run(self._location, command, capture_output=True))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        # Never cancelled: the rest of its output would be taken for that of StreamFlow's next command there.
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            task.add_done_callback(_forget)
            raise NodeRuntimeError(f"{self.name} does not answer within {seconds:.0f} s")
        try:
            result: tuple[str, int] | None = task.result()
        except Exception as error:  # each connector raises errors of its own
            raise NodeRuntimeError(f"{self.name}: {str(error) or type(error).__name__}") from error
        assert result is not None
        return result

    async def call(self, words: Sequence[str], seconds: float) -> tuple[str, int]:
        """Run a program; see :meth:`run`."""
        said, code = await self.run(f"{shlex.join(words)} 2>&1", seconds)
        return said.strip(), code

    async def has_file(self, path: PurePosixPath, directory: PurePath, otherwise: str) -> bool:
        """Whether a file exists.

        :raises NodeRuntimeError: with the message `otherwise`, if `directory` is gone, so that this cannot be found out
        """
        # The directory is listed, because a network file system may remember for a while that a file was missing.
        listed = f"ls {shlex.quote(str(path.parent))} 2>/dev/null | grep -qx {shlex.quote(path.name)}"
        _, code = await self.run(f"{listed} && exit 0; test -d {shlex.quote(str(directory))} && exit 3; exit 4")
        if code not in (0, 3):
            raise NodeRuntimeError(otherwise)
        return code == 0

    async def converse(self) -> Conversation:
        """Start a shell for a conversation.

        A program that takes the place of the shell gets only lines that are sent after its first output. The shell may
        take earlier ones.

        :raises NodeRuntimeError: if the shell cannot be started
        """
        try:
            wraps = self._location.wraps
            is_near = wraps is not None and wraps.local
            words = container_command(self._connector, self._location, ["sh"]) if is_near else None
            if words is not None:
                return await ProcessConversation.start(words)
            return ShellConversation(*await own_shell(self._connector, self._location, os.urandom(8).hex()))
        except Exception as error:
            raise NodeRuntimeError(f"{self.name}: {str(error) or type(error).__name__}") from error

    async def write(
        self,
        path: PurePosixPath,
        data: bytes,
        executable: bool = False,
        parent: int | None = None,
        before: tuple[PurePosixPath, bytes] | None = None,
    ) -> None:
        """Write a file, for its owner alone. The file appears with all its content, or not at all.

        The content is on no command line.

        :param executable: whether all users may read and run the file
        :param parent: the mode with which its directory is made; None: the directory exists
        :param before: another file with its content, in the same directory, which is there before; None: no such file
        :raises NodeRuntimeError: if the file cannot be written
        """
        target, part = shlex.quote(str(path)), shlex.quote(f"{path}.part")
        data = data if before is None else before[1] + data
        directory = shlex.quote(str(path.parent))
        make = "" if parent is None else f"mkdir -m {parent:o} {directory}; "
        try:
            await self.pour(f"umask 077; {make}cat > {part}", data)
        except NodeRuntimeError as error:
            # A connector may not hand on what the program has said.
            said, _ = await self.run(_LACK.format(part=part, directory=directory, size=-(-len(data) // 1024)))
            raise NodeRuntimeError(f"{path} cannot be written: {error}{said and f', and {said}'}") from error
        finish = f"chmod 755 {part} && " if executable else ""
        if before is not None:
            finish += _SPLIT.format(part=part, path=shlex.quote(str(before[0])), size=len(before[1]))
        script = _FINISH.format(part=part, path=target, directory=directory, size=len(data), finish=finish)
        said, code = await self.run(script)
        if code != 0:
            raise NodeRuntimeError(f"{path} cannot be written: {self.name}: {said or 'it does not come'}")

    async def pour(self, script: str, data: bytes) -> None:
        """Run a script with a standard input, beside all other commands there. Its exit code is not known.

        If jobs have taken all sessions, it waits, as StreamFlow does, until one is free.

        :raises NodeRuntimeError: if the script cannot be run, or not in time
        """
        try:
            manager = await self._connector.get_stream_writer(self._words(script), self._location)
            stack = AsyncExitStack()
            stream = await stack.enter_async_context(manager)
            try:
                await asyncio.wait_for(self._send(stream, data), _WRITE_SECONDS + len(data) / _SLOWEST)
            finally:
                await asyncio.wait_for(stack.aclose(), _WRITE_SECONDS)
        except Exception as error:
            raise NodeRuntimeError(f"{self.name}: {str(error) or type(error).__name__}") from error

    def drop(self) -> None:
        """Count a location of the plugin's connectors as lost, if it does not answer. Does nothing to other locations.

        Connections to SSH hosts stay: jobs may have taken all sessions, and go on.
        """
        if (hosts := own_hosts(self._connector)) is not None:
            hosts.drop(self._location)

    def leave(self, reason: str) -> None:
        """Let no more jobs start at a location of the plugin's connectors, where the node runtime has ended."""
        if (hosts := own_hosts(self._connector)) is not None:
            hosts.leave(self._location, reason)

    def abandon(self) -> None:
        """Drop the connections to a location that does not answer: nothing waits for them any more."""
        abandon(self._connector, self._location)

    async def _send(self, stream: StreamWrapper, data: bytes) -> None:
        for begin in range(0, len(data), self._connector.transferBufferSize):
            await stream.write(data[begin : begin + self._connector.transferBufferSize])

    def _words(self, script: str) -> list[str]:
        return ["sh", "-c", script if self._verbatim else shlex.quote(script)]


def _forget(task: asyncio.Task[tuple[str, int] | None]) -> None:
    if not task.cancelled():
        task.exception()
