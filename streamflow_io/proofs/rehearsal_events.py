"""The events that a node runtime reports of a rehearsal while it runs."""

from __future__ import annotations

import asyncio

from msgspec import Struct, field

from streamflow_io.runtime.node_runtime import NodeJob
from streamflow_io.runtime.protocol import AskedEvent, Event, ExitEvent, HeldEvent, StreamEvent, WarningEvent
from streamflow_io.runtime.wire import cpu_of, is_from_outside, is_without_gate, is_without_mounts

from .rehearsal_rules import GIVEN_UP, Ran, is_worthless


class SeenEvents(Struct):
    """The events of a job with streams, by the names of the streams.

    :ivar size: bytes of the only file that is read as a stream; None: no file is, or several are
    :ivar files: the number of files that are read as streams, with the names 0, 1, ...
    :ivar is_decided: set when the end of the job would say nothing more
    :ivar is_elsewhere: directories are not where the original job has them
    :ivar no_gate: why the runtime does not see what the program does; None: the runtime sees it
    """

    size: int | None
    files: int = 1
    is_decided: asyncio.Event = field(default_factory=asyncio.Event)
    is_elsewhere: bool = False
    no_gate: str | None = None
    _asked: bool = False
    # The system call that has asked, if it is known.
    _asked_by: str = ""
    _streams: dict[str, StreamEvent] = field(default_factory=dict)
    _held: dict[str, HeldEvent] = field(default_factory=dict)

    async def follow(self, node_job: NodeJob) -> None:
        """Collect the events of the job to its end."""
        async for event in node_job.events():
            self._take(event)
            if self.no_gate is None and self.size is not None and is_worthless(self._held_at, self._asked, self.size):
                self.is_decided.set()

    def _take(self, event: Event) -> None:
        if isinstance(event, StreamEvent):
            self._streams[event.name] = event
        elif isinstance(event, HeldEvent):
            self._held[event.name] = event
        elif isinstance(event, AskedEvent):
            self._asked, self._asked_by = True, event.call
        elif isinstance(event, WarningEvent) and event.input is not None:
            self._asked = True
        elif isinstance(event, WarningEvent) and is_without_gate(event):
            self.no_gate = event.message
        elif isinstance(event, WarningEvent) and is_without_mounts(event):
            self.is_elsewhere = True

    @property
    def _held_at(self) -> int | None:
        """The bytes that the program had read when it waited for a whole file; None: the program has not waited."""
        read = {name: event.bytes for name, event in (self._streams | self._held).items()}
        return sum(read.values()) if self._held else None

    @property
    def _read(self) -> tuple[int, ...]:
        streams = (self._streams.get(str(number)) for number in range(self.files))
        return tuple(0 if stream is None else stream.bytes for stream in streams)

    def ran(self, exit_event: ExitEvent, succeeded: bool, said: str, difference: str | None = None) -> Ran:
        """The outcome of a run that has ended."""
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
        """The outcome of a run whose end is not waited for."""
        return Ran(False, GIVEN_UP, held_at=self._held_at, call=self._call, asked=self._asked)

    @property
    def _call(self) -> str:
        return next((event.call for event in self._held.values()), self._asked_by)
