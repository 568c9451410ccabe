"""Limits that were learned, on disk: constraint registries by tool, storage and size class, in one SQLite file."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path

import aiosqlite
from typing_extensions import Self

from streamflow_io.admission.registry import ConstraintRegistry, RegisteredConstraint
from streamflow_io.files import stranger
from streamflow_io.telemetry.directories import data_directory

VERSION = 3
_APPLICATION = 0x5346494F  # "SFIO"
_MEBIBYTE = 2**20

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
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {VERSION}",
)
# A file of the version before has the entries in a table of their own.
_UPGRADE = (
    "ALTER TABLE learned ADD COLUMN entries TEXT NOT NULL DEFAULT '[]'",
    "UPDATE learned SET entries = (SELECT json_group_array(json_array(storage_bw, seconds, concurrency, jobs))"
    " FROM (SELECT * FROM registered WHERE learned_id = id ORDER BY storage_bw))",
    "DROP TABLE registered",
    f"PRAGMA user_version = {VERSION}",
)
_SELECT = """
    SELECT tool, storage, size_class, step, storage_name, learned, io_executors, used, job_bytes, complete, entries
    FROM learned
    {where}
    ORDER BY step, storage_name, size_class
"""


class LearnedLimitsError(Exception):
    """The file cannot be used. Nothing is lost but what was learned: a run can go on without.

    :ivar path: the file
    :ivar reason: why
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


@dataclass(frozen=True)
class LearnedKey:
    """What a registry holds for.

    :ivar tool: a hex digest of the tool's content
    :ivar storage: a text that is the same as long as the storage and its configuration are
    :ivar size_class: see :func:`size_class_of`
    """

    tool: str
    storage: str
    size_class: int

    @property
    def digest(self) -> str:
        """64 hex digits, always the same for the same key."""
        return hashlib.sha256(json.dumps([self.tool, self.storage, self.size_class]).encode()).hexdigest()


@dataclass(frozen=True)
class LearnedFacts:
    """How a registry came about; for people.

    :ivar step: the path of the step
    :ivar storage: the name of the storage
    :ivar learned: when, in seconds since the epoch
    :ivar executors: the ioExecutors of the location
    """

    step: str
    storage: str
    learned: float
    executors: int


@dataclass(frozen=True)
class LearnedLimit:
    """A registry as it is kept.

    :ivar used: how many runs have started from it
    """

    key: LearnedKey
    registry: ConstraintRegistry
    facts: LearnedFacts
    used: int


def default_path() -> Path:
    """`learned.db` in the user's data directory; it may not exist."""
    return data_directory() / "learned.db"


