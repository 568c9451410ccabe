"""CWL, StreamFlow files and file names that cannot be used: one message, and no stack trace."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab import forked
from lab.cwl import Document
from lab.wording import uncoded
from streamflow_io.commands.doctor import _javascript
from streamflow_io.commands.plan import plan_file
from streamflow_io.commands.validate import validate
from streamflow_io.hints.cwl import CWLObject, _Walker
from streamflow_io.hints.errors import HintError, HintErrors

TOOL: Document = {"class": "CommandLineTool", "baseCommand": "date", "inputs": {}, "outputs": {"o": "stdout"}}
READER: Document = {
    "class": "CommandLineTool",
    "baseCommand": "cat",
    "inputs": {"i": "File"},
    "outputs": {"o": "stdout"},
}
_LOAD = _Walker.load
FIRST: Document = {"run": TOOL, "in": {}, "out": ["o"]}


def chain(step: Document, run: Document | str = READER, **fields: object) -> Document:
    """A workflow whose second step is the one that is given."""
    steps = {"a": FIRST, "b": {"run": run, "in": {"i": "a/o"}, "out": ["o"], **step}}
    return {"class": "Workflow", "inputs": {}, "outputs": {}, "steps": steps, **fields}


OURS = {"$namespaces": {"sfio": "urn:streamflow-io:cwl#"}}
VALUE_FROM = {"i": {"source": "a/o", "valueFrom": "$(self)"}}
RULE = {"class": "sfio:Streaming", "rules": [{"port": "o"}]}
REFUSED: dict[str, tuple[Document, str]] = {
    "source": (chain({"in": {"i": "a/x"}}), "references unknown identifier 'a/x'"),
    "scatter": (
        chain({"scatter": "x"}, requirements={"ScatterFeatureRequirement": {}}),
        "references unknown identifier 'x'",
    ),
    "type": ({**TOOL, "inputs": {"i": "Fil"}}, "references unknown identifier 'Fil'"),
    "valueFrom": (
        chain({"in": VALUE_FROM}),
        "main.cwl:33: steps.b.in.i.valueFrom: needs StepInputExpressionRequirement",
    ),
    "graph": ({"$graph": 3}, "Workflow must be a CommentedMap or CommentedSeq"),
    "hint": ({**TOOL, "hints": [5]}, "'int' object is not subscriptable"),
    "namespaces": ({**TOOL, "$namespaces": 3}, "$namespaces must be a dictionary"),
    "itself": (
        chain({"in": {}, "out": []}, "main.cwl", requirements={"SubworkflowFeatureRequirement": {}}),
        "step /b runs file:///",
    ),
    "requirement": (
        {**TOOL, **OURS, "requirements": [{"class": "sfio:IOTask"}]},
        "'sfio:IOTask' is a hint, and no requirement; allowed: sfio:IOTask under `hints`",
    ),
    "requirements": (
        chain({"requirements": {"sfio:Streaming": {"rules": RULE["rules"]}}}, **OURS),
        "'sfio:Streaming' is a hint, and no requirement",
    ),
    "beside an output": (
        {**TOOL, **OURS, "outputs": {"o": {"type": "stdout", "sfio:Streaming": RULE}}},
        "sfio:Streaming: it does nothing here; allowed: under `hints` of a tool, a step or a workflow",
    ),
    "beside hints": ({**TOOL, "sfio:IOTask": {}}, "sfio:IOTask: it does nothing here"),
}


def streamflow_file(directory: Path, **fields: object) -> Path:
    path = directory / "streamflow.yml"
    workflows = {"main": {"type": "cwl", "config": {"file": "main.cwl"}}}
    path.write_text(json.dumps({"version": "v1.0", "workflows": workflows, **fields}, indent=1))
    return path


@pytest.mark.parametrize("name", REFUSED)
def test_a_workflow(tmp_path: Path, name: str) -> None:
    document, message = REFUSED[name]
    file = tmp_path / "main.cwl"
    file.write_text(json.dumps({"cwlVersion": "v1.2", **document}, indent=1))
    result = validate(str(file))
    assert not result.ok
    (shown,) = (*result.messages, *map(str, result.errors))
    with pytest.raises(HintErrors) as planned:
        plan_file(streamflow_file(tmp_path))
    (error,) = planned.value.errors
    for text in (shown, str(error)):
        assert message in " ".join(text.split())
    assert error.file == str(file)


@pytest.mark.parametrize(
    ("fields", "line", "field", "message", "allowed"),
    [
        (
            {"scheduler": {"type": "sfio.io-aware", "config": {}}},
            11,
            "StreamFlow file",
            "Additional properties are not allowed ('scheduler' was unexpected)",
            "scheduling: {scheduler: ...}",
        ),
        ({"workflows": {"main": {"type": "cwl"}}}, 4, "workflows.main", "'config' is a required property", "a valid"),
        ({"version": 3}, 2, "version", "3 is no version of StreamFlow files", "v1.0"),
        ({"version": [3]}, 2, "version", "[3] is no version of StreamFlow files", "v1.0"),
        ({"deployments": []}, 11, "deployments", "[] is not of type 'object'", "object"),
    ],
)
def test_a_streamflow_file(tmp_path: Path, fields: Document, line: int, field: str, message: str, allowed: str) -> None:
    (tmp_path / "main.cwl").write_text(json.dumps({"cwlVersion": "v1.2", **TOOL}))
    path = streamflow_file(tmp_path, **fields)
    with pytest.raises(HintErrors) as planned:
        plan_file(path)
    (error,) = planned.value.errors
    assert len(str(error)) < 1000
    if message:
        assert (error.file, error.line, error.field, error.message) == (str(path), line, field, message)
        assert error.allowed.startswith(allowed)


@pytest.mark.parametrize(
    ("target", "deployments", "field", "allowed"),
    [
        ({"deployment": "there"}, {}, "workflows.main.bindings[0].target.deployment", "none"),
        (
            [{"deployment": "here"}, {"deployment": "there"}],
            {"here": {}},
            "workflows.main.bindings[0].target[1].deployment",
            "here",
        ),
        ({"deployment": "here"}, {"here": {"wraps": "there"}}, "deployments.here.wraps", "here"),
        (
            {"deployment": "here"},
            {"here": {"wraps": {"deployment": "there"}}},
            "deployments.here.wraps.deployment",
            "here",
        ),
    ],
)
def test_a_deployment_that_is_not_there(
    tmp_path: Path, target: object, deployments: dict[str, Document], field: str, allowed: str
) -> None:
    (tmp_path / "main.cwl").write_text(json.dumps({"cwlVersion": "v1.2", **TOOL}))
    workflow = {"type": "cwl", "config": {"file": "main.cwl"}, "bindings": [{"step": "/", "target": target}]}
    here = {name: {"type": "docker", "config": {"image": "i"}, **more} for name, more in deployments.items()}
    path = streamflow_file(tmp_path, workflows={"main": workflow}, deployments=here)
    with pytest.raises(HintErrors) as planned:
        plan_file(path)
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if '"there"' in text)
    assert planned.value.errors == (HintError(str(path), line, field, "unknown deployment 'there'", allowed),)


def test_a_binding_of_a_step_that_is_not_there(tmp_path: Path) -> None:
    """StreamFlow ignores the binding."""
    (tmp_path / "main.cwl").write_text(json.dumps({"cwlVersion": "v1.2", **chain({"in": {"i": "a/o"}})}))
    target = {"deployment": "here"}
    bindings = [{"step": step, "target": target} for step in ("/", "/a", "/b/", "/c")]
    workflows = {"main": {"type": "cwl", "config": {"file": "main.cwl"}, "bindings": bindings}}
    path = streamflow_file(tmp_path, workflows=workflows, deployments={"here": {"type": "local", "config": {}}})
    (warning,) = plan_file(path).warnings["main"]
    line = path.read_text().splitlines().index('     "step": "/c",') + 1
    assert warning == f"{path}:{line}: workflows.main.bindings[3].step: unknown step '/c'; allowed: /, /a, /b"


def test_a_cwl_file_in_place_of_a_streamflow_file(tmp_path: Path) -> None:
    (tmp_path / "main.cwl").write_text(json.dumps({"cwlVersion": "v1.2", **TOOL}))
    (tmp_path / "bare.yml").write_text("workflows: {}\n")
    for name, message in (("main.cwl", "this is a CWL file"), ("bare.yml", "there is no version")):
        with pytest.raises(HintErrors) as planned:
            plan_file(tmp_path / name)
        assert planned.value.errors[0].message == message


def test_one_streamable_file_of_a_record_is_not_called_missing(tmp_path: Path) -> None:
    """The reader may take just that file, and gets it as a stream."""
    fields = {name: {"type": "File", "outputBinding": {"glob": name}} for name in ("one", "two")}
    fields["one"]["streamable"] = True
    kind = {"type": "record", "name": "pair", "fields": fields}
    writer = {**TOOL, "outputs": {"p": {"type": kind}}}
    reader = {**READER, "inputs": {"i": {"type": "File", "streamable": True}}}
    steps = {
        "a": {"run": writer, "in": {}, "out": ["p"]},
        "b": {"run": reader, "in": {"i": {"source": "a/p", "valueFrom": "$(self.one)"}}, "out": ["o"]},
    }
    document = {"cwlVersion": "v1.2", "class": "Workflow", "inputs": {}, "outputs": {}, "steps": steps}
    document["requirements"] = {"StepInputExpressionRequirement": {}}
    (tmp_path / "main.cwl").write_text(json.dumps(document, indent=1))
    result = validate(str(tmp_path / "main.cwl"))
    assert (result.ok, result.warnings) == (True, ())


@pytest.mark.parametrize("content", ["", "[]", "3", "null", "- a: b"])
def test_a_file_that_is_no_job(tmp_path: Path, content: str) -> None:
    (tmp_path / "main.cwl").write_text(json.dumps({"cwlVersion": "v1.2", **TOOL}))
    (job := tmp_path / "job.yml").write_text(content)
    message = f"{job}: this is no job file: allowed are lines as `INPUT: VALUE`, or {{}} without inputs"
    result = validate(str(tmp_path / "main.cwl"), str(job))
    assert (result.ok, result.messages) == (False, (message,))
    workflows = {"main": {"type": "cwl", "config": {"file": "main.cwl", "settings": "job.yml"}}}
    with pytest.raises(HintErrors) as planned:
        plan_file(streamflow_file(tmp_path, workflows=workflows))
    assert message in planned.value.errors[0].message


def test_names_and_texts_that_are_not_utf_8(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/caf\xe9.cwl"
    Path(os.fsdecode(name)).write_text(json.dumps({"cwlVersion": "v1.2", **TOOL}))
    shown = forked.run("streamflow-io", "validate", os.fsdecode(name))
    assert (shown.returncode, shown.stderr) == (1, "")
    text = name + b": its name is not UTF-8, as CWL asks\n" + name + b": not valid\n"
    assert os.fsencode(shown.stdout) == text
    latin = tmp_path / "latin.cwl"
    latin.write_bytes(b"cwlVersion: v1.2\nlabel: caf\xe9\n")
    result = validate(str(latin))
    (message,) = result.messages
    assert re.fullmatch(r".*/latin.cwl: it is not UTF-8: .* at byte 27", message)


@pytest.mark.parametrize("text", ["", "# nothing\n", "- class: Workflow\n", "text\n"])
def test_a_file_without_cwl(tmp_path: Path, text: str) -> None:
    (file := tmp_path / "main.cwl").write_text(text)
    result = validate(str(file))
    assert result.messages == (f"{file}: this is no CWL document; allowed: fields, as `cwlVersion: v1.2`",)
    assert not result.ok


def test_several_workflows_have_an_annotations_file_each(tmp_path: Path) -> None:
    writer = {**TOOL, "outputs": {"o": {"type": "stdout", "streamable": True}}}
    for name in ("one", "two"):
        steps = {name: {"run": writer, "in": {}, "out": ["o"]}}
        document = {"cwlVersion": "v1.2", "class": "Workflow", "inputs": {}, "outputs": {}, "steps": steps}
        (tmp_path / f"{name}.cwl").write_text(json.dumps(document))
        (tmp_path / f"{name}.yml").write_text(f"steps: {{/{name}: [{{class: sfio:IOTask}}]}}\n")
    workflows = {name: {"type": "cwl", "config": {"file": f"{name}.cwl"}} for name in ("one", "two")}

    def planned(annotations: object) -> Path:
        scheduler = {"type": "sfio.io-aware", "config": {"annotations": annotations}}
        return streamflow_file(tmp_path, workflows=workflows, scheduling={"scheduler": scheduler})

    with pytest.raises(HintErrors) as mistakes:
        plan_file(planned("one.yml"))
    (error,) = mistakes.value.errors
    assert (error.file, error.message) == (str(tmp_path / "one.yml"), "unknown step '/one'")
    assert error.allowed.endswith("; or a file for each workflow: `annotations: {one: FILE, two: FILE}`")
    with pytest.raises(HintErrors) as mistakes:
        plan_file(planned({"one": "one.yml", "too": "two.yml"}))
    (error,) = mistakes.value.errors
    assert error.field == "scheduling.scheduler.config.annotations.too"
    assert (error.message, error.allowed) == ("unknown workflow 'too'", "one, two")
    plans = plan_file(planned({"one": "one.yml", "two": "two.yml"})).plans
    assert [bool(plans[name].annotations[f"/{name}"].io_task) for name in ("one", "two")] == [True, True]
    assert plan_file(planned({"one": "one.yml"})).plans["two"].annotations["/two"].io_task is None


def test_what_is_streamable_on_one_end_only_is_told(tmp_path: Path) -> None:
    writer = {**TOOL, "outputs": {"o": {"type": "stdout", "streamable": True}}}
    reader = {**READER, "inputs": {"i": {"type": "File", "streamable": True}}}
    steps = {
        "a": {"run": writer, "in": {}, "out": ["o"]},
        "b": {"run": READER, "in": {"i": "a/o"}, "out": ["o"]},
        "c": {"run": reader, "in": {"i": "b/o"}, "out": ["o"]},
        "d": {"run": reader, "in": {"i": "a/o"}, "out": ["o"]},
    }
    document = {"cwlVersion": "v1.2", "class": "Workflow", "inputs": {}, "outputs": {}, "steps": steps}
    (tmp_path / "main.cwl").write_text(json.dumps(document, indent=1))
    told = {
        "/a/o is `streamable`, and /b/i is not: nothing streams from /a/o to /b/i",
        "/c/i is `streamable`, and /b/o is not: nothing streams from /b/o to /c/i",
    }
    result = validate(str(tmp_path / "main.cwl"))
    assert result.ok
    assert {uncoded(warning.message) for warning in result.warnings} == told
    assert all(warning.line is not None for warning in result.warnings)
    assert set(map(uncoded, plan_file(streamflow_file(tmp_path)).warnings["main"])) == told
    # There it may stream all the same.
    learned = {"streaming": "auto", "learned": str(tmp_path / "learned")}
    auto = streamflow_file(tmp_path, scheduling={"scheduler": {"type": "sfio.io-aware", "config": learned}})
    assert plan_file(auto).warnings["main"] == ()


def test_a_storage_that_is_not_there_is_told(tmp_path: Path) -> None:
    (tmp_path / "main.cwl").write_text(json.dumps({"cwlVersion": "v1.2", **TOOL}))
    storages = [{"name": name, "path": str(tmp_path / name), "write": 1} for name in ("there", "gone")]
    (tmp_path / "there").mkdir()
    path = streamflow_file(
        tmp_path, scheduling={"scheduler": {"type": "sfio.io-aware", "config": {"storages": storages}}}
    )
    told = f"Storage 'gone': {tmp_path}/gone does not exist on the driver's node"
    assert plan_file(path).warnings["main"] == (told,)


@pytest.mark.parametrize(
    ("argument", "needed"),
    [
        ("$(inputs.i.length + 1)", True),
        ("${ return 1; }", True),
        ("$(inputs.i) $(inputs['i'][0].path) $(runtime.cores)", False),
        ("\\$(inputs.i + 1)", False),
    ],
)
def test_a_missing_node_js_is_told_where_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argument: str, needed: bool
) -> None:
    requirements = {"InlineJavascriptRequirement": {}}
    tool = {**TOOL, "inputs": {"i": "string"}, "arguments": [argument], "requirements": requirements}
    document = {"cwlVersion": "v1.2", **chain({}, {**tool, "inputs": {"i": "File"}})}
    (tmp_path / "main.cwl").write_text(json.dumps(document))
    path = streamflow_file(tmp_path)
    assert plan_file(path).warnings["main"] == ()
    monkeypatch.setenv("PATH", str(tmp_path))
    told = "/b has JavaScript, and there is no Node.js on this machine, where StreamFlow evaluates it"
    assert plan_file(path).warnings["main"] == ((told,) if needed else ())
    assert [warning.message for warning in validate(str(tmp_path / "main.cwl")).warnings] == ([told] if needed else [])
    finding = _javascript()
    assert finding.works is None
    assert "Node.js" in finding.detail


@pytest.mark.parametrize("has_engine", [True, False])
def test_a_plan_reads_the_files_of_the_tools_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_engine: bool
) -> None:
    path = streamflow_file(tmp_path)
    (tmp_path / "main.cwl").write_text(json.dumps({"cwlVersion": "v1.2", **chain({}, "tool.cwl")}))
    (tmp_path / "tool.cwl").write_text(json.dumps({"cwlVersion": "v1.2", **READER}))
    loaded: list[str] = []

    def load(walker: _Walker, step: CWLObject) -> CWLObject:
        loaded.append(step.run)
        return _LOAD(walker, step)

    monkeypatch.setattr(_Walker, "load", load)
    monkeypatch.setattr("streamflow_io.commands.javascript.find_engine", lambda: "node" if has_engine else None)
    plan_file(path)
    assert len(loaded) == 1


def test_what_a_terminal_cannot_show(tmp_path: Path) -> None:
    """Half of a character, which JSON can name, and characters that another encoding lacks."""
    (tmp_path / "main.cwl").write_text(json.dumps({"cwlVersion": "v1.2", **TOOL, "baseCommand": ["\ud800→"]}))
    (tmp_path / "bad.json").write_text('{"\\ud800→": 1}', encoding="utf-8")
    command = [sys.executable, "-m", "streamflow_io.cli", "validate", "main.cwl", "--annotations", "bad.json"]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    shown = subprocess.run(command, capture_output=True, check=False, timeout=60, cwd=tmp_path, env=environment)
    assert (shown.returncode, shown.stderr) == (1, b"")
    assert rb"\ud800" in shown.stdout
