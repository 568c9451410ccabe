"""`sfio-node read`: brings what it is told to into the page cache, gives it back, and decides nothing."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import mmap
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.fuse import may_mount, served
from lab.node import Event, Job, Node, wait_for
from streamflow_io.parts.director import (
    Announced,
    Arrived,
    Began,
    ChunkRead,
    Consumed,
    Director,
    Drop,
    End,
    Evicted,
    Read,
    Watch,
)
from streamflow_io.parts.director import Event as SessionEvent
from streamflow_io.runtime.extents import Span

SIZE = 24 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")
LIBC = ctypes.CDLL(None, use_errno=True)


def cached(path: Path, offset: int = 0, length: int = SIZE) -> int | None:
    """Returns the bytes of a range that are in the page cache; None before Linux 6.5."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        span, found = (ctypes.c_uint64 * 2)(offset, length), (ctypes.c_uint64 * 5)()
        if LIBC.syscall(ctypes.c_long(451), descriptor, span, found, 0):
            return None
        return int(found[0]) * PAGE
    finally:
        os.close(descriptor)


def forget(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path, length: int) -> Iterator[None]:
    """Keep the first bytes of a file in the page cache, which gives some of its pages away on a busy machine."""
    with open(path, "r+b") as opened, mmap.mmap(opened.fileno(), length) as pages:
        start = ctypes.c_char.from_buffer(pages)
        place = ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(length)
        assert LIBC.mlock(*place) == 0, os.strerror(ctypes.get_errno())
        try:
            yield
        finally:
            LIBC.munlock(*place)
            del start


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """A file that is not in the page cache."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(1 << 20) * (SIZE >> 20))
    forget(path)
    if cached(path) != 0:
        pytest.skip("the page cache cannot be looked at, or keeps all")
    yield path
    path.unlink()


class Session(Job):
    """A session, whose reader serve starts."""

    def __init__(
        self, node: Node, name: str, known: Path, /, prepare: Callable[[Path], None] | None = None, **more: object
    ) -> None:
        """:param prepare: does something to its events before it begins"""
        found = known.stat()
        identity = {"inode": found.st_ino, "size": found.st_size, "mtime": found.st_mtime_ns, "device": found.st_dev}
        self.directory, self.name, self.node = node.run / "jobs" / name, name, node
        self.directory.mkdir()
        if prepare is not None:
            prepare(self.directory / "events.jsonl")
        text = json.dumps({"file": str(known), "identity": identity, **more})
        (self.directory / "session.part").write_text(text)
        (self.directory / "session.part").rename(self.directory / "session.json")

    def order(self, **line: object) -> None:
        with open(self.directory / "control.jsonl", "a") as control:
            control.write(json.dumps(line) + "\n")

    def ended(self) -> Event:
        """Waits for the end, as serve tells it."""
        wait_for(lambda: self.served() and self.served()[-1]["event"] == "exit", "the end of the session")
        return self.exit()


def test_chunks_are_brought_and_given_back(runtime: Node, file: Path) -> None:
    session = Session(runtime, "s", file, threads=1)
    session.wait_for("started")
    assert cached(file) == 0
    session.order(read=[0, [[0, 8 << 20]]])
    session.order(read=[7, [[5, 10], [16 << 20, 1 << 20]]])
    wait_for(lambda: len(session.named("chunk")) == 2, "chunks")
    first, second = session.named("chunk")
    told = {"event": "chunk", "chunk": 0, "bytes": 8 << 20, "cached": 0, "resident": 8 << 20}
    assert {name: first[name] for name in told} == told
    assert 1 <= int(str(first["requests"])) <= 128
    # The second extent may have been read ahead.
    assert (second["chunk"], second["bytes"]) == (7, (1 << 20) + 10)
    assert int(str(second["cached"])) >= 10
    present = cached(file)
    assert present is not None
    assert present >= 9 << 20
    session.order(drop=[[0, 8 << 20]])
    wait_for(lambda: cached(file, 0, 8 << 20) == 0, "the end of the first chunk")
    assert cached(file, 16 << 20, 1 << 20) == 1 << 20
    session.order(end=True)
    ended = session.ended()
    assert (ended["success"], ended["reason"], ended["code"]) == (True, "exited", 0)


def test_what_was_cached_before_is_neither_read_nor_dropped(runtime: Node, file: Path) -> None:
    with open(file, "rb", buffering=0) as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(opened.fileno(), 4 << 20, 0)
    with locked(file, 4 << 20):
        assert cached(file) == 4 << 20
        session = Session(runtime, "s", file)
        session.order(read=[1, [[0, 4 << 20]]])
        session.order(read=[2, [[4 << 20, 4 << 20]]])
        wait_for(lambda: len(session.named("chunk")) == 2, "chunks")
    chunks = {event["chunk"]: event for event in session.named("chunk")}
    assert (chunks[1]["requests"], chunks[1]["cached"]) == (0, 4 << 20)
    session.order(drop=[[0, 8 << 20]])
    wait_for(lambda: cached(file, 4 << 20, 4 << 20) == 0, "the end of the second chunk")
    assert cached(file, 0, 4 << 20) == 4 << 20
    session.order(end=True)
    assert session.ended()["success"]


def test_what_was_cached_before_and_has_gone_is_read(runtime: Node, file: Path) -> None:
    file.read_bytes()
    session = Session(runtime, "s", file)
    session.wait_for("started")
    forget(file)
    if cached(file) != 0:
        pytest.skip("the page cache keeps what others have read")
    session.order(read=[1, [[0, 4 << 20]]])
    wait_for(lambda: session.named("chunk"), "the chunk")
    (chunk,) = session.named("chunk")
    assert chunk["resident"] == 4 << 20
    assert int(str(chunk["requests"])) >= 1
    session.order(drop=[[0, 4 << 20]])
    wait_for(lambda: cached(file, 0, 4 << 20) == 0, "the end of the chunk")
    session.order(end=True)
    assert session.ended()["success"]


def test_parts_that_share_a_page_leave_none(runtime: Node, file: Path) -> None:
    session = Session(runtime, "s", file)
    cuts = [0, 1_000_001, 2_000_003, 2_000_007, 4 << 20]
    parts = [[begin, end - begin] for begin, end in itertools.pairwise(cuts)]
    session.order(read=[1, parts])
    session.wait_for("chunk")
    for part in parts:
        session.order(drop=[part])
    wait_for(lambda: cached(file, 0, 4 << 20) == 0, "the end of all parts")
    session.order(end=True)
    assert session.ended()["success"]


def test_what_is_gone_too_early_is_told(runtime: Node, file: Path) -> None:
    session = Session(runtime, "s", file)
    session.order(read=[1, [[0, 4 << 20]]])
    session.wait_for("chunk")
    with locked(file, 4 << 20):
        session.order(watch=[[0, 4 << 20], [20 << 20, 1 << 20]])
        time.sleep(0.3)
        assert not session.named("evicted")
    forget(file)
    wait_for(lambda: [event["bytes"] for event in session.named("evicted")][-1:] == [4 << 20], "what is gone")
    session.order(end=True)
    assert session.ended()["success"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("words\n", "control.jsonl: expected value"),
        ('{"read": [1, [[0, 99999999]]]}\n', "control.jsonl: extent [0, 99999999] is outside the file"),
    ],
)
def test_orders_that_are_wrong(runtime: Node, file: Path, line: str, message: str) -> None:
    session = Session(runtime, "s", file)
    (session.directory / "control.jsonl").write_text(line)
    ended = session.ended()
    assert (ended["success"], ended["reason"]) == (False, "error")
    assert str(ended["message"]).startswith(message)


def test_another_file(runtime: Node, file: Path) -> None:
    session = Session(runtime, "s", file)
    session.wait_for("started")
    with open(file, "ab") as opened:
        opened.write(b"x")
    session.order(read=[1, [[0, 1]]])
    assert "has another size than when it was cut into parts" in str(session.ended()["message"])
    assert "outside" not in str(session.ended()["message"])
    session = Session(runtime, "m", file, file=str(runtime.base / "none"))
    assert not session.ended()["success"]


def test_a_session_that_is_cancelled(runtime: Node, file: Path) -> None:
    session = Session(runtime, "s", file)
    session.wait_for("started")
    session.cancel()
    assert session.ended()["reason"] == "cancelled"


@pytest.mark.parametrize("is_there", [True, False])
def test_a_reader_that_says_nothing_is_lost(runtime: Node, file: Path, is_there: bool) -> None:
    """A reader that is killed before its first event says nothing, either."""
    session = Session(runtime, "s", file, prepare=lambda events: events.symlink_to("." if is_there else "nowhere/else"))
    wait_for(session.served, "the end of the session", 10)
    (end,) = session.served()
    assert (end["event"], end["success"]) == ("exit", False)


def test_a_reader_that_is_killed_is_lost(runtime: Node, file: Path) -> None:
    session = Session(runtime, "s", file)
    pid = session.wait_for("started")["pid"]
    assert isinstance(pid, int)
    os.kill(pid, 9)
    assert session.ended()["reason"] == "lost"
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the reader, which is waited for")


def test_a_session_ends_with_its_driver(runtime: Node, file: Path) -> None:
    session = Session(runtime, "s", file)
    pid = session.wait_for("started")["pid"]
    session.order(read=[1, [[0, SIZE]]])
    assert runtime.leave() == 0
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the end of the reader")
    assert not runtime.run.exists()


def test_a_reader_that_is_stopped_holds_up_nobody_at_the_end(runtime: Node, file: Path) -> None:
    session = Session(runtime, "s", file)
    pid = session.wait_for("started")["pid"]
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGSTOP)
    begun = time.monotonic()
    assert runtime.leave() == 0
    assert time.monotonic() - begun < 6
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the end of the reader")


def test_a_session_ends_with_serve(runtime: Node, file: Path) -> None:
    session = Session(runtime, "s", file)
    session.wait_for("started")
    runtime.server.kill()
    runtime.server.wait()
    wait_for(lambda: not runtime.run.exists(), "the end of the run directory")


def test_it_takes_little(runtime: Node, file: Path) -> None:
    session = Session(runtime, "s", file, threads=4)
    rounds = 16
    for chunk in range(rounds):
        session.order(read=[chunk, [[chunk * SIZE // rounds, SIZE // rounds]]])
    wait_for(lambda: len(session.named("chunk")) == rounds, "chunks", 60)
    session.order(end=True)
    usage = session.ended()["usage"]
    assert isinstance(usage, dict)
    assert usage["max_rss"] <= 16 << 20
    # 0.1 s for a GiB, and what it takes to start.
    assert usage["wrapper_cpu"] <= 0.1 * SIZE / (1 << 30) + 0.1


@pytest.mark.skipif(not may_mount(), reason="no FUSE")
def test_a_storage_that_does_not_answer_holds_nobody_back(runtime: Node, file: Path, tmp_path: Path) -> None:
    """A thread that waits for it cannot be ended; all others can."""
    (place := tmp_path / "mount").mkdir()
    (flag := tmp_path / "flag").touch()
    with served(file, place, "hangs", 4 << 20, flag) as odd:
        session = Session(runtime, "s", odd, threads=2)
        session.order(read=[0, [[8 << 20, 4 << 20]]])
        session.order(read=[1, [[0, 1 << 20]]])
        session.wait_for("chunk")
        started = time.monotonic()
        assert runtime.leave() == 0
        assert time.monotonic() - started < 5
        assert not runtime.run.exists()


def test_a_window_above_the_memory_gets_smaller(runtime: Node, small: Path) -> None:
    """No job consumes until it is full; then consumed chunks are given back, and the rest of the file comes."""
    parts, each = 16, 8 << 20
    known = runtime.base / "sparse"
    with known.open("wb") as opened:
        opened.truncate(parts * each)
    if cached(known) != 0:
        pytest.skip("the page cache cannot be looked at")
    director = Director(parts * each, each, parts * each, 1)
    session = Session(runtime, "s", known, threads=1)
    small.write_text(str(session.wait_for("started")["pid"]))
    arrived, told = list[int](), 0

    def handle(event: SessionEvent) -> None:
        for instruction in director.handle(event):
            match instruction:
                case Read(chunk, spans):
                    session.order(read=[chunk, extents(spans)])
                case Drop(spans):
                    session.order(drop=extents(spans))
                case Watch(spans):
                    session.order(watch=extents(spans))
                case Arrived(part):
                    arrived.append(part)
                case End():
                    session.order(end=True)

    def hear() -> None:
        nonlocal told
        events = [event for event in session.events() if event["event"] in ("chunk", "evicted")]
        for event in events[told:]:
            told += 1
            if event["event"] == "chunk":
                handle(ChunkRead(int(str(event["chunk"])), int(str(event["resident"]))))
            else:
                handle(Evicted(int(str(event["bytes"]))))

    def is_smaller() -> bool:
        hear()
        return director.window.bytes < parts * each

    for part in range(parts):
        handle(Announced(((part * each, (part + 1) * each),)))
    handle("all announced")
    handle(Began(0))
    wait_for(is_smaller, "less of the file in memory")
    # What the cgroup has, and the chunk that a window keeps.
    assert director.window.bytes <= (40 << 20) + each
    for part in range(parts):
        wait_for(lambda: (hear(), len(arrived) > part)[1], "the next part")  # noqa: B023
        handle(Consumed(part))
    assert session.ended()["success"]
    assert arrived == list(range(parts))
    assert sum(int(str(event["bytes"])) for event in session.named("chunk")) == parts * each
    assert cached(known, 0, parts * each) == 0


def extents(spans: tuple[Span, ...]) -> list[list[int]]:
    return [[begin, end - begin] for begin, end in spans]
