"""A connection to an SQLite file whose statements run in the thread of the event loop.

StreamFlow executes some 15 statements for each job. A statement takes microseconds. aiosqlite hands the statement and
its cursor to a thread, which costs ten times as much and wakes the event loop twice.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import Self

#: How long other tasks wait at most while one task executes statement after statement.
TURN_SECONDS = 0.01
#: How long a transaction lasts while other runs write: meanwhile they cannot.
TRANSACTION_SECONDS = 0.001
#: The same while no other run writes: each commit costs some 80 microseconds.
ALONE_SECONDS = 0.1
# For so long after it has written, another run is expected to write again.
_OTHERS_SECONDS = 10.0
# The same where the file system allows no journal that is written ahead: there each commit waits for the disk.
_WITHOUT_JOURNAL_SECONDS = 1.0
_RETRY_SECONDS = 0.005
#: Seconds after which a message says that the file is locked.
LONG_SECONDS = 2.0
# The size of the journal, in bytes, from which the journal is written back to the file.
_JOURNAL_BYTES = 4 * 2**20

_PRAGMAS = (
    # As StreamFlow has it for the connection that makes the file: a commit waits for no disk.
    "PRAGMA synchronous = NORMAL",
    # SQLite would wait for the disk in our thread.
    "PRAGMA wal_autocheckpoint = 0",
)

T = TypeVar("T")


class LoopConnection:
    """The part of `aiosqlite.Connection` that StreamFlow's database uses, entered as its `SqliteConnection` is.

    Other processes write to the same file at the same time: a transaction ends after ALONE_SECONDS, or after
    TRANSACTION_SECONDS once another process has been seen. A statement that finds the file locked by another process is
    tried again until it succeeds; other tasks run meanwhile.

    Guarantee: what was written is in the file after :meth:`close`, or a statement or :meth:`close` has raised.

    :param file: an SQLite file
    :param timeout: seconds after which a locked file is an error
    :param prepare: called once before the file is opened
    :param locked: called once, if the file is locked for a long time
    """

    def __init__(
        self,
        file: str,
        timeout: float,
        prepare: Callable[[], Awaitable[None]],
        locked: Callable[[], None] = lambda: None,
    ) -> None:
        self._file = file
        self._timeout = timeout
        self._prepare = prepare
        self._say_locked: Callable[[], None] | None = locked
        self._opening = asyncio.Lock()
        self._connection: sqlite3.Connection | None = None
        self._turn = 0.0
        # Held while a statement waits for another process, or for the disk: one is tried again, not hundreds.
        self._busy = asyncio.Lock()
        self._committing: asyncio.TimerHandle | None = None
        self._writing_back: asyncio.Task[None] | None = None
        self._alone, self._with_others = ALONE_SECONDS, TRANSACTION_SECONDS
        # When another process was last seen to write, and the number of the last one's commit.
        self._others, self._version = float("-inf"), 0
        self._most_bytes = _JOURNAL_BYTES
        self._failed: sqlite3.Error | None = None

    async def __aenter__(self) -> Self:
        if self._connection is None:
            async with self._opening:
                if self._connection is None:
                    await self._prepared()
                    # SQLite itself would wait for the lock in our thread.
                    connection = sqlite3.connect(self._file, timeout=0, check_same_thread=False)
                    connection.row_factory = sqlite3.Row
                    for pragma in _PRAGMAS:
                        await self._try(partial(_rows, connection, pragma))
                    ((mode,),) = await self._try(partial(_rows, connection, "PRAGMA journal_mode"))
                    if mode != "wal":
                        self._alone = self._with_others = _WITHOUT_JOURNAL_SECONDS
                    ((self._version,),) = await self._try(partial(_rows, connection, "PRAGMA data_version"))
                    self._connection = connection
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

        :raises sqlite3.Error: if something that was written cannot be committed
        """
        if self._connection is None:
            return
        connection, self._connection = self._connection, None
        if self._committing is not None:
            self._committing.cancel()
            self._committing = None
        async with self._busy:
            try:
                self._raise_failed()
                await self._try(connection.commit)
            finally:
                connection.close()

    async def run(self, method: str, sql: str, parameters: Any) -> Rows:
        """Run one statement now.

        :raises sqlite3.Error: if it fails, or if what was written before could not be committed
        """
        now = time.monotonic()
        if now - self._turn > TURN_SECONDS:
            await asyncio.sleep(0)
            self._turn = time.monotonic()
        if not self._busy.locked():
            try:
                return self._execute(method, sql, parameters)
            except sqlite3.OperationalError as error:
                if not says_locked(error):
                    raise
        async with self._busy:
            return await self._try(partial(self._execute, method, sql, parameters))

    def _execute(self, method: str, sql: str, parameters: Any) -> Rows:
        connection = self._connection
        if connection is None:
            raise ValueError("Connection closed")
        self._raise_failed()
        began = connection.in_transaction
        try:
            cursor: sqlite3.Cursor = getattr(connection, method)(sql, parameters)
            # A cursor that is open keeps its old view of the file, and with it no statement could write.
            found = Rows(cursor.fetchall(), cursor.lastrowid)
        except sqlite3.OperationalError:
            if not began:
                # A transaction that has written nothing must not keep its old view of the file either.
                connection.rollback()
            raise
        if self._committing is None and connection.in_transaction:
            has_others = time.monotonic() - self._others < _OTHERS_SECONDS
            self._commit_after(self._with_others if has_others else self._alone)
        return found

    def _commit_after(self, seconds: float) -> None:
        self._committing = asyncio.get_running_loop().call_later(seconds, self._commit)

    def _commit(self) -> None:
        """Let other processes have the file."""
        self._committing = None
        if (connection := self._connection) is None:
            return
        try:
            connection.commit()
            ((version,),) = _rows(connection, "PRAGMA data_version")
        except sqlite3.Error as error:
            if says_locked(error):
                self._commit_after(_RETRY_SECONDS)
            else:
                # SQLite may have forgotten what was written: whoever goes on must not do so in ignorance of it.
                self._failed = error
            return
        if version != self._version:
            self._version, self._others = version, time.monotonic()
        if self._writing_back is None and self._journal_size() > self._most_bytes:
            self._writing_back = asyncio.create_task(self._write_back(connection))

    async def _write_back(self, connection: sqlite3.Connection) -> None:
        """Write the journal into the file, in a thread: it waits for the disk."""
        async with self._busy:
            self._commit()
            if self._connection is not None and not connection.in_transaction:
                with suppress(sqlite3.Error):  # the next one may do it
                    await asyncio.to_thread(_rows, connection, "PRAGMA wal_checkpoint(TRUNCATE)")
        # A reader of the file can keep the journal as it is for long.
        self._most_bytes = self._journal_size() + _JOURNAL_BYTES
        self._writing_back = None

    def _journal_size(self) -> int:
        try:
            return os.stat(f"{self._file}-wal").st_size
        except OSError:
            return 0

    def _raise_failed(self) -> None:
        if self._failed is not None:
            raise self._failed

    async def _prepared(self) -> None:
        """Prepare the file. SQLite does not wait for another process that makes the journal of the same new file."""
        end = time.monotonic() + self._timeout
        while True:
            try:
                return await self._prepare()
            except sqlite3.OperationalError as error:
                if not says_locked(error) or time.monotonic() >= end:
                    raise
            await asyncio.sleep(random.uniform(0.5, 1.5) * _RETRY_SECONDS)

    async def _try(self, call: Callable[[], T]) -> T:
        began: float | None = None
        while True:
            try:
                return call()
            except sqlite3.OperationalError as error:
                now = time.monotonic()
                began = now if began is None else began
                waited = now - began
                if not says_locked(error) or waited >= self._timeout:
                    raise
                self._others = now
                if waited >= LONG_SECONDS and self._say_locked is not None:
                    self._say_locked()
                    self._say_locked = None
            # Another run that writes all the time leaves the file for moments: they are found by chance.
            pause = min(_RETRY_SECONDS, TRANSACTION_SECONDS + waited / 10)
            await asyncio.sleep(random.uniform(0.5, 1.5) * pause)


