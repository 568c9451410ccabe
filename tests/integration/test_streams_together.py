"""Tools that read each input as a stream, and make something else only if several inputs are streams.

`cmp -l` is such a tool: it aligns its numbers by the smallest file that it knows the size of.
"""

from __future__ import annotations

from typing import Any

import pytest

from lab.cwl import Document, found, streamable, tool, workflow
from lab.runs import Bench
from streamflow_io.records.learned.database import default_path
from streamflow_io.records.learned.proofs import known_proofs

TOOLS = {"compare": "cmp -l $one $two > compare.txt || true", "paste": "paste $one $two > paste.txt"}


pytestmark = pytest.mark.usefixtures("own_data")


def readers(*declared: str) -> Document:
    """A workflow with two files of one size, which is short of five digits, and with tools that read both.

    :param declared: the inputs that are declared `streamable`
    """
    file: dict[str, Any] = {name: streamable() if name in declared else "File" for name in ("one", "two")}
    out = streamable(outputBinding={"glob": "out.txt"}) if declared else found("out.txt")
    steps: dict[str, Document] = {
        name: {"run": tool(f"seq {first} {first + 1499} > out.txt; sleep 0.5", {}, {"text": out}), "in": {}}
        for name, first in (("a", 1000), ("b", 2000))
    }
    for name, script in TOOLS.items():
        run = tool(f"{script}; sleep 0.2", file, {"out": found(f"{name}.txt")})
        steps[name] = {"run": run, "in": {"one": "a/text", "two": "b/text"}}
    return workflow({}, steps, {name: f"{name}/out" for name in TOOLS})


def ways(kind: str) -> dict[str, tuple[str | None, str | None]]:
    """How each input is read as a stream, and why not."""
    known = (proof for proof in known_proofs(default_path()) if proof.key.kind == kind)
    return {f"{proof.step}/{proof.key.port}": (proof.way, proof.reason) for proof in known}


def run_twice(bench: Bench, document: Document) -> None:
    """Prove what streams, and stream it: the results are those of plain StreamFlow."""
    plain = bench.run(document, io=False)
    path = bench.write(document, {}, io=True, config={"streaming": "auto", "rehearse": "wait"})
    for _ in range(2):
        [ours] = bench.run_all([path])
        assert ours.ok, ours.errors
        assert ours.results == plain.results
        assert bench.leftovers() == []


def test_what_differs_with_two_streams_reads_one(bench: Bench) -> None:
    run_twice(bench, readers())
    reads = ways("reads")
    assert reads.pop("/paste/one")[0] == reads.pop("/paste/two")[0] == "net"
    [refused] = [name for name, (way, _) in reads.items() if way is None]
    [proven] = [name for name, (way, _) in reads.items() if way == "net"]
    assert {refused, proven} == {"/compare/one", "/compare/two"}
    assert reads[refused][1] == f"together with {proven}, the outputs differ with a stream: compare.txt"
    streamed = {f"{proof.step}/{proof.key.port}" for proof in known_proofs(default_path()) if proof.runs}
    assert streamed >= {"/paste/one", "/paste/two"}


def test_wrong_declarations_of_two_streams_are_found(bench: Bench) -> None:
    document = readers("one", "two")
    plain = bench.run(document, io=False)
    first = bench.run(document, config={"rehearse": "wait"})
    assert first.ok, first.errors
    assert first.results != plain.results
    refuted = None, "the output `out` (compare.txt) differs with the complete file"
    right = "pipe", None
    assert ways("declared") == {
        "/compare/one": refuted,
        "/compare/two": refuted,
        "/paste/one": right,
        "/paste/two": right,
    }
    again = bench.run(document, config={"rehearse": "wait"})
    assert again.results == plain.results
    assert bench.leftovers() == []


def test_a_file_beside_a_declared_stream_is_proven_together_with_it(bench: Bench) -> None:
    run_twice(bench, readers("one"))
    why = "together with /compare/one, the outputs differ with a stream: compare.txt"
    assert ways("reads") == {"/compare/two": (None, why), "/paste/two": ("net", None)}
    assert {proof.key.port for proof in known_proofs(default_path()) if proof.runs} == {"one", "two"}
