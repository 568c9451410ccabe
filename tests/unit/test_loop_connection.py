"""A connection whose statements run in the thread of the event loop."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamflow_io import loop_connection
from streamflow_io.loop_connection import LoopConnection

INSERT = "INSERT INTO t(id, name) VALUES(:id, :name)"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as made:
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT)")
    made.close()
    return str(path)


def connection(file: str, timeout: float = 20) -> LoopConnection:
    async def nothing() -> None:
        pass

    return LoopConnection(file, timeout, nothing)


@contextmanager
def other(file: str) -> Iterator[sqlite3.Connection]:
    """Another process, which holds the lock."""
    held = sqlite3.connect(file, timeout=0)
    held.execute("INSERT INTO t(name) VALUES('other')")
    try:
        yield held
    finally:
        held.close()


async def until(happens: Callable[[], bool]) -> None:
    while not happens():  # noqa: ASYNC110 - what happens in a file tells nobody
        await asyncio.sleep(0.001)


def names(file: str) -> list[str]:
    with sqlite3.connect(file) as looked:
        found = [name for (name,) in looked.execute("SELECT name FROM t ORDER BY id")]
    looked.close()
    return found


async def test_statements_as_streamflow_uses_them(file: str) -> None:
    ours = connection(file)
    async with ours as db:
        async with db.execute(INSERT, {"id": None, "name": "a"}) as cursor:
            assert cursor.lastrowid == 1
        await db.execute(INSERT, {"id": 7, "name": "b"})
        async with db.executemany("INSERT INTO t(name) VALUES(?)", (("c",), ("d",))):
            pass
        # What was written is read at once, by name, in all the ways in which a cursor is read.
        async with db.execute("SELECT * FROM t") as cursor:
            assert (await cursor.fetchone())["name"] == "a"
            assert [row["id"] for row in await cursor.fetchall()] == [7, 8, 9]
        async with db.execute("SELECT name FROM t") as cursor:
            assert [row["name"] async for row in cursor] == ["a", "b", "c", "d"]
        with pytest.raises(sqlite3.IntegrityError):
            await db.execute(INSERT, {"id": 7, "name": "again"})
    await ours.close()
    await ours.close()
    assert names(file) == ["a", "b", "c", "d"]


async def test_a_locked_file_stops_no_other_task(file: str) -> None:
    ours = connection(file)
    with other(file) as held:
        async with ours as db:
            writing = asyncio.create_task(db.execute(INSERT, {"id": None, "name": "ours"}).__aenter__())
            for _ in range(3):
                await asyncio.sleep(loop_connection._RETRY_SECONDS)
            assert not writing.done()
            # What was written meanwhile is seen: the statement begins anew.
            held.commit()
            assert (await writing).lastrowid == 2
    await ours.close()
    assert names(file) == ["other", "ours"]


async def test_two_runs_write_at_the_same_time(file: str) -> None:
    """Neither waits for the end of the other, also if both write all the time."""
    one, other_run = connection(file), connection(file)
    async with one as first, other_run as second:
        for db in (first, second):
            await db.execute(INSERT, {"id": None, "name": "before"})

        async def write(db: LoopConnection, name: str) -> None:
            for _ in range(100):
                await db.execute(INSERT, {"id": None, "name": name})
                await asyncio.sleep(0)

        await asyncio.wait_for(asyncio.gather(write(first, "one"), write(second, "other")), 10)
    # A run that is killed now has left what others see.
    await until(lambda: names(file).count("one") == names(file).count("other") == 100)
    await asyncio.gather(one.close(), other_run.close())


async def test_what_cannot_be_committed_is_an_error(file: str) -> None:
    ours = connection(file)
    async with ours as db:
        connected = ours._connection
        assert connected is not None
        connected.execute("PRAGMA foreign_keys = ON")
        connected.execute("CREATE TABLE u(t INTEGER REFERENCES t(id) DEFERRABLE INITIALLY DEFERRED)")
        await db.execute("INSERT INTO u VALUES(7)")
        await until(lambda: ours._failed is not None)
        with pytest.raises(sqlite3.IntegrityError):
            await db.execute("SELECT 1")
    with pytest.raises(sqlite3.IntegrityError):
        await ours.close()


async def test_rows_that_nobody_has_read_keep_no_statement_from_writing(file: str) -> None:
    ours = connection(file)
    with sqlite3.connect(file) as made:
        made.executemany("INSERT INTO t(name) VALUES(?)", [("a",), ("b",)])
    async with ours as db, db.execute("SELECT * FROM t") as cursor:
        await cursor.fetchone()
        with other(file) as held:
            held.commit()
        await db.execute(INSERT, {"id": None, "name": "ours"})
        assert [row["name"] for row in await cursor.fetchall()] == ["b"]
    await ours.close()
    assert names(file) == ["a", "b", "other", "ours"]


async def test_the_journal_does_not_grow_with_the_run(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is written back again and again, while the run goes on."""
    monkeypatch.setattr(loop_connection, "_JOURNAL_BYTES", 50_000)
    ours, journal, written = connection(file), Path(f"{file}-wal"), 0
    async with ours as db:
        for _ in range(5):
            await until(lambda: not journal.exists() or journal.stat().st_size <= 50_000)
            while not journal.exists() or journal.stat().st_size <= 50_000 or ours._writing_back is None:
                await asyncio.gather(*(db.execute(INSERT, {"id": None, "name": "a" * 1000}) for _ in range(3)))
                written += 3
            await asyncio.gather(*(db.execute(INSERT, {"id": None, "name": "a" * 1000}) for _ in range(3)))
            written += 3
    await ours.close()
    assert len(names(file)) == written


