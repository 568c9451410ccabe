"""The time limit of a tool does not count the time in which it waits for those it reads from."""

from __future__ import annotations

import time

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.runs import Bench


def limited(script: str, kind: Document | str, seconds: object) -> Document:
    limit = {"class": "ToolTimeLimit", "timelimit": seconds}
    return tool(script, {"file": kind}, {"out": "stdout"}, stdout="$(inputs.file.basename).read", requirements=[limit])


def readers(script: str, seconds: object) -> Document:
    """a takes four seconds; b streams from it, c is at the gate."""
    made = tool(
        "for i in 1 2 3 4; do echo $i; sleep 1; done | tee s.txt > g.txt; note end",
        {},
        {"s": streamable(outputBinding={"glob": "s.txt"}), "g": found("g.txt")},
        [streaming({"port": "g", "committed": "on_termination", "start": "producer"})],
    )
    steps = {
        "a": {"run": made, "in": {}},
        "b": {"run": limited(f"note b; {script}", streamable(), seconds), "in": {"file": "a/s"}},
        "c": {"run": limited(f"note c; {script}", "File", seconds), "in": {"file": "a/g"}},
    }
    return workflow({}, steps, {"b": "b/out", "c": "c/out"})


def test_a_limit_that_holds_with_plain_streamflow_holds_with_ours(bench: Bench) -> None:
    _, ours = bench.run_both(readers("cat $file", "$(1 + 1)"))
    for name in "bc":
        assert ours.time(name) < ours.time("end") - 2


def test_a_reader_that_takes_too_long_is_ended(bench: Bench) -> None:
    document = readers("cat $file; sleep 100", 3)
    began = time.monotonic()
    run = bench.run(document)
    assert not run.ok
    assert time.monotonic() - began < 40
    assert ": it has taken longer than its ToolTimeLimit of 3 s" in run.log
    assert bench.leftovers() == []
