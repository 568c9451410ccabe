"""One read session: carries out the instructions of its director, and tells it the events of the reader.

No job depends on a session. A job waits for its part 10 s at most after the last sign of life, and then reads the file
itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

from streamflow.log_handler import logger

from streamflow_io.hints.reasons import SessionReason
from streamflow_io.messages import Code, coded
from streamflow_io.records.files import ChunkRecord, ConsumedRecord, SessionEndRecord, SessionRecord
from streamflow_io.records.records import Record
from streamflow_io.runtime.extents import Span
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.protocol import ChunkEvent, EvictedEvent, ExitEvent, StartedEvent
from streamflow_io.runtime.session_job import SessionJob

from .director import (
    Announced,
    Arrived,
    Began,
    ChunkRead,
    Consumed,
    Director,
    Drop,
    Elsewhere,
    End,
    Event,
    Evicted,
    Instruction,
    Read,
    Watch,
)

PATIENCE_SECONDS = 10.0


class ReadAheadSession:
    """One file, and the jobs that read parts of it.

    :param facts: of the session, for telemetry
    :param director: decides
    :param job: reads; it has begun
    :param record: keeps a record for telemetry
    """

    def __init__(
        self,
        facts: SessionRecord,
        director: Director,
        job: SessionJob,
        record: Callable[[Record], None],
    ) -> None:
        self._facts = facts
        self._director = director
        self._job = job
        self._record = record
        self._parts = 0
        self._waiting: dict[int, asyncio.Event] = {}
        self._has_looked = asyncio.Event()
        self._last_sign = asyncio.get_running_loop().time()
        self._is_closing = False
        self._tasks = [asyncio.create_task(self._follow())]
        record(facts)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._director.size

    @property
    def ended(self) -> SessionReason | None:
        """Why nothing more is read. None: the session goes on."""
        return self._director.ended

    def announce(self, spans: Sequence[Span]) -> int:
        """A part is known.

        :return: its number
        """
        self._parts += 1
        self._handle(Announced(tuple(spans)))
        return self._parts - 1

    async def looked(self) -> None:
        """Wait until the reader has looked whether the file is in the page cache, for as long as for a part at most."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._has_looked.wait(), PATIENCE_SECONDS)

    def leave(self, spans: Sequence[Span]) -> None:
        """A part is known that another session of the file reads."""
        self._handle(Elsewhere(tuple(spans)))

    @property
    def waiting(self) -> int:
        """Bytes of the parts that have not arrived."""
        return self._director.waiting

    def is_to_read(self, spans: Sequence[Span]) -> bool:
        """Whether the session should read a part that is not announced, although others could."""
        return self._director.is_to_read(spans)

    def all_announced(self) -> None:
        """No more parts come."""
        self._handle("all announced")

    def consume(self, part: int) -> None:
        """A job has ended that needed a part."""
        self._handle(Consumed(part))
        held = self._director.window.held.bytes
        self._record(ConsumedRecord(time=time.time(), session=self._facts.session, part=part, held=held))

    async def arrived(self, part: int) -> None:
        """Wait until a job that needs a part may start."""
        while not self._director.has_arrived(part):
            rest = self._last_sign + PATIENCE_SECONDS - asyncio.get_running_loop().time()
            if rest <= 0:
                self._handle("stalled")
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._waiting.setdefault(part, asyncio.Event()).wait(), max(rest, 0.0))

    async def close(self) -> None:
        """The run ends: nothing more is read, and nothing is said."""
        self._is_closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._handle("lost")

    async def _follow(self) -> None:
        why = "the node runtime has ended"
        try:
            async for event in self._job.events():
                self._last_sign = asyncio.get_running_loop().time()
                match event:
                    case StartedEvent():
                        self._handle(Began(event.cached))
                        self._has_looked.set()
                    case ChunkEvent():
                        self._count(event)
                        self._handle(ChunkRead(event.chunk, event.resident))
                    case EvictedEvent():
                        self._handle(Evicted(event.bytes))
                    case ExitEvent():
                        why = event.message or f"its reader is gone ({event.reason})"
        except NodeRuntimeError as error:
            why = str(error)
        self._lose(why)

    def _lose(self, why: str) -> None:
        if self.ended is None and not self._is_closing:
            self._warn(why)
        self._handle("lost")
        self._has_looked.set()

    def _warn(self, why: str) -> None:
        ended = f"{self._facts.file} is not read ahead any more, its readers read the file themselves: {why}"
        logger.warning(coded(ended, Code.NOT_READ_AHEAD))

    def _handle(self, event: Event) -> None:
        try:
            for instruction in self._director.handle(event):
                self._execute(instruction)
        except NodeRuntimeError as error:
            self._lose(str(error))

    def _execute(self, instruction: Instruction) -> None:
        match instruction:
            case Arrived(part):
                if (waiting := self._waiting.pop(part, None)) is not None:
                    waiting.set()
            case Read(chunk, spans):
                # While there was nothing to read, the reader had nothing to say.
                self._last_sign = asyncio.get_running_loop().time()
                self._job.read(chunk, spans)
            case Drop(spans):
                self._job.drop(spans)
            case Watch(spans):
                self._job.watch(spans)
            case End(reason):
                self._end(reason)

    def _end(self, reason: SessionReason) -> None:
        self._record(SessionEndRecord(time=time.time(), session=self._facts.session, reason=reason))
        if reason == "stalled":
            self._warn(f"no data has arrived for {PATIENCE_SECONDS:.0f} s")
            self._tasks.append(asyncio.create_task(self._job.cancel()))
        elif reason != "lost":
            self._job.end()

    def _count(self, event: ChunkEvent) -> None:
        self._record(
            ChunkRecord(
                time=time.time(),
                session=self._facts.session,
                bytes=event.bytes,
                cached=event.cached,
                seconds=event.seconds,
                held=self._director.window.held.bytes,
            )
        )
