"""A job says in `cwl.output.json` what its outputs are: what was delivered before is compared with that."""

from __future__ import annotations

from typing import Any

import pytest

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.runs import Bench

JSON = "echo '%s' > cwl.output.json"


def of(kind: str, path: str) -> str:
    """An entry of `cwl.output.json`."""
    return f'{{"class": "{kind}", "path": "{path}"}}'


def reader(kind: Any, script: str = "cat $file") -> Document:
    return tool(script, {"file": kind}, {"out": "stdout"}, stdout="read.txt")


def edge(script: str, said: str, out: Any, rule: Document | None, read: Document, **step: str) -> Document:
    """a says what its output is; b reads it."""
    rules = [] if rule is None else [streaming({"port": "out", **rule})]
    made = tool(f"{script}; {JSON % said}", {}, {"out": out}, rules)
    steps = {"a": {"run": made, "in": {}}, "b": {"run": read, "in": {"file": "a/out"}, **step}}
    return workflow({}, steps, {"read": "b/out", "made": "a/out"})


TWO = "for f in b a; do echo $f > $f.txt; sleep 0.3; done"
CLOSE = {"committed": "on_close"}
STREAMED = streamable(outputBinding={"glob": "a.txt"})
OTHER = [
    pytest.param(
        edge(
            TWO, f'{{"out": [{of("File", "b.txt")}]}}', found("*.txt", "File[]"), CLOSE, reader("File"), scatter="file"
        ),
        "a.txt was delivered early, but the output is b.txt at the end",
        id="element",
    ),
    pytest.param(
        edge(
            f"mkdir d e; {TWO}; mv a.txt b.txt d; cp d/* e",
            f'{{"out": {of("Directory", "e")}}}',
            found("d", "Directory"),
            {"committed": "on_n_files", "nFiles": 2, "start": "producer"},
            reader("Directory", "ls $file"),
        ),
        "d was delivered early, but the output is e at the end",
        id="directory",
    ),
]


@pytest.mark.parametrize(("document", "message"), OTHER)
def test_an_output_that_is_another_one_in_the_end_fails_the_run(bench: Bench, document: Document, message: str) -> None:
    run = bench.run(document)
    assert not run.ok
    assert f"Job /a/0: of the output `out`, {message}" in run.log
    assert bench.leftovers() == []


def test_an_output_that_is_another_one_in_the_end_is_read_again_where_it_was_streamed(bench: Bench) -> None:
    said = f'{{"out": {of("File", "b.txt")}}}'
    _, ours = bench.run_both(edge(TWO, said, STREAMED, None, reader(streamable())))
    assert "Job /b/0 starts again with the final output: the output `out` of job /a/0 is b.txt" in ours.log


def test_outputs_that_are_what_was_delivered_give_the_results_of_plain(bench: Bench) -> None:
    """Streamed, committed, by element in another order, a Directory, and one that lies in the input directory."""
    said = {
        "s": of("File", "a.txt"),
        "c": of("File", "b.txt"),
        "l": f"[{of('File', 'y.l')}, {of('File', 'x.l')}]",
        "d": of("Directory", "d"),
    }
    rules = [{"port": port, "committed": "on_close"} for port in "cl"]
    rules.append({"port": "d", "committed": "on_n_files", "nFiles": 1, "start": "producer"})
    made = tool(
        f"{TWO}; echo x > x.l; echo y > y.l; mkdir d; echo d > d/d; sleep 0.3; "
        + JSON % ("{" + ", ".join(f'"{port}": {value}' for port, value in said.items()) + "}"),
        {},
        {
            "s": streamable(outputBinding={"glob": "a.txt"}),
            "c": found("b.txt"),
            "l": found("*.l", "File[]"),
            "d": found("d", "Directory"),
        },
        [streaming(*rules)],
    )
    reads = {"s": streamable(), "c": "File", "l": "File", "d": "Directory"}
    readers = {
        port: {
            "run": tool(
                "cat $file" + "/d" * (port == "d"),
                {"file": kind},
                {"out": "stdout"},
                stdout="$(inputs.file.basename).read",
            ),
            "in": {"file": f"a/{port}"},
            **({"scatter": "file"} if port == "l" else {}),
        }
        for port, kind in reads.items()
    }
    document = workflow({}, {"a": {"run": made, "in": {}}, **readers}, {port: f"{port}/out" for port in reads})
    bench.run_both(document)
