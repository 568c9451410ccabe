"""The digests of tools, and expressions that look at files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from streamflow_io.engine.obstacles import looks_at_file
from streamflow_io.engine.tool_contents import tool_contents
from streamflow_io.hints.cwl import load, read_steps
from streamflow_io.hints.resolution import tool_digests

Document = dict[str, Any]
STEP = "/outer/split"


def document(program: str) -> Document:
    tool: Document = {
        "class": "CommandLineTool",
        "baseCommand": [program, "-l", "6"],
        "inputs": {"reads": "File", "each": {"type": "int", "default": 6}},
        "outputs": {"chunks": {"type": "File[]", "outputBinding": {"glob": "chunk-*"}}},
    }
    split = {"run": tool, "in": {"reads": "reads"}, "out": ["chunks"], "hints": [], "requirements": []}
    inner: Document = {"class": "Workflow", "inputs": {"reads": "File"}, "outputs": {}, "steps": {"split": split}}
    return {
        "cwlVersion": "v1.2",
        "class": "Workflow",
        "requirements": [{"class": "SubworkflowFeatureRequirement"}],
        "inputs": {"reads": "File"},
        "outputs": {},
        "steps": {"outer": {"run": inner, "in": {"reads": "reads"}, "out": []}},
    }


def digest(path: Path, document: Document, given: Sequence[Document] = ()) -> str:
    path.mkdir(exist_ok=True)
    (path / "main.cwl").write_text(json.dumps(document))
    return tool_contents(read_steps(load(str(path / "main.cwl"))), [STEP], given)[STEP].digest


def _step(document: Document) -> Document:
    step: Document = document["steps"]["outer"]["run"]["steps"]["split"]
    return step


ENV = {"class": "EnvVarRequirement", "envDef": {"N": "7"}}
DOCKER = {"class": "DockerRequirement", "dockerPull": "alpine"}


@pytest.mark.parametrize(
    "change",
    [
        lambda d: _step(d)["run"]["baseCommand"].append("-x"),
        lambda d: _step(d)["run"]["inputs"].update(each={"type": "int", "default": 7}),
        lambda d: _step(d)["run"].update(hints=[DOCKER]),
        lambda d: _step(d)["hints"].append(DOCKER),
        lambda d: _step(d)["requirements"].append(ENV),
        lambda d: d["steps"]["outer"]["run"].update(requirements=[ENV]),
        lambda d: d["steps"]["outer"].update(requirements=[ENV]),
        lambda d: d["requirements"].append(ENV),
    ],
)
def test_tools_that_may_do_something_else(tmp_path: Path, change: Callable[[Document], None]) -> None:
    before = document("split")
    after = document("split")
    change(after)
    assert digest(tmp_path, before) != digest(tmp_path, after)


def test_requirements_in_the_input_object_count(tmp_path: Path) -> None:
    other = {**ENV, "envDef": {"N": "8"}}
    found = [digest(tmp_path, document("split"), given) for given in ([], [ENV], [other], [DOCKER])]
    assert len({*found}) == 4
    assert digest(tmp_path, document("split"), [{"class": "LoadListingRequirement"}]) == found[0]


def test_tools_that_do_the_same(tmp_path: Path) -> None:
    described = document("split")
    _step(described)["run"] |= {"label": "splits", "hints": [{"class": "SoftwareThing"}]}
    described["requirements"].append({"class": "ScatterFeatureRequirement"})
    assert digest(tmp_path / "one", document("split")) == digest(tmp_path / "two", described)


def test_a_program_that_changes(tmp_path: Path) -> None:
    program = tmp_path / "split.py"
    program.write_text("one")
    before = digest(tmp_path, document(str(program)))
    assert digest(tmp_path, document(str(program))) == before
    program.write_text("another")
    assert digest(tmp_path, document(str(program))) != before


@pytest.mark.parametrize(
    "use",
    [
        lambda tool, path: tool.update(arguments=[{"prefix": "-jar", "valueFrom": path}]),
        lambda tool, path: tool.update(arguments=[{"shellQuote": False, "valueFrom": f"sort|sh '{path}'"}]),
        lambda tool, path: tool["baseCommand"].append(f"--script={path}"),
        lambda tool, path: tool["inputs"].update(script={"type": "string", "default": path}),
        lambda tool, path: tool["inputs"]["each"].update(inputBinding={"valueFrom": path}),
        lambda tool, path: tool.update(requirements={"EnvVarRequirement": {"envDef": {"SCRIPT": path}}}),
        lambda tool, path: tool.update(
            requirements={"InitialWorkDirRequirement": {"listing": [{"class": "File", "location": Path(path).name}]}}
        ),
        lambda tool, path: tool.update(
            requirements={"InitialWorkDirRequirement": {"listing": [{"entryname": "a", "entry": f"#!{path}\n"}]}}
        ),
    ],
)
def test_a_script_that_changes_wherever_a_tool_names_it(tmp_path: Path, use: Callable[[Document, str], None]) -> None:
    script = tmp_path / "run.sh"
    script.write_text("one")
    changed = document("split")
    use(_step(changed)["run"], str(script))
    before = digest(tmp_path, changed)
    assert digest(tmp_path, changed) == before
    script.write_text("another")
    assert digest(tmp_path, changed) != before


@pytest.mark.parametrize("level", ["requirements", "hints"])
def test_a_program_that_changes_where_the_path_of_the_tool_leads(tmp_path: Path, level: str) -> None:
    tool = tmp_path / "bin" / "split"
    tool.parent.mkdir()
    tool.write_text("one")
    changed = document("split")
    env = {"envDef": {"PATH": f"/no/such:{tool.parent}:$(inputs.reads.dirname)/bin"}}
    _step(changed)["run"][level] = {"EnvVarRequirement": env}
    before = digest(tmp_path, changed)
    assert digest(tmp_path, changed) == before
    tool.write_text("another")
    assert digest(tmp_path, changed) != before


def test_a_directory_that_gets_a_file_is_no_other_tool(tmp_path: Path) -> None:
    changed = document("split")
    _step(changed)["run"]["requirements"] = [{**ENV, "envDef": {"TMPDIR": str(tmp_path)}}]
    before = digest(tmp_path, changed)
    (tmp_path / "new").touch()
    assert digest(tmp_path, changed) == before


def test_the_digest_of_a_tool_with_a_list_is_the_same_each_time(tmp_path: Path) -> None:
    """The limits that are learned of it are found again."""
    (tmp_path / "main.cwl").write_text(json.dumps(document("split")))
    first, second = (tool_digests(read_steps(load(str(tmp_path / "main.cwl"))), [STEP]) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("text", "own", "looks"),
    [
        ("$(inputs.reads.path)", "$(self.path)", False),
        ("$(inputs.each * 2)", "", False),
        ("$(inputs.reads.nameroot)-", "", True),
        ("$(inputs.reads.size)", "", True),
        ("${ return inputs.reads.path.split('/').pop(); }", "", True),
        ("${ return JSON.stringify(inputs); }", "", True),
        ("", "$(self.basename)", True),
        ("", "$(self.path.length)", True),
    ],
)
def test_expressions_that_look_at_a_file(text: str, own: str, looks: bool) -> None:
    assert looks_at_file([text] if text else [], [own] if own else [], "reads") is looks
