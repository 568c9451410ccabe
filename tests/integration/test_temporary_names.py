"""A glob that also matches the temporary name of a file: its readers get the file that plain StreamFlow gives them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.gates import ATTEMPT, MEET
from lab.runs import Bench

GATE: Document = {"committed": "on_termination", "start": "producer"}
#: A job of ours waits until the file is read under its first name.
RENAMED = "echo first > out.tmp; meet begun out.tmp; echo last >> out.tmp; sleep 0.2; mv out.tmp out.txt; sleep 0.2"
#: A reader of a stream has all of it when the file is committed.
RENAMED_AFTER_ITS_COMMIT = (
    "exec 3> out.tmp; echo first >&3; meet begun out.tmp; exec 3>&-; meet all; mv out.tmp out.txt"
)
REMOVED = "echo draft > out; meet begun out; echo first > out.new; rm out; echo last >> out.new; sleep 0.2"
BEGUN = "note begun $(basename $file); "
AGAIN = "Job /b/0 starts again with the final output: the output `out` of job /a/0 is "


def producer(script: str, rule: Document | None = None, out: Any = None) -> Document:
    rules = [] if rule is None else [streaming({"port": "out", **rule})]
    default = found("out*") if rule else streamable(outputBinding={"glob": "out*"})
    return tool(MEET + script, {}, {"out": out or default}, rules)


def reader(script: str = "cat $file; basename $file", name: str = "read", kind: Any = None) -> Document:
    return tool(BEGUN + script, {"file": kind or streamable()}, {"out": "stdout"}, stdout=f"{name}.txt")


def edge(made: Document, read: Document, **step: Any) -> Document:
    """a makes what b reads."""
    steps = {"a": {"run": made, "in": {}}, "b": {"run": read, "in": {"file": "a/out"}, **step}}
    return workflow({}, steps, {"read": "b/out", "made": "a/out"})


@pytest.mark.parametrize("script", [RENAMED, pytest.param(REMOVED, marks=pytest.mark.long)], ids=["renamed", "removed"])
def test_who_reads_a_temporary_file_reads_again(bench: Bench, script: str) -> None:
    """All of it, a part of it, or nothing but its name."""
    scripts = {"b": "cat $file; basename $file", "c": "head -n 1 $file", "d": "basename $file"}
    steps: dict[str, Document] = {
        name: {"run": reader(f"note {name} reads; {read}", name), "in": {"file": "a/out"}}
        for name, read in scripts.items()
    }
    until_all = "; ".join(f"meet {name} reads" for name in scripts)
    steps["a"] = {"run": producer(re.sub(r"meet begun [a-z.]+", until_all, script)), "in": {}}
    plain, ours = bench.run_both(workflow({}, steps, {name: f"{name}/out" for name in "abcd"}))
    assert AGAIN in ours.log
    for name in scripts:
        assert [len(run.times(f"{name} reads")) for run in (plain, ours)] == [1, 2]


def test_a_file_that_is_committed_only_under_its_final_name(bench: Bench) -> None:
    """The file is renamed while it is open: its commit is of no use to a reader under the other name."""
    begin, end = "exec 3> out.tmp; echo first >&3; meet begun out.tmp", "echo last >&3; exec 3>&-; sleep 0.4; :"
    rule = {"committed": "on_close", "mode": "no_update"}
    _, ours = bench.run_both(edge(producer(f"{begin}; mv out.tmp out.txt; {end}", rule), reader()))
    assert AGAIN in ours.log


def test_who_waits_at_the_gate_for_a_temporary_file_gets_the_final_one(bench: Bench) -> None:
    _, ours = bench.run_both(edge(producer(RENAMED, GATE), reader(kind="File")))
    assert AGAIN in ours.log


def test_a_retry_that_makes_the_file_under_another_name(bench: Bench) -> None:
    script = f"{ATTEMPT}if [ $attempt = 1 ]; then echo a > out.tmp; meet begun out.tmp; exit 3; fi; echo b > out"
    retry = {"failureManager": {"type": "default", "config": {"max_retries": 2, "retry_delay": 0}}}
    ours = bench.run(edge(producer(script), reader()), **retry)
    assert ours.ok, ours.errors
    assert ours.files["read.txt"] == b"b\nout\n"
    assert bench.leftovers() == []


def document_with_the_name() -> Document:
    read = reader("cat $file; echo $name")
    read["inputs"]["name"] = "string"
    read["requirements"][0]["envDef"].append({"envName": "name", "envValue": "$(inputs.name)"})
    document = edge(producer(RENAMED), read)
    document["steps"]["b"]["in"]["name"] = {"source": "a/out", "valueFrom": "$(self.basename)"}
    return document


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (document_with_the_name(), "out.tmp was delivered early, but the output is out.txt at the end"),
        pytest.param(
            edge(producer(RENAMED), reader(), when="$(inputs.file.basename != 'out.txt')"),
            "out.tmp was delivered early, but the output is out.txt at the end",
            marks=pytest.mark.long,
        ),
        pytest.param(
            edge(
                producer(RENAMED, {"committed": "on_termination", "mode": "no_update"}, found("out*", "File[]")),
                reader(),
                scatter="file",
            ),
            "out.tmp was delivered early, but the output is out.txt at the end",
            marks=pytest.mark.long,
        ),
        (
            edge(
                producer(RENAMED_AFTER_ITS_COMMIT, {"committed": "on_close", "mode": "no_update"}),
                reader("cat $file; note all; basename $file"),
            ),
            "out.tmp was delivered early, but the output is out.txt at the end",
        ),
    ],
    ids=["the name is used elsewhere", "the name decides", "element", "committed"],
)
def test_what_cannot_be_taken_back_fails_the_run(bench: Bench, document: Document, message: str) -> None:
    run = bench.run(document)
    assert not run.ok
    assert f"Job /a/0: of the output `out`, {message}" in run.log
    assert bench.leftovers() == []
