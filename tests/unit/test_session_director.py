"""The reads of a read session: their order and their amount."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.parts.chunks import LARGEST, MIB, SMALLEST, Chunks, chunk_size
from streamflow_io.parts.director import (
    Announced,
    Arrived,
    Began,
    ChunkRead,
    Consumed,
    Director,
    Drop,
    End,
    Event,
    Evicted,
    Instruction,
    Read,
    Watch,
)
from streamflow_io.runtime.extents import Extents, Span, length

SIZE = 200


def bytes_of(spans: Sequence[Span]) -> set[int]:
    return {byte for begin, end in spans for byte in range(begin, end)}


spans_of_file = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(lambda pair: (min(pair), max(pair)))


def in_a_row(cuts: list[int]) -> list[list[Span]]:
    """Parts one after the other, each with a header, as those of a VCF."""
    edges = [10, *sorted(max(10, cut) for cut in cuts), SIZE]
    return [[(0, 10), edge] for edge in pairwise(edges)]


parts_of_file = st.one_of(
    st.lists(st.lists(spans_of_file, max_size=3), max_size=12),
    st.lists(st.integers(0, SIZE), max_size=12).map(in_a_row),
)


@given(st.lists(st.tuples(st.booleans(), spans_of_file)), spans_of_file)
def test_extents_are_sets_of_bytes(changes: list[tuple[bool, Span]], span: Span) -> None:
    extents, expected = Extents(), set[int]()
    for adds, changed in changes:
        (extents.add if adds else extents.remove)(changed)
        expected = expected | bytes_of([changed]) if adds else expected - bytes_of([changed])
    found = list(extents)
    assert bytes_of(found) == expected
    assert extents.bytes == length(found) == len(expected)
    assert all(end < begin for (_, end), (begin, _) in pairwise(found))
    assert bytes_of(extents.within(span)) == expected & bytes_of([span])
    assert bytes_of(extents.missing(span)) == bytes_of([span]) - expected
    assert extents.has(span) == (bytes_of([span]) <= expected)


@given(parts_of_file, st.integers(1, 60), st.integers(0, 120), st.integers(1, 5))
def test_each_byte_is_in_one_chunk_in_the_order_of_parts(
    parts: list[list[Span]], size: int, guessed: int, together: int
) -> None:
    chunks, read = Chunks(SIZE, size, guessed, together), Counter[int]()
    for part in parts:
        chunks.need(part)
        if chunk := chunks.next(guess=True):
            read.update(bytes_of(chunk))
            assert length(chunk) <= size
    assert chunks.guessed.bytes <= guessed
    assert bytes_of(list(chunks.guessed)) == set(read) - {byte for part in parts for byte in bytes_of(part)}
    order = list[int]()
    while chunk := chunks.next(guess=False):
        read.update(bytes_of(chunk))
        order.append(min(needed_by(parts, byte) for byte in bytes_of(chunk)))
    assert max(read.values(), default=1) == 1
    assert {byte for part in parts for byte in bytes_of(part)} <= set(read)
    assert order == sorted(order)


@pytest.mark.parametrize(("readers", "sizes"), [(4, [2] * 4 + [4] * 4), (12, [1] * 12 + [2] * 12 + [4] * 12), (1, [])])
def test_the_first_chunk_arrives_as_early_as_one_that_is_read_alone(readers: int, sizes: list[int]) -> None:
    director = Director(1 << 30, 8 * MIB, 1 << 30, readers)
    director.handle(Announced(((0, 1 << 30),)))
    found, reading = [], [step for step in director.handle(Began(0)) if isinstance(step, Read)]
    for _ in range(len(sizes) + 2):
        read = reading.pop(0)
        found.append(length(read.spans) / MIB)
        reading += [step for step in director.handle(ChunkRead(read.chunk)) if isinstance(step, Read)]
    assert found == [*sizes, 8, 8]


def needed_by(parts: list[list[Span]], byte: int) -> int:
    return next(number for number, part in enumerate(parts) if byte in bytes_of(part))


@pytest.mark.parametrize(
    ("bandwidth", "expected"), [(None, SMALLEST), (1, SMALLEST), (200, 20_000_000), (100_000, LARGEST)]
)
def test_a_chunk_is_what_a_storage_gives_in_a_tenth_of_a_second(bandwidth: float | None, expected: int) -> None:
    assert chunk_size(bandwidth) == expected


@dataclass
class World:
    """A reader, jobs that run a few at a time, and what a session must guarantee of them at every moment."""

    director: Director
    chunk: int
    readers: int
    parts: list[list[Span]]
    cores: int = 2
    reading: dict[int, tuple[Span, ...]] = field(default_factory=dict)
    read: Counter[int] = field(default_factory=Counter)
    held: set[int] = field(default_factory=set)
    arrived: list[int] = field(default_factory=list)
    consumed: set[int] = field(default_factory=set)
    announced: int = 0
    ended: str | None = None

    @property
    def running(self) -> list[int]:
        return [part for part in self.arrived if part not in self.consumed][: self.cores]

    def handle(self, event: Event) -> None:
        if isinstance(event, ChunkRead):
            self.held |= bytes_of(self.reading.pop(event.chunk))
        for instruction in self.director.handle(event):
            self.follow(instruction)
        on_the_way = sum(map(length, self.reading.values()))
        assert self.director.window.held.bytes + on_the_way < self.director.window.bytes + self.chunk
        assert len(self.reading) <= self.readers
        assert self.arrived == list(range(len(self.arrived)))

    def follow(self, instruction: Instruction) -> None:
        match instruction:
            case Read(chunk, spans):
                assert self.ended is None
                assert 0 < length(spans) <= self.chunk
                self.reading[chunk] = spans
                self.read.update(bytes_of(spans))
                assert max(self.read.values()) == 1
            case Arrived(part):
                self.arrived.append(part)
            case Drop(spans):
                assert self.ended is None
                gone = bytes_of(spans)
                needed = {b for n, p in enumerate(self.parts[: self.announced]) if n not in self.consumed
                          for b in bytes_of(p)}  # fmt: skip
                assert not gone & needed
                self.held -= gone
            case Watch(spans):
                assert bytes_of(spans) <= self.held
            case End(reason):
                assert self.ended is None
                self.ended = reason

    def choices(self) -> list[Event]:
        more: list[Event] = [ChunkRead(chunk) for chunk in self.reading] if self.ended is None else []
        if self.announced < len(self.parts):
            more.append(Announced(tuple(self.parts[self.announced])))
        return more + [Consumed(part) for part in self.running]

    def do(self, event: Event) -> None:
        if isinstance(event, Announced):
            self.announced += 1
        if isinstance(event, Consumed):
            self.consumed.add(event.part)
        self.handle(event)
        if isinstance(event, Announced) and self.announced == len(self.parts):
            self.handle("all announced")


@st.composite
def worlds(draw: st.DrawFn) -> World:
    chunk, readers = draw(st.integers(1, 60)), draw(st.integers(1, 4))
    window, parts = draw(st.integers(1, 300)), draw(parts_of_file)
    return World(Director(SIZE, chunk, window, readers, guess=draw(st.booleans())), chunk, readers, parts)


def run(world: World, choices: list[int], until: int | None = None) -> None:
    """Lets everything happen that can, in an order that is drawn; idleness is never announced."""
    if not world.parts:
        world.handle("all announced")
    for number in range(1000):
        if number == until or not (possible := world.choices()):
            return
        world.do(possible[choices[number % len(choices)] % len(possible)])
    raise AssertionError("it does not end")


orders = st.lists(st.integers(0, 20), min_size=1, max_size=40)


@given(worlds(), orders, st.integers(0, 20))
def test_every_part_arrives_and_no_byte_is_read_twice(world: World, choices: list[int], began: int) -> None:
    run(world, choices, until=began)
    assert not world.read
    world.handle(Began(0))
    run(world, choices)
    assert world.consumed == set(range(len(world.parts)))
    assert world.ended in ("done", "window")


@given(worlds(), orders, st.integers(0, 30), st.sampled_from(["lost", "stalled"]))
def test_a_session_that_is_lost_holds_nobody_back(world: World, choices: list[int], when: int, how: str) -> None:
    world.handle(Began(None))
    run(world, choices, until=when)
    world.handle("lost" if how == "lost" else "stalled")
    assert len(world.arrived) == world.announced
    if how == "lost":
        assert world.ended is not None
        world.reading.clear()
    run(world, choices)
    assert len(world.consumed) == len(world.parts)


@given(worlds(), orders, st.integers(0, 20), st.integers(0, 200))
def test_a_window_from_which_the_kernel_takes(world: World, choices: list[int], when: int, gone: int) -> None:
    world.handle(Began(None))
    run(world, choices, until=when)
    before = world.director.window.bytes
    if world.ended is None:
        # What is on its way was asked for before.
        for instruction in world.director.handle(Evicted(gone)):
            world.follow(instruction)
    assert world.director.window.bytes <= before


def started(parts: Sequence[Sequence[Span]], window: int = 1000, **options: bool) -> tuple[Director, list[Instruction]]:
    director = Director(SIZE, 50, window, 2, **options)
    told = [each for part in parts for each in director.handle(Announced(tuple(part)))]
    return director, [*told, *director.handle("all announced"), *director.handle(Began(0))]


def test_a_file_that_is_cached_is_left_alone() -> None:
    director = Director(SIZE, 50, 1000, 2)
    director.handle(Announced(((0, 100),)))
    assert director.handle(Began(195)) == [End("cached"), Arrived(0)]
    assert director.handle(Announced(((100, 200),))) == [Arrived(1)]


def test_a_file_system_that_keeps_no_pages() -> None:
    director, _ = started([[(0, 200)]])
    assert director.handle(ChunkRead(0, resident=0)) == [End("not kept"), Arrived(0)]
    assert director.handle(ChunkRead(1, resident=0)) == []


def test_a_reader_that_hangs() -> None:
    director, _ = started([[(0, 50)], [(50, 200)]])
    assert director.handle("stalled") == [End("stalled"), Arrived(0), Arrived(1)]
    hangs_from_the_beginning = Director(SIZE, 50, 1000, 2)
    hangs_from_the_beginning.handle(Announced(((0, 50),)))
    assert hangs_from_the_beginning.handle("stalled") == [End("stalled"), Arrived(0)]


def test_jobs_that_take_long() -> None:
    director, told = started([[(0, 50)], [(50, 100)], [(100, 200)]], window=60)
    assert told == [Read(0, ((0, 50),)), Read(1, ((50, 100),))]
    assert director.handle(ChunkRead(0))[1:] == [Arrived(0)]
    assert director.handle(ChunkRead(1))[1:] == [Arrived(1)]
    assert director.handle("stalled") == [Arrived(2)]
    assert director.handle(Consumed(0)) == [Drop(((0, 50),)), Read(2, ((100, 150),))]
    assert director.ended is None


def test_a_header_stays_as_long_as_the_session() -> None:
    director, told = started([[(0, 10), (10, 50)], [(0, 10), (50, 100)]], window=190)
    assert [each.spans for each in told if isinstance(each, Read)] == [((0, 50),), ((50, 100),)]
    director.handle(ChunkRead(0))
    director.handle(ChunkRead(1))
    assert director.handle(Consumed(0)) == [Drop(((10, 50),))]


def test_a_part_that_two_jobs_need() -> None:
    director = Director(SIZE, 50, 60, 1, consumers=2)
    director.handle(Announced(((0, 50),)))
    director.handle(Began(0))
    director.handle(ChunkRead(0))
    assert director.handle(Consumed(0)) == []
    assert director.handle(Consumed(0)) == [Drop(((0, 50),))]


def test_what_follows_is_guessed_before_it_is_announced() -> None:
    director = Director(SIZE, 50, 1000, 1, guess=True)
    assert director.handle(Began(0)) == [Read(0, ((0, 50),))]
    # No more than one chunk for each reader.
    assert director.handle(ChunkRead(0)) == [Watch(((0, 50),))]
    assert director.handle(Announced(((0, 40),))) == [Arrived(0)]
    assert director.handle(Announced(((40, 70),))) == [Read(1, ((50, 100),))]
    assert director.handle(ChunkRead(1)) == [Watch(((0, 100),)), Arrived(1)]


def test_a_wrong_guess_is_given_back() -> None:
    director = Director(SIZE, 50, 60, 1, guess=True)
    director.handle(Began(0))
    director.handle(ChunkRead(0))
    assert director.handle("all announced") == [Drop(((0, 50),)), End("done")]


def test_single_pages_that_go() -> None:
    director, _ = started([[(0, 200)]])
    director.handle(ChunkRead(0))
    director.handle(ChunkRead(1))
    assert director.handle(Evicted(1)) == []
    assert director.window.bytes == 1000
    director.handle(Evicted(2))
    assert director.window.bytes == 98


def test_what_a_later_part_needs_again() -> None:
    director = Director(SIZE, 50, 60, 2)
    director.handle(Announced(((0, 50),)))
    director.handle(Began(0))
    director.handle(Consumed(0))
    director.handle(Announced(((0, 50),)))
    assert director.handle(ChunkRead(0)) == [Watch(((0, 50),)), Arrived(1)]
