"""A connection whose statements run in the thread of the event loop."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
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
    # As with StreamFlow, nobody else sees what is not committed.
    assert names(file) == []
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
