"""Steps that take the name of their input, to name their output; results are those of plain StreamFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from lab.cwl import Document, found, streamable, tool, workflow
from lab.gates import MEET
from lab.runs import Bench, Run
from lab.wording import uncoded
from streamflow_io.commands.plan import plan_file


def producer(out: Any = None, hints: list[Document] | None = None, names: Sequence[str] = ()) -> Document:
    """:param names: what its readers note while it writes"""
    lines = "".join(f"meet {name}; " for name in names)
    script = f"{MEET}{{ echo line 1; {lines}echo line 2; }} > out.txt; sleep 0.5; note end"
    return tool(script, {}, {"out": out or streamable(outputBinding={"glob": "out.txt"})}, hints)


def reader() -> Document:
    script = 'note $name; while read line; do note $name "$line"; echo "$line"; done < $file > $name'
    return tool(script, {"file": streamable(), "name": "string"}, {"out": found("$(inputs.name)")})


def step(name: Document, run: Document | None = None, **fields: Any) -> Document:
    return {"run": run or reader(), "in": {"file": "a/out", "name": name, "label": "label"}, **fields}


def with_library() -> Document:
    """A tool that asks for the size of its input in a function of its library."""
    script = "note $name; cat $file > $name; echo $1"
    inputs = {"file": streamable(), "name": "string"}
    made = tool(script, inputs, {"out": found("$(inputs.name)"), "size": "stdout"}, requirements=[SIZE])
    return {**made, "arguments": ["x", "$(size())"], "stdout": "size.txt"}


def inner() -> Document:
    """A workflow that reads the file, names its output after it, and gives the name to another tool, too."""
    again = {"name": {"source": "name", "valueFrom": "$(self).inner"}}
    only = tool('note only; echo "$name"', {"name": "string"}, {"out": "stdout"}, stdout="only.txt")
    return workflow(
        {"file": "File", "name": "string", "label": "string?"},
        {"b": {"run": reader(), "in": {"file": "file", **again}}, "c": {"run": only, "in": again}},
        {"out": "b/out", "only": "c/out"},
    )


def document(made: Document, steps: dict[str, Document]) -> Document:
    outputs = {f"{name}_{out}": f"{name}/{out}" for name, body in steps.items() for out in body["run"]["outputs"]}
    return workflow({"label": "string"}, {"a": {"run": made, "in": {}}, **steps}, outputs)


def assert_starts_early(run: Run, names: Sequence[str]) -> None:
    for name in names:
        assert run.time(name) < run.time("end"), (name, run.trace)


def test_a_name_comes_with_the_file(bench: Bench) -> None:
    """However the name of a stream is used: the reader runs while the file is written."""
    steps = {
        "own": step({"valueFrom": "$(inputs.file.nameroot).own"}),
        "length": step({"valueFrom": "length-$(inputs.file.basename.length)"}),
        "sourced": step({"source": "a/out", "valueFrom": "$(self.nameroot).sourced"}),
        "labelled": step({"source": "label", "valueFrom": "$(self).$(inputs['file']['nameroot'])"}),
        "inner": step({"valueFrom": "$(inputs.file.nameroot)"}, inner()),
        "guarded": step({"valueFrom": "$(inputs.file.nameroot).guarded"}, when="$(inputs.name != 'x')"),
    }
    read = ["out.own", "length-7", "out.sourced", "label.out", "out.inner", "out.guarded"]
    names = [*(f"{name} line 1" for name in read), "only"]
    _, ours = bench.run_both(document(producer(names=names), steps), {"label": "label"})
    assert_starts_early(ours, names)


SIZE = {"class": "InlineJavascriptRequirement", "expressionLib": ["function size() { return inputs.file.size; }"]}


def test_formats_that_are_inherited(bench: Bench) -> None:
    """An output has the format of an input that streams, and its readers ask for it."""
    text = "http://edamontology.org/format_2330"
    names = ["b line 1", "c line 1", "d line 1"]
    first = producer(streamable(outputBinding={"glob": "out.txt"}, format=text), names=names)
    script = 'note $0; while read line; do note $0 "$line"; echo "$line"; done < $file > $0.txt; echo $1 >> $0.txt'
    inherits = {"format": "$(inputs.file.format)"}

    def copy(name: str) -> Document:
        made = tool(
            script,
            {"file": streamable(format=text)},
            {"out": streamable(outputBinding={"glob": f"{name}.txt"}, **inherits)},
        )
        return {**made, "arguments": [name, "$(inputs.file.format)"]}

    steps = {
        "a": {"run": first, "in": {}},
        "b": {"run": copy("b"), "in": {"file": "a/out"}},
        "c": {"run": copy("c"), "in": {"file": "b/out"}},
        "d": {"run": copy("d"), "in": {"file": "c/out"}, "when": "$(inputs.file.format != 'x')"},
    }
    _, ours = bench.run_both(workflow({}, steps, {name: f"{name}/out" for name in "abcd"}))
    assert_starts_early(ours, names)
    assert ours.outputs["c"]["format"] == text
    assert ours.files["c.txt"].endswith(f"{text}\n{text}\n".encode())


@pytest.mark.parametrize("where", ["arguments", "binding"])
def test_a_function_on_the_command_line_may_need_the_file(bench: Bench, where: str) -> None:
    made = with_library()
    if where == "binding":
        del made["arguments"]
        made["inputs"]["name"] = {"type": "string", "inputBinding": {"valueFrom": "$(size())"}}
    body = document(producer(), {"tool": step({"valueFrom": "tool"}, made)})
    body["requirements"] = [*(r for r in body["requirements"] if r["class"] != SIZE["class"]), SIZE]
    edges = plan_file(bench.write(body, {"label": "label"}, io=True)).plans["main"].graph.edges
    (fallback,) = [edge.fallback for edge in edges]
    assert "is used in the expression 'inputs.file.size'" in (fallback or "")


@pytest.mark.long
def test_more_than_a_name_waits_for_the_file(bench: Bench) -> None:
    """A `valueFrom` that computes with the size, or with the whole file, is right. The plan says what waits."""
    steps = {
        "size": step({"valueFrom": "size$(inputs.file.size)"}),
        "path": step({"valueFrom": "path$(inputs.file.path.length > 0)"}),
        "sub": step({"valueFrom": "$(inputs.file.nameroot)$(inputs.file.size)"}, inner()),
        "all": step({"valueFrom": "${var all = inputs; return 'all' + all.file.size;}"}),
        "self": step({"source": "a/out", "valueFrom": "self$(self.size)"}),
        "library": step({"valueFrom": "library$(size())"}),
        "guarded": step({"valueFrom": "$(inputs.file.nameroot).guarded"}, when="$(size() > 0)"),
        "tool": step({"valueFrom": "tool"}, with_library()),
    }
    body = document(producer(), steps)
    body["requirements"] = [*(r for r in body["requirements"] if r["class"] != SIZE["class"]), SIZE]
    edges = plan_file(bench.write(body, {"label": "label"}, io=True)).plans["main"].graph.edges
    told = {edge.route.consumer.step: uncoded(edge.fallback or "") for edge in edges if edge.route.consumer is not None}
    assert told["/size"] == "/size/name is computed from it by valueFrom, which uses more than its name"
    assert "`when` needs the whole file" in told["/guarded"]
    assert "is used in the expression 'inputs.file.size'" in told["/tool"]
    assert all(told.values())
    bench.run_both(body, {"label": "label"})
