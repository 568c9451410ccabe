"""Producers of many files."""

from __future__ import annotations

import pytest

from lab.cwl import Document, found, streaming, tool, workflow
from lab.runs import Bench


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_directory_of_ten_thousand_files(bench: Bench) -> None:
    """All of them are there when it is delivered."""
    script = "mkdir tree; seq 1 10000 | split -l 1 -a 4 - tree/; sleep 1"
    rule = streaming({"port": "out", "committed": "on_n_files", "nFiles": 10_000})
    read = tool(
        "note read; cat $tree/* | sha1sum; ls $tree | wc -l", {"tree": "Directory"}, {"out": "stdout"}, stdout="b.txt"
    )
    steps: dict[str, Document] = {
        "a": {"run": tool(script, {}, {"out": found("tree", "Directory")}, [rule]), "in": {}},
        "b": {"run": read, "in": {"tree": "a/out"}},
    }
    _, ours = bench.run_both(workflow({}, steps, {"b": "b/out"}))
    assert ours.files["b.txt"].endswith(b"\n10000\n")


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_scatter_over_many_elements(bench: Bench) -> None:
    """Each once, in the order of the glob."""
    script = "for i in $(seq 300 -1 101); do echo $i > part$i; done"
    made = tool(script, {}, {"out": found("part*", "File[]")}, [streaming({"port": "out", "committed": "on_close"})])
    read = tool("note read; cat $file", {"file": "File"}, {"out": "stdout"}, stdout="b.txt")
    steps: dict[str, Document] = {
        "a": {"run": made, "in": {}},
        "b": {"run": read, "scatter": "file", "in": {"file": "a/out"}},
    }
    _, ours = bench.run_both(workflow({}, steps, {"b": "b/out"}))
    assert len(ours.times("read")) == 200
