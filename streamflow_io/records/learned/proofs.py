"""Proofs: whether a program reads an input, or writes an output, as a byte stream.

An input that is declared `streamable` counts as a stream until the contrary is known. Its entries are of the kind
`declared`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from operator import le
from pathlib import Path
from typing import Any, ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from .database import LearnedEntry, LearnedKey, known_entries
from .extents import Extent, Extents, extents_of, hold_for, raised
from .remembered import Remembered

#: How a program may get a stream. `net`: every operation that a pipe cannot do waits for the file. `pipe`: like an
#: input that is declared `streamable`.
Way = Literal["net", "pipe"]

# More numbers of files than that are not kept apart.
_MOST_OTHERS = 8
# More trials together with one other input are not kept.
_MOST_TRIALS = 8
# After this many failures an input stays refused: fewer may be accidents.
_MOST_FAILURES = 3
# After this many runs that have shown nothing more, an input is rehearsed only in runs that wait for that.
_MOST_IN_VAIN = 3


class ProofKey(LearnedKey, frozen=True):
    """The conditions under which a proof holds.

    :ivar tool: a hex digest of all that is known of the tool before it runs
    :ivar kind: an input that the tool reads, an output that it writes, or an input that is declared `streamable`
    :ivar options: a hex digest of the values of its inputs, without the contents of files. Empty: the proof holds for
        all values
    """

    kind: Literal["reads", "writes", "declared"]
    port: str
    options: str = ""

    @property
    def about(self) -> tuple[str, str, str]:
        """The key without the options."""
        return self.tool, self.kind, self.port


class TriedBeside(Struct, frozen=True, array_like=True):
    """Another input of the tool that was a stream, too, when an input was tried.

    :ivar port: the other input
    :ivar way: how the tool read the other input
    :ivar sizes: bytes of each file of the input
    :ivar other_sizes: bytes of each file of the other input
    """

    port: str
    way: Way
    sizes: tuple[int, ...]
    other_sizes: tuple[int, ...]

    def covers(self, other: TriedBeside) -> bool:
        """Whether everything that the other trial shows is shown by this one."""
        if (self.port, self.way) != (other.port, other.way):
            return False
        pairs = ((self.sizes, other.sizes), (self.other_sizes, other.other_sizes))
        return all(len(mine) == len(its) and hold_for(_whole(mine), its) for mine, its in pairs)


class Proof(LearnedEntry, frozen=True):
    """The outcome of a rehearsal, or of a job that has streamed.

    :ivar way: how the tool reads a stream with the same outcome as the file. None: only a file is read
    :ivar reason: why not, in words. For a declared input that is read as a stream: why the outcome cannot be compared
    :ivar bytes: size of the file with which the stream was tried
    :ivar runs: how many jobs have streamed since then without a difference
    :ivar closes: after how many closes an output was seen complete. 0: this was wrong, and the output is complete only
        when its job has ended. None: unknown
    :ivar failures: how often the tool has failed with a stream, or in a rehearsal. 0: never, or it is refused for a
        different output
    :ivar excerpt: the number of first bytes of an input that were enough. None: the whole file was tried
    :ivar extents: how far the proof of an input holds for each of its files. Empty: for no file. A declared input
        streams with larger files, too, and is compared again with these
    :ivar others: the same for other numbers of files, each with another one, the last first
    :ivar beside: the other inputs of the tool that were streams, too, when the input was tried; the last trial first
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
    others: tuple[Extents, ...] = ()
    beside: tuple[TriedBeside, ...] = ()

    @property
    def may_be_tried_again(self) -> bool:
        """Whether the tool is refused only for failures, and so few that they may be accidents."""
        return self.is_refused and 0 < self.failures < _MOST_FAILURES

    @property
    def is_refused(self) -> bool:
        """Whether the port must not stream."""
        return self.way is None and self.closes is None

    @property
    def is_proven(self) -> bool:
        return self.way is not None

    @property
    def order(self) -> tuple[Any, ...]:
        return self.step, self.key.kind, self.key.port, self.learned

    def holds_for(self, sizes: Sequence[int]) -> bool:
        """Whether the proof of an input holds for files of these sizes."""
        return hold_for(self.extents_of(len(sizes)), sizes)

    def extents_of(self, files: int) -> Extents:
        """How far the proof of an input holds for each file of a job with this number of files."""
        known = (self.extents, *self.others)
        largest = max(known, key=lambda extents: min((each.size for each in extents), default=0))
        return next((extents for extents in known if len(extents) == files), extents_of(largest, files))

    def merged(self, known: Proof | None) -> Proof:
        """Return the refusal, if one of the two is a refusal, unless it :attr:`may_be_tried_again`.

        Another run may have found the same meanwhile, or the contrary. After a failure, only a run that knows of the
        failures may find that the port streams.
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
        """The degree of refusal. 0: none. 1: complete only when its job has ended. 2: no stream."""
        if self.is_proven or self.closes:
            return 0
        return 2 if self.closes is None else 1


class Shown(Struct, frozen=True):
    """The knowledge of an input alone, before everything was tried that a proof needs.

    :ivar way: how the tool reads the input as a stream with the same outcome
    :ivar read: bytes that were read of each file as a stream
    :ivar sizes: bytes of each of these files
    :ivar is_short_tried: whether short files gave the same outcome, too
    """

    way: Way
    read: tuple[int, ...]
    sizes: tuple[int, ...]
    is_short_tried: bool = False

    def holds_for(self, sizes: Sequence[int]) -> bool:
        """Whether files of these sizes need not be tried again."""
        return len(sizes) == len(self.sizes) and all(map(le, sizes, self.sizes))


class InconclusiveRehearsal(LearnedEntry, frozen=True):
    """A rehearsal that ran, and after which it is still unknown whether the input streams.

    :ivar reason: why nothing is known, in words
    :ivar bytes: size of the file with which the stream was tried
    :ivar shown: what is known nevertheless. None: nothing
    :ivar vain: how many runs in succession have shown nothing more
    :ivar is_fruitless: whether no run waits at its end for a rehearsal of the input
    """

    kind: ClassVar[str] = "inconclusive rehearsal"
    key: ProofKey
    reason: str
    bytes: int = 0
    shown: Shown | None = None
    vain: int = 1
    is_fruitless: bool = True

    @property
    def is_hopeless(self) -> bool:
        """Whether only a run that waits for its rehearsals is to try the input again."""
        return self.vain >= _MOST_IN_VAIN


def with_known(found: Proof, known: Proof | None) -> Proof:
    """Return the proof to keep where another one is known: a proof with larger files stays."""
    if known is None or known.way is None or found.way is None:
        return found
    holds = found.holds_for([each.size for each in known.extents])
    if known.way != found.way:
        return found if holds else known
    numbers: dict[int, Extents] = {}
    for each in (found.extents, *found.others, known.extents, *known.others):
        numbers[len(each)] = raised(each, numbers.get(len(each), each))
    extents, *others = numbers.values()
    return replace(
        found,
        # The larger file is read as a stream in the way in which it was tried.
        excerpt=found.excerpt if holds else known.excerpt,
        extents=extents,
        others=tuple(others[:_MOST_OTHERS]),
        beside=_last_trials((*found.beside, *known.beside)),
    )


def tried_together(proof: Proof, other: Proof) -> tuple[tuple[Extents, Extents], ...]:
    """Return how far each trial holds in which both inputs of a tool were streams, in their ways of now.

    A trial may be part of the proof of either input.
    """
    ours = [(each.sizes, each.other_sizes) for each in _trials(proof, other.key.port, other.way)]
    its = [(each.other_sizes, each.sizes) for each in _trials(other, proof.key.port, proof.way)]
    return tuple((_whole(one), _whole(two)) for one, two in (*ours, *its))


def tried_with_declared(proof: Proof, port: str) -> tuple[Extents, ...]:
    """Return how far each trial holds for an input in which a declared input was a stream, too."""
    return tuple(_whole(each.sizes) for each in _trials(proof, port, "pipe"))


def streams_at_once(
    proofs: Mapping[str, Proof], files: Mapping[str, int], declared: Collection[str] = ()
) -> dict[str, Extents]:
    """Return the proven inputs of a job that may be streams at once, and how far their proofs hold then.

    Any two of them were streams in one rehearsal. Some programs do something else only if several of their inputs are
    streams, and some of these only for large files.

    :param proofs: of the inputs that are to be streams, by port
    :param files: the number of files of each of these inputs
    :param declared: the inputs that are streams whatever is proven
    """
    chosen: dict[str, Extents] = {}
    for port, proof in proofs.items():
        bounds = {**chosen, port: proof.extents_of(files[port])}
        for other in declared:
            bounds[port] = _lowered(bounds[port], max(tried_with_declared(proof, other), key=_least, default=()))
        for other in chosen:
            trials = tried_together(proof, proofs[other])
            own, its = max(trials, key=lambda trial: min(map(_least, trial)), default=((), ()))
            bounds |= {port: _lowered(bounds[port], own), other: _lowered(bounds[other], its)}
        # A trial with an empty file shows nothing of a stream.
        if all(map(_least, bounds.values())) or bounds == {port: proof.extents_of(files[port])}:
            chosen = bounds
    return chosen


def _trials(proof: Proof, port: str, way: Way | None) -> list[TriedBeside]:
    return [each for each in proof.beside if (each.port, each.way) == (port, way)]


def _last_trials(trials: Sequence[TriedBeside]) -> tuple[TriedBeside, ...]:
    """Return the trials that show more than the others, of each other input a few."""
    kept: list[TriedBeside] = []
    for trial in trials:
        if not any(each.covers(trial) for each in kept):
            kept = [*(each for each in kept if not trial.covers(each)), trial]
    ports = [trial.port for trial in kept]
    return tuple(trial for index, trial in enumerate(kept) if ports[:index].count(trial.port) < _MOST_TRIALS)


def _whole(sizes: Sequence[int]) -> Extents:
    """Return the extents of files that were streams as a whole."""
    return tuple(Extent(size, size) for size in sizes)


def _least(extents: Extents) -> int:
    return min((each.size for each in extents), default=0)


def _lowered(known: Extents, bound: Extents) -> Extents:
    """Return the extents for which another trial holds, too. Empty: the trial says nothing of these files."""
    pairs = zip(known, extents_of(bound, len(known)), strict=False)
    return tuple(Extent(min(one.read, other.read), min(one.size, other.size)) for one, other in pairs)


def known_proofs(path: Path) -> tuple[Proof, ...]:
    """Return the proofs of a file, in order. A file that does not exist has none. The file is not changed.

    :raises LearnedStoreError: if the file cannot be read, or another user could have written it
    """
    return known_entries(path, Proof)


class RememberedProofs(Remembered[Proof]):
    """Proofs of earlier runs, and of this one.

    :param path: the file
    :param known: the proofs of the file. None: the file cannot be read, and is not used
    """

    def __init__(self, path: Path, known: Iterable[Proof] | None) -> None:
        super().__init__(path, Proof, known, "What streams without a hint is")
        # Keys of proofs made with files that are too small, as this run has shown.
        self._outgrown: set[ProofKey] = set()
        # How many jobs have streamed, by the key of their proof.
        self._streamed: Counter[ProofKey] = Counter()
        # Proofs that only later runs are to know.
        self._for_later: dict[ProofKey, Proof] = {}
        self._news = asyncio.Event()

    def is_read(self, tool: str, port: str) -> bool:
        """Whether an input is proven to be read as a stream, with some options."""
        about = tool, "reads", port
        return any(proof.is_proven and proof.key.about == about for proof in self.entries)

    def is_believed(self, key: ProofKey) -> bool:
        """Whether an input that is declared `streamable` is read as a stream.

        A refutation with some options holds for other options, unless those were tried themselves.
        """
        if (known := self.of(key)) is not None:
            return not known.is_refused
        return not any(proof.is_refused and proof.key.about == key.about for proof in self.entries)

    def outgrown(self, key: ProofKey) -> None:
        """Note that a job has more to read as a stream than was proven. A rehearsal with its files is wanted then."""
        self._outgrown.add(key)

    def is_wanted(self, key: ProofKey, sizes: Sequence[int]) -> bool:
        """Whether a rehearsal is wanted for files of these sizes."""
        known = self.of(key)
        if known is None or not known.is_proven:
            return known is None or known.may_be_tried_again
        if known.reason is not None:
            return False  # the outputs cannot be compared
        return key in self._outgrown or not known.holds_for(sizes)

    def failures(self, key: ProofKey) -> int:
        """Return how often the port with this key has failed, as far as that may have been an accident."""
        return 0 if (known := self.of(key)) is None else known.failures

    def news(self) -> Coroutine[object, object, object]:
        """Wait for the next proof after this call, also if the coroutine begins later."""
        return self._news.wait()

    async def remember(self, *proofs: Proof) -> None:
        """Keep proofs, for this run and later ones."""
        self._outgrown.difference_update(proof.key for proof in proofs)
        news, self._news = self._news, asyncio.Event()
        # Waiting tasks run once the proofs are in memory, and before the proofs are in the file.
        news.set()
        await super().remember(*proofs)

    def streamed(self, keys: Iterable[ProofKey]) -> None:
        """Count a job that has streamed as it was proven, without a difference. The file gets the counts at the end."""
        self._streamed.update(key for key in keys if self.of(key) is not None)

    def remember_later(self, proof: Proof) -> None:
        """Keep a proof for later runs: the jobs of this run go on as they began."""
        self._for_later[proof.key] = proof

    async def close(self) -> None:
        if self._for_later:
            await self.remember(*self._for_later.values())
        counts, self._streamed = self._streamed, Counter()
        await self.update(counts, lambda proof: replace(proof, runs=proof.runs + counts[proof.key]))
