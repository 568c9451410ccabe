"""A proof with a small sample holds for no larger file: the results are those of plain StreamFlow."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lab.cwl import Document, found, tool, workflow
from lab.runs import Bench, Run
from streamflow_io.records.learned.database import default_path
from streamflow_io.records.learned.proofs import known_proofs
from tests.integration.test_rehearsals import python, reader

pytestmark = pytest.mark.usefixtures("own_data")


def asking(after: int) -> Document:
    """A program that asks for the size of its file when it has read this many bytes."""
    return python(
        f"import os, sys; f = open(sys.argv[1]); n = len(f.read({after}))\n"
        f"size = os.fstat(f.fileno()).st_size if n == {after} else n\nprint(size, n + len(f.read()))"
    )


def document(readers: dict[str, Document]) -> Document:
    making = tool("seq $count > out.txt", {"count": "int"}, {"text": found("out.txt")})
    steps: dict[str, Document] = {"make": {"run": making, "in": {"count": "count"}}}
    steps |= {name: {"run": each, "in": {"text": "make/text"}} for name, each in readers.items()}
    return workflow({"count": "int"}, steps, {name: f"{name}/out" for name in readers})


def checksums(ended: Run) -> dict[str, str]:
    return {name: file["checksum"] for name, file in ended.outputs.items()}


def plain_checksums(bench: Bench, made: Document, count: int) -> dict[str, str]:
    path = bench.write_plain(made, {"count": count, "trace": "/dev/null"})
    plain = bench.finish(bench.start(path), path, 300)
    assert plain.ok, plain.errors
    return checksums(plain)


def run(bench: Bench, made: Document, count: int, expected: dict[str, str], **config: Any) -> tuple[Run, set[str]]:
    """A run, and the steps that have streamed in it."""
    inputs = {"count": count, "trace": "/dev/null"}
    path = bench.write(made, inputs, io=True, config={"streaming": "auto", "rehearse": "wait", **config})
    ours = bench.finish(bench.start(path), path, 300)
    assert ours.ok, ours.errors
    assert checksums(ours) == expected
    assert bench.leftovers() == []
    assert " WARNING " not in ours.log
    streamed = {record["step"].strip("/") for record in bench.telemetry() if record["event"] == "streamed"}
    return ours, streamed


@pytest.mark.parametrize(
    ("program", "after", "small", "large"),
    [
        pytest.param("streamflow", 2**18, 30_000, 75_000, id="whole"),
        # With an excerpt of the larger file.
        pytest.param("streamflow excerpting", 2**13, 1_000, 30_000, id="excerpt", marks=pytest.mark.long),
    ],
)
def test_a_small_sample_proves_nothing_of_larger_files(
    bench: Bench, program: str, after: int, small: int, large: int
) -> None:
    bench.program = program
    # `split -n` reads a pipe up to a buffer, and gives up beyond that.
    split = reader('split -n 3 "$text" part; cat part* > out')
    made = document({"cat": reader('cat "$text" > out'), "split": split, "ask": asking(after)})
    expected = {count: plain_checksums(bench, made, count) for count in (small, large)}
    _, streamed = run(bench, made, small, expected[small])
    assert streamed == set()
    known = {proof.step.strip("/"): proof for proof in known_proofs(default_path())}
    assert known["cat"].is_proven
    assert known["ask"].is_proven
    ours, _ = run(bench, made, large, expected[large])
    # Which of the two is found first depends on the time.
    assert re.search("reads the complete file: /cat/text is proven (up to|for the first) ", ours.log)
    known = {proof.step.strip("/"): proof for proof in known_proofs(default_path())}
    assert known["cat"].is_proven
    assert not known["ask"].is_proven
    assert "it was proven up to " in (known["ask"].reason or "")
    _, streamed = run(bench, made, large, expected[large])
    assert "cat" in streamed
    assert "ask" not in streamed
    # What is smaller streams, too.
    _, streamed = run(bench, made, small, expected[small])
    assert "cat" in streamed
