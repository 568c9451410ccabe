"""`streamflow-io schedule`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamflow_io.cli import main
from tests.integration.test_cli import actions_of

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
    assert main(["schedule", "compute", str(tmp_path / "set.yml"), "--paper", "-o", str(file)]) == 0
    text = capsys.readouterr().out
    assert "Efficiency: 0.3" in text
    assert f"Written: {file}" in text.replace("\n", "")
    return file


def test_a_schedule_is_made_and_checked(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "check", str(made)]) == 0
    assert "every application can keep to it" in capsys.readouterr().out
    assert main(["schedule", "check", str(made), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "file": str(made), "problems": []}


def test_a_schedule_that_cannot_be_kept_is_an_error(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.write_text(made.read_text().replace('"bandwidth": 25', '"bandwidth": 20'))
    assert main(["schedule", "check", str(made)]) == 1
    assert "but the storage can 20 MB/s" in capsys.readouterr().out
    assert main(["schedule", "show", str(made)]) == 1
    assert "the schedule cannot be kept" in capsys.readouterr().err


def test_a_schedule_is_drawn(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "show", str(made)]) == 0
    text = capsys.readouterr().out
    (row,) = (line for line in text.splitlines() if line.startswith("a  "))
    assert len(row) == 108
    assert "░" in row
    assert "█" in row
    assert main(["schedule", "show", str(made), "--json"]) == 0
    drawn = json.loads(capsys.readouterr().out)
    assert [len(one["work"]) for one in drawn["rows"]] == [100] * 3


def test_a_set_file_is_no_schedule(tmp_path: Path, made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "check", str(tmp_path / "set.yml"), "--json"]) == 1
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["message"] == "not a schedule"


def test_a_set_without_a_pattern_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "set.yml").write_text(SET)
    options = ["--paper", "--least-period", "0.1"]
    assert main(["schedule", "compute", str(tmp_path / "set.yml"), *options]) == 1
    assert "no period from 0.1 s to 1 s has room for all applications" in capsys.readouterr().err


def test_a_set_of_the_paper(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "compute", "paper:10", "--paper", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["file"] is None
    assert result["schedule"]["algorithm"]["parameters"]["leastPeriod"] == 16000
    assert result["schedule"]["efficiency"] == pytest.approx(0.98617, abs=1e-4)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "x"])
def test_seconds_are_above_0(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["schedule", "compute", "paper:10", "--seconds", seconds])
    assert "--seconds" in capsys.readouterr().err


def test_goals(tmp_path: Path, made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for goal in ("efficiency", "dilation"):
        assert main(["schedule", "compute", str(tmp_path / "set.yml"), "--goal", goal, "--json"]) == 0
        found[goal] = json.loads(capsys.readouterr().out)["schedule"]
        assert found[goal]["goal"] == goal
    assert found["efficiency"] | {"algorithm": None} == json.loads(made.read_text()) | {"algorithm": None}
    assert found["dilation"]["dilation"] <= found["efficiency"]["dilation"]


def test_a_time_that_is_too_short(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "compute", "paper:1", "--seconds", "1e-9"]) == 1
    assert "nothing was found in 1e-09 s of CPU time" in capsys.readouterr().err


def test_the_actions_of_the_command() -> None:
    actions = ["compute", "check", "show", "simulate", "profile", "forecast"]
    assert actions_of("schedule") == actions
