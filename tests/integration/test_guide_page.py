"""The example of the user guide: what the page shows of `plan` is what `plan` prints of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.console import Console

from streamflow_io.commands.plan import plan_file
from streamflow_io.commands.validate import validate

GUIDE = (Path(__file__).parents[2] / "docs" / "guide.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def block(begins: str) -> str:
    (text,) = [text for _, text in BLOCKS if text.startswith(begins)]
    return text


@pytest.fixture
def example(tmp_path: Path) -> Path:
    (tmp_path / "workflow.cwl").write_text(block("cwlVersion: v1.2\nclass: Workflow"))
    (tmp_path / "job.yml").write_text(block("count: 50"))
    (tmp_path / "streamflow.yml").write_text(block("version: v1.0"))
    return tmp_path


def test_plan_prints_what_the_page_shows(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan_file(example / "streamflow.yml").show(Console(width=100, force_terminal=False))
    shown = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert shown == block("example: 4 steps").rstrip()


def test_a_reason_is_not_squeezed_into_a_column(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A reason may quote the last lines of a tool."""
    workflow = example / "workflow.cwl"
    text = workflow.read_text()
    assert text.count("squares: {type: File,") == 1
    workflow.write_text(text.replace("squares: {type: File,", "squares: {type: File, loadContents: true,"))
    plan_file(example / "streamflow.yml").show(Console(width=80, force_terminal=False))
    _, _, told = capsys.readouterr().out.partition("Why not as asked:\n")
    assert told.splitlines()[0] == "  /square/squares -> /add/squares: /add/squares has loadContents [SFIO-S003]"


def test_the_example_is_valid(example: Path) -> None:
    assert validate(str(example / "workflow.cwl"), str(example / "job.yml")).ok
