"""Limits that were learned, on disk: constraint registries by tool, storage and size class, in one SQLite file."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable
from dataclasses import astuple, dataclass

from streamflow_io.admission.registry import ConstraintRegistry, RegisteredConstraint

from .database import LearnedDatabase

_MEBIBYTE = 2**20
_SELECT = """
    SELECT tool, storage, size_class, step, storage_name, learned, io_executors, used, job_bytes, complete, entries
    FROM learned
    {where}
    ORDER BY step, storage_name, size_class
"""


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


def size_class_of(input_bytes: float) -> int:
    """The class of jobs whose input files together have about the same size: to a factor of two, and one class for all
    below 1 MiB."""
    return (int(input_bytes) // _MEBIBYTE).bit_length()


def size_range(size_class: int) -> tuple[int, int]:
    """The bytes of a class: from the first number to below the second."""
    return (_MEBIBYTE << size_class - 1 if size_class else 0), _MEBIBYTE << size_class


class LearnedLimits(LearnedDatabase):
    """The learned limits of a file."""

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

    async def _select(self, where: str = "", values: tuple[str, ...] = ()) -> tuple[LearnedLimit, ...]:
        return tuple(map(_limit, await self._rows(_SELECT.format(where=where), values)))


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
