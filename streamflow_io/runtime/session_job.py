"""A read session on the driver's node, as the driver sees it: orders in, events out."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from streamflow_io.sessions.extents import Span

from .node_runtime import NodeJob, NodeRuntimeError
from .protocol import SessionSpec


class SessionJob(NodeJob):
    """`sfio-node read`, which brings chunks of a file into the page cache; `serve` starts it.

    All orders are a line each in a file of this machine: they take microseconds, and nobody waits for an answer.
    """

    def begin(self, spec: SessionSpec) -> None:
        """Have it started.

        :raises NodeRuntimeError: if its directory cannot be written
        """
        self._launched = True
        try:
            new = Path(self.directory, "session.new")
            new.write_text(spec.text())
            os.rename(new, self.directory / "session.json")
        except OSError as error:
            raise NodeRuntimeError(f"session.json cannot be written: {error}") from error

    def read(self, chunk: int, spans: Sequence[Span]) -> None:
        """Bring a chunk into the page cache; a :class:`~.protocol.ChunkEvent` says when it is there.

        :raises NodeRuntimeError: as all orders, if it cannot be told
        """
        self._order(read=[chunk, _extents(spans)])

    def drop(self, spans: Sequence[Span]) -> None:
        """Give what it has brought of these back to the kernel."""
        self._order(drop=_extents(spans))

    def watch(self, spans: Sequence[Span]) -> None:
        """Say when something of these does not stay; of no others."""
        self._order(watch=_extents(spans))

    def end(self) -> None:
        """Read nothing more, and exit when what is being read has come."""
        self._order(end=True)

    def _order(self, **line: object) -> None:
        text = json.dumps(line, separators=(",", ":")) + "\n"
        try:
            with open(self.directory / "control.jsonl", "a") as control:
                control.write(text)
        except OSError as error:
            raise NodeRuntimeError(f"control.jsonl cannot be written: {error}") from error


def _extents(spans: Sequence[Span]) -> list[tuple[int, int]]:
    """As `sfio-node` has them: offset and length."""
    return [(begin, end - begin) for begin, end in spans]
