"""CAPIO's patterns of communication through files, at the level of the node runtime: what each rule gains.

1-to-1, 1-to-many and many-to-1 with large files and with many small ones, and MapReduce (A. R. Martinelli et al.).
Producers write and consumers read as fast as they can. The only work is that of making the bytes and of their
checksums. Each small file takes a producer some 200 us of CPU time more. What the consumers print has to be the same
whatever way the bytes took.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from .model import Comparison
from .pattern_ways import (
    BYTE_STREAM,
    COMMIT,
    GATE,
    LISTING,
    Consumer,
    Output,
    Pattern,
    Way,
    run_pipe,
    run_runtime,
    run_sequence,
)
from .tools import MEBIBYTE
from .workflows import TOOL
from .workload import Variant, Workload

SMALL_FILE_BYTES = 8192
SMALL_FILE_WORK = 140e-6
"""Seconds before each file, whose making takes some 60 us."""
REDUCERS = 2
SPLITS_WORDS = (400_000, 800_000, 1_200_000)
"""Unequal, as files are: while the last mapper works, on two cores, one is free."""

_SEQUENCE, _PIPE = "sequence", "pipe"
_FILE, _DIRECTORY = "data", "files"
_VOCABULARY = 20_000
_WORDS_PER_LINE = 100


def large(name: str, producers: int, consumers: int, mebibytes: int) -> Pattern:
    """Each producer writes one file, in pieces of 1 MiB; all consumers read all of them."""
    commands = [
        (*TOOL, "write-file", str(number * mebibytes), str(mebibytes), str(MEBIBYTE)) for number in range(producers)
    ]
    reader = Consumer((*TOOL, "sum-files"), (_FILE,))
    return Pattern(f"{name}, large", tuple(commands), (Output(_FILE),), (reader,) * consumers)


def small(name: str, producers: int, consumers: int, files: int) -> Pattern:
    """Each producer writes a directory of small files; all consumers read all of them, by name or as listed."""
    commands = [
        (*TOOL, "write-files", str(number * files), str(files), str(SMALL_FILE_BYTES), str(SMALL_FILE_WORK))
        for number in range(producers)
    ]
    reader = Consumer((*TOOL, "sum-named", str(files)), (_DIRECTORY,), listing=(*TOOL, "sum-listed"))
    return Pattern(f"{name}, small", tuple(commands), (Output(_DIRECTORY, files),), (reader,) * consumers)


def map_reduce(directory: Path) -> Pattern:
    """Word count: each mapper reads its split and writes a file for each reducer, which reads those of all mappers."""
    parts = [f"part.{number}" for number in range(REDUCERS)]
    splits = [directory / f"split.{number}" for number in range(len(SPLITS_WORDS))]
    return Pattern(
        "MapReduce",
        tuple((*TOOL, "map-words", str(split)) for split in splits),
        tuple(Output(part) for part in parts),
        tuple(Consumer((*TOOL, "reduce-words"), (part,)) for part in parts),
    )


LARGE = (
    large("1-to-1", 1, 1, mebibytes=1024),
    large("1-to-many", 1, 3, mebibytes=512),
    large("many-to-1", 4, 1, mebibytes=256),
)
SMALL = (
    small("1-to-1", 1, 1, files=5000),
    small("1-to-many", 1, 3, files=5000),
    small("many-to-1", 4, 1, files=1250),
)


def write_splits(directory: Path, splits_words: Sequence[int] = SPLITS_WORDS) -> None:
    """The input of MapReduce: lines of words, some of them frequent, most of them rare; always the same."""
    words = [f"word{number}" for number in range(_VOCABULARY)]
    weights = [1 / (number + 1) for number in range(_VOCABULARY)]
    for number, count in enumerate(splits_words):
        drawn = random.Random(number).choices(words, weights, k=count)
        lines = (" ".join(drawn[start : start + _WORDS_PER_LINE]) for start in range(0, count, _WORDS_PER_LINE))
        (directory / f"split.{number}").write_text("".join(f"{line}\n" for line in lines), encoding="ascii")


def _prepare(directory: Path) -> Sequence[Variant]:
    write_splits(directory)
    variants: list[Variant] = []
    for pattern in LARGE:
        variants.append(_sequence(pattern))
        if len(pattern.consumers) == 1:
            variants.append(Variant(_name(pattern, _PIPE), partial(run_pipe, pattern)))
        variants += _rules(pattern, (BYTE_STREAM, COMMIT, GATE))
    for pattern in SMALL:
        variants += (_sequence(pattern), *_rules(pattern, (COMMIT, GATE, LISTING)))
    pattern = map_reduce(directory)
    variants += (_sequence(pattern), *_rules(pattern, (BYTE_STREAM, COMMIT, GATE)))
    return variants


def _sequence(pattern: Pattern) -> Variant:
    return Variant(_name(pattern, _SEQUENCE), partial(run_sequence, pattern))


def _rules(pattern: Pattern, ways: Sequence[Way]) -> list[Variant]:
    return [Variant(_name(pattern, way.name), partial(run_runtime, pattern, way)) for way in ways]


def _name(pattern: Pattern, way: str) -> str:
    return f"{pattern.name}: {way}"


def _compare(pattern: str, way: str, baseline: str, at_most: float | None = None) -> Comparison:
    variant = f"{pattern}: {way}"
    return Comparison(
        name=f"{variant} / {baseline}", variant=variant, baseline=f"{pattern}: {baseline}", at_most=at_most
    )


def _comparisons() -> tuple[Comparison, ...]:
    goals = [
        _compare(LARGE[0].name, BYTE_STREAM.name, _PIPE, at_most=1.05),
        _compare(SMALL[0].name, GATE.name, _SEQUENCE, at_most=0.90),
    ]
    further = [_compare(LARGE[2].name, BYTE_STREAM.name, _PIPE)]
    for pattern, ways in (
        *((pattern.name, (_PIPE,)) for pattern in LARGE if len(pattern.consumers) == 1),
        *((pattern.name, (BYTE_STREAM.name, COMMIT.name, GATE.name)) for pattern in LARGE),
        *((pattern.name, (COMMIT.name, GATE.name, LISTING.name)) for pattern in SMALL),
        ("MapReduce", (BYTE_STREAM.name, COMMIT.name, GATE.name)),
    ):
        further += [_compare(pattern, way, _SEQUENCE) for way in ways]
    named = {goal.name for goal in goals}
    return (*goals, *(comparison for comparison in further if comparison.name not in named))


PATTERNS = Workload(
    "patterns",
    "CAPIO's 1-to-1, 1-to-many, many-to-1 (large files; 5,000 of 8 KiB) and MapReduce, under each rule",
    _prepare,
    _comparisons(),
)
