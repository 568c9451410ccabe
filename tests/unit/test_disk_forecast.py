"""The disk space that a run needs, as far as the last run of the workflow shows it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamflow_io.records.history import HistoryReader
from streamflow_io.records.reader import last_disk_peak
from streamflow_io.records.records import EndRecord, RemovedRecord, RunRecord
from streamflow_io.report.analysis.live import LiveRun
from streamflow_io.report.analysis.results import run_results
from streamflow_io.report.figures import draw
from streamflow_io.report.live_view import time_and_jobs
from streamflow_io.storage.intermediates.disk_forecast import too_little, warn_of_little_space


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "streamflow-io" / "runs"


def write(runs: Path, name: str, peak: int, *, workflow: str = "w.cwl", status: Any = "completed") -> None:
    (runs / name).mkdir(parents=True)
    records = [
        RunRecord(time=1.0, name=name, workflow=workflow),
        RemovedRecord(2.0, 0, peak, peak),
        RemovedRecord(3.0, peak, 1, peak + 1),
        EndRecord(time=4.0, status=status),
    ]
    (runs / name / "telemetry.jsonl").write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in records))


def test_the_peak_of_the_last_successful_run(runs: Path) -> None:
    assert last_disk_peak("w.cwl") is None
    write(runs, "other", 5, workflow="x.cwl")
    write(runs, "failed", 6, status="failed")
    assert last_disk_peak("w.cwl") is None
    write(runs, "good", 7)
    assert last_disk_peak("w.cwl") == 8


def test_the_report_and_watch_show_the_space() -> None:
    run = RunRecord(time=1.0, name="r", workflow="w.cwl")
    removed = [RemovedRecord(2.0, 0, 3_000_000, 3_000_000), RemovedRecord(3.0, 2_000_000, 1_000_000, 3_000_000)]
    reader, live = HistoryReader("r", run), LiveRun("r")
    for record in (run, *removed, EndRecord(time=5.0, status="completed")):
        reader.told(record)
        live.told(record)
    (figure,) = [
        each for each in draw(run_results([reader.history])) if each.title == "Disk space of the directories of jobs"
    ]
    assert figure.lines[0].points == [(0.0, 0.0), (1.0, 3.0), (2.0, 1.0), (4.0, 1.0)]
    assert "files of jobs: 1.0 MB (at most 3.0 MB)" in time_and_jobs(live.view(6.0))


def test_too_little_space() -> None:
    assert too_little(5, 5, "/w") is None
    assert too_little(3_000_000, 1_000_000, "/w") == (
        "The directories of jobs held at most 3.0 MB in the last run of this workflow, and 1.0 MB are free at /w: this "
        "run may not fit"
    )


def test_a_run_that_would_not_fit(runs: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        write(runs, "small", 7)
        warn_of_little_space("w.cwl", {})
        assert not caplog.messages
        write(runs, "large", 2**60, workflow="y.cwl")
        warn_of_little_space("y.cwl", {"deployments": {"there": {"type": "ssh"}}})
        assert not caplog.messages
        warn_of_little_space("y.cwl", {})
    (message,) = {*caplog.messages}
    assert "SFIO-B009" in message
