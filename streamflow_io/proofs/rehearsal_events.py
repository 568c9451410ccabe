"""What a node runtime tells of a rehearsal while it runs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from streamflow_io.runtime.node_runtime import NodeJob
from streamflow_io.runtime.protocol import AskedEvent, Event, ExitEvent, HeldEvent, StreamEvent, WarningEvent
from streamflow_io.runtime.wire import cpu_of, is_from_outside, is_without_gate, is_without_mounts

from .rehearsal_rules import GIVEN_UP, Ran, is_worthless


@dataclass
class Seen:
    """What was told of a job with streams, by their names.

    :ivar size: bytes of the one file that it reads as a stream; None: it reads none, or more
    :ivar files: how many it reads as streams, by the names 0, 1, ...
    :ivar is_decided: how it ends says nothing more
    :ivar is_elsewhere: directories are not where the job has them
    :ivar no_gate: why it is not told what the program does; None: it is
    """

    size: int | None
    files: int = 1
    is_decided: asyncio.Event = field(default_factory=asyncio.Event)
    is_elsewhere: bool = False
    no_gate: str | None = None
    _asked: bool = False
    _streams: dict[str, StreamEvent] = field(default_factory=dict)
    _held: dict[str, HeldEvent] = field(default_factory=dict)

    async def follow(self, node_job: NodeJob) -> None:
        """Take what is told, to the end of the job."""
        async for event in node_job.events():
            self._take(event)
            if self.no_gate is None and self.size is not None and is_worthless(self._held_at, self._asked, self.size):
                self.is_decided.set()

    def _take(self, event: Event) -> None:
        if isinstance(event, StreamEvent):
            self._streams[event.name] = event
        elif isinstance(event, HeldEvent):
            self._held[event.name] = event
        elif isinstance(event, AskedEvent) or (isinstance(event, WarningEvent) and event.input is not None):
            self._asked = True
        elif isinstance(event, WarningEvent) and is_without_gate(event):
            self.no_gate = event.message
        elif isinstance(event, WarningEvent) and is_without_mounts(event):
            self.is_elsewhere = True

    @property
    def _held_at(self) -> int | None:
        """After how many bytes it has waited for a whole file; None: it has not."""
        read = {name: event.bytes for name, event in (self._streams | self._held).items()}
        return sum(read.values()) if self._held else None

    @property
    def _read(self) -> tuple[int, ...]:
        streams = (self._streams.get(str(number)) for number in range(self.files))
        return tuple(0 if stream is None else stream.bytes for stream in streams)

    def ran(self, exit_event: ExitEvent, succeeded: bool, said: str, difference: str | None = None) -> Ran:
        """How it went that has ended."""
        return Ran(
            succeeded,
            exit_event.reason,
            said,
            self._read,
            self._held_at,
            self._call,
            self._asked,
            difference,
            is_from_outside(exit_event),
            cpu_of(exit_event.usage),
        )

    def given_up(self) -> Ran:
        """How it went whose end is not waited for."""
        return Ran(False, GIVEN_UP, held_at=self._held_at, call=self._call, asked=self._asked)

    @property
    def _call(self) -> str:
        return next((event.call for event in self._held.values()), "")
