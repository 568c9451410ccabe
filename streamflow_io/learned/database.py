"""What was learned, on disk: one SQLite file, which several processes may use at once."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path

import aiosqlite
from typing_extensions import Self

from streamflow_io.files import stranger
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.records.runs import data_directory

VERSION = 10
_APPLICATION = 0x5346494F  # "SFIO"

_VERDICTS = """
    CREATE TABLE verdicts (
        tool TEXT NOT NULL,
        rule TEXT NOT NULL, -- in JSON
        inputs TEXT NOT NULL,
        step TEXT NOT NULL,
        compared REAL NOT NULL,
        parts INTEGER NOT NULL,
        difference TEXT, -- the first one; NULL: there is none
        UNIQUE (tool, rule, inputs)
    )
"""
_WINDOWS = """
    CREATE TABLE windows (
        tool TEXT NOT NULL,
        storage TEXT NOT NULL,
        size_class INTEGER NOT NULL,
        window REAL NOT NULL, -- seconds
        ratio REAL, -- of the bytes moved to those of the input; NULL: not known
        phases INTEGER NOT NULL,
        step TEXT NOT NULL,
        learned REAL NOT NULL,
        UNIQUE (tool, storage, size_class)
    )
"""
# Of the first burst of an output that is streamed; NULL: the window is not one of bursts.
_BURST_BYTES = "ALTER TABLE windows ADD COLUMN bytes REAL"
_PROOFS = """
    CREATE TABLE proofs (
        tool TEXT NOT NULL,
        kind TEXT NOT NULL, -- reads, writes, declared
        port TEXT NOT NULL,
        options TEXT NOT NULL,
        step TEXT NOT NULL,
        found REAL NOT NULL,
        way TEXT, -- net, pipe; NULL: it does not stream, or is an output
        reason TEXT, -- why it does not
        closes INTEGER, -- of an output: after so many it is complete; 0: only when its job has ended
        bytes INTEGER NOT NULL,
        runs INTEGER NOT NULL,
        UNIQUE (tool, kind, port, options)
    )
"""
# How often it has failed in a row, of what is refused or proven; 0: it is refused for good, or has never failed.
_FAILURES = "ALTER TABLE proofs ADD COLUMN failures INTEGER NOT NULL DEFAULT 0"
_HAVE_FAILED = """
    UPDATE proofs SET failures = 1 WHERE way IS NULL AND kind = 'reads' AND (
        reason LIKE 'it fails with a stream%' OR reason LIKE 'it does not run twice: %'
        OR reason LIKE '% when it reads a stream'
    )
"""
# With so many first bytes of the file it was tried; NULL: with all of it.
_EXCERPT = "ALTER TABLE proofs ADD COLUMN excerpt INTEGER"
# How far it holds for each of the files, in JSON: [[bytes read, bytes of the file], ...].
_EXTENTS = "ALTER TABLE proofs ADD COLUMN extents TEXT NOT NULL DEFAULT '[]'"
_FORMAT = ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
# The rollback journal, not WAL: home directories of clusters are network file systems, where WAL does not work.
_SCHEMA = (
    """
    CREATE TABLE learned (
        tool TEXT NOT NULL,
        storage TEXT NOT NULL,
        size_class INTEGER NOT NULL,
        job_bytes REAL,
        step TEXT NOT NULL,
        storage_name TEXT NOT NULL,
        learned REAL NOT NULL,
        io_executors INTEGER NOT NULL,
        used INTEGER NOT NULL DEFAULT 0,
        complete INTEGER NOT NULL DEFAULT 1,
        entries TEXT NOT NULL, -- of the registry, in JSON: [[constraint, seconds, concurrency, jobs], ...]
        UNIQUE (tool, storage, size_class)
    )
    """,
    _VERDICTS,
    _WINDOWS,
    _BURST_BYTES,
    _PROOFS,
    _FAILURES,
    _EXCERPT,
    _EXTENTS,
    f"PRAGMA application_id = {_APPLICATION}",
)
# What changes a file of each version into one of the next.
_UPGRADES = {
    2: (
        # It has the entries in a table of their own.
        "ALTER TABLE learned ADD COLUMN entries TEXT NOT NULL DEFAULT '[]'",
        "UPDATE learned SET entries = (SELECT json_group_array(json_array(storage_bw, seconds, concurrency, jobs))"
        " FROM (SELECT * FROM registered WHERE learned_id = id ORDER BY storage_bw))",
        "DROP TABLE registered",
    ),
    3: (_VERDICTS,),
    4: (_WINDOWS,),
    5: (_BURST_BYTES,),
    6: (_PROOFS,),
    7: (_FAILURES, _HAVE_FAILED),
    8: (_EXCERPT,),
    # Nobody knows how far these proofs hold.
    9: (_EXTENTS, "DELETE FROM proofs WHERE way IS NOT NULL"),
}


class LearnedLimitsError(Exception):
    """The file cannot be used. Nothing is lost but what was learned: a run can go on without.

    :ivar path: the file
    :ivar reason: why
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def default_path() -> Path:
    """`learned.db` in the user's data directory; it may not exist."""
    return data_directory() / "learned.db"


