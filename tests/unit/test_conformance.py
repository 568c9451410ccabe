"""A hint on everything of a workflow, the tests of a suite, and what of a log is our own mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.cwl import Document
from streamflow_io.hints.cwl import load, read_steps
from streamflow_io.hints.resolution import resolve
from tests.conformance.annotations import KINDS, LEARNING, Kind, annotations_file
from tests.conformance.trial import own_mistakes

TOOL: Document = {
    "class": "CommandLineTool",
    "baseCommand": "true",
    "inputs": {"i": "File?", "number": "int"},
    "outputs": {
        "o": "stdout",
        "all": {"type": "Directory", "outputBinding": {"glob": "."}},
        "value": {"type": "string", "outputBinding": {"outputEval": "x"}},
    },
}
STEP: Document = {"run": TOOL, "in": {"number": "n"}, "out": ["o", "all"]}
INNER: Document = {"class": "Workflow", "inputs": {"n": "int"}, "outputs": {}, "steps": {"b": STEP}}
WORKFLOW: Document = {
    **INNER,
    "requirements": {"SubworkflowFeatureRequirement": {}},
    "steps": {"a": STEP, "inner": {"run": INNER, "in": {"n": "n"}, "out": []}},
}


def written(directory: Path, document: Document) -> str:
    file = directory / "main.cwl"
    file.write_text(json.dumps({"cwlVersion": "v1.2", **document}))
    return str(file)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in LEARNING])
def test_every_tool_and_port_has_a_hint(tmp_path: Path, kind: Kind) -> None:
    document = load(written(tmp_path, WORKFLOW))
    file = tmp_path / "annotations.json"
    file.write_text(json.dumps(annotations_file(read_steps(document).steps, kind)))
    steps = resolve(read_steps(document), str(file))
    assert steps.keys() == {"/a", "/inner/b"}
    for step in steps.values():
        assert (step.io_task is not None) is (kind in ("io-task", "required"))
        assert (step.storage_bandwidth is not None) is (kind in ("storage", "required"))
        assert set(step.streaming) == ({"o", "all"} if kind in ("gate", "close", "closegate") else set())
        assert set(step.streamable_inputs) == ({"i"} if kind == "stream" else set())
        assert set(step.streamable_outputs) == ({"o", "all"} if kind == "stream" else set())


def test_mistakes_of_ours_are_told_from_refusals() -> None:
    def trace(file: str, error: str) -> str:
        places = [("/lib/streamflow/main.py", "run()"), (file, "x = y[z]\n           ~^^^")]
        lines = "".join(f'  File "{name}", line 3, in f\n    {code}\n' for name, code in places)
        return f"2026-01-01 10:00:00.000 ERROR    said\nTraceback (most recent call last):\n{lines}{error}\n"

    ours = "/lib/streamflow_io/run/steps.py"
    assert own_mistakes(trace(ours, "KeyError: 'x'")) == ["KeyError"]
    assert own_mistakes(trace(ours, "AssertionError")) == ["AssertionError"]
    assert own_mistakes(trace(ours, "streamflow_io.hints.HintErrors: refused")) == []
    assert own_mistakes(trace("/lib/streamflow/cwl/step.py", "KeyError: 'x'")) == []
