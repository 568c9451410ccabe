"""A read session as the driver sees it: orders in, events out."""

from __future__ import annotations

import asyncio
import os
import shlex
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from .access import Access
from .extents import Span
from .node_commands import NodeRuntimeError
from .node_runtime import NodeJob, NodeRuntime
from .protocol import SessionOrder, SessionSpec
from .values import Extent
from .wire import text_of

# The most bytes of orders that go at once; a longer order goes alone.
_AT_ONCE = 1 << 15


class SessionJob(NodeJob):
    """`sfio-node read`, which brings chunks of a file into the page cache; `serve` starts it.

    Each order is a line in a file at the location, and has no answer.
    """

    @abstractmethod
    async def begin(self, spec: SessionSpec) -> None:
        """Let `serve` start the session.

        :raises NodeRuntimeError: if its directory cannot be written
        """

    def read(self, chunk: int, spans: Sequence[Span]) -> None:
        """Bring a chunk into the page cache; a :class:`~.protocol.ChunkEvent` says when it is there.

        :raises NodeRuntimeError: for this and every other order, if it cannot be given
        """
        self._order(SessionOrder(read=(chunk, _extents(spans))))

    def drop(self, spans: Sequence[Span]) -> None:
        """Give the bytes in these spans that the session has brought back to the kernel."""
        self._order(SessionOrder(drop=_extents(spans)))

    def watch(self, spans: Sequence[Span]) -> None:
        """Report bytes in these spans that leave the page cache; no other spans are watched any more."""
        self._order(SessionOrder(watch=_extents(spans)))

    def end(self) -> None:
        """Read nothing more, and exit when the chunks that are being read have come."""
        self._order(SessionOrder(end=True))

    def _order(self, order: SessionOrder) -> None:
        self._send(text_of(order) + "\n")

    @abstractmethod
    def _send(self, line: str) -> None: ...


class LocalSessionJob(SessionJob):
    """A session on the driver's node. An order takes microseconds to write."""

    async def begin(self, spec: SessionSpec) -> None:
        self._launched = True
        try:
            await asyncio.to_thread(self._write, text_of(spec))
        except OSError as error:
            raise NodeRuntimeError(f"session.json cannot be written: {error}") from error

    def _write(self, text: str) -> None:
        new = Path(self.directory, "session.new")
        new.write_text(text)
        os.rename(new, self.directory / "session.json")

    def _send(self, line: str) -> None:
        try:
            with open(self.directory / "control.jsonl", "a") as control:
                control.write(line)
        except OSError as error:
            raise NodeRuntimeError(f"control.jsonl cannot be written: {error}") from error


class RemoteSessionJob(SessionJob):
    """A session elsewhere. Orders go one after the other; orders that come meanwhile go together.

    If an order cannot be given, the session is lost.
    """

    def __init__(self, runtime: NodeRuntime, identifier: str, access: Access) -> None:
        super().__init__(runtime, identifier)
        self._access = access
        self._lines: list[str] = []
        self._sending: asyncio.Task[None] | None = None

    async def begin(self, spec: SessionSpec) -> None:
        self._launched = True
        mode = 0o700 if self.runtime.place is None else 0o711
        await self._access.write(self.directory / "session.json", text_of(spec).encode(), parent=mode)

    def _send(self, line: str) -> None:
        self._lines.append(line)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        control = shlex.quote(str(self.directory / "control.jsonl"))
        try:
            while self._lines:
                text = self._lines.pop(0)
                while self._lines and len(text) + len(self._lines[0]) <= _AT_ONCE:
                    text += self._lines.pop(0)
                said, code = await self._access.run(f"printf %s {shlex.quote(text)} >> {control}")
                if code != 0 and not self.exit.done():
                    raise NodeRuntimeError(f"control.jsonl cannot be written: {said.strip()}")
        except NodeRuntimeError as error:
            self.lose(error)


def _extents(spans: Sequence[Span]) -> tuple[Extent, ...]:
    """The spans in the form of `sfio-node`: offset and length."""
    return tuple((begin, end - begin) for begin, end in spans)
