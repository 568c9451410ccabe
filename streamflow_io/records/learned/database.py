"""The table of learned facts: an SQLite file, which several processes may use at once."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace
from typing_extensions import Self

from streamflow_io.files import stranger
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.records.runs import data_directory

#: The format of the table and of its values. A file with another number is refused, and left as it is.
VERSION = 12
_APPLICATION = 0x5346494F  # "SFIO"

_FORMAT = ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
# The rollback journal, not WAL: home directories of clusters are network file systems, where WAL does not work.
_SCHEMA = (
    """
    CREATE TABLE learned (
        kind TEXT NOT NULL, -- of the entry
        key TEXT NOT NULL, -- the digest of its key
        value TEXT NOT NULL, -- all of the entry, in JSON
        PRIMARY KEY (kind, key)
    )
    """,
    f"PRAGMA application_id = {_APPLICATION}",
)
_OF_KIND = "SELECT value FROM learned WHERE kind = ?"
_OF_KEY = "SELECT value FROM learned WHERE kind = ? AND key = ?"
_SAVE = "INSERT OR REPLACE INTO learned (kind, key, value) VALUES (?, ?, ?)"
_FORGET = "DELETE FROM learned WHERE kind = ? AND key = ?"


class LearnedKey(Struct, frozen=True):
    """The conditions under which an entry holds.

    :ivar tool: a hex digest of the tool
    """

    tool: str

    @property
    def digest(self) -> str:
        """64 hex digits, always the same for the same key."""
        return hashlib.sha256(json.dumps(astuple(self)).encode()).hexdigest()


class LearnedEntry(Struct, frozen=True):
    """A learned fact. Each kind of fact is a subclass.

    :ivar kind: the name of the kind in the file
    :ivar step: the path of the step, for people
    :ivar learned: when the fact was learned, in seconds since the epoch
    """

    kind: ClassVar[str]
    key: LearnedKey
    step: str
    learned: float

    @property
    def order(self) -> tuple[Any, ...]:
        """The sort key of the entry in a list of its kind."""
        return self.step, self.learned

    def merged(self, known: Self | None) -> Self:
        """Return the entry to be kept, where another entry has the same key already."""
        return self


E = TypeVar("E", bound=LearnedEntry)


class LearnedStoreError(Exception):
    """The file cannot be used. Only learned facts are lost: a run can go on without them.

    :ivar path: the file
    :ivar reason: why the file cannot be used
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


def default_path() -> Path:
    """Return `learned.db` in the user's data directory; it may not exist."""
    return data_directory() / "learned.db"


def learned_path(config: SchedulerConfig, streamflow_file: Path) -> Path:
    """Return the file of a run; a relative path counts from the StreamFlow file."""
    return default_path() if config.learned is None else streamflow_file.parent / config.learned


def date_of(seconds: float) -> str:
    """Return the time when a fact was learned, for people. A number that is no time is returned as a number.

    :param seconds: since the epoch
    """
    try:
        return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):  # a damaged file may hold any number
        return f"{seconds:g}"


