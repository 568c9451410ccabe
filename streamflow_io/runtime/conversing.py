"""A node runtime whose `serve` takes requests in lines on its standard input, and answers on its standard output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from pathlib import PurePath
from typing import Any, TypeVar

from .access import Access
from .conversation import LINE_LIMIT, MARK, Conversation, follow, ready
from .links import LinkedRuntime, Links
from .node_commands import NodeRuntimeError
from .node_runtime import NodeJob
from .protocol import MadeEvent, PrintedEvent, ReadyEvent, RefusedEvent, Request, ReturnedEvent
from .wire import parse_said, text_of

T = TypeVar("T")

_START_SECONDS = 30.0
_ALIVE_SECONDS = 15.0
#: `serve` says every 15 s that it is alive.
SILENCE_SECONDS = 60.0
#: `serve` ends when the driver has said nothing for this time: the connection may be gone without a word.
_PATIENCE_SECONDS = 60


class _StartedCommand:
    """A command that `serve` has started.

    :ivar printed: what it has printed so far
    """

    def __init__(self) -> None:
        self.printed = bytearray()
        self.code: asyncio.Future[int] = asyncio.get_running_loop().create_future()


class ConversingRuntime(LinkedRuntime):
    """`sfio-node serve` of a location to which the driver has a connection.

    `serve` ends when its input does, or brings nothing for a minute: the driver is gone, or the connection is.
    """

    def __init__(
        self, access: Access, binary: str, directory: PurePath, links: Links | None, conversation: Conversation
    ) -> None:
        super().__init__(access, binary, directory, links)
        self._conversation = conversation
        self._asked: dict[str, asyncio.Future[None]] = {}
        self._commands: dict[str, _StartedCommand] = {}
        self._sending = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None
        self._following = asyncio.create_task(follow(conversation, self, self.program, self.ended, SILENCE_SECONDS))
        self._reassuring = asyncio.create_task(self._reassure())

    async def write_spec(self, job: NodeJob, text: str) -> None:
        self.check()
        if job.identifier in self._asked:  # StreamFlow executes a job twice at the same time, now and then.
            raise NodeRuntimeError(f"{self.location}: {job.identifier} has been asked for")
        answer = self._asked[job.identifier] = asyncio.get_running_loop().create_future()
        try:
            await self._send(Request(job=job.identifier, spec=json.loads(text)))
            await answer
        finally:
            del self._asked[job.identifier]

    async def run_command(self, job: NodeJob, script: str) -> tuple[str, int]:
        self.check()
        command = self._commands[job.identifier] = _StartedCommand()
        try:
            await self._send(Request(run=job.identifier, command=script))
            code = await command.code
        finally:
            del self._commands[job.identifier]
        return command.printed.decode(errors="replace").strip(), code

    async def request_cancel(self, job: NodeJob) -> None:
        await self._send(Request(cancel=job.identifier))

    async def write_limits(self, job: NodeJob, text: str) -> None:
        await self._send(Request(limit=job.identifier, spec=json.loads(text)))

    @property
    def is_ending(self) -> bool:
        return self._closing is not None or super().is_ending

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    def receive(self, line: bytes) -> None:
        said = parse_said(line)
        if said is None:
            super().receive(line)
        elif isinstance(said, MadeEvent | RefusedEvent):
            self._answer(said)
        elif (command := self._commands.get(said.job)) is not None:
            _hear(command, said)

    def lose(self, reason: str) -> None:
        super().lose(reason)
        waiting: list[asyncio.Future[Any]] = [*self._asked.values()]
        waiting += (command.code for command in self._commands.values())
        for answer in waiting:
            if not answer.done():
                answer.set_exception(NodeRuntimeError(reason))

    @abstractmethod
    async def _remove(self, ended: bool) -> None:
        """Remove what `serve` has left.

        :param ended: `serve` has ended after its input had, and removes all itself
        """

    async def _close(self) -> None:
        for trying in self._tried.values():
            trying.cancel()
        self._ends = True
        self._reassuring.cancel()
        if self._clearing is not None:
            await self._clearing
        lost = self._following.done()
        await self._conversation.close(self.stop_seconds)
        await asyncio.wait({self._following}, timeout=self.stop_seconds)
        ended = self._following.done() and not lost
        self._following.cancel()
        self.lose(self.ended)
        await self._remove(ended)

    def _answer(self, said: MadeEvent | RefusedEvent) -> None:
        if (answer := self._asked.get(said.job)) is None or answer.done():
            return
        if isinstance(said, MadeEvent):
            answer.set_result(None)
        else:
            answer.set_exception(NodeRuntimeError(f"{self.location}: {said.message}"))

    async def _send(self, request: Request) -> None:
        line = text_of(request)
        if len(line) >= LINE_LIMIT:
            raise NodeRuntimeError(
                f"{self.location} cannot get the description of a job with too many inputs: {len(line):,} bytes"
            )
        try:
            # Python 3.10 lets only one wait at a time for a pipe that is full.
            async with self._sending:
                await self._conversation.send(line)
        except Exception as error:  # Each connector has its own.
            raise NodeRuntimeError(self._lost or f"{self.ended}: {error or type(error).__name__}") from error

    async def _reassure(self) -> None:
        """Say that the driver is there, because a connection may lose one end without a word."""
        with contextlib.suppress(NodeRuntimeError):
            while True:
                await asyncio.sleep(_ALIVE_SECONDS)
                await self._send(Request(alive=1))


def serve(binary: object, directory: object, options: Sequence[str]) -> str:
    """The script that starts `serve` in place of its shell."""
    words = [str(binary), "serve", "--directory", str(directory), "--patience", str(_PATIENCE_SECONDS), *options]
    return f"echo {MARK.decode()}; exec {shlex.join(words)} 2>&1"


async def begin(
    access: Access, delivering: Awaitable[T], script_of: Callable[[T], str], seconds: float
) -> tuple[T, Conversation, ReadyEvent]:
    """Deliver `sfio-node` and start `serve`.

    :param script_of: the script that starts what was delivered
    :param seconds: how long a `serve` that does not start is waited for
    :raises NodeRuntimeError: if it cannot be started, with one reason; nothing is left but the binary
    """
    # An engine takes long to start anything: what is needed is brought there meanwhile.
    opening = asyncio.create_task(access.converse())
    try:
        delivered = await delivering
        conversation = await opening
        with contextlib.suppress(Exception):  # What it has said tells more.
            await conversation.send(script_of(delivered))
        return delivered, conversation, await ready(conversation, f"{access.name}: sfio-node serve", _START_SECONDS)
    except BaseException:
        await asyncio.shield(_abandon(opening, seconds))
        raise


def _hear(command: _StartedCommand, said: PrintedEvent | ReturnedEvent) -> None:
    if isinstance(said, PrintedEvent):
        command.printed += said.text.encode(errors="surrogateescape")
    elif not command.code.done():
        command.code.set_result(said.code)


async def _abandon(opening: asyncio.Task[Conversation], seconds: float) -> None:
    """End a conversation that has brought nothing, even if it is still being opened."""
    await asyncio.wait({opening}, timeout=seconds)
    if opening.cancel() or opening.cancelled() or opening.exception() is not None:
        return
    conversation = opening.result()
    reading = asyncio.create_task(_read_all(conversation))
    await conversation.close(seconds)
    reading.cancel()


async def _read_all(conversation: Conversation) -> None:
    """Read to the end, without which a conversation does not see its end."""
    with contextlib.suppress(Exception):
        while await conversation.line() is not None:
            pass