async def test_a_long_wait_is_said_once(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_connection, "LONG_SECONDS", 0.0)
    said = asyncio.Event()

    def say() -> None:
        assert not said.is_set()
        said.set()

    async def nothing() -> None:
        pass

    ours = LoopConnection(file, 20, nothing, say)
    with other(file) as held:
        async with ours as db:
            writing = asyncio.create_task(db.execute(INSERT, {"id": None, "name": "ours"}).__aenter__())
            await said.wait()
            assert loop_connection.is_locked(Path(file), 0)
            held.commit()
            await writing
    await ours.close()
    assert not loop_connection.is_locked(Path(file), 0)
    missing = Path(file).with_name("missing")
    assert not loop_connection.is_locked(missing, 0)
    assert not missing.exists()


async def test_a_file_that_stays_locked_is_an_error(file: str) -> None:
    ours = connection(file, timeout=0)
    with other(file):
        async with ours as db:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                await db.execute(INSERT, {"id": None, "name": "ours"})
    await ours.close()
    assert names(file) == []


async def test_other_tasks_have_their_turn(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_connection, "TURN_SECONDS", -1.0)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    ours = connection(file)
    async with ours as db:
        for i in range(10):
            await db.execute(INSERT, {"id": i, "name": "a"})
    counting.cancel()
    assert turns >= 10
    await ours.close()


@pytest.mark.parametrize("message", ["database is locked", "no such table"])
async def test_a_file_that_another_process_prepares_at_the_same_time(file: str, message: str) -> None:
    """SQLite raises the error at once, whatever the timeout is."""
    asked = 0

    async def prepare() -> None:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise sqlite3.OperationalError(message)

    ours = LoopConnection(file, 20, prepare)
    if message == "no such table":
        with pytest.raises(sqlite3.OperationalError, match=message):
            await ours.__aenter__()
        assert asked == 1
        return
    async with ours as db:
        await db.execute(INSERT, {"id": None, "name": "ours"})
    await ours.close()
    assert asked == 3


async def test_a_file_that_is_locked_for_too_long_is_an_error(file: str) -> None:
    async def prepare() -> None:
        raise sqlite3.OperationalError("database is locked")

    with pytest.raises(sqlite3.OperationalError, match="locked"):
        await LoopConnection(file, 0.05, prepare).__aenter__()


async def test_it_is_opened_once(file: str) -> None:
    opened = 0

    async def prepare() -> None:
        nonlocal opened
        opened += 1
        await asyncio.sleep(0)

    ours = LoopConnection(file, 20, prepare)

    async def write() -> None:
        async with ours as db:
            await db.execute(INSERT, {"id": None, "name": "a"})

    await asyncio.gather(*(write() for _ in range(3)))
    await ours.close()
    assert opened == 1
    with pytest.raises(ValueError, match="closed"):
        await ours.run("execute", "SELECT 1", ())
