"""Globs: that of Python here, that of the node runtime, and that by which StreamFlow finds outputs are the same."""

from __future__ import annotations

import fnmatch
import glob
import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamflow_io.hints.globs import matches, overlap

# The node runtime is tested with the same ones: `node/src/protocol/pattern.rs`.
CASES: list[tuple[str, str, bool]] = json.loads((Path(__file__).parents[1] / "globs.json").read_text())
patterns = st.text(alphabet="ab*?[]!^-\\.", max_size=7)
names = st.text(alphabet="ab]!^-\\.", min_size=1, max_size=6).filter(lambda name: name.strip("."))


def test_matches() -> None:
    assert [case for case in CASES if matches(case[0], case[1]) is not case[2]] == []


def test_streamflow_finds_the_same(tmp_path: Path) -> None:
    """StreamFlow's own `glob` of a local job is this."""

    def finds(directory: Path, pattern: str, path: str) -> bool:
        file = directory / path
        file.parent.mkdir(parents=True)
        file.touch()
        return str(file) in glob.glob(str(directory / pattern))

    found = [[*case[:2], finds(tmp_path / str(number), *case[:2])] for number, case in enumerate(CASES)]
    assert found == CASES


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [("*.bam", "sub/a.bam", True), ("*.bam", "sub/.bam", False), ("sub/*.bam", "a.bam", False), ("a", "b/c/a", True)],
)
def test_a_glob_without_a_slash_is_compared_with_the_name(pattern: str, path: str, expected: bool) -> None:
    assert matches(pattern, path) is expected


@settings(deadline=None)
@given(patterns, names)
def test_matches_like_the_standard_library(pattern: str, name: str) -> None:
    hidden = name.startswith(".") and not pattern.startswith(".")
    assert matches(pattern, name) == (fnmatch.fnmatchcase(name, pattern) and not hidden)


def test_many_stars_take_no_time() -> None:
    before = time.process_time()
    for pattern in ("*a" * 40 + "b", "*[!b-z]" * 40 + "b", "*?" * 40 + "b", "*" * 4000 + "b"):
        assert not any(matches(pattern, "a" * 255) for _ in range(30))
    assert not overlap("*[ab]" * 500 + "c", "*[bc]" * 500 + "d")
    assert overlap("*[ab]" * 500 + "b", "*[bc]" * 500)
    assert overlap("[" * 2000, "[" * 2000)
    assert time.process_time() - before < 2


@settings(deadline=None)
@given(patterns, patterns, names)
def test_two_globs_of_one_name_overlap(one: str, other: str, name: str) -> None:
    assert overlap(one, other) == overlap(other, one)
    if matches(one, name) and matches(other, name):
        assert overlap(one, other)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("*.vcf", "*.vcf.gz", False),
        ("chr*.vcf", "*22.vcf", True),
        ("chr[1-9].vcf", "chr[5-6].vcf", True),
        ("chr[1-4].vcf", "chr[5-6].vcf", False),
        ("chr[!a-z].vcf", "chr[b-d].vcf", False),
        ("sub/*.vcf", "*.vcf", True),
        ("one/*.vcf", "two/*.vcf", False),
        ("*", "?", True),
        ("*", ".a", False),
        (".*", ".a", True),
        (".*", "[.]a", False),
        ("[!a]*", "[!b]c", True),
        ("[^a]", "[!a]", True),
        ("[^a]", "[!a^]", False),
        ("a", "b", False),
    ],
)
def test_overlap(one: str, other: str, expected: bool) -> None:
    assert overlap(one, other) is expected