class LearnedDatabase:
    """A file of learned facts, which is made with mode 0600 by the first transaction, with the directories above it.

    Several processes may use the file at once. Each method is one transaction: a process that is killed leaves all of
    it or nothing, and no lock.

    All methods raise :class:`LearnedStoreError`, and nothing else: when the file cannot be read or written, has another
    format, belongs to another program, or is locked for longer than the busy timeout.

    :param busy_timeout: how long to wait for other processes, in seconds
    """

    def __init__(self, path: Path, busy_timeout: float = 5) -> None:
        self._path = path
        self._busy_timeout = busy_timeout

    def save(self, entries: Iterable[E]) -> None:
        """Save entries, all of them or none. :meth:`LearnedEntry.merged` decides about known keys."""
        with self._transaction() as connection:
            for entry in entries:
                _save(connection, entry.merged(_load(connection, type(entry), entry.key)))

    def save_if(self, entry: E, others: Iterable[LearnedKey], allows: Callable[[Sequence[E]], bool]) -> None:
        """Save an entry, if the entries of its kind that the file has for other keys allow that.

        No other process saves between the question and the answer.
        """
        with self._transaction() as connection:
            found = [_load(connection, type(entry), key) for key in others]
            if allows([each for each in found if each is not None]):
                _save(connection, entry.merged(_load(connection, type(entry), entry.key)))

    def update(self, of: type[E], keys: Iterable[LearnedKey], change: Callable[[E], E]) -> None:
        """Change the entries with these keys, all of them or none. A key without an entry is no error."""
        with self._transaction() as connection:
            for key in keys:
                if (known := _load(connection, of, key)) is not None:
                    _save(connection, change(known))

    def forget(self, entries: Iterable[LearnedEntry]) -> None:
        """Delete entries, all of them or none. An entry that is not in the file is no error."""
        with self._transaction() as connection:
            connection.executemany(_FORGET, [(entry.kind, entry.key.digest) for entry in entries])

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with errors(self._path):
            _create(self._path)
            # A connection that is closed before the commit leaves nothing.
            with closing(sqlite3.connect(self._path, timeout=self._busy_timeout, isolation_level=None)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                if _is_new(self._path, connection):
                    for statement in (*_SCHEMA, f"PRAGMA user_version = {VERSION}"):
                        connection.execute(statement)
                yield connection
                connection.commit()


@contextmanager
def errors(path: Path) -> Iterator[None]:
    """Turn errors of the database into errors of the store.

    :raises LearnedStoreError: for each error of the database, of the file or of a value
    """
    try:
        yield
    except (sqlite3.Error, OSError, ValueError, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise LearnedStoreError(path, f"it cannot be used: {why}") from error


def _is_new(path: Path, connection: sqlite3.Connection) -> bool:
    """Whether a file is still empty.

    :raises LearnedStoreError: if the file is another program's, or has another format
    """
    application, version, tables = (int(connection.execute(sql).fetchone()[0]) for sql in _FORMAT)
    if application == _APPLICATION:
        if version != VERSION:
            formats = f"its format is {version}, that of this version is {VERSION}"
            advice = "move it away to learn anew, or name another file with `learned`"
            raise LearnedStoreError(path, f"it was written by another version of StreamFlow-IO ({formats}): {advice}")
        return False
    if application or version or tables:
        raise LearnedStoreError(path, "it is the database of another program")
    return True


def known_entries(path: Path, of: type[E]) -> tuple[E, ...]:
    """Return all entries of a kind, in order. A file that does not exist has none. No entry is changed.

    :raises LearnedStoreError: if the file cannot be read, or another user could have written it
    """
    with errors(path):
        if not path.exists():
            return ()
        check_own(path)
    # With mode=ro, SQLite could not roll back the journal that a killed process has left.
    with errors(path), closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True)) as connection:
        if _is_new(path, connection):
            return ()
        found = [_entry(of, value) for (value,) in connection.execute(_OF_KIND, (of.kind,))]
    return tuple(sorted(found, key=lambda entry: entry.order))


def _load(connection: sqlite3.Connection, of: type[E], key: LearnedKey) -> E | None:
    row = connection.execute(_OF_KEY, (of.kind, key.digest)).fetchone()
    return None if row is None else _entry(of, row[0])


def _save(connection: sqlite3.Connection, entry: LearnedEntry) -> None:
    # With `ensure_ascii`, a text that is not valid Unicode could be written, and not be read.
    value = json.dumps(msgspec.to_builtins(entry), allow_nan=False, ensure_ascii=False)
    connection.execute(_SAVE, (entry.kind, entry.key.digest, value))


def _entry(of: type[E], value: str) -> E:
    try:
        return msgspec.json.decode(value, type=of)
    except msgspec.DecodeError as error:
        raise ValueError(f"an entry of the kind {of.kind} has a mistake: {error}") from None


def check_own(path: Path) -> None:
    """Check that no other user could have written the file, or could put a file there.

    :raises LearnedStoreError: if another user could have
    """
    if (why := stranger(path if path.exists() else path.parent)) is not None:
        raise LearnedStoreError(path, f"it is not used, because another user could have written it: {why}")


def _create(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_own(path)
    with suppress(FileExistsError):
        # SQLite cannot set the mode. Exclusive, because closing a file ends all locks that this process has on it.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


_MEBIBYTE = 2**20


def size_class_of(input_bytes: float) -> int:
    """Return the class of a job: sizes within a factor of two have one class, and all below 1 MiB have class 0."""
    return (int(input_bytes) // _MEBIBYTE).bit_length()


def size_range(size_class: int) -> tuple[int, int]:
    """Return the bytes of a class: from the first number to below the second."""
    return (_MEBIBYTE << size_class - 1 if size_class else 0), _MEBIBYTE << size_class


class SizeKey(LearnedKey, frozen=True):
    """The conditions under which a limit, or a window, holds.

    :ivar storage: a text that is the same as long as the storage and its configuration are
    :ivar size_class: the class of the input files of a job
    """

    storage: str
    size_class: int

    @property
    def near(self) -> Iterator[SizeKey]:
        """The keys of jobs of about the same size, the key itself first."""
        return (replace(self, size_class=self.size_class + more) for more in (0, -1, 1))
