"""Decides for a read session: events in, instructions out.

**Events** come from jobs and the split (:class:`Announced`, :data:`Moment`, :class:`Consumed`), and from the reader
(:class:`Began`, :class:`ChunkRead`, :class:`Evicted`). **Instructions** are for the reader (:class:`Read`,
:class:`Drop`, :class:`Watch`, :class:`End`), and for jobs that wait (:class:`Arrived`). The number of chunks that are
read at the same time is decided elsewhere.

Guarantees, in whatever order events come:

- Each byte is in one chunk at most. The bytes of a part are read before bytes of a later part, but for guesses.
- Bytes that have arrived and were not consumed, or are being read, are never more than the window and one chunk.
- Each part arrives once, in order. No part waits for ever as long as jobs consume arrived parts, and ``stalled`` comes
  where nothing happens.
- After ``stalled`` all parts count as arrived, and their jobs read for themselves.
- After :class:`End` nothing is read, and every part arrives at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from streamflow_io.hints.reasons import SessionReason
from streamflow_io.runtime.extents import Extents, Span, length

from .chunks import Chunks


class Window:
    """The bytes that have arrived and are not consumed.

    :ivar bytes: the most bytes that may be held
    :ivar held: bytes that have arrived, and were not consumed
    :ivar arrived: all bytes that have ever arrived
    :ivar consumed: bytes that no job needs any more, whether they have arrived or not
    """

    def __init__(self, most: int) -> None:
        self.bytes = most
        self.held = Extents()
        self.arrived = Extents()
        self.consumed = Extents()

    def is_full(self, more: int = 0) -> bool:
        """Whether nothing more is to be read.

        :param more: bytes that are being read
        """
        return self.held.bytes + more >= self.bytes

    def arrive(self, spans: Iterable[Span]) -> list[Span]:
        """Add bytes that were read.

        :return: the bytes among them that no job needs any more
        """
        late: list[Span] = []
        for span in spans:
            self.arrived.add(span)
            for needed in self.consumed.missing(span):
                self.held.add(needed)
            late += self.consumed.within(span)
        return late

    def consume(self, spans: Sequence[Span]) -> list[Span]:
        """Note that no job needs some bytes any more, whether they have arrived or not.

        :return: the bytes that were held
        """
        gone: list[Span] = []
        for span in spans:
            gone += self.held.within(span)
            self.held.remove(span)
            self.consumed.add(span)
        return gone

    def need(self, spans: Iterable[Span]) -> None:
        """Note that a job needs some bytes, also if all others have consumed them."""
        for span in spans:
            self.consumed.remove(span)

    def shrink(self, bytes_gone: int, least: int) -> None:
        """Make the window smaller: the kernel has no room for all held bytes.

        :param bytes_gone: the held bytes that the kernel has evicted
        :param least: bytes that the window keeps
        """
        self.bytes = min(self.bytes, max(least, self.held.bytes - bytes_gone))


# Of a file, to leave it alone.
ENOUGH_CACHED = 0.95
# Of a chunk that was read, or its file system keeps nothing.
_ENOUGH_KEPT = 0.5
# Of the held bytes, to make the window smaller: single pages always go.
_ENOUGH_GONE = 0.02


class Began(Struct, frozen=True):
    """The reader has the file.

    :ivar cached: bytes of the file that were in the page cache. None: the file is read as if none was
    """

    cached: int | None = None


class Announced(Struct, frozen=True):
    """A part is known; parts are numbered from 0, in this order."""

    spans: tuple[Span, ...]


class Elsewhere(Struct, frozen=True):
    """A part is known that another session of the same file reads."""

    spans: tuple[Span, ...]


class ChunkRead(Struct, frozen=True):
    """A chunk is in the page cache.

    :ivar resident: bytes of the chunk that are in the page cache after the read. None: all count as kept
    """

    chunk: int
    resident: int | None = None


class Consumed(Struct, frozen=True):
    """A job has ended that needed a part."""

    part: int


class Evicted(Struct, frozen=True):
    """The kernel has evicted watched bytes.

    :ivar bytes: the number of them
    """

    bytes: int


#: `all announced`: no more parts come. `stalled`: nothing has come for long, and a job waits. `lost`: the reader is
#: gone.
Moment = Literal["all announced", "stalled", "lost"]


class Read(Struct, frozen=True):
    """Read a chunk."""

    chunk: int
    spans: tuple[Span, ...]


class Arrived(Struct, frozen=True):
    """Let the jobs that need a part start."""

    part: int


class Drop(Struct, frozen=True):
    """Drop pages that no job needs any more."""

    spans: tuple[Span, ...]


class Watch(Struct, frozen=True):
    """Watch whether pages stay."""

    spans: tuple[Span, ...]


class End(Struct, frozen=True):
    """Read nothing more."""

    reason: SessionReason


Event = Began | Announced | Elsewhere | ChunkRead | Consumed | Evicted | Moment
Instruction = Read | Arrived | Drop | Watch | End


class Director:
    """One session: one file, and the jobs of one scatter that read parts of it.

    :ivar size: of the file
    :ivar window: the bytes that have arrived and that a job will need
    :ivar ended: why nothing more is read. None: the session goes on

    :param chunk: bytes of a chunk
    :param window: bytes
    :param readers: how many chunks are read at the same time, at most
    :param consumers: how many jobs say that they have consumed a part. 0: no job does
    :param guess: parts are announced one by one, and those to come are likely to follow in the file
    """

    def __init__(
        self,
        size: int,
        chunk: int,
        window: int,
        readers: int,
        consumers: int = 1,
        guess: bool = False,
    ) -> None:
        self.window = Window(window)
        self.ended: SessionReason | None = None
        self.size = size
        self._chunk = chunk
        self._readers = readers
        self._consumers = consumers
        self._guess = guess
        self._chunks = Chunks(size, chunk, readers * chunk, readers)
        self._began = False
        self._all_announced = False
        self._reading: dict[int, tuple[Span, ...]] = {}
        self._count = 0
        self._parts: list[tuple[Span, ...]] = []
        self._waiting = 0
        # How many jobs have consumed a part that not all have.
        self._consumed: dict[int, int] = {}
        # The parts before this one have arrived.
        self._next = 0
        # Of these, not consumed by all.
        self._open: dict[int, None] = {}
        # What parts have, and what several have, as a header: that is not given back.
        self._claimed = Extents()
        self._shared = Extents()

    def handle(self, event: Event) -> list[Instruction]:
        """Decide what an event causes."""
        return list(self._handle(event))

    def has_arrived(self, part: int) -> bool:
        return part < self._next

    @property
    def waiting(self) -> int:
        """Bytes of the parts that have not arrived."""
        return self._waiting

    def is_to_read(self, spans: Iterable[Span]) -> bool:
        """Whether this session should read a part that is not announced, although others could.

        Its bytes were guessed, or the session waits for jobs and not for the storage.
        """
        is_guessed = any(self._chunks.guessed.within(span) for span in spans)
        return is_guessed or self.window.is_full(self._bytes_on_the_way)

    def _handle(self, event: Event) -> Iterator[Instruction]:
        match event:
            case Announced(spans):
                self._announce(spans)
            case Elsewhere(spans):
                self._chunks.leave(spans)
            case Consumed(part):
                yield from self._consume(part)
            case _ if self.ended is not None:
                return
            case Began(cached):
                self._began = True
                if cached is not None and cached >= ENOUGH_CACHED * self.size:
                    yield from self._end("cached")
            case ChunkRead():
                yield from self._read(event)
            case Evicted(gone):
                if gone >= _ENOUGH_GONE * self.window.held.bytes:
                    self.window.shrink(gone, self._chunk)
            case "all announced":
                self._all_announced = True
                yield from self._drop(self.window.consume(list(self._chunks.guessed)))
            case "stalled":
                if self._reading or not self._began:
                    yield from self._end("stalled")
                else:
                    # The window is full, and jobs take long: the others may wait in the queue for cores.
                    yield from self._arrive(len(self._parts))
            case "lost":
                yield from self._end("lost")
        yield from self._go_on()

    def _announce(self, spans: Sequence[Span]) -> None:
        own = tuple(Extents(spans))
        for span in own:
            for shared in self._claimed.within(span):
                self._shared.add(shared)
            self._claimed.add(span)
        self._parts.append(own)
        self._waiting += length(own)
        self.window.need(own)
        if self.ended is None:
            self._chunks.need(own)

    def _consume(self, part: int) -> Iterator[Instruction]:
        self._consumed[part] = self._consumed.get(part, 0) + 1
        if self._consumed[part] != self._consumers:
            return
        self._open.pop(part, None)
        alone = [rest for span in self._parts[part] for rest in self._shared.missing(span)]
        self._chunks.forget(alone)
        gone = self.window.consume(alone)
        if self.ended is None:
            yield from self._drop(gone)

    def _read(self, event: ChunkRead) -> Iterator[Instruction]:
        if (spans := self._reading.pop(event.chunk, None)) is None:
            return
        yield from self._drop(self.window.arrive(spans))
        if event.resident is not None and event.resident < _ENOUGH_KEPT * length(spans):
            yield from self._end("not kept")
        else:
            yield Watch(tuple(self.window.held))

    def _drop(self, spans: Sequence[Span]) -> Iterator[Drop]:
        # A file that fits into the window may stay: others may read it, too.
        if spans and self.size > self.window.bytes:
            yield Drop(tuple(spans))

    def _go_on(self) -> Iterator[Instruction]:
        """Fill the window, let jobs start whose parts have arrived, and end when nothing is left to do."""
        if self.ended is None and self._began:
            yield from self._read_more()
        yield from self._arrive(self._next)
        if self.ended is not None or not self._began or self._reading:
            return
        # Nothing will be read: jobs wait for the window. The window moves if an arrived part is consumed.
        while self._next < len(self._parts) and not self._moves():
            yield from self._arrive(self._next + 1)
        if not self._all_announced or self._next < len(self._parts):
            return
        if not self._chunks:
            # Then pages are given back as they are consumed.
            if not self._open or self.size <= self.window.bytes:
                yield from self._end("done")
        elif not self._moves():
            yield from self._end("window")

    def _read_more(self) -> Iterator[Read]:
        while len(self._reading) < self._readers and not self.window.is_full(self._bytes_on_the_way):
            guess = self._guess and not self._all_announced
            if not (spans := self._chunks.next(guess)):
                return
            self._reading[self._count] = spans
            yield Read(self._count, spans)
            self._count += 1

    @property
    def _bytes_on_the_way(self) -> int:
        return sum(map(length, self._reading.values()))

    def _moves(self) -> bool:
        """Whether a part is yet to be consumed that has arrived, and holds bytes in the window for itself."""
        held, shared = self.window.held, self._shared
        spans = (span for part in self._open for span in self._parts[part])
        return any(not shared.has(found) for span in spans for found in held.within(span))

    def _arrive(self, until: int) -> Iterator[Arrived]:
        """Let the parts before a number arrive, and those behind them that are there."""
        while self._next < len(self._parts):
            part, spans = self._next, self._parts[self._next]
            is_consumed = self._consumed.get(part, 0) >= self._consumers
            is_there = is_consumed or all(map(self.window.arrived.has, spans))
            if not is_there and part >= until and self.ended is None:
                return
            self._next += 1
            self._waiting -= length(spans)
            if not is_consumed:
                self._open[part] = None
            yield Arrived(part)

    def _end(self, reason: SessionReason) -> Iterator[Instruction]:
        self.ended = reason
        yield End(reason)
