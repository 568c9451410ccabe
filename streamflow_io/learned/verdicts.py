"""Verdicts, on disk: whether a program has split a file as it is declared."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

from streamflow.log_handler import logger

from streamflow_io.messages import Code, coded

from .database import LearnedDatabase, LearnedLimitsError, known_rows

_SELECT = "SELECT tool, rule, inputs, step, compared, parts, difference FROM verdicts ORDER BY step, compared"


@dataclass(frozen=True)
class VerdictKey:
    """What a verdict holds for.

    :ivar tool: a hex digest of the tool's content
    :ivar rule: where it is declared to cut, in JSON
    :ivar inputs: a hex digest of what else its cuts can depend on
    """

    tool: str
    rule: str
    inputs: str

    @property
    def digest(self) -> str:
        """64 hex digits, always the same for the same key."""
        return hashlib.sha256(json.dumps([self.tool, self.rule, self.inputs]).encode()).hexdigest()


@dataclass(frozen=True)
class Verdict:
    """The outcome of a comparison.

    :ivar step: the path of the step, for people
    :ivar compared: when, in seconds since the epoch
    :ivar parts: how many the rule gives
    :ivar difference: the first one between these and what the program has written; None: there is none
    """

    key: VerdictKey
    step: str
    compared: float
    parts: int
    difference: str | None = None

    @property
    def is_verified(self) -> bool:
        return self.difference is None


class Verdicts(LearnedDatabase):
    """The verdicts in a file of what was learned."""

    async def list(self) -> tuple[Verdict, ...]:
        """All, sorted by step and time."""
        return tuple(map(_verdict, await self._rows(_SELECT)))

    async def save(self, verdict: Verdict) -> None:
        """Keep a verdict instead of the one with the same key."""
        values = (*astuple(verdict.key), verdict.step, verdict.compared, verdict.parts, verdict.difference)
        async with self._transaction("IMMEDIATE") as connection:
            await connection.execute(
                "INSERT OR REPLACE INTO verdicts (tool, rule, inputs, step, compared, parts, difference)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                values,
            )

    async def forget(self, keys: Iterable[VerdictKey]) -> None:
        """Delete verdicts, all of them or none. A key that there is not is no error."""
        async with self._transaction("IMMEDIATE") as connection:
            await connection.executemany(
                "DELETE FROM verdicts WHERE tool = ? AND rule = ? AND inputs = ?", map(astuple, keys)
            )


def known_verdicts(path: Path) -> tuple[Verdict, ...]:
    """What there is in a file; nothing if it does not exist. It is not changed.

    :raises LearnedLimitsError: if it cannot be read, or another user could have written it
    """
    return tuple(map(_verdict, known_rows(path, "verdicts", _SELECT)))


class RememberedVerdicts:
    """Verdicts of earlier runs, and of this one.

    What is kept on disk never makes a run fail: if it cannot be written, one warning says so.

    :param path: the file
    :param known: what it has
    """

    def __init__(self, path: Path, known: Iterable[Verdict]) -> None:
        self._path = path
        self._known = {verdict.key: verdict for verdict in known}
        self._comparing: set[VerdictKey] = set()
        self._file: Verdicts | None = None
        self._failed = False

    def of(self, key: VerdictKey) -> Verdict | None:
        return self._known.get(key)

    def begin(self, key: VerdictKey) -> bool:
        """Whether a job is to be compared: there is no verdict, and nobody else is about to find one."""
        if key in self._known or key in self._comparing:
            return False
        self._comparing.add(key)
        return True

    def end(self, key: VerdictKey) -> None:
        """A comparison that has begun has ended, however."""
        self._comparing.discard(key)

    async def remember(self, verdict: Verdict) -> None:
        """Keep a verdict, for this run and later ones."""
        self._known[verdict.key] = verdict
        if self._failed:
            return
        try:
            if self._file is None:
                self._file = await Verdicts.open(self._path)
            await self._file.save(verdict)
        except LearnedLimitsError as error:
            self._failed = True
            logger.warning(coded(f"Verified splits are not remembered in this run: {error}", Code.STORE_NOT_USED))

    async def close(self) -> None:
        if self._file is not None:
            await self._file.close()
            self._file = None


def _verdict(row: sqlite3.Row) -> Verdict:
    tool, rule, inputs, step, compared, parts, difference = row
    return Verdict(VerdictKey(tool, rule, inputs), step, compared, parts, difference)
