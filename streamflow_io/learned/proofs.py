"""Proofs, on disk: whether a program reads an input, or writes an output, as a byte stream.

An input that is declared `streamable` is believed to be read so until the contrary is known: its entries are of the
kind `declared`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Literal

from streamflow.log_handler import logger

from streamflow_io.messages import Code, coded

from .database import LearnedDatabase, LearnedLimitsError, known_rows
from .extents import Extent, Extents, hold_for, raised

#: How a program may get a stream: `net`, where all that it does with it that a pipe cannot do waits for the file;
#: `pipe`, as an input that is declared `streamable`.
Way = Literal["net", "pipe"]

_COLUMNS = "tool, kind, port, options, step, found, way, reason, bytes, runs, closes, failures, excerpt, extents"
_SELECT = f"SELECT {_COLUMNS} FROM proofs ORDER BY step, kind, port, found"
# What has failed so often stays refused: once may be an accident.
_MOST_FAILURES = 3


def _refusal(row: str) -> str:
    """How much of it is refused: nothing; that it is complete before its job has ended; that it streams."""
    return f"CASE WHEN {row}.way IS NOT NULL OR {row}.closes > 0 THEN 0 WHEN {row}.closes = 0 THEN 1 ELSE 2 END"


# Another run may have found out the same, or that it is not so, meanwhile. Who has failed may be found to be able to,
# by who knows that.
_INSTEAD = f"""
    ON CONFLICT (tool, kind, port, options) DO UPDATE SET step = excluded.step, found = excluded.found,
    way = excluded.way, reason = excluded.reason, bytes = excluded.bytes, runs = max(proofs.runs, excluded.runs),
    closes = excluded.closes, failures = excluded.failures, excerpt = excluded.excerpt, extents = excluded.extents
    WHERE {_refusal("excluded")} >= {_refusal("proofs")}
        OR (proofs.failures BETWEEN 1 AND {_MOST_FAILURES - 1} AND excluded.failures >= proofs.failures)
