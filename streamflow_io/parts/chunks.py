"""The chunks of a read session: the parts of a file, in order, merged and cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from streamflow_io.runtime.extents import Extents, Span, length

MIB = 1 << 20
SMALLEST = 8 * MIB
LARGEST = 64 * MIB
_SECONDS = 0.1


def chunk_size(bandwidth: float | None) -> int:
    """Bytes of a chunk: what a storage gives in 0.1 s, and enough to be worth a message.

    :param bandwidth: of the storage, for reading, in MB/s. None: chunks are of the smallest size
    """
    return min(LARGEST, max(SMALLEST, int(_SECONDS * (bandwidth or 0.0) * 1e6)))


def _growing(chunk: int, together: int) -> Iterator[int]:
    """The bytes of the first chunks, which are smaller."""
    size = max(min(chunk, MIB), chunk // together)
    while size < chunk:
        yield from [size] * together
        size *= 2


class Chunks:
    """Cuts what is needed into chunks: each byte is in one chunk at most, however many parts have it.

    While more parts are expected, a chunk may be filled up with what follows in the file: a guess.

    :ivar guessed: the bytes in chunks that no part has, as far as is known

    :param size: of the file
    :param chunk: bytes of a chunk
    :param most_guessed: bytes
    :param together: the number of chunks that are read at the same time. The first chunks are small, and the next ones
        twice as large: so the first one arrives as early as if it was read alone
    """

    def __init__(self, size: int, chunk: int, most_guessed: int, together: int = 1) -> None:
        self.guessed = Extents()
        self._size = size
        self._chunk = chunk
        self._most_guessed = most_guessed
        self._first = list(_growing(chunk, together))
        # What is in the queue, or was ever taken from it.
        self._known = Extents()
        self._elsewhere = Extents()
        self._queue: deque[Span] = deque()
        self._end = 0

    def __bool__(self) -> bool:
        """Whether something that is needed is in no chunk."""
        return bool(self._queue)

    def need(self, spans: Iterable[Span]) -> None:
        """A part needs these, after all that was needed before."""
        for span in spans:
            self.guessed.remove(span)
            for begin, end in self._known.missing(span):
                if self._queue and self._queue[-1][1] == begin:
                    begin = self._queue.pop()[0]
                self._queue.append((begin, end))
            self._known.add(span)

    def leave(self, spans: Iterable[Span]) -> None:
        """Guess no byte of these, which are read elsewhere; a part may need them all the same."""
        for span in spans:
            self._elsewhere.add(span)

    def forget(self, spans: Sequence[Span]) -> None:
        """Take bytes that no job needs any more out of the queue. Bytes in a chunk stay there."""
        if not self._queue:
            return
        rest = Extents(spans)
        self._queue = deque(left for span in self._queue for left in rest.missing(span))

    def next(self, guess: bool) -> tuple[Span, ...]:
        """Take the next chunk, which is empty if nothing is to be read now.

        :param guess: whether more parts are expected
        """
        spans, room = list[Span](), self._first[0] if self._first else self._chunk
        while room and self._queue:
            begin, end = self._queue.popleft()
            if end - begin > room:
                self._queue.appendleft((begin + room, end))
                end = begin + room
            spans.append((begin, end))
            room -= end - begin
            self._end = end
        if guess and room and self.guessed.bytes + room <= self._most_guessed:
            spans += self._following(room)
        if spans and self._first:
            del self._first[0]
        return tuple(Extents(spans))

    def _following(self, room: int) -> list[Span]:
        """The next bytes of the file that were never needed.

        :param room: the most bytes
        """
        found: list[Span] = []
        unknown = self._known.missing((self._end, self._size))
        for begin, end in (left for span in unknown for left in self._elsewhere.missing(span)):
            rest = room - length(found)
            if rest <= 0:
                break
            found.append((begin, min(end, begin + rest)))
        for span in found:
            self._known.add(span)
            self.guessed.add(span)
            self._end = span[1]
        return found
