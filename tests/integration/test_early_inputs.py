"""Inputs of a workflow that their jobs get before StreamFlow has read them for their checksum, in real runs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.cwl import Document, found, streamable, tool, workflow
from lab.fuse import may_mount, served
from lab.runs import Bench
from streamflow_io.commands.plan import plan_file
from tests.integration.test_node_read import forget
from tests.integration.test_read_sessions import MIB, NEEDS_CHECKSUM, SELECT, SIZE, SPLIT, of, ranges

pytestmark = pytest.mark.skipif(not may_mount(), reason="no FUSE")


@pytest.fixture
def flag(tmp_path: Path) -> Path:
    """While the flag is there, the last quarter of the file does not come."""
    return tmp_path / "flag"


@pytest.fixture
def slow(tmp_path: Path, flag: Path) -> Iterator[Path]:
    (backing := tmp_path / "all.bin").write_bytes(b"".join(bytes([number]) * MIB for number in range(SIZE // MIB)))
    (place := tmp_path / "mount").mkdir()
    with served(backing, place, "waits", SIZE // 4 * 3, flag) as path:
        yield path
        flag.unlink(missing_ok=True)


def splitting(directory: Path) -> Document:
    (program := directory / "split.py").write_text(SPLIT)
    split = tool(
        f'python3 -S -E {program} "$of" "$count"',
        {"of": "File", "count": "int"},
        {"chunks": found("chunk-*.bin", "File[]")},
        hints=[{"class": "sfio:ReadSession", "rules": [{"port": "chunks", "of": "of"}]}],
    )
    read = tool(
        f'sha1sum < "$chunk" && rm -f {directory / "flag"}',
        {"chunk": "File"},
        {"summed": "stdout"},
        stdout="summed.txt",
    )
    steps = {
        "split": {"run": split, "in": {"of": "of", "count": "count"}},
        "sum": {"run": read, "in": {"chunk": "split/chunks"}, "scatter": "chunk"},
    }
    return workflow({"of": "File", "count": "int"}, steps, {"summed": "sum/summed"})


def selecting(directory: Path) -> Document:
    (program := directory / "select.py").write_text(SELECT)
    read = tool(
        f'python3 -S -E {program} "$of" "$range" && rm -f {directory / "flag"}',
        {"of": "File", "range": "string"},
        {"summed": "stdout"},
        stdout="summed.txt",
        hints=[{"class": "sfio:ReadSession", "rules": [{"of": "of", "part": "range", "records": "bytes"}]}],
    )
    steps = {"sum": {"run": read, "in": {"of": "of", "range": "ranges"}, "scatter": "range"}}
    return workflow({"of": "File", "ranges": "string[]"}, steps, {"summed": "sum/summed"})


def compare(bench: Bench, document: Document, job: Document, slow: Path, flag: Path) -> None:
    """In ours, a job has to begin for the last quarter of the file to come."""
    plain = bench.run(document, job, io=False)
    forget(slow)
    flag.touch()
    ours = bench.run(document, job)
    assert plain.ok, plain.errors
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert not flag.exists()


def streaming(directory: Path) -> Document:
    """A tool that reads its input front to back."""
    script = f'{{ head -c 1000; rm -f {directory / "flag"}; cat; }} < "$of" | sha1sum'
    read = tool(script, {"of": streamable()}, {"summed": "stdout"}, stdout="summed.txt")
    return workflow({"of": "File"}, {"sum": {"run": read, "in": {"of": "of"}}}, {"summed": "sum/summed"})


@pytest.mark.parametrize(
    "form", [*(pytest.param(form, marks=pytest.mark.long) for form in ("said", "streamable")), "selected"]
)
def test_the_first_jobs_do_not_wait_for_the_end_of_the_file(
    bench: Bench, tmp_path: Path, slow: Path, flag: Path, form: str
) -> None:
    documents = {"said": splitting, "selected": selecting, "streamable": streaming}
    document, job = documents[form](tmp_path), (ranges(slow, 4) if form == "selected" else of(slow, 4))
    compare(bench, document, job, slow, flag)


def _with(document: Document, **fields: Any) -> Document:
    document["steps"]["sum"]["run"] |= fields
    return document


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(lambda path: _with(selecting(path), arguments=NEEDS_CHECKSUM), id="an expression"),
        pytest.param(
            lambda path: _with(selecting(path), arguments=["${return JSON.stringify(inputs)}"]),
            id="all inputs",
            marks=pytest.mark.long,
        ),
        pytest.param(
            lambda path: (
                (doc := selecting(path))
                | {"outputs": {**doc["outputs"], "file": {"type": "File", "outputSource": "of"}}}
            ),
            id="an output of the workflow",
            marks=pytest.mark.long,
        ),
    ],
)
def test_who_needs_the_checksum_waits_for_it(bench: Bench, tmp_path: Path, document: Any) -> None:
    (path := tmp_path / "all.bin").write_bytes(b"x" * 1000)
    written = document(tmp_path)
    (plan,) = plan_file(bench.write(written, ranges(path, 2), io=True)).plans.values()
    assert not plan.parts.read_early
    bench.run_both(written, ranges(path, 2))


def test_a_small_file_has_its_checksum_at_once(bench: Bench, tmp_path: Path) -> None:
    """The content of such a file may decide what a proof holds for, and not every job can read it at its path."""
    contents = {"small.bin": b"x" * 2**18, "large.bin": b"y" * (2**18 + 1)}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    sizes = {}
    for name in contents:
        bench.run_both(streaming(tmp_path), {"of": {"class": "File", "path": str(tmp_path / name)}})
        database = bench.directory / f"run{bench.count}" / "streamflow.db"
        with contextlib.closing(sqlite3.connect(database)) as connection:
            rows = connection.execute("SELECT value FROM token WHERE type LIKE '%EarlyInputToken'").fetchall()
        sizes |= {file["size"]: file.get("checksum") for file in (json.loads(row)["file"] for (row,) in rows)}
    digest = hashlib.sha1(contents["small.bin"]).hexdigest()
    assert sizes == {2**18: f"sha1${digest}", 2**18 + 1: None}


def test_a_file_that_cannot_be_read_to_its_end(bench: Bench, tmp_path: Path, flag: Path) -> None:
    """The run fails as with plain StreamFlow, though no job needs the bytes behind."""
    (backing := tmp_path / "all.bin").write_bytes(b"x" * SIZE)
    (place := tmp_path / "mount").mkdir()
    with served(backing, place, "fails", SIZE // 4 * 3, flag) as path:
        flag.touch()
        document = selecting(tmp_path)
        document["steps"]["sum"]["run"]["baseCommand"] = ["true"]
        document["steps"]["sum"]["run"]["outputs"] = {"summed": {"type": "File?", "outputBinding": {"glob": "none"}}}
        document["outputs"]["summed"]["type"] = {"type": "array", "items": ["null", "File"]}
        ours = bench.run(document, ranges(path, 2))
    assert not ours.ok
    assert "/of cannot be read: [Errno 5] Input/output error" in ours.log