def size_class_of(input_bytes: float) -> int:
    """The class of jobs whose input files together have about the same size: to a factor of two, and one class for all
    below 1 MiB."""
    return (int(input_bytes) // _MEBIBYTE).bit_length()


def size_range(size_class: int) -> tuple[int, int]:
    """The bytes of a class: from the first number to below the second."""
    return (_MEBIBYTE << size_class - 1 if size_class else 0), _MEBIBYTE << size_class


class LearnedLimits:
    """A file of learned limits, to be opened by :meth:`open`.

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
        with _errors(path):
            _create(path)
            connection = await aiosqlite.connect(path, timeout=busy_timeout, isolation_level=None)
        limits = cls(path, connection)
        try:
            await limits._prepare()
        except BaseException:
            await connection.close()
            raise
        return limits

    async def load(self, tool: str, storage: str) -> dict[int, ConstraintRegistry]:
        """What is known of a tool on a storage, by size class."""
        limits = await self._select("WHERE tool = ? AND storage = ?", (tool, storage))
        return {limit.key.size_class: limit.registry for limit in limits}

    async def list(self) -> tuple[LearnedLimit, ...]:
        """Everything, sorted by step, storage and size class."""
        return await self._select()

    async def save(self, key: LearnedKey, registry: ConstraintRegistry, facts: LearnedFacts) -> None:
        """Keep a registry instead of the one with the same key; no run has used it yet."""
        async with self._transaction("IMMEDIATE") as connection:
            await connection.execute(
                "INSERT OR REPLACE INTO learned"
                " (tool, storage, size_class, job_bytes, complete, entries, step, storage_name, learned, io_executors)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(*_values(key), registry.job_bytes, registry.is_complete),
                    json.dumps([astuple(entry) for entry in registry.entries], allow_nan=False),
                    *(facts.step, facts.storage, facts.learned, facts.executors),
                ),
            )

    async def mark_used(self, key: LearnedKey) -> None:
        """Count a run that starts from a registry. Nothing happens if there is none with that key."""
        async with self._transaction("IMMEDIATE") as connection:
            await connection.execute(
                "UPDATE learned SET used = used + 1 WHERE tool = ? AND storage = ? AND size_class = ?", _values(key)
            )

    async def forget(self, keys: Iterable[LearnedKey]) -> None:
        """Delete registries, all of them or none. A key that there is not is no error."""
        async with self._transaction("IMMEDIATE") as connection:
            await connection.executemany(
                "DELETE FROM learned WHERE tool = ? AND storage = ? AND size_class = ?", map(_values, keys)
            )

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
                for statement in _SCHEMA if version == 0 else _UPGRADE if version < VERSION else ():
                    await connection.execute(statement)

    async def _version(self) -> int:
        """The version of the file's format; 0: it is empty. In a transaction.

        :raises LearnedLimitsError: if it is not ours
        """
        application, version = await self._number("PRAGMA application_id"), await self._number("PRAGMA user_version")
        if application == _APPLICATION:
            if version not in (VERSION, VERSION - 1):
                formats = f"its format is {version}, known is {VERSION}"
                raise LearnedLimitsError(self._path, f"it was written by another version of StreamFlow-IO ({formats})")
            return version
        if application or version or await self._number("SELECT count(*) FROM sqlite_master"):
            raise LearnedLimitsError(self._path, "it is the database of another program")
        return 0

    async def _number(self, sql: str) -> int:
        (row,) = await self._connection.execute_fetchall(sql)
        return int(row[0])

    async def _select(self, where: str = "", values: tuple[str, ...] = ()) -> tuple[LearnedLimit, ...]:
        async with self._lock:
            with _errors(self._path):
                rows = await self._connection.execute_fetchall(_SELECT.format(where=where), values)
                return tuple(map(_limit, rows))

    @asynccontextmanager
    async def _transaction(self, kind: str) -> AsyncIterator[aiosqlite.Connection]:
        async with self._lock:
            with _errors(self._path):
                try:
                    await self._connection.execute(f"BEGIN {kind}")
                    yield self._connection
                    await self._connection.commit()
                finally:
                    # Does nothing after a commit. A statement whose caller was cancelled is carried out before it.
                    await self._connection.rollback()


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError, ValueError, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise LearnedLimitsError(path, f"it cannot be used: {why}") from error


def _create(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (why := stranger(path if path.exists() else path.parent)) is not None:
        raise LearnedLimitsError(path, f"it is not used, because another user could have written it: {why}")
    with suppress(FileExistsError):
        # SQLite has no say in the mode. Exclusive, because closing a file ends all locks that this process has on it.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    # If this fails in aiosqlite, a thread outlives the error for a moment, and maybe the event loop.
    sqlite3.connect(path).close()


def _limit(row: sqlite3.Row) -> LearnedLimit:
    tool, storage, size_class, step, storage_name, learned, executors, used, job_bytes, complete, entries = row
    registered = tuple(RegisteredConstraint(*entry) for entry in json.loads(entries))
    return LearnedLimit(
        LearnedKey(tool, storage, size_class),
        ConstraintRegistry(registered, job_bytes, bool(complete)),
        LearnedFacts(step, storage_name, learned, executors),
        used,
    )


def _values(key: LearnedKey) -> tuple[str, str, int]:
    return key.tool, key.storage, key.size_class
