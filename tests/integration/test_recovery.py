"""StreamFlow's recovery runs streaming steps again when what they had written is lost."""

from __future__ import annotations

import pytest

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.runs import Bench

# Fails once, and what it read is gone then.
LOSE = 'note c; test -e "$TRACE.once" || { touch "$TRACE.once"; rm -f "$(readlink -f $file)"; exit 1; }; cat $file'


def lossy(producer: Document, reader: Document) -> Document:
    steps = {
        "a": {"run": producer, "in": {}},
        "b": {"run": reader, "in": {"file": "a/out"}},
        "c": {"run": tool(LOSE, {"file": "File"}, {"out": "stdout"}, stdout="c.txt"), "in": {"file": "b/out"}},
    }
    return workflow({}, steps, {"out": "c/out"})


def streams() -> Document:
    producer = tool(
        "note a; for i in 1 2 3; do echo $i; sleep 0.1; done",
        {},
        {"out": {"type": "stdout", "streamable": True}},
        stdout="a.txt",
    )
    return lossy(producer, tool("note b; cat $file; echo b", {"file": streamable()}, {"out": "stdout"}, stdout="b.txt"))


def commits() -> Document:
    rule = streaming({"port": "out", "committed": "on_close"})
    producer = tool("note a; echo 1 > a.txt; sleep 1", {}, {"out": found("a.txt")}, [rule])
    return lossy(producer, tool("note b; cat $file; echo b", {"file": "File"}, {"out": "stdout"}, stdout="b.txt"))


def parts() -> Document:
    """The lost output was made of a part of a file that was never written."""
    made = tool("note a; printf '12345' > a.txt", {}, {"out": found("a.txt")})
    rule = {"class": "sfio:ReadSession", "rules": [{"port": "parts", "of": "file"}]}
    script = """note split; if [ "$SFIO_PARTS" ]; then
    echo '{"path": "1.part", "extents": [[1, 2]]}' >> $SFIO_PARTS; else printf '23' > 1.part; fi"""
    split = tool(script, {"file": "File"}, {"parts": found("*.part", "File[]")}, [rule])
    read = tool("note b; cat $file; echo b", {"file": "File"}, {"out": "stdout"}, stdout="b.txt")
    steps = {
        "a": {"run": made, "in": {}},
        "split": {"run": split, "in": {"file": "a/out"}},
        "b": {"run": read, "in": {"file": "split/parts"}, "scatter": "file"},
        "c": {
            "run": tool(LOSE, {"file": "File"}, {"out": "stdout"}, stdout="c.txt"),
            "in": {"file": "b/out"},
            "scatter": "file",
        },
    }
    return workflow({}, steps, {"out": "c/out"})


@pytest.mark.parametrize(
    "document",
    [streams(), *(pytest.param(each, marks=pytest.mark.long) for each in (commits(), parts()))],
    ids=["streams", "commits", "parts"],
)
def test_a_lost_output_is_made_again(bench: Bench, document: Document) -> None:
    files = {}
    for io in (False, True):
        manager = {"type": "default", "config": {"max_retries": 5, "retry_delay": 0}}
        path = bench.write(document, {}, io, failureManager=manager)
        run = bench.finish(bench.start(path), path)
        assert run.ok, run.errors
        assert len(run.times("c")) == 2
        assert len(run.times("b")) == 2
        files[io] = run.files
    assert files[True] == files[False]
    assert bench.leftovers() == []
