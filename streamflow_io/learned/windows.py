"""Windows that were learned, on disk: how long it took until somebody waited for what an I/O task moves, and until the
next burst of an output that is streamed."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from streamflow.log_handler import logger

from streamflow_io.bandwidth.expectations import Learned
from streamflow_io.messages import Code, coded

from .database import LearnedDatabase, LearnedLimitsError, known_rows
from .store import size_class_of

_SELECT = """
    SELECT tool, storage, size_class, window, ratio, phases, {bytes}, step, learned
    FROM windows
    ORDER BY step, storage, size_class
"""


@dataclass(frozen=True)
class WindowKey:
    """What a window holds for.

    :ivar tool: a hex digest of the tool's content
    :ivar storage: a text that is the same as long as the storages that its jobs may use are; or says which output it
        is of
    :ivar size_class: of the input files of a job, see :func:`~.store.size_class_of`
    """

    tool: str
    storage: str
    size_class: int

    @property
    def digest(self) -> str:
        """64 hex digits, always the same for the same key."""
        return hashlib.sha256(json.dumps([self.tool, self.storage, self.size_class]).encode()).hexdigest()


@dataclass(frozen=True)
class LearnedWindow:
    """:ivar step: the path of the step, or of its output, for people
    :ivar learned: when, in seconds since the epoch
    """

    key: WindowKey
    of: Learned
    step: str
    learned: float


class LearnedWindows(LearnedDatabase):
    """The windows in a file of what was learned."""

    async def list(self) -> tuple[LearnedWindow, ...]:
        """All, sorted by step and size class."""
        return tuple(map(_window, await self._rows(_SELECT.format(bytes="bytes"))))

    async def save(self, windows: Iterable[LearnedWindow]) -> None:
        """Keep windows instead of those with the same keys; all of them or none."""
        values = [(*astuple(one.key), *astuple(one.of), one.step, one.learned) for one in windows]
        async with self._transaction("IMMEDIATE") as connection:
            await connection.executemany(
                "INSERT OR REPLACE INTO windows"
                " (tool, storage, size_class, window, ratio, phases, bytes, step, learned)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )

    async def forget(self, keys: Iterable[WindowKey]) -> None:
        """Delete windows, all of them or none. A key that there is not is no error."""
        async with self._transaction("IMMEDIATE") as connection:
            await connection.executemany(
                "DELETE FROM windows WHERE tool = ? AND storage = ? AND size_class = ?", map(astuple, keys)
            )


class RememberedWindows:
    """Windows of earlier runs, and of this one.

    What is kept on disk never makes a run fail: if it cannot be read or written, one warning says so.

    :param path: the file
    :param tools: the digest of the tool of each step, or output
    :param storages: as in :class:`WindowKey`, by step, or output
    """

    def __init__(self, path: Path, tools: Mapping[str, str], storages: Mapping[str, str]) -> None:
        self._path = path
        self._tools = tools
        self._storages = storages
        self._known: Mapping[WindowKey, Learned] | None = None
        self._keys: dict[str, WindowKey] = {}

    @property
    def names(self) -> Collection[str]:
        """The steps, or outputs, of which something may be known."""
        return self._tools.keys()

    def of(self, step: str, input_bytes: float) -> Learned | None:
        """What is known of a step, or output; None: nothing. Of others than those with a tool nothing is kept.

        :param input_bytes: what its job reads. What is kept of it holds for that of the first one that is asked for
        """
        if step not in self._tools:
            return None
        if self._known is None:
            self._known = self._read()
        key = WindowKey(self._tools[step], self._storages[step], size_class_of(input_bytes))
        self._keys.setdefault(step, key)
        near = [WindowKey(key.tool, key.storage, key.size_class + more) for more in (0, -1, 1)]
        return next((self._known[one] for one in near if one in self._known), None)

    async def keep(self, learned: Mapping[str, Learned]) -> None:
        """Keep what was learned, by step, for later runs."""
        now = time.time()
        windows = [LearnedWindow(self._keys[step], of, step, now) for step, of in learned.items() if step in self._keys]
        if not windows:
            return
        try:
            file = await LearnedWindows.open(self._path)
            try:
                await file.save(windows)
            finally:
                await file.close()
        except LearnedLimitsError as error:
            logger.warning(coded(f"The windows of this run are not remembered: {error}", Code.STORE_NOT_USED))

    def _read(self) -> Mapping[WindowKey, Learned]:
        try:
            return {one.key: one.of for one in _known_windows(self._path)}
        except LearnedLimitsError as error:
            logger.warning(coded(f"Windows of earlier runs are not known: {error}", Code.STORE_NOT_USED))
            return {}


def _known_windows(path: Path) -> tuple[LearnedWindow, ...]:
    """What there is in a file; nothing if it does not exist. It is not changed.

    :raises LearnedLimitsError: if it cannot be read, or another user could have written it
    """
    # Older files have none of bursts.
    return tuple(map(_window, known_rows(path, "windows", _SELECT, bytes="NULL")))


def _window(row: sqlite3.Row) -> LearnedWindow:
    tool, storage, size_class, window, ratio, phases, moved, step, learned = row
    return LearnedWindow(WindowKey(tool, storage, size_class), Learned(window, ratio, phases, moved), step, learned)
