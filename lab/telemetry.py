"""Telemetry of runs that never were: a small simulation of jobs, cores and a storage that congests."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, convert

from streamflow_io.records.jobs import AdmittedRecord, EndedRecord, EndStatus, StartedRecord, SubmittedRecord
from streamflow_io.records.records import (
    ChoiceRecord,
    EndRecord,
    EpochRecord,
    Record,
    RequestRecord,
    RunRecord,
    RunStorage,
    StepRecord,
)
from streamflow_io.records.writer import to_json
from streamflow_io.runtime.usage import JobUsage

R = TypeVar("R", bound=Struct)

BEGIN = 1_700_000_000.0
BANDWIDTH = 64.0
BYTES = 20_000_000
LOCATION = "local/node"
STORAGE = RunStorage(name="scratch", path="/scratch", scope="shared", write=BANDWIDTH)
SSD = RunStorage(name="ssd", path="/local", scope="node", write=20.0, read=25.0)


def record_of(kind: type[R], /, **fields: Any) -> R:
    """A record from the names of its fields, with each value as JSON has the value."""
    names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    return convert({names[name]: value for name, value in fields.items()}, kind)


def io_seconds(concurrency: int) -> float:
    """The time of a checkpoint of 20 MB: the storage does 10 MB/s for one, 40 MB/s for 4, and congests beyond 8."""
    return BYTES / 1e6 * concurrency / min(10.0 * concurrency, 40.0, 320.0 / concurrency)


def learning_run(name: str = "auto", jobs: int = 60, io_task: bool = True) -> Iterator[Record]:
    """A compute step on two cores, whose jobs write a checkpoint each: its constraint is learned, one is static.

    Without I/O tasks only the compute step is there.
    """
    yield RunRecord(time=BEGIN, name=name, workflow="main.cwl", storages=(STORAGE, SSD), io_executors=16)
    if io_task:
        yield StepRecord(time=BEGIN, step="/checkpoint", io_task=True, storage_bw="auto")
        yield StepRecord(time=BEGIN, step="/log", io_task=True, storage_bw="16")
    records = list(_compute(jobs))
    if io_task:
        ready = [record.time - BEGIN for record in records if isinstance(record, EndedRecord)]
        records += _checkpoints(ready)
        records += _static(ready[::10])
    records.sort(key=lambda record: record.time)
    yield from records
    yield EndRecord(time=records[-1].time + 0.1 if records else BEGIN)


def job(
    name: str,
    submitted: float,
    started: float,
    ended: float,
    constraint: float | None = None,
    usage: JobUsage | None = None,
    status: EndStatus = "completed",
    storage: RunStorage = STORAGE,
    queue: bool = False,
) -> list[Record]:
    """The records of one job; without a constraint it needs no storage. Times are seconds since the run began."""
    step, storage_name = name.rpartition("/")[0], None if constraint is None else storage.name
    start, end = BEGIN + started, BEGIN + ended
    return [
        SubmittedRecord(time=BEGIN + submitted, job=name, step=step),
        AdmittedRecord(
            time=start, job=name, step=step, location=LOCATION, storage=storage_name, constraint=constraint, running=1
        ),
        StartedRecord(time=start, location=LOCATION, queue=queue, job=name, step=step),
        EndedRecord(time=end, job=name, step=step, status=status, usage=usage),
    ]


def usage(started: float, ended: float, written: int = 0, read: int = 0) -> JobUsage:
    """Make the measured usage of a job; times are seconds since the start of the run."""
    return JobUsage(
        started=BEGIN + started,
        ended=BEGIN + ended,
        bytes_read=read,
        bytes_written=written,
        storage_bytes_read=0,
        storage_bytes_written=0,
        cpu_seconds=0.1,
    )


def saving_run(name: str = "saving", channels: int = 4, phases: int = 6) -> Iterator[Record]:
    """A loop of 8 s in each of some channels: 7.9 s of compute, then an I/O task of 40 MB in 2 s beside the next.

    The next iteration needs nothing of it; the last request is waited for at once. In the second phase of the first
    channel the disk is slow: it takes 10 s.
    """
    yield RunRecord(time=BEGIN, name=name, workflow="main.cwl", storages=(STORAGE,))
    yield StepRecord(time=BEGIN, step="/save", io_task=True, storage_bw="16")
    records: list[Record] = []
    for channel in range(channels):
        for phase in range(phases):
            ready, tag = 8.0 * (phase + 1), f"0.{phase}.{channel}"
            ended, is_last = ready + (10.0 if (channel, phase) == (0, 1) else 2.0), phase == phases - 1
            used = usage(ready, ended, 40_000_000)
            records += job(f"/compute/{tag}", ready - 8, ready - 7.9, ready)
            records += job(f"/save/{tag}", ready, ready, ended, 16, used)
            records.append(
                RequestRecord(
                    time=BEGIN + ended,
                    job=f"/save/{tag}",
                    step="/save",
                    channel=f"/save/0.*.{channel}",
                    phase=phase,
                    storage=STORAGE.name,
                    direction="write",
                    bytes=40_000_000,
                    ready=BEGIN + ready,
                    started=BEGIN + ready,
                    ended=BEGIN + ended,
                    required=BEGIN + ready + (0 if is_last else 8),
                    rule="exposed" if is_last else "next",
                )
            )
    yield from sorted(records, key=lambda record: record.time)
    yield EndRecord(time=BEGIN + 8.0 * phases + 2)


def write(path: Path, records: Iterable[Record]) -> Path:
    """Write a telemetry file without the writer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(to_json(record) + b"\n" for record in records))
    return path


