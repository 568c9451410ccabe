"""The time limit of a tool does not count the time in which it waits for those it reads from."""

from __future__ import annotations

import time

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.gates import MEET
from lab.runs import Bench


def limited(script: str, kind: Document | str, seconds: object) -> Document:
    limit = {"class": "ToolTimeLimit", "timelimit": seconds}
    return tool(script, {"file": kind}, {"out": "stdout"}, stdout="$(inputs.file.basename).read", requirements=[limit])


def readers(script: str, seconds: object) -> Document:
    """b streams from a, c is at its gate; a goes on for six seconds when both have begun."""
    made = tool(
        f"{MEET}{{ echo 1; meet b; meet c; sleep 6; echo 2; }} | tee s.txt > g.txt; note end",
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
    _, ours = bench.run_both(readers("cat $file", "$(2 + 2)"))
    for name in "bc":
        assert ours.time(name) < ours.time("end") - 5


def test_a_reader_that_takes_too_long_is_ended(bench: Bench) -> None:
    document = readers("cat $file; sleep 100", 3)
    began = time.monotonic()
    run = bench.run(document)
    assert not run.ok
    assert time.monotonic() - began < 80
    assert ": it has taken longer than its ToolTimeLimit of 3 s" in run.log
    assert bench.leftovers() == []
