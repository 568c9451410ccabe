"""Parts of a file that is still written: they are said while it grows, and read before it is complete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.cwl import Document, found, streamable, tool, workflow
from lab.runs import RETRY, Bench, Run
from lab.splits import LINES, count, fifo, stdin, written
from streamflow_io.commands.plan import plan_file

RULE: Document = {"port": "chunks", "of": "reads", "records": "lines", "every": 14, "names": "chunk-%02d.txt"}
SPLIT = "note split; split -l 14 -a 2 --numeric-suffixes=1 --additional-suffix=.txt $reads chunk-"
# The records of the first two parts, and the first one of the third.
FIRST = 29


def producer(between: str, before: str = "") -> Document:
    """Writes the lines, the first ones before it does something else."""
    script = f"""note producer; {before}
    exec > made.txt; head -n {FIRST} "$reads"; {between}
    tail -n +{FIRST + 1} "$reads"; note made"""
    return tool(script, {"reads": "File"}, {"made": streamable(**found("made.txt"))})


def split(rule: Document = RULE, script: str = SPLIT, **fields: Any) -> Document:
    """A tool without the input `trace`, which is another one in each run."""
    return {
        "class": "CommandLineTool",
        "baseCommand": ["sh", "-c", "note() { :; }; reads=$0; " + script],
        "hints": [{"class": "sfio:ReadSession", "rules": [rule]}],
        "requirements": [{"class": "InlineJavascriptRequirement"}],
        "inputs": {"reads": streamable(inputBinding={"position": 1})},
        "outputs": {"chunks": found("chunk-*.txt", "File[]")},
        **fields,
    }


def document_of(made: Document, cut: Document | None = None, reader: Document | None = None) -> Document:
    reader = reader or count()
    (output,) = reader["outputs"]
    steps = {
        "make": {"run": made, "in": {"reads": "reads"}},
        "split": {"run": cut or split(), "in": {"reads": "make/made"}},
        "count": {"run": reader, "in": {"chunk": "split/chunks"}, "scatter": "chunk"},
    }
    document = workflow({"reads": "File"}, steps, {"counted": f"count/{output}"})
    del document["steps"]["split"]["in"]["trace"]
    return document


def job(directory: Path, text: str = "".join(LINES)) -> Document:
    (directory / "reads.txt").write_text(text)
    return {"reads": {"class": "File", "path": str(directory / "reads.txt")}}


def verified(bench: Bench, document: Document, values: Document, **settings: Any) -> Run:
    """The results of plain StreamFlow, after a run of ours which has compared the cuts."""
    plain, first = bench.run_both(document, values, **settings)
    assert "for /split/chunks is verified" in first.log, first.errors
    return plain


def again(bench: Bench, document: Document, values: Document, plain: Run, **settings: Any) -> Run:
    ours = bench.run(document, values, **settings)
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert written(bench) == []
    assert bench.leftovers() == []
    return ours


def readers(run: Run) -> list[float]:
    """When jobs that read parts began."""
    return [time for time, what in run.trace if what.startswith("count")]


# Nothing depends on it in runs in which no job can have read a part: it goes on soon, unless there is a file `again`.
SEEN = """test -e "${TRACE%/*}/../again" && n=100 || n=10
for i in $(seq $n); do test $(grep -c count "$TRACE") -ge 2 && break; sleep 0.3; done; note went on"""


@pytest.mark.parametrize(
    "reader", [count(), *(pytest.param(reader, marks=pytest.mark.long) for reader in (fifo(), stdin()))]
)
def test_parts_are_read_while_the_file_is_written(bench: Bench, tmp_path: Path, reader: Document) -> None:
    document, values = document_of(producer(SEEN), reader=reader), job(tmp_path)
    plain = verified(bench, document, values)
    (bench.directory / "again").touch()
    ours = again(bench, document, values, plain)
    (went_on,) = ours.times("went on")
    assert len([time for time in readers(ours) if time < went_on]) == 2, ours.trace


def test_the_plan_says_so(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def partition(rule: Document) -> Any:
        file = bench.write(document_of(producer(":"), split(rule)), job(tmp_path), io=True)
        (found,) = plan_file(file).plans["main"].parts.partitions
        return found

    monkeypatch.setenv("XDG_DATA_HOME", str(bench.data))
    every = partition(RULE)
    assert (every.grows, every.real, every.is_served, every.is_virtual) == (True, None, True, False)
    other = {key: value for key, value in RULE.items() if key != "every"}
    for cut in ({"parts": 3}, {"chunk": 1}):
        found = partition({**other, **cut})
        assert not found.grows
        assert "/split/reads is streamed: other cuts than declared ones of `every` need a complete file" in found.real


# Fails when a part of it has been read.
SOME = 'for i in $(seq 300); do grep -q count "$TRACE" && break; sleep 0.1; done'
ONCE = f'test -e "$TRACE.once" || {{ touch "$TRACE.once"; {SOME}; exit 3; }}'


@pytest.mark.long
def test_a_producer_that_fails_writes_the_same_again(bench: Bench, tmp_path: Path) -> None:
    """The parts of its first file hold, for they have the same bytes."""
    document, values = document_of(producer(ONCE)), job(tmp_path)
    plain = verified(bench, document_of(producer(":")), values)
    ours = again(bench, document, values, plain, **RETRY)
    assert len(ours.times("producer")) == 2
    assert len(readers(ours)) == 3, "each reader ran once"
    assert readers(ours)[1] < ours.times("producer")[1]


def test_a_producer_that_fails_and_writes_something_else(bench: Bench, tmp_path: Path) -> None:
    values = job(tmp_path)
    verified(bench, document_of(producer(":")), values)
    other = 'test ! -e "$TRACE.once" || { sed "s/line 3 /LINE 3 /" "$reads" > "$TRACE.other"; reads=$TRACE.other; }'
    made = producer(ONCE, other)
    ours = bench.run(document_of(made), values, **RETRY)
    assert not ours.ok
    assert "Job /split/0: the part chunk-01.txt has other bytes than before" in ours.errors, ours.errors
    assert bench.leftovers() == []


@pytest.mark.long
def test_a_producer_that_writes_again_what_was_said(bench: Bench, tmp_path: Path) -> None:
    """The readers may have had bytes that are not those of the file: the run fails, and says why."""
    values = job(tmp_path)
    verified(bench, document_of(producer(":")), values)
    ours = bench.run(document_of(producer("sleep 1; printf LINE | dd of=made.txt conv=notrunc status=none")), values)
    assert not ours.ok
    assert "made.txt was written again" in ours.errors, ours.errors
    assert bench.leftovers() == []


@pytest.mark.long
def test_headers_and_many_parts(bench: Bench, tmp_path: Path) -> None:
    """The file is much larger than a pipe, and each part has a header."""
    rule = {**RULE, "records": "csv", "every": 4_000, "names": "chunk-%d.txt"}
    script = """cat "$reads" > all; sed 1d all | split -l 4000 - part-; i=1
    for part in part-*; do { head -n 1 all; cat "$part"; } > "chunk-$i.txt"; i=$((i + 1)); done"""
    text = "number,name\n" + "".join(f"{number},{'name ' * (number % 40)}\n" for number in range(50_000))
    document, values = document_of(producer("sleep 0.2"), split(rule, script), fifo()), job(tmp_path, text)
    plain = verified(bench, document, values)
    again(bench, document, values, plain)
    assert len(plain.outputs["counted"]) == 13


def test_where_it_cannot_be_virtual_the_program_runs(bench: Bench, tmp_path: Path) -> None:
    """A file at which its reader is held at the gate is no stream."""
    cut = split()
    del cut["inputs"]["reads"]["streamable"]
    made = producer("sleep 0.3")
    rules = [{"port": "made", "committed": "on_close", "mode": "update", "start": "producer"}]
    made["hints"] = [{"class": "sfio:Streaming", "rules": rules}]
    document, values = document_of(made, cut), job(tmp_path)
    _, ours = bench.run_both(json.loads(json.dumps(document)), values)
    assert "for /split/chunks does nothing: /split/reads is streamed" in ours.log, ours.errors
