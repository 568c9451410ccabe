"""The disk space that a run needs, as far as the last run of the workflow shows it."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamflow_io.records.files import DiscardedRecord
from streamflow_io.records.history import HistoryReader
from streamflow_io.records.records import DiskRecord, EndRecord, RemovedRecord, RunRecord
from streamflow_io.report.analysis.verdict import ending_lines
from streamflow_io.storage.intermediates.disk_forecast import (
    DiskForecast,
    disk_forecasts,
    too_little,
    warn_of_little_space,
)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "streamflow-io" / "runs"


def write(
    runs: Path,
    name: str,
    peak: int,
    *,
    workflow: str = "w.cwl",
    status: Any = "completed",
    expected: int | None = None,
) -> None:
    (runs / name).mkdir(parents=True)
    records = [
        RunRecord(time=1.0, name=name, workflow=workflow),
        RemovedRecord(3.0, peak, 1, peak + 1),
        DiskRecord(3.0, "here", peak, 2 * peak, expected, expected),
        EndRecord(time=4.0, status=status),
    ]
    (runs / name / "telemetry.jsonl").write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in records))


def test_the_forecast_and_the_errors_of_earlier_ones(runs: Path) -> None:
    assert not disk_forecasts("w.cwl")
    write(runs, "other", 5, workflow="x.cwl")
    write(runs, "failed", 6, status="failed")
    assert not disk_forecasts("w.cwl")
    write(runs, "first", 100)
    assert disk_forecasts("w.cwl") == {"here": DiskForecast(100, 200)}
    for number, (peak, expected) in enumerate([(100, 110), (100, 100), (80, 100)]):
        write(runs, f"later-{number}", peak, expected=expected)
        os.utime(runs / f"later-{number}" / "telemetry.jsonl", (number + 2**31, number + 2**31))
    # The errors are 10 %, 0 % and 25 % of the peak; 45 %, 50 % and 37.5 % of the bytes written.
    assert disk_forecasts("w.cwl") == {"here": DiskForecast(80, 160, 0.1, 0.45)}


def test_the_end_of_a_run_says_what_was_foretold_and_what_came() -> None:
    reader = HistoryReader("r", RunRecord(time=1.0, name="r", workflow="w.cwl"))
    discarded = DiscardedRecord(2.0, "/a/0", "/a", output="/a/o", bytes=4_000_000, size=5_000_000)
    removed = RemovedRecord(3.0, 2_000_000, 1_000_000, 3_000_000)
    for record in (discarded, removed, DiskRecord(3.0, "here", 3_000_000, 3_000_000, 2_000_000, None)):
        reader.told(record)
    assert "Disk of here: at most 3.0 MB (forecast: 2.0 MB) at a time; written: 3.0 MB" in ending_lines(reader.history)
    assert "With `intermediates: keep`, both would have been 7.0 MB" in ending_lines(reader.history)


def test_too_little_space() -> None:
    assert too_little(5, 5, "/w") is None
    assert too_little(3_000_000, 1_000_000, "/w") == (
        "The directories of jobs held at most 3.0 MB in the last run of this workflow, and 1.0 MB are free at /w: this "
        "run may not fit"
    )


def test_a_run_that_would_not_fit(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_little_space({"here": DiskForecast(7, 7)}, {})
        assert not caplog.messages
        large = {"here": DiskForecast(2**60, 2**60)}
        warn_of_little_space(large, {"deployments": {"there": {"type": "ssh"}}})
        assert not caplog.messages
        warn_of_little_space(large, {})
    (message,) = {*caplog.messages}
    assert "SFIO-B009" in message
