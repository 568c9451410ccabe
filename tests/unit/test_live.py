"""The state of a run while it goes on, and what is shown of it."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from lab import wording as terminal
from lab.telemetry import BEGIN, STORAGE, learning_run
from streamflow_io.commands.watch import FollowedRun
from streamflow_io.records.files import FallbackRecord, StreamedRecord
from streamflow_io.records.jobs import AdmittedRecord, EndedRecord, StartedRecord, SubmittedRecord
from streamflow_io.records.reader import read_latest
from streamflow_io.records.records import (
    EndRecord,
    ProgressRecord,
    QueuedRecord,
    Record,
    RunRecord,
    StepRecord,
    StreamProgress,
)
from streamflow_io.records.runs import PROGRESS_FILE
from streamflow_io.records.writer import TelemetryWriter, to_json
from streamflow_io.report.analysis.live import LiveRun, RunView
from streamflow_io.report.live_view import end_line, plain_line, rate_text, screen

STEPS: dict[str, tuple[str, ...]] = {"/measure": (), "/square": ("/measure",), "/save": ("/square",)}
RUN = RunRecord(time=BEGIN, name="night", workflow="main.cwl", storages=(STORAGE,), steps=STEPS)


def submitted(job: str, at: float = 1) -> SubmittedRecord:
    return SubmittedRecord(time=BEGIN + at, job=job, step=job.rpartition("/")[0])


def started(job: str, at: float = 2) -> list[Record]:
    return [
        submitted(job),
        StartedRecord(time=BEGIN + at, job=job, step=job.rpartition("/")[0], location="here"),
    ]


def ended(job: str, status: Any = "completed", at: float = 3) -> list[Record]:
    return [*started(job), EndedRecord(time=BEGIN + at, job=job, step=job.rpartition("/")[0], status=status)]


def stream(rate: float | None, size: int = 12_300_000, since: float = 5, waits: Any = "producer") -> StreamProgress:
    ways = {"input": "/square/values", "output": "/measure/values", "source": "/measure/0"}
    return StreamProgress(job="/square/0", bytes=size, rate=rate, since=BEGIN + since, waits=waits, **ways)


def view(*records: Record | ProgressRecord | Iterable[Record], at: float = 9, alive: bool = True) -> RunView:
    live = LiveRun("night", last_seconds=60.0)
    for each in (RUN, *records):
        for record in each if isinstance(each, list) else [each]:
            live.told(record)
    return live.view(BEGIN + at, alive)


def shown(found: RunView, height: int = 24, width: int = 80) -> str:
    return "\n".join(line.rstrip() for line in terminal.shown(screen(found, height), width).splitlines())


def test_jobs_wait_run_and_end() -> None:
    found = view(ended("/measure/0"), started("/square/0"), submitted("/save/0.0"), submitted("/save/0.1"))
    assert [(step.name, step.waiting, step.running, step.done, step.failed) for step in found.steps] == [
        ("/measure", 0, 0, 1, 0),
        ("/square", 0, 1, 0, 0),
        ("/save", 2, 0, 0, 0),
    ]
    assert (found.state, found.seconds, found.expected) == ("running", 9.0, 60.0)


def test_a_job_that_is_repeated_has_not_failed() -> None:
    found = view(ended("/square/0", "failed"), submitted("/square/0", 4))
    assert found.jobs == (1, 0, 0, 0)
    assert found.failures == ()


def test_how_a_run_has_ended() -> None:
    failed = view(ended("/square/0", "failed"), EndRecord(time=BEGIN + 5, status="failed"))
    assert end_line(failed) == (
        "night has FAILED after 5 s; jobs: 0 waiting, 0 running, 0 done, 1 failed; failed: /square/0"
    )
    assert view(EndRecord(time=BEGIN + 5)).state == "ended"
    killed = view(started("/square/0", 4), ProgressRecord(time=BEGIN + 4, streams=(stream(0),)), at=500, alive=False)
    assert (killed.state, killed.seconds, killed.streams) == ("killed", 4.0, ())


def test_streams_move_or_stand() -> None:
    moving, standing = (
        view(ProgressRecord(time=BEGIN + 8, streams=(stream(rate),))).streams[0] for rate in (4_000_000.0, 0.0)
    )
    assert (moving.bytes, moving.rate, moving.stalled) == (12_300_000, 4_000_000.0, None)
    assert (standing.rate, standing.stalled, standing.waits) == (0.0, 4.0, "producer")
    begins = view(ProgressRecord(time=BEGIN + 8, streams=(stream(None, 0),))).streams[0]
    assert (begins.stalled, rate_text(begins)) == (None, "begins")


FULL: tuple[Any, ...] = (
    StepRecord(time=BEGIN, step="/save", io_task=True, storage_bw="auto"),
    ended("/measure/0"),
    started("/square/0"),
    submitted("/save/0.1"),
    started("/save/0.0"),
    AdmittedRecord(
        time=BEGIN, job="/save/0.0", step="/save", location="here", storage="scratch", constraint=16, running=1
    ),
    StreamedRecord(time=BEGIN, job="/x/0", step="/x", outputs=("/y/out",), bytes=1_500_000_000),
    FallbackRecord(time=BEGIN, job="/save/0.0", step="/save", output="/square/out", reason="it runs elsewhere"),
    ProgressRecord(time=BEGIN + 8, streams=(stream(0),), waiting={"/save": {"storage": 1}}),
)


def test_the_screen_has_it_all_in_80_columns() -> None:
    assert shown(view(*FULL)) == (
        "night is running\n"
        "9 s; jobs: 1 waiting, 2 running, 1 done; the last time it took 1 min 0 s\n"
        "step         wait  run  done  failed  waits for\n"
        "/measure        0    0     1       0\n"
        "/square         0    1     0       0\n"
        "/save (I/O)     1    1     0       0  bandwidth of the storage (1)\n"
        "byte stream                         so far  now\n"
        "/measure/values -> /square/values  12.3 MB  stalled 4 s: waits for its producer\n"
        "1 byte stream ended, 1.5 GB\n"
        "storage  jobs  admitted  of, MB/s\n"
        "scratch     1        16        64\n"
        "Not delivered as asked: /square/out: it runs elsewhere"
    )


def test_a_run_says_what_it_waits_for_in_a_queue() -> None:
    waits = QueuedRecord(time=BEGIN, deployment="nodes", waits="allocation 7 of Slurm")
    why = QueuedRecord(time=BEGIN, deployment="nodes", waits="allocation 7 of Slurm: Priority")
    found = view(waits, why)
    assert "nodes waits for allocation 7 of Slurm: Priority\n" in shown(found)
    assert plain_line(found).endswith("; nodes waits for allocation 7 of Slurm: Priority")
    assert not view(waits, QueuedRecord(time=BEGIN, deployment="nodes")).queued
    assert not view(waits, alive=False).queued


@pytest.mark.parametrize("height", [10, 24, 60])
def test_many_steps_and_streams_and_long_names_fit(height: int) -> None:
    many = {f"/a-{'very-' * 12}long-name-{number}": () for number in range(40)}
    live = LiveRun("x" * 200)
    live.told(replace(RUN, steps=many))
    live.told(started(f"{list(many)[30]}/0")[1])
    live.told(ProgressRecord(time=BEGIN, streams=(stream(1.0),) * 40, more=7))
    lines = shown(live.view(BEGIN + 1), height, 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("long-name-30" in line for line in lines)
    assert any(" more" in line for line in lines)


def test_a_run_is_followed_while_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "telemetry.jsonl"
    writer = TelemetryWriter(lambda: file, interval=0.01)
    records = list(learning_run(jobs=5))
    writer.write(records[0])
    while not file.exists() or not file.read_bytes():
        pass
    following = FollowedRun(file, LiveRun("auto"))
    for record in records[1:-1]:
        writer.write(record)
    while following.view(BEGIN).jobs[2] < 5:
        following.look()
        assert not following.is_over
    writer.write(records[-1])
    writer.close()
    following.look()
    assert following.is_over
    assert following.view(BEGIN).state == "ended"
    following.close()


def test_a_run_that_was_killed_is_not_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "telemetry.jsonl"
    file.write_text(to_json(RUN).decode() + '\n{"event": "sub')
    (tmp_path / PROGRESS_FILE).write_text("nonsense")
    following = FollowedRun(file, LiveRun("night"))
    following.look()
    assert not following.is_over
    while not following.is_over:
        following.look()
    assert following.view(BEGIN + 99).state == "killed"
    following.close()


def test_a_run_that_was_killed_is_not_waited_for_where_there_are_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is there may be that of the run, also on another host, and is waited for."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    clock = itertools.count(step=2.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    (file := tmp_path / "telemetry.jsonl").touch()
    here = socket.gethostname()
    for host, pid, is_over in [(here, 2**22 + 1, True), (here, os.getpid(), False), ("elsewhere", 2**22 + 1, False)]:
        file.write_bytes(to_json(replace(RUN, host=host, pid=pid)) + b"\n")
        following = FollowedRun(file, LiveRun("night"))
        for _ in range(5):
            following.look()
        assert following.is_over is is_over, (host, pid)
        following.close()


def test_the_last_state_is_there_whole_and_is_removed_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / PROGRESS_FILE
    writer = TelemetryWriter(lambda: tmp_path / "telemetry.jsonl", interval=0.0)
    for second in range(200):
        writer.show(ProgressRecord(time=second, streams=(stream(1.0),) * (second % 7)))
        read = read_latest(file)
        assert read is None or len(read.streams) == int(read.time) % 7
    while (read := read_latest(file)) is None or read.time < 199:
        pass
    writer.close()
    assert [path.name for path in tmp_path.iterdir()] == ["telemetry.jsonl"]