def _compute(jobs: int) -> Iterator[Record]:
    cores = [0.0, 0.0]
    for index in range(jobs):
        start = heapq.heappop(cores)
        heapq.heappush(cores, end := start + 1.0 + index % 3 * 0.1)
        yield from job(f"/compute/0.{index}", 0.0, start, end, status="failed" if index == 7 else "completed")


def _checkpoints(ready: list[float]) -> Iterator[Record]:
    """Epochs of 16, 8, 4, ... jobs, until their time is more than half of that before; then groups of the best size."""
    constraint, clock, number, todo, times = BANDWIDTH / 16, 0.0, 1, sorted(ready), dict[float, float]()
    index, learning = 0, True
    yield _choice(0.0, constraint, "first")
    while todo:
        concurrency = int(BANDWIDTH / constraint)
        group, todo = todo[:concurrency], todo[concurrency:]
        start, seconds = max(clock, group[-1]), io_seconds(len(group))
        for submitted in group:
            used = usage(start + 0.01, start + seconds, BYTES, 1000)
            yield from job(f"/checkpoint/0.{index}", submitted, start, start + seconds, constraint, used)
            index += 1
        clock = start + seconds
        if learning:
            registered = not times or seconds * 2 <= times[constraint / 2]
            learning = registered and constraint * 2 <= BANDWIDTH and concurrency == len(group)
            yield EpochRecord(
                time=BEGIN + clock,
                step="/checkpoint",
                storage=STORAGE.name,
                location=LOCATION,
                number=number,
                constraint=constraint,
                concurrency=concurrency,
                jobs=len(group),
                mean_seconds=seconds,
                registered=registered,
                started=BEGIN + start,
            )
            if registered:
                times[constraint] = seconds
            number += 1
            constraint = constraint * 2 if learning else min(times, key=lambda c: times[c] / int(BANDWIDTH / c))
            yield _choice(clock, constraint, "learning" if learning else "learned")


def _static(ready: Iterable[float]) -> Iterator[Record]:
    for index, submitted in enumerate(ready):
        used = usage(submitted, submitted + 0.5, 4_000_000)
        yield from job(f"/log/0.{index}", submitted, submitted, submitted + 0.5, 16.0, used, storage=SSD)


def _choice(time: float, constraint: float, reason: str) -> ChoiceRecord:
    return convert(
        {
            "time": BEGIN + time,
            "step": "/checkpoint",
            "storage": STORAGE.name,
            "constraint": constraint,
            "reason": reason,
        },
        ChoiceRecord,
    )
