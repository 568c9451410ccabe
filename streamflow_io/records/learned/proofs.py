"""Proofs: whether a program reads an input, or writes an output, as a byte stream.

An input that is declared `streamable` is believed to be read so until the contrary is known: its entries are of the
kind `declared`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from .database import LearnedEntry, LearnedKey, known_entries
from .extents import Extents, hold_for, raised
from .remembered import Remembered

#: How a program may get a stream: `net`, where all that it does with it that a pipe cannot do waits for the file;
#: `pipe`, as an input that is declared `streamable`.
Way = Literal["net", "pipe"]

# What has failed so often stays refused: once may be an accident.
_MOST_FAILURES = 3


@dataclass(frozen=True)
class ProofKey(LearnedKey):
    """What a proof holds for.

    :ivar tool: of all that is known of the tool before it runs
    :ivar kind: whether the port is an input, which it reads, or an output, which it writes; or an input that is
        declared `streamable`
    :ivar options: a hex digest of the values of its inputs, but for what files contain; empty: it holds for all
    """

    kind: Literal["reads", "writes", "declared"]
    port: str
    options: str = ""

    @property
    def about(self) -> tuple[str, str, str]:
        """The key without the options."""
        return self.tool, self.kind, self.port


@dataclass(frozen=True)
class Proof(LearnedEntry):
    """What was found.

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

    kind: ClassVar[str] = "proof"
    key: ProofKey
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

    @property
    def order(self) -> tuple[Any, ...]:
        return self.step, self.key.kind, self.key.port, self.learned

    def merged(self, known: Proof | None) -> Proof:
        """What is refused stays so until it is forgotten, unless it :attr:`may_be_tried_again`.

        Another run may have found out the same meanwhile, or the contrary. What failed may be found to stream only by a
        run that knows of the failures.
        """
        if known is None:
            return self
        found = with_known(self, known)
        knows = 0 < known.failures < _MOST_FAILURES and found.failures >= known.failures
        if not knows and found._refusal < known._refusal:
            return known
        return replace(found, runs=max(found.runs, known.runs))

    @property
    def _refusal(self) -> int:
        """How much is refused: 0: nothing; 1: that it is complete before its job has ended; 2: that it streams."""
        if self.is_proven or self.closes:
            return 0
        return 2 if self.closes is None else 1


def with_known(found: Proof, known: Proof | None) -> Proof:
    """What is kept of a proof that is found where another one is known: a proof with larger files stays."""
    if known is None or known.way is None or found.way is None:
        return found
    if known.way == found.way:
        return replace(found, extents=raised(known.extents, found.extents))
    return found if hold_for(found.extents, [each.size for each in known.extents]) else known


def known_proofs(path: Path) -> tuple[Proof, ...]:
    """The proofs of a file, in order. A file that does not exist has none. The file is not changed.

    :raises LearnedStoreError: if the file cannot be read, or another user could have written it
    """
    return known_entries(path, Proof)


class RememberedProofs(Remembered[Proof]):
    """Proofs of earlier runs, and of this one.

    :param path: the file
    :param known: what it has; None: it cannot be read, and is left alone
    """

    def __init__(self, path: Path, known: Iterable[Proof] | None) -> None:
        super().__init__(path, Proof, known, "What streams without a hint is")
        # What was proven with files that are too small, as this run has shown.
        self._outgrown: set[ProofKey] = set()
        self._news = asyncio.Event()

    def is_read(self, tool: str, port: str) -> bool:
        """Whether an input is proven to be read as a stream, with some options."""
        about = tool, "reads", port
        return any(proof.is_proven and proof.key.about == about for proof in self.entries)

    def is_believed(self, key: ProofKey) -> bool:
        """Whether an input that is declared `streamable` is read as a stream.

        What is refuted with some options is believed with others only if it was tried with these.
        """
        if (known := self.of(key)) is not None:
            return not known.is_refused
        return not any(proof.is_refused and proof.key.about == key.about for proof in self.entries)

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

    async def remember(self, *proofs: Proof) -> None:
        """Keep proofs, for this run and later ones."""
        self._outgrown.difference_update(proof.key for proof in proofs)
        news, self._news = self._news, asyncio.Event()
        # Those that wait run once the proofs are in memory, and before they are in the file.
        news.set()
        await super().remember(*proofs)

    async def streamed(self, keys: Sequence[ProofKey]) -> None:
        """A job has streamed as it was proven, without a difference."""
        await self.update(keys, lambda proof: replace(proof, runs=proof.runs + 1))
