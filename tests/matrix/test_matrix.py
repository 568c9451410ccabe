"""Real programs as producers and consumers, under each rule: equal to their native run, or as the table says.

By default a sample: every language, all data, and under every rule all that the table expects.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.matrix.building import MissingError, Workshop
from tests.matrix.consumers import ASKS, CONSUMERS
from tests.matrix.data import TOOLS
from tests.matrix.programs import Case, Outcome, Producer, Program, Walker, cases
from tests.matrix.running import observe
from tests.matrix.table import PROGRAMS

#: Executables that may be missing where .ci/run has installed its packages: go, java and javac are too large for it;
#: git and curl are there in most cases.
MISSING_ALLOWED = 5


#: Data are this much larger under the net: some MB, more than a pipe holds.
SCALE = 16


@pytest.fixture(scope="session")
def large(common: Path) -> Workshop:
    return Workshop(common / "matrix-large", SCALE)


@pytest.fixture(scope="session")
def workshop(common: Path) -> Workshop:
    return Workshop(common / "matrix")


def _tested(program: Program) -> list[Case]:
    return [case for case in cases((program,)) if case.rule.tested]


def _new_in(program: Program) -> set[object]:
    """The features that a program may be the first to show: a language, data; the expectation under each rule."""
    kind = type(program)
    found: set[object] = {(kind, program.interpreter)}
    found |= {(kind, case.rule, case.expected) for case in _tested(program)}
    if not isinstance(program, Walker):
        found.add((kind, program.data))
    if isinstance(program, Producer):
        found |= {("closes", program.closes), ("never closed", program.never_closed), ("then", program.then)}
    return found


def _sampled() -> Iterator[object]:
    """All programs; those that show nothing new after those before them are long."""
    shown: set[object] = set()
    for program in PROGRAMS:
        new = _new_in(program) - shown
        shown |= new
        name = f"{type(program).__name__} {program.name}"
        yield pytest.param(program, id=name, marks=[] if new else pytest.mark.long)


#: A mapping, a database, a process that is never waited for, an interpreter, files of a directory: one of each.
LIMITED = {f"Producer {name}" for name in ("C: mmap", "sqlite3", "bash: > >(gzip)", "Python: gzip")} | {"Filler tar x"}


def _limited() -> Iterator[object]:
    """All programs; those that are not in ``LIMITED`` are long."""
    for program in PROGRAMS:
        name = f"{type(program).__name__} {program.name}"
        yield pytest.param(program, id=name, marks=[] if name in LIMITED else pytest.mark.long)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("program", list(_sampled()))
def test_program(program: Program, workshop: Workshop, tmp_path: Path) -> None:
    _is_as_the_table_says(_tested(program), workshop, tmp_path)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("program", list(_limited()))
def test_a_limited_program_does_the_same(program: Program, workshop: Workshop, tmp_path: Path) -> None:
    """Paused again and again, as an I/O task that is `limited: true`."""
    _is_as_the_table_says([case for case in cases((program,)) if case.rule.limit is not None], workshop, tmp_path)


#: What streams, goes elsewhere, waits, and must not get a stream.
CAUGHT = {"cat", "head", "head and wc", "tac <", "cat twice", "wc"}


def _consumers() -> Iterator[object]:
    """All that read a file; those that are not in ``CAUGHT`` are long."""
    for program in CONSUMERS:
        yield pytest.param(program, id=program.name, marks=[] if program.name in CAUGHT else pytest.mark.long)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("program", list(_consumers()))
def test_a_program_under_the_net(program: Program, large: Workshop, tmp_path: Path) -> None:
    """The program was never declared to read a stream."""
    _is_as_the_table_says([case for case in cases((program,)) if case.rule.net], large, tmp_path)


def test_only_who_asks_for_size_or_type_is_no_match_for_the_net() -> None:
    wrong = (Outcome.FAILS, Outcome.DIFFERS, Outcome.AGAIN)
    chosen = [case for case in cases(CONSUMERS) if case.rule.net]
    assert {case.program.name for case in chosen if case.expected.outcome in wrong} == set(ASKS)


def _is_as_the_table_says(chosen: list[Case], workshop: Workshop, tmp_path: Path) -> None:
    try:
        observations = observe(workshop, chosen, tmp_path / "cases")
    except MissingError as missing:
        pytest.skip(f"{missing} is not installed")
    wrong = [
        f"{case}: {seen.outcome.value} instead of {case.expected.outcome.value}: {seen.detail}"
        for case, seen in zip(chosen, observations, strict=True)
        if not case.expected.allows(seen.outcome)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_names_are_different() -> None:
    names = [(type(program), program.name) for program in PROGRAMS]
    assert len(names) == len(set(names))
    assert len(PROGRAMS) >= 40


def test_the_programs_are_installed() -> None:
    """A matrix that skips most of its programs tests nothing."""
    if os.environ.get("SFIO_TEST_PACKAGES") != "installed":
        pytest.skip("packages are installed by .ci/run, as root, only")
    compilers = {need for tool in TOOLS.values() for need in tool.needs}
    needs = {need for program in PROGRAMS for need in program.needs} - set(TOOLS)
    missing = sorted(need for need in needs | compilers if shutil.which(need) is None)
    assert len(missing) <= MISSING_ALLOWED, f"not installed: {', '.join(missing)}"
