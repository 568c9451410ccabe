"""`streamflow-io`: what holds for all its commands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamflow_io.cli import COMMANDS
from tests.telemetry import learning_run

COMMAND = [sys.executable, "-m", "streamflow_io.cli"]
TOOL = """\
cwlVersion: v1.2
class: CommandLineTool
baseCommand: "true"
inputs: []
outputs: []
"""
STREAMFLOW_FILE = """\
version: v1.0
workflows: {one: {type: cwl, config: {file: tool.cwl}}}
scheduling: {scheduler: {type: io-aware, config: {}}}
"""
ARGUMENTS = {
    "validate": ["tool.cwl"],
    "plan": ["streamflow.yml"],
    "coordination": ["streamflow.yml"],
    "annotate": ["streamflow.yml", "--from", "capio.json"],
    "partition": ["streamflow.yml"],
    "storage": ["probe", "missing"],
    "watch": ["telemetry.jsonl"],
    "runs": [],
    "report": ["telemetry.jsonl", "-o", "report.html"],
    "bandwidth": ["telemetry.jsonl"],
    "trace": ["telemetry.jsonl", "-o", "trace"],
    "schedule": ["compute", "paper:9"],
    "suggest": ["telemetry.jsonl"],
    "doctor": [],
    "learned": ["list"],
}
#: As `plan`, they import StreamFlow or cwltool.
SLOW = ("plan", "validate", "coordination", "annotate", "partition", "doctor")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "tool.cwl").write_text(TOOL)
    (tmp_path / "streamflow.yml").write_text(STREAMFLOW_FILE)
    (tmp_path / "capio.json").write_text('{"name": "one", "IO_Graph": []}')
    lines = (record.model_dump_json(by_alias=True, exclude_none=True) for record in learning_run())
    (tmp_path / "telemetry.jsonl").write_text("\n".join(lines))
    return tmp_path


def test_all_commands_are_here() -> None:
    assert list(ARGUMENTS) == list(COMMANDS)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *(pytest.param(name, [], marks=pytest.mark.long if name in SLOW else []) for name in ARGUMENTS),
        # All commands print that in one place.
        *(pytest.param(name, ["--json"], marks=[] if name == "trace" else pytest.mark.long) for name in ARGUMENTS),
        ("validate", ["--help"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_commands_end_quietly_when_their_output_is_closed(directory: Path, name: str, arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "XDG_DATA_HOME": str(directory)}
    environment.pop("PYTHONUNBUFFERED", None)  # What fails at the end of the interpreter is harder.
    try:
        ended = subprocess.run(
            [*COMMAND, name, *ARGUMENTS[name], *arguments], stdout=writer, stderr=subprocess.PIPE, text=True,
            check=False, timeout=60, cwd=directory, env=environment,
        )  # fmt: skip
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_a_command_without_standard_output(directory: Path) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, "validate", "tool.cwl"]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=60, cwd=directory)
    assert (ended.returncode, ended.stderr) == (0, "")