def learned_path(config: SchedulerConfig, streamflow_file: Path) -> Path:
    """The file of a run; relative to the StreamFlow file."""
    return default_path() if config.learned is None else streamflow_file.parent / config.learned


def date_of(seconds: float) -> str:
    """When something was learned, for people.

    :param seconds: since the epoch
    """
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")


class LearnedDatabase:
    """A file of what was learned, to be opened by :meth:`open`.

    Several processes may use it at once. Each method is one transaction: a process that is killed, or a task that is
    cancelled, leaves all of it or nothing, and no lock. All methods but :meth:`close` raise
    :class:`LearnedLimitsError`, and nothing else, if the file cannot be read or written, or is locked for longer than
    the busy timeout.
    """

    def __init__(self, path: Path, connection: aiosqlite.Connection) -> None:
        self._path = path
        self._connection = connection
        # The connection has one transaction at a time, and tasks share it.
        self._lock = asyncio.Lock()

    @classmethod
    async def open(cls, path: Path, busy_timeout: float = 5) -> Self:
        """Open a file, or create it with mode 0600, and the directories above it.

        :param busy_timeout: how long to wait for other processes, in seconds
        :raises LearnedLimitsError: also if it is of a newer version, of another program or no SQLite database
        """
        with errors(path):
            _create(path)
            connection = await aiosqlite.connect(path, timeout=busy_timeout, isolation_level=None)
        limits = cls(path, connection)
        try:
            await limits._prepare()
        except BaseException:
            await connection.close()
            raise
        return limits

    async def close(self) -> None:
        """Close the file; may be called twice."""
        await self._connection.close()

    async def _prepare(self) -> None:
        async with self._transaction("DEFERRED"):
            version = await self._version()
        if version < VERSION:
            async with self._transaction("IMMEDIATE") as connection:
                # Another process may have been faster.
                version = await self._version()
                steps = [_SCHEMA] if version == 0 else [_UPGRADES[older] for older in range(version, VERSION)]
                for statement in (statement for step in steps for statement in step):
                    await connection.execute(statement)
                await connection.execute(f"PRAGMA user_version = {VERSION}")

    async def _version(self) -> int:
        """The version of the file's format; 0: it is empty. In a transaction.

        :raises LearnedLimitsError: if it is not ours
        """
        application, version, tables = [await self._number(sql) for sql in _FORMAT]
        return _known_version(self._path, application, version, tables)

    async def _number(self, sql: str) -> int:
        (row,) = await self._connection.execute_fetchall(sql)
        return int(row[0])

    async def _rows(self, sql: str, values: Sequence[str] = ()) -> list[sqlite3.Row]:
        async with self._lock:
            with errors(self._path):
                return list(await self._connection.execute_fetchall(sql, values))

    @asynccontextmanager
    async def _transaction(self, kind: str) -> AsyncIterator[aiosqlite.Connection]:
        async with self._lock:
            with errors(self._path):
                try:
                    await self._connection.execute(f"BEGIN {kind}")
                    yield self._connection
                    await self._connection.commit()
                finally:
                    # Does nothing after a commit. A statement whose caller was cancelled is carried out before it.
                    await self._connection.rollback()


@contextmanager
def errors(path: Path) -> Iterator[None]:
    """:raises LearnedLimitsError: instead of what a database raises"""
    try:
        yield
    except (sqlite3.Error, OSError, ValueError, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise LearnedLimitsError(path, f"it cannot be used: {why}") from error


def _known_version(path: Path, application: int, version: int, tables: int) -> int:
    """The version of a file's format, of what `_FORMAT` gives.

    :raises LearnedLimitsError: if it is not ours
    """
    if application == _APPLICATION:
        if version not in (VERSION, *_UPGRADES):
            formats = f"its format is {version}, known is {VERSION}"
            raise LearnedLimitsError(path, f"it was written by another version of StreamFlow-IO ({formats})")
        return version
    if application or version or tables:
        raise LearnedLimitsError(path, "it is the database of another program")
    return 0


def known_rows(path: Path, table: str, select: str, **added: str) -> list[sqlite3.Row]:
    """What a table has; nothing if there is no file, or no such table in it. Nothing is changed.

    :param select: with the columns in braces that older files have not
    :param added: these columns, with what stands for them then
    :raises LearnedLimitsError: if it cannot be read, or another user could have written it
    """
    if not path.exists():
        return []
    check_own(path)
    with errors(path), closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        application, version, tables = (int(connection.execute(sql).fetchone()[0]) for sql in _FORMAT)
        _known_version(path, application, version, tables)
        columns = {name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}
        chosen = {name: name if name in columns else instead for name, instead in added.items()}
        return connection.execute(select.format(**chosen)).fetchall() if columns else []


def check_own(path: Path) -> None:
    """:raises LearnedLimitsError: if another user could have written the file, or could put one there"""
    if (why := stranger(path if path.exists() else path.parent)) is not None:
        raise LearnedLimitsError(path, f"it is not used, because another user could have written it: {why}")


def _create(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_own(path)
    with suppress(FileExistsError):
        # SQLite has no say in the mode. Exclusive, because closing a file ends all locks that this process has on it.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    # If this fails in aiosqlite, a thread outlives the error for a moment, and maybe the event loop.
    sqlite3.connect(path).close()
