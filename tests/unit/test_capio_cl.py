"""CAPIO-CL: the official parser reads what we write as we mean it."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import py_capio_cl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.official_capio_cl import parse
from streamflow_io.graph.capio_cl.configuration import Configuration, CoordinatedFile
from streamflow_io.graph.capio_cl.language import Version, write_capio_cl
from streamflow_io.hints.commit import CommitRule

APPLICATIONS = ("main", "align", "call.filter", "sort-0.3")
NAMES = st.from_regex(r"[a-z0-9_.]{1,6}", fullmatch=True).filter(lambda name: name.strip("."))
GLOBS = st.from_regex(r"[a-z]{1,3}\*\.[a-z]{1,3}|\*\.[a-z]{1,3}|[a-z]{1,3}\?", fullmatch=True)
PATHS = st.tuples(st.sampled_from(APPLICATIONS), st.lists(NAMES, max_size=2), NAMES | GLOBS).map(
    lambda parts: "/".join([parts[0], *parts[1], parts[2]])
)


def in_order(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in APPLICATIONS if name in names)


@st.composite
def files(draw: st.DrawFn, path: str, paths: Sequence[str]) -> CoordinatedFile:
    is_directory = draw(st.booleans())
    kinds = ["on_termination", "on_close", "on_file", *(["on_n_files"] if is_directory else [])]
    committed = CommitRule(draw(st.sampled_from(kinds)))  # type: ignore[arg-type]
    if committed.kind == "on_close":
        committed = CommitRule("on_close", draw(st.integers(1, 1000)))
    deps = st.lists(st.sampled_from(paths), min_size=1, max_size=3, unique=True)
    return CoordinatedFile(
        path,
        is_directory,
        in_order(draw(st.lists(st.sampled_from(APPLICATIONS), max_size=2))),
        in_order(draw(st.lists(st.sampled_from(APPLICATIONS), max_size=3))),
        committed,
        draw(st.sampled_from(["update", "no_update"])),
        tuple(draw(deps)) if committed.kind == "on_file" else (),
        draw(st.integers(1, 10**6)) if committed.kind == "on_n_files" else None,
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from([None, *APPLICATIONS])),
    )


def ambiguous(one: str, other: str) -> bool:
    """Whether one path is a glob that matches the other, as CAPIO compares: `*` matches `/`, too."""
    return fnmatchcase(one, other) or fnmatchcase(other, one)


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    paths: list[str] = []
    for path in draw(st.lists(PATHS, max_size=8, unique=True)):
        if not any(ambiguous(path, other) for other in paths):
            paths.append(path)
    name = draw(st.text(st.characters(codec="utf-8", categories=["L", "N"]), min_size=1, max_size=8))
    return Configuration(name, APPLICATIONS, tuple(draw(files(path, paths)) for path in sorted(paths)))


def officially(configuration: Configuration, version: Version, directory: Path) -> py_capio_cl.Engine:
    """Return the engine that the official parser makes of a configuration."""
    return parse(write_capio_cl(configuration, version), version, directory)


def as_read_officially(engine: py_capio_cl.Engine, file: CoordinatedFile) -> tuple[object, ...]:
    """Describe the official parser's view of a file, as :func:`as_written` does."""
    path = file.path
    closes = engine.getCommitCloseCount(path) or 1  # without a number it counts none, and means the first
    return (
        CommitRule(engine.getCommitRule(path), closes),
        engine.getFireRule(path),
        set(engine.getProducers(path)),
        set(engine.getConsumers(path)),
        [str(dep) for dep in engine.getCommitOnFileDependencies(path)],
        engine.getDirectoryFileCount(path) if file.n_files is not None else None,  # else it counts what it has seen
        engine.isPermanent(path),
        engine.isExcluded(path),
        # py-capio-cl takes files for directories, too: docs/coordination.md.
        engine.isDirectory(path) or not file.is_directory,
    )


def as_written(file: CoordinatedFile) -> tuple[object, ...]:
    return (
        file.committed,
        file.mode,
        set(file.producers),
        set(file.consumers),
        list(file.file_deps),
        file.n_files,
        file.permanent,
        file.excluded,
        True,
    )


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("capio")


@settings(max_examples=settings().max_examples // 3)
@given(configuration=configurations())
def test_the_official_parser_reads_what_is_meant_in_1_1(directory: Path, configuration: Configuration) -> None:
    check_officially(configuration, "1.1", directory)


@settings(max_examples=4, deadline=None)
@given(configuration=configurations())
def test_the_official_parser_reads_what_is_meant_in_1_0(directory: Path, configuration: Configuration) -> None:
    check_officially(configuration, "1.0", directory)


def check_officially(configuration: Configuration, version: Version, directory: Path) -> None:
    engine = officially(configuration, version, directory)
    assert engine.getWorkflowName() == configuration.name
    assert {file.path for file in configuration.files} <= set(engine.getPaths())
    for file in configuration.files:
        assert as_read_officially(engine, file) == as_written(file), file.path


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (
            CoordinatedFile("x", committed=CommitRule("on_n_files"), n_files=3),
            "on_n_files of a path that is no directory",
        ),
        (CoordinatedFile("x", True, committed=CommitRule("on_n_files")), "on_n_files without n_files"),
        (CoordinatedFile("x", committed=CommitRule("on_file")), "on_file without file_deps"),
        (CoordinatedFile("x", committed=CommitRule("on_close")), "rules, and no application"),
    ],
)
def test_what_the_language_cannot_say_is_refused(file: CoordinatedFile, reason: str) -> None:
    with pytest.raises(ValueError, match=f"CAPIO-CL cannot say this of x: {reason}"):
        write_capio_cl(Configuration("wf", (), (file,)), "1.1")


def test_files_with_the_same_rules_stand_in_one_item() -> None:
    rules = {"producers": ("a",), "committed": CommitRule("on_close", 2), "mode": "no_update"}
    paths = ("x", "y", "z")
    files = tuple(CoordinatedFile(path, **rules) for path in paths)  # type: ignore[arg-type]
    (app,) = write_capio_cl(Configuration("wf", ("a",), files), "1.0")["IO_Graph"]  # type: ignore[misc,union-attr]
    assert app["streaming"] == [{"name": ["x", "y", "z"], "committed": "on_close:2", "mode": "no_update"}]  # type: ignore[index,call-overload]


def test_a_file_beside_a_counted_directory_is_a_file(directory: Path) -> None:
    # The official parser takes what it has seen for directories with each `n_files`: these come first.
    counted = CoordinatedFile("a/d", True, ("a",), committed=CommitRule("on_n_files"), n_files=3)
    configuration = Configuration("wf", ("a",), (CoordinatedFile("a/b", False, ("a",)), counted))
    engine = officially(configuration, "1.1", directory)
    assert (engine.isFile("a/b"), engine.isFile("a/d")) == (True, False)
