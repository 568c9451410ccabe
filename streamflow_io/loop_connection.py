"""Adapter: a connection to an SQLite file whose statements run in the thread of the event loop.

StreamFlow executes some 15 statements for each job. A statement takes microseconds, but aiosqlite hands it to a
thread, and its cursor again, which costs ten times as much and wakes the event loop twice.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from typing import Any, TypeVar

from typing_extensions import Self

#: How long other tasks wait at most while one task executes statement after statement.
TURN_SECONDS = 0.01
_RETRY_SECONDS = 0.02

T = TypeVar("T")


class LoopConnection:
    """The part of `aiosqlite.Connection` that StreamFlow's database uses, entered as its `SqliteConnection` is.

    A statement that finds the file locked by another process is tried again until it succeeds; other tasks run
    meanwhile. As with StreamFlow, the first statement that writes begins a transaction, and :meth:`close` commits it.

    :param file: an SQLite file
    :param timeout: seconds after which a locked file is an error
    :param prepare: called once before the file is opened
    """

    def __init__(self, file: str, timeout: float, prepare: Callable[[], Awaitable[None]]) -> None:
        self._file = file
        self._timeout = timeout
        self._prepare = prepare
        self._opening = asyncio.Lock()
        self._connection: sqlite3.Connection | None = None
        self._turn = 0.0

    async def __aenter__(self) -> Self:
        if self._connection is None:
            async with self._opening:
                if self._connection is None:
                    await self._prepare()
                    # SQLite itself would wait for the lock in our thread.
                    self._connection = sqlite3.connect(self._file, timeout=0)
                    self._connection.row_factory = sqlite3.Row
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def execute(self, sql: str, parameters: Any = ()) -> Statement:
        """A statement to be awaited, or entered."""
        return Statement(self, "execute", sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any]) -> Statement:
        """A statement for each of the parameters, to be awaited or entered."""
        return Statement(self, "executemany", sql, [*parameters])

    async def close(self) -> None:
        """Commit what was written, and close the file.

        :raises sqlite3.Error: if it cannot be committed
        """
        if self._connection is not None:
            connection, self._connection = self._connection, None
            try:
                await self._try(connection.commit)
            finally:
                connection.close()

    async def run(self, method: str, sql: str, parameters: Any) -> sqlite3.Cursor:
        """Run one statement now.

        :raises sqlite3.Error: if it fails
        """
        connection = self._connection
        if connection is None:
            raise ValueError("Connection closed")
        now = time.monotonic()
        if now - self._turn > TURN_SECONDS:
            await asyncio.sleep(0)
            self._turn = time.monotonic()

        def call() -> sqlite3.Cursor:
            began = connection.in_transaction
            try:
                cursor: sqlite3.Cursor = getattr(connection, method)(sql, parameters)
            except sqlite3.OperationalError:
                if not began:
                    # A transaction that has written nothing must not keep its old view of the file.
                    connection.rollback()
                raise
            return cursor

        return await self._try(call)

    async def _try(self, call: Callable[[], T]) -> T:
        end: float | None = None
        while True:
            try:
                return call()
            except sqlite3.OperationalError as error:
                now = time.monotonic()
                end = now + self._timeout if end is None else end
                if "locked" not in str(error) or now >= end:
                    raise
            await asyncio.sleep(_RETRY_SECONDS)


class Statement:
    """A statement that runs when it is awaited or entered."""

    __slots__ = ("_connection", "_cursor", "_statement")

    def __init__(self, connection: LoopConnection, method: str, sql: str, parameters: Any) -> None:
        self._connection = connection
        self._statement = (method, sql, parameters)

    def __await__(self) -> Generator[Any, None, Rows]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Rows:
        self._cursor = await self._connection.run(*self._statement)
        return Rows(self._cursor)

    async def __aexit__(self, *_: object) -> None:
        self._cursor.close()


class Rows:
    """The result of a statement."""

    __slots__ = ("_cursor",)

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    @property
    def lastrowid(self) -> int | None:
        return self._cursor.lastrowid

    async def fetchone(self) -> Any:
        return self._cursor.fetchone()

    async def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()

    async def __aiter__(self) -> AsyncIterator[Any]:
        for row in self._cursor:
            yield row
