"""Expressions in any part of a tool may ask for more of an input than a stream has."""

from __future__ import annotations

from typing import Any

import pytest

from lab.cwl import Document, found, streamable, tool, workflow
from lab.runs import Bench
from streamflow_io.commands.plan import plan_file
from streamflow_io.engine.obstacles import whole_file_use, whole_self_use
from streamflow_io.graph.io_graph import Delivery

LONG, SHORT = "http://formats/long", "http://formats/short"
# The file has more bytes. A stream has no size, and what has no size is not longer than anything.
LONGER = "size > 3"
SAYS = 'for word in "$@"; do echo "${word##*/}"; done; cat $file'


def of(which: str, yes: str, no: str) -> str:
    return f"$({which}.{LONGER} ? '{yes}' : '{no}')"


def reader(name: str, script: str = "cat $file", file: Document | None = None, **fields: Any) -> Document:
    inputs = {"file": streamable(**(file or {})), **fields.pop("inputs", {})}
    return {**tool(script, inputs, {"out": "stdout"}, stdout=f"{name}.txt"), **fields}


def position() -> Document:
    made = reader("position", file={"inputBinding": {"position": "$(self.size > 3 ? 1 : 3)"}})
    words = ["sh", "-c", f"file=$FILE; {SAYS}", "sh"]
    environment = [{"envName": "FILE", "envValue": "$(inputs.file.path)"}]
    made["requirements"] = [{"class": "EnvVarRequirement", "envDef": environment}]
    return {**made, "baseCommand": words, "arguments": [{"position": 2, "valueFrom": "between"}]}


def variable(name: str) -> Document:
    """An environment variable with a name that StreamFlow's own objects have, too."""
    made = reader(f"variable-{name}", f"echo ${name}; cat $file")
    made["requirements"][0]["envDef"].append({"envName": name, "envValue": "$(inputs.file.size)"})
    return made


def output() -> Document:
    made = reader("output")
    size: Document = {"type": "long", "outputBinding": {"outputEval": "$(inputs.file.size)"}}
    return {**made, "outputs": {**made["outputs"], "step": size}}


def beside() -> Document:
    made = reader("beside", "cat $file; for k in long short; do echo $k > beside.txt.$k; done")
    patterns = [{"pattern": of("inputs.file", "beside.txt.long", "beside.txt.short")}]
    return {**made, "outputs": {"out": found("beside.txt", secondaryFiles=patterns)}}


def own_format() -> Document:
    return reader("own", file={"format": of("self", LONG, SHORT)})


def other_format(name: str = "other") -> Document:
    formats = {"format": of("inputs.file", LONG, SHORT)}
    return reader(name, inputs={"other": {"type": "File", **formats}})


def other_secondary() -> Document:
    patterns = [{"pattern": ".absent", "required": f"$(!(inputs.file.{LONGER}))"}]
    return reader("secondary", inputs={"other": {"type": "File", "secondaryFiles": patterns}})


def inside(name: str, **formats: Document) -> Document:
    """A workflow around a reader, whose inputs have formats."""
    files: dict[str, Any] = {name: {"type": "File", **formats.get(name, {})} for name in ("file", "other")}
    return workflow(files, {"b": {"run": reader(name), "in": {"file": "file"}}}, {"out": "b/out"})


READERS: dict[str, Document] = {
    "position": position(),
    "variable": variable("step"),
    "variable2": variable("workflow"),
    "output": output(),
    "beside": beside(),
    "own": own_format(),
    "format": other_format("format"),
    "secondary": other_secondary(),
    "inner": inside("inner", file={"format": of("self", LONG, SHORT)}),
    "inner2": inside("inner2", other={"format": of("inputs.file", LONG, SHORT)}),
}


def producer(name: str, **fields: Any) -> Document:
    script = f"echo a line; echo another > {name}.txt"
    return tool(script, {}, {"out": found(f"{name}.txt", format=LONG, **fields)})


def document() -> Document:
    steps: dict[str, Document] = {
        "a": {"run": producer("a", streamable=True), "in": {}},
        "other": {"run": producer("other"), "in": {}},
    }
    for name, run in READERS.items():
        others = {"other": "other/out"} if "other" in run["inputs"] else {}
        steps[name] = {"run": run, "in": {"file": "a/out", **others}}
    return workflow({}, steps, {**{name: f"{name}/out" for name in READERS}, "size": "output/step"})


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("$(inputs.file.path.size)", True),
        ("$(inputs.file[0]['path']['size'])", True),
        ("$(inputs['file'].basename .contents)", True),
        ("$(inputs.file.path.length)", False),
        ("$(inputs.file.basename.split('.').size)", False),
        ("$(inputs.other.path.size)", False),
    ],
)
def test_a_field_of_a_record_may_have_the_name_of_a_property(text: str, needs: bool) -> None:
    assert (whole_file_use(text, "file") is not None) is needs
    assert whole_self_use(text.replace("inputs.file", "self").replace("inputs['file']", "self")) is needs


def test_what_waits_for_the_file(bench: Bench) -> None:
    edges = plan_file(bench.write(document(), {}, io=True)).plans["main"].graph.edges
    found = {edge.route.consumer.step.split("/")[1]: edge for edge in edges if edge.route.consumer is not None}
    # The reader in `inner2` has no input whose format depends on the file.
    expected = {**dict.fromkeys(READERS, Delivery.TERMINATION), "inner2": Delivery.STREAM}
    assert {name: edge.delivery for name, edge in found.items()} == expected


def test_the_results_are_those_of_files(bench: Bench) -> None:
    _, ours = bench.run_both(document())
    assert "beside.txt.long" in ours.files, ours.files
