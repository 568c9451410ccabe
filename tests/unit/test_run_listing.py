"""The runs that there are, and whether they go on."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import wording as terminal
from lab.telemetry import BEGIN, write
from streamflow_io.cli import main
from streamflow_io.commands.runs import answer, told_apart
from streamflow_io.records.reader import RunSummary, list_runs
from streamflow_io.records.records import EndRecord, Record, RunRecord
from streamflow_io.records.runs import lock

UUID = "963e7fd2-c674-4f2a-94b8-15c007a6deeb"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Three runs, one of them unfinished; a directory that is no run; and records of another version."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    directory = tmp_path / "streamflow-io" / "runs"
    of: dict[str, list[Record]] = {
        name: [RunRecord(time=BEGIN, name=name, workflow="/w/[main].cwl")]
        for name in ("killed", "completed", "running")
    }
    of["completed"].append(EndRecord(time=BEGIN + 5, status="completed"))
    for age, (name, records) in enumerate(of.items()):
        file = directory / name / "telemetry.jsonl"
        write(file, records)
        os.utime(file, (BEGIN + 5 + age, BEGIN + 5 + age))
    for name, text in {"odd": "[]\n", "newer": '{"event": "run", "version": 2}\n', "empty": ""}.items():
        (directory / name).mkdir()
        (directory / name / "telemetry.jsonl").write_text(text)
    with (directory / "running" / "telemetry.jsonl").open("rb") as file:
        lock(file.fileno())
        yield directory


def test_which_there_are(runs: Path) -> None:
    assert [(run.name, run.seconds, run.state) for run in list_runs()] == [
        ("running", 7.0, "running"),
        ("completed", 6.0, "completed"),
        ("killed", 5.0, "killed"),
    ]
    assert [run.name for run in list_runs(1)] == ["running"]


@pytest.mark.parametrize(
    ("host", "pid", "state"),
    [
        (socket.gethostname(), 2**22 + 1, "killed"),
        (socket.gethostname(), os.getpid(), "running"),
        (socket.gethostname(), None, "running"),
        ("elsewhere", 2**22 + 1, "running"),
    ],
    ids=["gone", "there", "unknown", "elsewhere"],
)
def test_whether_a_run_goes_on_where_there_are_no_locks(
    runs: Path, monkeypatch: pytest.MonkeyPatch, host: str, pid: int | None, state: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "no locks here")

    write(runs / "no locks" / "telemetry.jsonl", [RunRecord(time=BEGIN, name="a", workflow="b", host=host, pid=pid)])
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert [run.state for run in list_runs() if run.name == "no locks"] == [state]


@pytest.mark.parametrize("has_locks", [True, False])
@pytest.mark.parametrize(("age", "state"), [(60.0, "running"), (300.0, "killed")])
def test_the_time_of_the_telemetry_tells_of_a_run_on_another_host(
    runs: Path, monkeypatch: pytest.MonkeyPatch, has_locks: bool, age: float, state: str
) -> None:
    """Locks may stay on the host that has them: here there is none."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "no locks here")

    record = RunRecord(time=BEGIN, name="a", workflow="b", host="elsewhere", pid=os.getpid())
    file = write(runs / "elsewhere" / "telemetry.jsonl", [record])
    os.utime(file, (time.time() - age,) * 2)
    if not has_locks:
        monkeypatch.setattr(fcntl, "flock", refuse)
    assert [run.state for run in list_runs() if run.name == "elsewhere"] == [state]


def test_a_run_that_is_removed_meanwhile_is_left_out(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    glob = Path.glob

    def with_a_removed_run(self: Path, pattern: str) -> Iterator[Path]:
        yield from glob(self, pattern)
        yield self / "removed" / "telemetry.jsonl"

    monkeypatch.setattr(Path, "glob", with_a_removed_run)
    assert [run.name for run in list_runs()] == ["running", "completed", "killed"]


def test_the_table(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs"]) == 0
    shown = capsys.readouterr().out
    assert "[main].cwl" in shown
    assert "--all" not in shown
    assert (
        re.findall("running|succeeded|completed|killed", shown)
        == ["running", "running", "completed", "succeeded"] + ["killed"] * 2
    )


@pytest.mark.parametrize("name", ["demo", "of-sixteen-chars", "longer-than-sixteen", UUID])
def test_no_name_of_a_workflow_is_folded(name: str) -> None:
    text = shown(name, "variant_calling_joint_genotyping_of_many_samples.cwl")
    assert text.count("variant") == 1
    assert "samples" not in text, "its end is left out"
    assert len([line for line in text.splitlines() if line.startswith("│")]) == (1 if len(name) <= 16 else 2)


def test_a_workflow_has_its_name_in_the_streamflow_file() -> None:
    summary = RunSummary("demo", "/w/main.cwl", BEGIN, 12.345, "completed", workflow_name="calling")
    assert "calling: main.cwl" in terminal.shown(answer([summary], more=False))


def test_workflows_in_files_of_one_name_are_told_apart() -> None:
    files = ["file:///home/me/a%20b/rnaseq/main.cwl", "/home/me/calling/main.cwl", "/x/calling/main.cwl", "/x/qc.cwl"]
    assert [told_apart(files)[file] for file in files] == [
        "rnaseq/main.cwl",
        "me/calling/main.cwl",
        "x/calling/main.cwl",
        "qc.cwl",
    ]
    assert told_apart(["main.cwl", "/main.cwl"]) == {"main.cwl": "main.cwl", "/main.cwl": "/main.cwl"}
    assert told_apart(["https://example.org/main.cwl#a"]) == {"https://example.org/main.cwl#a": "main.cwl#a"}


def shown(name: str, workflow: str, *, more: bool = False) -> str:
    """The table in a terminal of 80 columns."""
    text = terminal.shown(answer([RunSummary(name, workflow, BEGIN, 12.345, "cancelled")], more=more))
    assert all(len(line) <= 80 for line in text.splitlines())
    return text
