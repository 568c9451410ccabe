"""`streamflow-io schedule`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamflow_io.cli import main

SET = """\
platform: {nodes: 8, nodeBandwidth: 10, bandwidth: 25}
applications:
  - {name: a, nodes: 3, work: 2, volume: 60}
  - {name: b, nodes: 2, work: 1, volume: 20}
  - {name: c, nodes: 2, work: 5, volume: 35, rate: 10}
"""


@pytest.fixture
def made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A schedule file."""
    (tmp_path / "set.yml").write_text(SET)
    file = tmp_path / "schedule.json"
    assert main(["schedule", str(tmp_path / "set.yml"), "--paper", "-o", str(file)]) == 0
    text = capsys.readouterr().out
    assert "Efficiency: 0.3" in text
    assert f"Written: {file}" in text.replace("\n", "")
    return file


def test_a_set_without_a_pattern_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "set.yml").write_text(SET)
    options = ["--paper", "--least-period", "0.1"]
    assert main(["schedule", str(tmp_path / "set.yml"), *options]) == 1
    assert "no period from 0.1 s to 1 s has room for all applications" in capsys.readouterr().err


def test_a_set_of_the_paper(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "paper:10", "--paper", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["file"] is None
    assert result["schedule"]["algorithm"]["parameters"]["leastPeriod"] == 16000
    assert result["schedule"]["efficiency"] == pytest.approx(0.98617, abs=1e-4)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "x"])
def test_seconds_are_above_0(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["schedule", "paper:10", "--seconds", seconds])
    assert "--seconds" in capsys.readouterr().err


def test_goals(tmp_path: Path, made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for goal in ("efficiency", "dilation"):
        assert main(["schedule", str(tmp_path / "set.yml"), "--goal", goal, "--json"]) == 0
        found[goal] = json.loads(capsys.readouterr().out)["schedule"]
        assert found[goal]["goal"] == goal
    assert found["efficiency"] | {"algorithm": None} == json.loads(made.read_text()) | {"algorithm": None}
    assert found["dilation"]["dilation"] <= found["efficiency"]["dilation"]


def test_a_time_that_is_too_short(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "paper:1", "--seconds", "1e-9"]) == 1
    assert "nothing was found in 1e-09 s of CPU time" in capsys.readouterr().err
