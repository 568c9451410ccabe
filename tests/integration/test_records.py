"""Outputs that are records: their files are read while they are written, alone or as the record."""

from __future__ import annotations

from typing import Any

import pytest

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.runs import Bench
from streamflow_io.commands.plan import plan_file
from streamflow_io.engine.intermediates import outcomes

# Ends when something has been read of each, if it streams.
SLOW = """note start
echo a1 > r1.fq; echo b1 > r2.fq
i=0; until [ -z "$SFIO_JOB" ] || [ $i = 300 ] || grep -q "read" "$TRACE"; do i=$((i+1)); sleep 0.1; done
echo a2 >> r1.fq; echo b2 >> r2.fq; echo 7 > n.txt
note end"""
PASTE = """while read -r a <&3; do read -r b <&4; note read $a $b; echo $a $b; done 3< "$0" 4< "$1"
note done"""
FILES = {"r1": "r1.fq", "r2": "r2.fq"}


def record(fields: Document) -> Document:
    return {"type": "record", "name": "pair", "fields": fields}


def maker(fields: Document, hints: list[Document] | None = None, script: str = SLOW) -> Document:
    return tool(script, {}, {"pair": {"type": record(fields)}}, hints)


def written(name: str, **fields: Any) -> Document:
    return found(FILES[name], **fields)


STREAMED = {name: written(name, streamable=True) for name in FILES}


def reader(**inputs: Any) -> Document:
    """Reads two files, each a word of its command line."""
    words = [f"$(inputs.{name})" for name in inputs]
    if "pair" in inputs:
        words = ["$(inputs.pair.r1)", "$(inputs['pair'].r2)"]
    read = tool(PASTE, {}, {"out": "stdout"}, stdout="joined.txt")
    return read | {"inputs": {**inputs, "trace": "string"}, "arguments": words}


WHOLE = reader(pair={"type": record({name: streamable() for name in FILES})})
APART = reader(r1=streamable(), r2=streamable())
TAKEN = {name: {"source": "make/pair", "valueFrom": f"$(self.{name})"} for name in FILES}


def steps(make: Document, read: Document, links: Document) -> Document:
    return workflow({}, {"make": {"run": make, "in": {}}, "read": {"run": read, "in": links}}, {"out": "read/out"})


def is_early(run: Any) -> bool:
    return bool(run.time("read a1 b1") < run.time("end"))


@pytest.mark.parametrize(
    ("read", "links"),
    [pytest.param(WHOLE, {"pair": "make/pair"}, marks=pytest.mark.long), (APART, TAKEN)],
    ids=["whole", "apart"],
)
def test_files_of_a_record_are_read_while_they_are_written(bench: Bench, read: Document, links: Document) -> None:
    plain, ours = bench.run_both(steps(maker(STREAMED), read, links))
    assert not is_early(plain)
    assert is_early(ours)


def test_the_plan_says_what_happens_to_the_files_of_a_record(bench: Bench) -> None:
    path = bench.write(steps(maker(STREAMED), APART, TAKEN), {}, io=True, config={"intermediates": "remove"})
    found_outcomes = outcomes(plan_file(path).plans["main"])
    assert [(each.step, each.port, each.goes) for each in found_outcomes] == [
        ("/make", "pair", True),
        ("/read", "out", False),
    ]


def test_a_rule_for_a_record(bench: Bench) -> None:
    """The record is also an output of the workflow, and goes through a subworkflow and a skipped step."""
    make = maker({name: written(name) for name in FILES}, [streaming({"port": "pair", "mode": "no_update"})])
    kind = record({name: {"type": "File"} for name in FILES})
    inner = workflow({"pair": {"type": kind}}, {"in": {"run": WHOLE, "in": {"pair": "pair"}}}, {"out": "in/out"})
    document = steps(make, inner, {"pair": "make/pair"})
    document["outputs"]["pair"] = {"type": kind, "outputSource": "make/pair"}
    _, ours = bench.run_both(document)
    assert is_early(ours)


def test_a_file_of_a_record_may_be_missing(bench: Bench) -> None:
    fields = {"r1": written("r1", streamable=True), "r2": {**written("r2", streamable=True), "type": "File?"}}
    single = reader(r1=streamable())
    single["arguments"] = ["$(inputs.r1)", "/dev/null"]
    document = steps(maker(fields, script=SLOW.replace("r2.fq", "r3.fq")), single, {"r1": TAKEN["r1"]})
    document["steps"]["second"] = {
        "run": tool("test $r2 = None && echo none", {"r2": "Any?"}, {"said": "stdout"}, stdout="said.txt"),
        "in": {"r2": TAKEN["r2"], "trace": "trace"},
        "out": ["said"],
    }
    # Plain StreamFlow may end before a step whose outputs no result needs.
    document["outputs"]["said"] = {"type": "File", "outputSource": "second/said"}
    _, ours = bench.run_both(document)
    assert ours.time("read a1") < ours.time("end")


def test_a_record_in_the_oldest_cwl(bench: Bench) -> None:
    """In CWL v1.0 fields of a record have no `streamable`."""
    make = maker({name: written(name) for name in FILES}, [streaming({"port": "pair", "mode": "no_update"})])
    whole = reader(pair={"type": record({name: {"type": "File"} for name in FILES})})
    document = steps(make, whole, {"pair": "make/pair"}) | {"cwlVersion": "v1.0"}
    _, ours = bench.run_both(document)
    assert ours.ok
