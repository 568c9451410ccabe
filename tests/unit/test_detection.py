"""No hint is missed, wherever it is written; and a document without any is known for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cwl_utils.parser
import pytest

from streamflow_io.engine.translator import can_have_hints
from streamflow_io.hints.models import HINT_CLASSES, NAMESPACE, PREFIX

Document = dict[str, Any]
VERSION = {"cwlVersion": "v1.2"}
SFIO = {"$namespaces": {PREFIX: NAMESPACE}}


def tool(**fields: Any) -> Document:
    inputs = {"file": {"type": "File", "doc": "where to run"}}
    return {"class": "CommandLineTool", "baseCommand": "cat", "inputs": inputs, "outputs": {"out": "stdout"}, **fields}


def workflow(run: str | Document, **fields: Any) -> Document:
    return {
        "class": "Workflow",
        "requirements": [{"class": "SubworkflowFeatureRequirement"}],
        "inputs": {"file": "File"},
        "outputs": {"out": {"type": "File", "outputSource": "one/out"}},
        "steps": {"one": {"run": run, "in": {"file": "file"}, "out": ["out"]}},
        **fields,
    }


def graph(*processes: Document) -> Document:
    return {"$graph": [{"id": name, **process} for name, process in zip(("main", "sub"), processes, strict=True)]}


IO_TASK: Document = {"hints": [{"class": "sfio:IOTask"}]}
STREAMABLE = {"inputs": {"file": {"type": "File", "streamable": True}}}
OTHER: Document = {"hints": [{"class": "ResourceRequirement", "coresMin": 1}]}
SUB = {"sub.cwl": workflow("tool.cwl"), "tool.cwl": tool()}
WITH_HINTS: dict[str, dict[str, Document | str]] = {
    "a tool": {"main.cwl": {**tool(**IO_TASK), **SFIO}},
    "a workflow": {"main.cwl": {**workflow(tool(), **IO_TASK), **SFIO}},
    "a tool in a workflow": {"main.cwl": {**workflow(tool(**IO_TASK)), **SFIO}},
    "another prefix": {
        "main.cwl": {**tool(hints=[{"class": "io:IOTask"}]), "$namespaces": {"io": NAMESPACE}},
    },
    "no prefix": {"main.cwl": tool(hints=[{"class": "StorageBandwidth"}])},
    "a mapping": {"main.cwl": {**tool(hints={"sfio:Streaming": {"rules": []}}), **SFIO}},
    "streamable": {"main.cwl": tool(**STREAMABLE)},
    "the file of a tool": {"main.cwl": workflow("tool.cwl"), "tool.cwl": {**tool(**IO_TASK), **SFIO}},
    "streamable in the file of a tool": {"main.cwl": workflow("tool.cwl"), "tool.cwl": tool(**STREAMABLE)},
    "a file that a file runs": {
        **{"main.cwl": workflow("sub.cwl"), "sub.cwl": workflow("a/tool.cwl")},
        "a/tool.cwl": {**tool(**IO_TASK), **SFIO},
    },
    "a file that an embedded workflow runs": {
        "main.cwl": workflow(workflow("tool.cwl")),
        "tool.cwl": {**tool(**IO_TASK), **SFIO},
    },
    "another process of the file": {"main.cwl": {**graph(workflow("#sub"), tool(**STREAMABLE))}},
    "a file that another process of the file runs": {
        "main.cwl": graph(workflow("#sub"), workflow("tool.cwl")),
        "tool.cwl": tool(**STREAMABLE),
    },
    "full names, packed": {
        "main.cwl": graph(workflow("#sub"), tool(hints=[{"class": f"{NAMESPACE}IOTask"}])),
    },
    "a file in YAML": {
        "main.cwl": workflow("sub.cwl"),
        "sub.cwl": "{cwlVersion: v1.2, class: Workflow, inputs: {file: File}, outputs: [],\n"
        "steps: [{id: a, in: {file: file}, out: [], run:\n   tool.cwl }]}",
        "tool.cwl": {**tool(**IO_TASK), **SFIO},
    },
    "imported": {
        "main.cwl": {**tool(hints={"$import": "hints.yml"}), **SFIO},
        "hints.yml": '[{"class": "sfio:IOTask"}]',
    },
    "in disguise": {
        "main.cwl": workflow("tool.cwl"),
        "tool.cwl": json.dumps({**VERSION, **tool(**STREAMABLE)}).replace("streamable", "str\\u0065amable"),
    },
    "in another disguise": {
        "main.cwl": workflow("tool.cwl"),
        "tool.cwl": json.dumps({**VERSION, **tool(**STREAMABLE)}).replace("streamable", "str\\\n  eamable"),
    },
}
WITHOUT: dict[str, dict[str, Document | str]] = {
    "a tool": {"main.cwl": tool(**OTHER)},
    "a workflow": {"main.cwl": workflow(tool(**OTHER), **OTHER)},
    "files": {"main.cwl": workflow("sub.cwl"), **SUB},
    "embedded": {"main.cwl": workflow(workflow("tool.cwl")), **SUB},
    "packed": {"main.cwl": graph(workflow("#sub"), tool(**OTHER))},
    "packed, with a file": {"main.cwl": graph(workflow("#sub"), workflow("tool.cwl")), **SUB},
}


def load(directory: Path, files: dict[str, Document | str]) -> Any:
    for name, content in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        text = content if isinstance(content, str) else json.dumps({**VERSION, **content})
        (directory / name).write_text(text)
    return cwl_utils.parser.load_document_by_uri(str(directory / "main.cwl"))


@pytest.mark.parametrize("files", WITH_HINTS.values(), ids=WITH_HINTS)
def test_no_hint_is_missed(tmp_path: Path, files: dict[str, Document | str]) -> None:
    assert can_have_hints(load(tmp_path, files))


@pytest.mark.parametrize("files", WITHOUT.values(), ids=WITHOUT)
def test_documents_without_hints(tmp_path: Path, files: dict[str, Document | str]) -> None:
    assert not can_have_hints(load(tmp_path, files))


@pytest.mark.parametrize("content", [None, "run: [", b"\xff"])
def test_what_cannot_be_read_may_have_hints(tmp_path: Path, content: str | bytes | None) -> None:
    document = load(tmp_path, {"main.cwl": workflow("tool.cwl"), "tool.cwl": tool()})
    assert not can_have_hints(document)
    (tmp_path / "tool.cwl").unlink()
    if content is not None:
        (tmp_path / "tool.cwl").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert can_have_hints(document)


def test_what_is_elsewhere_may_have_hints(tmp_path: Path) -> None:
    document = load(tmp_path, {"main.cwl": workflow("tool.cwl"), "tool.cwl": tool()})
    document.steps[0].run = "http://127.0.0.1:9/tool.cwl"
    assert can_have_hints(document)


@pytest.mark.parametrize("name", [*HINT_CLASSES, f"{PREFIX}:new", f"{NAMESPACE}new"])
def test_every_class_and_namespace_is_a_trace(tmp_path: Path, name: str) -> None:
    assert can_have_hints(load(tmp_path, {"main.cwl": tool(hints=[{"class": name}])}))
