"""`streamflow-io report`, and a writer whose process dies."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab import forked
from lab.telemetry import learning_run, write
from streamflow_io.records.jobs import SubmittedRecord
from streamflow_io.records.reader import read_records
from streamflow_io.records.records import RunRecord

REPOSITORY = Path(__file__).parents[2]


def report(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command there, with the runs of its directory `data`."""
    environment = {"XDG_DATA_HOME": str(directory / "data")}
    return forked.run("streamflow-io", "report", *arguments, cwd=directory, environment=environment)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name, io_task in (("plain", False), ("auto", True)):
        write(
            tmp_path / f"data/streamflow-io/runs/{name}/telemetry.jsonl", learning_run(name, jobs=60, io_task=io_task)
        )
        time.sleep(0.02)
    return tmp_path


def test_a_page_of_the_last_run(runs: Path) -> None:
    done = report(runs, "last")
    assert done.returncode == 0, done.stderr
    assert "auto" in done.stdout
    assert "/checkpoint" in done.stdout
    page = (runs / "io-report.html").read_text(encoding="utf-8")
    assert "Learning of auto" in page
    assert len(page) < 200_000


def test_several_runs_in_a_file_of_choice(runs: Path) -> None:
    done = report(runs, "auto", "plain", "auto", "-o", "compared.html")
    assert done.returncode == 0, done.stderr
    page = (runs / "compared.html").read_text(encoding="utf-8")
    assert "<title>I/O of auto, plain, auto (2)</title>" in page
    assert [path.name for path in runs.glob("*.html")] == ["compared.html"]


def test_numbers_for_programs(runs: Path) -> None:
    done = report(runs, "auto", "plain", "--json")
    assert done.returncode == 0, done.stderr
    numbers = json.loads(done.stdout)
    assert numbers["ok"] is True
    assert numbers["file"] is None
    run, _ = numbers["runs"]
    assert run["run"] == "auto"
    assert run["throughput"]["mean"] > 0
    assert [epoch["registered"] for epoch in run["learning"][0]["epochs"]] == [True, True, True, False]
    assert not list(runs.glob("*.html"))


@pytest.mark.parametrize(
    ("name", "file", "begins"),
    [
        ("perfetto", "io-report.trace.json", '{"displayTimeUnit"'),
        ("multiqc", "io-report_mqc.json", '{\n  "id": "streamflow_io"'),
        ("otel", "io-report.otlp.json", '{"resourceSpans"'),
    ],
)
def test_other_formats(runs: Path, name: str, file: str, begins: str) -> None:
    done = report(runs, "auto", "--format", name)
    assert done.returncode == 0, done.stderr
    assert (runs / file).read_text(encoding="utf-8").startswith(begins)
    assert f"Written: {runs / file}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("atuo",), "allowed: `last`, auto"),
        (("auto", "-o", "missing/directory.html"), "cannot be written"),
        (("broken.jsonl",), "broken.jsonl:2: line"),
    ],
)
def test_mistakes_are_told(runs: Path, arguments: tuple[str, ...], words: str) -> None:
    write(runs / "broken.jsonl", list(learning_run(jobs=5))[:1]).open("a").write("nonsense\n")
    done = report(runs, *arguments)
    assert done.returncode == 1, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


WRITING = """
import sys, time
from pathlib import Path
from streamflow_io.records.records import RunRecord, SubmittedRecord
from streamflow_io.records.writer import TelemetryWriter

writer = TelemetryWriter(lambda: Path(sys.argv[1]))
writer.write(RunRecord(time=time.time(), name="killed", workflow="main.cwl"))
if sys.argv[2] == "exit":
    sys.exit()
index = 0
while True:
    writer.write(SubmittedRecord(time=time.time(), job=f"/a/0.{index}", step="/a"))
    index += 1
    time.sleep(0.001)
"""


def test_a_killed_process_leaves_a_file_that_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "telemetry.jsonl"
    process = subprocess.Popen((sys.executable, "-c", WRITING, str(file), "go on"), cwd=REPOSITORY)
    try:
        deadline = time.monotonic() + 60
        while not file.exists() or file.stat().st_size < 10_000:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
        # What it writes until now must come to the disk.
        before = time.time()
        while list(read_records(file))[-1].time < before:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    records = list(read_records(file))
    assert [record.job for record in records if isinstance(record, SubmittedRecord)] == [
        f"/a/0.{index}" for index in range(len(records) - 1)
    ]


def test_a_process_that_forgets_to_close_loses_nothing(tmp_path: Path) -> None:
    file = tmp_path / "telemetry.jsonl"
    subprocess.run((sys.executable, "-c", WRITING, str(file), "exit"), cwd=REPOSITORY, check=True, timeout=60)
    assert [type(record) for record in read_records(file)] == [RunRecord]
