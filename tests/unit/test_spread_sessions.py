"""The choice of the session that reads a part, among those of several nodes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.parts.director import Announced, Began, ChunkRead, Director, Elsewhere, Event, Read
from streamflow_io.parts.read_session import ReadAheadSession
from streamflow_io.parts.read_sessions import Home, SpreadSessions
from streamflow_io.runtime.extents import Extents, Span

CHUNK, SIZE = 10, 800


class Session:
    """A session whose chunks are read when the test says so.

    :ivar read: the bytes that it has asked for
    """

    def __init__(self, guess: bool = False, window: int = SIZE, cached: int = 0) -> None:
        self.director = Director(SIZE, CHUNK, window, 1, guess=guess)
        self.size = SIZE
        self.read = Extents()
        self.parts = 0
        self._reading: list[int] = []
        self._handle(Began(cached))

    @property
    def ended(self) -> str | None:
        return self.director.ended

    @property
    def waiting(self) -> int:
        return self.director.waiting

    def is_to_read(self, spans: Sequence[Span]) -> bool:
        return self.director.is_to_read(spans)

    def announce(self, spans: Sequence[Span]) -> int:
        self.parts += 1
        self._handle(Announced(tuple(spans)))
        return self.parts - 1

    def leave(self, spans: Sequence[Span]) -> None:
        self._handle(Elsewhere(tuple(spans)))

    def all_announced(self) -> None:
        self._handle("all announced")

    def go_on(self, chunks: int = 1) -> None:
        """Read chunks, as far as there are some."""
        for _ in range(chunks):
            if self._reading:
                self._handle(ChunkRead(self._reading.pop(0)))

    def _handle(self, event: Event) -> None:
        for instruction in self.director.handle(event):
            if isinstance(instruction, Read):
                self._reading.append(instruction.chunk)
                for span in instruction.spans:
                    assert not self.read.within(span)
                    self.read.add(span)


def spread(*sessions: Session) -> SpreadSessions:
    homes = [Home(cast(ReadAheadSession, session), f"n{number}") for number, session in enumerate(sessions, 1)]
    return SpreadSessions(homes, CHUNK)


def in_a_row(count: int, header: int = 0) -> list[tuple[Span, ...]]:
    """Parts of equal bytes, each with the same header."""
    edges = [header + (SIZE - header) * number // count for number in range(count + 1)]
    shared: tuple[Span, ...] = ((0, header),) if header else ()
    return [(*shared, (edges[number], edges[number + 1])) for number in range(count)]


def test_parts_that_are_said_at_once_are_read_at_all_nodes() -> None:
    sessions = [Session(guess=True), Session(), Session(), Session()]
    spreading = spread(*sessions)
    for part in in_a_row(80):
        spreading.announce(part)
    spreading.all_announced()
    assert max(session.parts for session in sessions) <= 25
    for session in sessions:
        session.go_on(SIZE)
        assert session.waiting == 0
    assert sum(session.read.bytes for session in sessions) == SIZE


def test_parts_that_follow_each_other_are_read_at_one_node_for_a_while() -> None:
    spreading = spread(Session(guess=True), Session())
    places = [spreading.announce(part)[0].location for part in in_a_row(160)]
    changes = sum(one != other for one, other in pairwise(places))
    assert 2 <= changes <= 20


def test_parts_that_a_program_looks_for_stay_where_it_reads_the_file() -> None:
    """The session reads ahead of the program, and jobs elsewhere get the parts from there."""
    first, other = Session(guess=True), Session()
    spreading = spread(first, other)
    for part in in_a_row(80):
        first.go_on()
        home, _ = spreading.announce(part)
        assert spreading.is_first(home)
    assert other.read.bytes == 0


def test_a_session_whose_window_is_full_waits_for_jobs_and_not_for_the_storage() -> None:
    first, other = Session(guess=True, window=2 * CHUNK), Session()
    spreading = spread(first, other)
    for part in in_a_row(80)[:4]:
        first.go_on(3)
        assert spreading.is_first(spreading.announce(part)[0])


def test_a_file_that_is_cached_where_it_is_split_is_read_nowhere() -> None:
    first, other = Session(guess=True, cached=SIZE), Session()
    spreading = spread(first, other)
    assert all(spreading.is_first(spreading.announce(part)[0]) for part in in_a_row(8))
    assert first.read.bytes == other.read.bytes == 0


def test_a_session_that_has_ended_gets_no_part() -> None:
    first, other = Session(guess=True), Session(cached=SIZE)
    spreading = spread(first, other)
    assert all(spreading.is_first(spreading.announce(part)[0]) for part in in_a_row(8))


@given(st.integers(1, 5), st.integers(1, 90), st.sampled_from([0, 7]), st.randoms(use_true_random=False))
def test_each_byte_is_read_at_one_node_and_each_part_arrives(
    nodes: int, count: int, header: int, random: Random
) -> None:
    """The header of all parts is read at each node."""
    sessions = [Session(guess=number == 0) for number in range(nodes)]
    spreading = spread(*sessions)
    for part in in_a_row(count, header):
        random.choice(sessions).go_on(random.randrange(3))
        spreading.announce(part)
    spreading.all_announced()
    for session in sessions:
        session.go_on(SIZE)
        assert session.waiting == 0
        assert session.ended in (None, "done")
    assert sum(session.parts for session in sessions) == count
    assert SIZE <= sum(session.read.bytes for session in sessions) <= SIZE + header * (nodes - 1)
