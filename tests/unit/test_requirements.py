"""The output about the requests of a run: numbers, a table; and why there are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from lab.telemetry import BEGIN, job, saving_run, usage, write
from streamflow_io.cli import main
from streamflow_io.records.history import read_history
from streamflow_io.records.jobs import EndedRecord
from streamflow_io.records.records import EndRecord, RateRecord, Record, RunRecord, StepRecord
from streamflow_io.report.analysis.requirements import requirements
from streamflow_io.report.analysis.results import run_results
from streamflow_io.report.chart import draw
from streamflow_io.report.graph_drawing import draw_timeline
from streamflow_io.report.page import STEPS, row


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    write(tmp_path / "data/streamflow-io/runs/saving/telemetry.jsonl", saving_run())
    return tmp_path


def test_numbers_of_a_run() -> None:
    found = requirements(read_history("saving", saving_run()))
    assert (found.requests, found.channels, found.phases, found.exposed) == (24, 4, 20, 4)
    # Four channels of 40 MB in 8 s each.
    assert found.most_required == pytest.approx(20)
    # Four of 40 MB in 2 s, or one of 40 MB in 10 s with four of the next phase.
    assert found.most_throughput == pytest.approx(84)
    assert (found.waits, found.wait_seconds) == (1, pytest.approx(2))
    assert found.overlap == pytest.approx((10 + 3 * 1.9 + 0.1) / (6 * 7.9), abs=0.01)
    [step] = found.steps
    assert (step.window, step.bytes, step.required, step.throughput) == (8, 40e6, 5, 20)
    [storage] = found.storages
    assert (storage.storage, storage.direction, storage.bandwidth) == ("scratch", "write", 64)
    assert storage.required_over_time == [*((8 * n, 20) for n in range(1, 6)), (48, 0)]
    assert storage.throughput_over_time[:3] == [(8, 80), (10, 0), (16, 64)]


def limited_run(*rates: RateRecord, held: bool = False) -> list[Record]:
    """A run with one channel, whose job has these rates, or is held to its storageBW of 16 MB/s."""
    records = list(saving_run(channels=1))
    for number, one in enumerate(records):
        if held and isinstance(one, EndedRecord) and one.usage is not None:
            paused = replace(one.usage, paused_seconds=1.5, pauses=30)
            records[number] = replace(one, usage=paused)
    return sorted([*records, *rates], key=lambda record: record.time)


def rate(job: str, time: float, value: float | None) -> RateRecord:
    return RateRecord(time=BEGIN + time, job=job, step="/save", rate=value, reason="strategy")


def limits(records: list[Record]) -> list[tuple[float, float]]:
    [storage] = requirements(read_history("limited", iter(records))).storages
    return storage.limit_over_time


def test_limits_over_time() -> None:
    assert limits(limited_run()) == []
    # The second phase takes 10 s, from 16 s on; the third is ready at 24 s, and moves for 2 s.
    first = [rate("/save/0.1.0", 16, 5), rate("/save/0.1.0", 20, 8), rate("/save/0.1.0", 25, None)]
    assert limits(limited_run(*first, rate("/save/0.2.0", 24, 30))) == [(16, 5), (20, 8), (24, 38), (25, 30), (26, 0)]
    # One that is told a moment later than the command began; of an attempt before; and after the last phase, exposed.
    assert limits(limited_run(rate("/save/0.0.0", 8.5, 4))) == [(8.5, 4), (10, 0)]
    assert limits(limited_run(rate("/save/0.1.0", 15, 4))) == []
    assert limits(limited_run(rate("/save/0.5.0", 48, 4))) == []
    # Jobs that are held to a number have this limit from start to end.
    assert limits(limited_run(held=True))[:4] == [(8, 16), (10, 0), (16, 16), (24, 32)]


def test_limits_in_the_report() -> None:
    [run] = run_results([read_history("limited", iter(limited_run(rate("/save/0.1.0", 16, 5), held=True)))])
    figures = {figure.title: figure for figure in draw([run])}
    figure = figures["Required bandwidth, limit and throughput: scratch, write"]
    assert [line.name for line in figure.lines] == ["required", "throughput", "limit"]
    assert figure.limits == [("storage: 64 MB/s", 64)]
    assert "Limit: " in figure.caption
    [save] = [step for step in run.steps if step.step == "/save"]
    assert (save.pauses, save.paused_seconds) == (30, 1.5)
    assert row(STEPS, save)[-2:] == ("30", "1.5")
    [compute] = [step for step in run.steps if step.step == "/compute"]
    assert row(STEPS, compute)[-2:] == ("", "")
    assert draw_timeline(run, run.seconds).count("paused 30 times, 1.50 s") == 6


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bandwidth", "last"]) == 0
    text = capsys.readouterr().out
    assert "/save" in text
    assert "All together: 20 MB/s required, 84 MB/s reached, at most" in text
    assert "1 phase waited for, 2 s; 4 requests exposed, 2 s" in text


# Why there is nothing

RUN = RunRecord(time=BEGIN, name="run", workflow="main.cwl")
IO_STEP = StepRecord(time=BEGIN, step="/save", io_task=True)
END = EndRecord(time=BEGIN + 9)
MEASURED = job("/save/0", 0, 1, 2, usage=usage(1, 2, 40_000_000))


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([RUN, END], "this run has no I/O tasks"),
        ([RUN, IO_STEP, END], "no job of an I/O task has succeeded in this run"),
        ([RUN, IO_STEP, *job("/save/0", 0, 1, 2, status="failed"), END], "no job of an I/O task has succeeded"),
        ([RUN, IO_STEP, *job("/save/0", 0, 1, 2), END], "the I/O tasks of this run were not measured"),
        ([RUN, IO_STEP, *MEASURED], "nothing is known yet: the run goes on, or was killed"),
    ],
)
def test_why_there_are_no_requests(
    data: Path, capsys: pytest.CaptureFixture[str], records: list[Record], message: str
) -> None:
    file = write(data / "some.jsonl", records)
    assert main(["bandwidth", str(file)]) == 1
    text = capsys.readouterr().err
    assert message in text
    assert "allowed: " in text


def test_no_run_and_no_telemetry(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bandwidth", "sving"]) == 1
    assert "there is no such run\n  allowed: `last`, saving" in capsys.readouterr().err
    (data / "empty.jsonl").touch()
    assert main(["bandwidth", str(data / "empty.jsonl")]) == 1
    assert "nothing was recorded yet" in capsys.readouterr().err
    (data / "old.jsonl").write_text('{"event": "run", "time": 1, "version": 0, "name": "a", "workflow": "b"}\n')
    assert main(["bandwidth", str(data / "old.jsonl")]) == 1
    assert "allowed: a record of a telemetry file, version 1" in capsys.readouterr().err