def _rows(connection: sqlite3.Connection, sql: str) -> list[Any]:
    """All rows of a statement, which is over then: beside one that goes on nothing can be committed."""
    return connection.execute(sql).fetchall()


def is_locked(file: Path, seconds: float) -> bool:
    """Whether another process keeps an SQLite file locked for so long. A file that is not there is not made."""
    end = time.monotonic() + seconds
    while True:
        try:
            connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True, timeout=0)
            try:
                connection.execute("BEGIN IMMEDIATE")
                return False
            finally:
                connection.close()
        except sqlite3.Error as error:
            if not says_locked(error):
                return False
        if time.monotonic() >= end:
            return True
        time.sleep(TRANSACTION_SECONDS)


def says_locked(error: BaseException) -> bool:
    """Whether an error says that another process has a file locked."""
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


class Statement:
    """A statement that runs when it is awaited or entered."""

    __slots__ = ("_connection", "_statement")

    def __init__(self, connection: LoopConnection, method: str, sql: str, parameters: Any) -> None:
        self._connection = connection
        self._statement = (method, sql, parameters)

    def __await__(self) -> Generator[Any, None, Rows]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Rows:
        return await self._connection.run(*self._statement)

    async def __aexit__(self, *_: object) -> None:
        pass


class Rows:
    """The result of a statement, read as a cursor is."""

    __slots__ = ("_rows", "lastrowid")

    def __init__(self, rows: Iterable[Any], lastrowid: int | None) -> None:
        self._rows = iter(rows)
        self.lastrowid = lastrowid

    async def fetchone(self) -> Any:
        return next(self._rows, None)

    async def fetchall(self) -> list[Any]:
        return [*self._rows]

    async def __aiter__(self) -> AsyncIterator[Any]:
        for row in self._rows:
            yield row