"""
_IS = "tool = ? AND kind = ? AND port = ? AND options = ?"


@dataclass(frozen=True)
class ProofKey:
    """What a proof holds for.

    :ivar tool: a hex digest of all that is known of the tool before it runs
    :ivar kind: whether the port is an input, which it reads, or an output, which it writes; or an input that is
        declared `streamable`
    :ivar options: a hex digest of the values of its inputs, but for what files contain; empty: it holds for all
    """

    tool: str
    kind: Literal["reads", "writes", "declared"]
    port: str
    options: str = ""

    @property
    def digest(self) -> str:
        """64 hex digits, always the same for the same key."""
        return hashlib.sha256(json.dumps([self.tool, self.kind, self.port, self.options]).encode()).hexdigest()


@dataclass(frozen=True)
class Proof:
    """What was found.

    :ivar step: the path of the step, for people
    :ivar found: when, in seconds since the epoch
    :ivar way: how it reads a stream with the same outcome as the file; None: it does not, or must not be tried
    :ivar reason: why not, in words; of a declared input that is read so, why that cannot be compared with the file
    :ivar bytes: of the file with which it was tried
    :ivar runs: in how many jobs it has streamed since, without a difference
    :ivar closes: of an output: when it was closed after writing so often it is complete, as far as it was seen; 0: that
        was wrong, and it is complete only when its job has ended; None: nothing is known of it
    :ivar failures: how often it has failed with a stream, or in a rehearsal; 0: it has not, or it is refused because
        it makes something else
    :ivar excerpt: of an input: so many first bytes of the file were enough; None: it was tried with all of it
    :ivar extents: of an input that is proven: how far that holds for each of its files; empty: for no file. What is
        declared holds for all
    """

    key: ProofKey
    step: str
    found: float
    way: Way | None = None
    reason: str | None = None
    bytes: int = 0
    runs: int = 0
    closes: int | None = None
    failures: int = 0
    excerpt: int | None = None
    extents: Extents = ()

    @property
    def may_be_tried_again(self) -> bool:
        """Whether it is refused only because it has failed, and not often enough to be no accident."""
        return self.is_refused and 0 < self.failures < _MOST_FAILURES

    @property
    def is_refused(self) -> bool:
        """Whether it must not stream."""
        return self.way is None and self.closes is None

    @property
    def is_proven(self) -> bool:
        return self.way is not None


def with_known(found: Proof, known: Proof | None) -> Proof:
    """What is kept of a proof that is found where another one is known: a proof with larger files stays."""
    if known is None or known.way is None or found.way is None:
        return found
    if known.way == found.way:
        return replace(found, extents=raised(known.extents, found.extents))
    return found if hold_for(found.extents, [each.size for each in known.extents]) else known


class Proofs(LearnedDatabase):
    """The proofs in a file of what was learned."""

    async def list(self) -> tuple[Proof, ...]:
        """All, sorted by step, port and time."""
        return tuple(map(_proof, await self._rows(_SELECT)))

    async def save(self, proof: Proof) -> None:
        """Keep a proof instead of the one with the same key; :func:`with_known` says what stays of that.

        But what is refused stays so, until it is forgotten; unless it :attr:`~Proof.may_be_tried_again`.
        """
        async with self._transaction("IMMEDIATE") as connection:
            rows = await connection.execute_fetchall(f"SELECT {_COLUMNS} FROM proofs WHERE {_IS}", astuple(proof.key))
            proof = with_known(proof, next(map(_proof, rows), None))
            about = (proof.way, proof.reason, proof.bytes, proof.runs, proof.closes, proof.failures, proof.excerpt)
            values = (*astuple(proof.key), proof.step, proof.found, *about, json.dumps(proof.extents))
            await connection.execute(
                f"INSERT INTO proofs ({_COLUMNS}) VALUES ({', '.join('?' * len(values))}) {_INSTEAD}", values
            )

    async def streamed(self, keys: Iterable[ProofKey]) -> None:
        """Count a job more for each of these. A key that there is not is no error."""
        async with self._transaction("IMMEDIATE") as connection:
            await connection.executemany(f"UPDATE proofs SET runs = runs + 1 WHERE {_IS}", map(astuple, keys))

    async def forget(self, keys: Iterable[ProofKey]) -> None:
        """Delete proofs, all of them or none. A key that there is not is no error."""
        async with self._transaction("IMMEDIATE") as connection:
            await connection.executemany(f"DELETE FROM proofs WHERE {_IS}", map(astuple, keys))


def known_proofs(path: Path) -> tuple[Proof, ...]:
    """What there is in a file; nothing if it does not exist. It is not changed.

    :raises LearnedLimitsError: if it cannot be read, or another user could have written it
    """
    # Older files do not say what has failed, nor what was tried with the first bytes, nor how far that holds.
    select = _SELECT
    missing = {"failures": "0", "excerpt": "NULL", "extents": "'[]'"}
    for name in missing:
        select = select.replace(name, f"{{{name}}}")
    proofs = map(_proof, known_rows(path, "proofs", select, **missing))
    return tuple(proof for proof in proofs if not proof.is_proven or proof.extents or proof.key.kind == "declared")


class RememberedProofs:
    """Proofs of earlier runs, and of this one.

    What is kept on disk never makes a run fail: if it cannot be written, one warning says so.

    :param path: the file
    :param known: what it has; None: it cannot be read, and is left alone
    """

    def __init__(self, path: Path, known: Iterable[Proof] | None) -> None:
        self._path = path
        self._known = {proof.key: proof for proof in known or ()}
        # What was proven with files that are too small, as this run has shown.
        self._outgrown: set[ProofKey] = set()
        self._news = asyncio.Event()
        self._file: Proofs | None = None
        self._failed = known is None
        self._opening = asyncio.Lock()

    def of(self, key: ProofKey) -> Proof | None:
        return self._known.get(key)

    def is_read(self, tool: str, port: str) -> bool:
        """Whether an input is proven to be read as a stream, with some options."""
        about = tool, "reads", port
        return any(proof.is_proven and (key.tool, key.kind, key.port) == about for key, proof in self._known.items())

    def is_believed(self, key: ProofKey) -> bool:
        """Whether an input that is declared `streamable` is read as a stream.

        What is refuted with some options is believed with others only if it was tried with these.
        """
        if (known := self.of(key)) is not None:
            return not known.is_refused
        about = key.tool, key.kind, key.port
        return not any(proof.is_refused and (of.tool, of.kind, of.port) == about for of, proof in self._known.items())

    def outgrown(self, key: ProofKey) -> None:
        """A job has more to read as a stream than was proven: that is to be proven with its files."""
        self._outgrown.add(key)

    def is_wanted(self, key: ProofKey, sizes: Sequence[int]) -> bool:
        """Whether it is to be found out how files of these sizes are read."""
        known = self.of(key)
        if known is None or not known.is_proven or key.kind == "declared":
            return known is None or known.may_be_tried_again
        return key in self._outgrown or not hold_for(known.extents, sizes)

    def failures(self, key: ProofKey) -> int:
        """How often what has this key has failed, as far as that may have been an accident."""
        return 0 if (known := self.of(key)) is None else known.failures

    async def news(self) -> None:
        """Wait for the next proof."""
        await self._news.wait()

    async def remember(self, proof: Proof) -> None:
        """Keep a proof, for this run and later ones."""
        self._outgrown.discard(proof.key)
        self._known[proof.key] = with_known(proof, self._known.get(proof.key))
        news, self._news = self._news, asyncio.Event()
        news.set()
        if (file := await self._open()) is not None:
            await self._try(file.save(proof))

    async def streamed(self, keys: Iterable[ProofKey]) -> None:
        """A job has streamed as it was proven, without a difference."""
        if (keys := [*keys]) and (file := await self._open()) is not None:
            await self._try(file.streamed(keys))

    async def close(self) -> None:
        if self._file is not None:
            await self._file.close()
            self._file = None

    async def _open(self) -> Proofs | None:
        async with self._opening:
            if self._file is None and not self._failed:
                await self._try(self._begin())
        # One that was locked for long is not waited for again.
        return None if self._failed else self._file

    async def _begin(self) -> None:
        self._file = await Proofs.open(self._path)

    async def _try(self, work: Coroutine[object, object, None]) -> None:
        try:
            await work
        except LearnedLimitsError as error:
            if not self._failed:
                self._failed = True
                forgets = f"What streams without a hint is not remembered in this run: {error}"
                logger.warning(coded(forgets, Code.STORE_NOT_USED))


def _proof(row: sqlite3.Row) -> Proof:
    tool, kind, port, options, *about, extents = row
    found = tuple(Extent(*each) for each in json.loads(extents))
    return replace(Proof(ProofKey(tool, kind, port, options), *about), extents=found)
