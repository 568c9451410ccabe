"""Old runs are removed; nothing else ever is."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from lab.telemetry import BEGIN, write
from streamflow_io.records.records import EndRecord, Record, RunRecord
from streamflow_io.records.runs import SILENT_SECONDS, create_run_directory, remove_old_runs, run_names, runs_directory
from streamflow_io.records.writer import TelemetryWriter

RUN = RunRecord(time=BEGIN, name="run", workflow="main.cwl")
END = EndRecord(time=BEGIN + 1)
LONG_AGO = SILENT_SECONDS + 3600


@pytest.fixture(autouse=True)
def _data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def _run(name: str, age: float = 10.0, records: Iterable[Record] = (RUN, END)) -> Path:
    file = write(create_run_directory(name) / "telemetry.jsonl", records)
    os.utime(file, (time.time() - age, time.time() - age))
    return file


def test_the_runs_written_last_are_kept() -> None:
    for number in range(5):
        _run("exp", age=100 - number)
    remove_old_runs(keep=2)
    assert run_names() == ["exp-5", "exp-4"]
    assert {path.name for path in runs_directory().iterdir()} == {"exp-5", "exp-4"}
    remove_old_runs(keep=2)
    assert run_names() == ["exp-5", "exp-4"]


def test_there_are_no_runs_yet() -> None:
    remove_old_runs(keep=0)
    assert not runs_directory().exists()


@pytest.mark.parametrize(("age", "kept"), [(LONG_AGO, False), (SILENT_SECONDS - 3600, True)])
@pytest.mark.parametrize("torn", [False, True])
def test_a_run_without_an_end_is_removed_when_it_was_silent_for_long(age: float, kept: bool, torn: bool) -> None:
    file = _run("killed", records=(RUN,))
    if torn:
        file.write_text(file.read_text() + '{"event":"sub')
    os.utime(file, (time.time() - age, time.time() - age))
    remove_old_runs(keep=0)
    assert file.exists() is kept


def test_a_run_that_goes_on_is_kept_however_long_it_is_silent() -> None:
    with TelemetryWriter(lambda: create_run_directory("waiting") / "telemetry.jsonl", interval=0.0) as writer:
        writer.write(RUN)
        file = runs_directory() / "waiting" / "telemetry.jsonl"
        deadline = time.monotonic() + 30
        while not (file.exists() and file.read_text().endswith("\n")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.utime(file, (time.time() - LONG_AGO, time.time() - LONG_AGO))
        remove_old_runs(keep=0)
        assert file.exists()
    os.utime(file, (time.time() - LONG_AGO, time.time() - LONG_AGO))
    remove_old_runs(keep=0)
    assert not file.parent.exists()


def test_an_ended_run_needs_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(38, "no locks here")

    ended, silent = _run("ended"), _run("silent", age=LONG_AGO, records=(RUN,))
    monkeypatch.setattr(fcntl, "flock", refuse)
    remove_old_runs(keep=0)
    assert (ended.exists(), silent.exists()) == (False, True)


def test_what_is_not_telemetry_alone_is_kept(tmp_path: Path) -> None:
    noted, foreign, empty, linked = (_run(name, age=LONG_AGO) for name in ("noted", "foreign", "empty", "linked"))
    (noted.parent / "note.txt").write_text("the figures of the paper")
    for file, text in ((foreign, '{"event": "something else"}\n'), (empty, "")):
        file.write_text(text)
        os.utime(file, (time.time() - LONG_AGO, time.time() - LONG_AGO))
    outside = write(tmp_path / "outside" / "telemetry.jsonl", [RUN, END])
    linked.unlink()
    linked.symlink_to(outside)
    (runs_directory() / "link").symlink_to(outside.parent)
    (runs_directory() / "notes").mkdir()
    (runs_directory() / "file").touch()
    remove_old_runs(keep=0)
    assert {path.name for path in runs_directory().iterdir()} == {
        *("noted", "foreign", "empty", "linked", "link", "notes", "file")
    }
    assert outside.exists()
    assert linked.is_symlink()
