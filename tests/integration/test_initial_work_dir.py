"""Files that are put into a job's directory before it starts, beside inputs that are not there yet."""

from __future__ import annotations

import pytest

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.gates import MEET
from lab.runs import RETRY, Bench

GATE = streaming({"port": "out", "committed": "on_close", "start": "producer"})


def producer(gated: bool, met: str = "sleep 1") -> Document:
    script = f"{MEET}{{ echo line 1; {met}; echo line 2; }} > out.txt; sleep 0.5; note end"
    return tool(script, {}, {"out": found("out.txt", streamable=not gated)}, [GATE] if gated else [])


def reader(script: str) -> Document:
    """Reads beside a literal text, a file of its own name, one of another name that it may change, and a directory."""
    listing = [
        {"entryname": "hello.sh", "entry": "echo hello from $(inputs.file.basename)"},
        "$(inputs.notes)",
        {"entryname": "renamed.txt", "entry": "$(inputs.own)", "writable": True},
        {"entryname": "path", "entry": "$(inputs.file.path.split('/').pop())"},
        {"class": "Directory", "basename": "made", "listing": [{"class": "File", "basename": "x", "contents": "x"}]},
    ]
    text = f"""
    {{ cat renamed.txt; echo changed >> renamed.txt; sh hello.sh; }} > all.txt
    {{ cat notes.txt "$notes" "$own" path; ls made; }} >> all.txt
    {script}"""
    return tool(
        text,
        {"file": streamable(), "notes": "File", "own": "File"},
        {"out": found("all.txt"), "own_again": found("$(inputs.own.basename)")},
        [streaming({"port": "out", "committed": "on_close"}, {"port": "own_again", "committed": "on_close"})],
        requirements=[{"class": "InitialWorkDirRequirement", "listing": listing}],
    )


def document(first: Document, second: Document) -> Document:
    inputs = {"file": "a/out", "notes": "notes", "own": "own"}
    steps = {"a": {"run": first, "in": {}}, "b": {"run": second, "in": inputs}}
    return workflow({"notes": "File", "own": "File"}, steps, {"out": "b/out", "own_again": "b/own_again"})


def job(bench: Bench) -> Document:
    for name in ("notes", "own"):
        (bench.directory / f"{name}.txt").write_text(f"{name}\n")
    return {name: {"class": "File", "path": str(bench.directory / f"{name}.txt")} for name in ("notes", "own")}


@pytest.mark.parametrize("gated", [False, True], ids=["stream", "gate"])
def test_beside_an_input_that_is_not_there_yet(bench: Bench, gated: bool) -> None:
    script = 'note start; while read line; do note read "$line"; echo "$line"; done < $file >> all.txt'
    first = producer(gated, "meet start" if gated else "meet read line 1")
    _, ours = bench.run_both(document(first, reader(script)), job(bench))
    assert ours.time("start") < ours.time("end") - 0.2, ours.trace
    if not gated:
        assert ours.time("read line 1") < ours.time("end") - 0.2, ours.trace
    assert ours.files["all.txt"].startswith(b"own\nhello from out.txt\nnotes\nnotes\nown\nchanged\nout.txtx\n")


@pytest.mark.long
def test_what_a_failed_attempt_did_to_them_is_gone(bench: Bench) -> None:
    """A retry has its files as they were, though the attempt before has changed what it was given for writing."""
    fails_once = '[ -e "$TRACE.failed" ] || { : > "$TRACE.failed"; exit 3; }'
    plain = bench.run(document(producer(False), reader("cat $file >> all.txt")), job(bench), io=False)
    ours = bench.run(document(producer(False), reader(f"cat $file >> all.txt; {fails_once}")), job(bench), **RETRY)
    assert plain.ok, plain.errors
    assert ours.ok, ours.errors
    assert "the tool fails with a stream, and not with the file: exit code 3" in ours.log
    assert ours.results == plain.results
    assert plain.files["renamed.txt"] == b"own\nchanged\n"
