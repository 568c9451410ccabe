"""A run as one table, for spreadsheets and data frames: a row for each thing that took time."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .analysis.results import RunResult
from .analysis.timeline import TimelineJob

#: The columns. Times are seconds since the start of the run. A field without a value is empty.
COLUMNS = (
    "run",
    "kind",
    "step",
    "job",
    "what",
    "begin",
    "end",
    "seconds",
    "status",
    "location",
    "source",
    "output",
    "input",
    "bytes",
    "waited",
    "behind",
    "cpuSeconds",
    "ioSeconds",
    "heldSeconds",
    "bytesRead",
    "bytesWritten",
)


def as_csv(runs: Sequence[RunResult]) -> str:
    """Return the table, with a header.

    The kinds of its rows: `job`, an attempt that ran; `wait`, one cause of its wait before; `stream`; `commit`; `path`,
    a span of the critical path.
    """
    lines = _TableText()
    writer = csv.DictWriter(lines, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for run in runs:
        writer.writerows({"run": run.run, **row} for row in _rows(run))
    return "".join(lines.written)


class _TableText:
    """A file in memory for the CSV writer."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, text: str) -> None:
        self.written.append(text)


def _rows(run: RunResult) -> Iterator[dict[str, Any]]:
    for job in run.timeline:
        yield from map(_rounded, _of_job(job))
    for span in run.path:
        yield _rounded(
            {
                "kind": "path",
                "step": span.step,
                "job": span.job,
                "what": span.cause or span.what,
                "begin": span.begin,
                "end": span.end,
                "seconds": span.seconds,
                "source": span.source,
            }
        )


def _of_job(job: TimelineJob) -> Iterable[dict[str, Any]]:
    of = {"step": job.step, "job": job.job}
    begin, end = job.running or (None, None)
    yield {
        **of,
        "kind": "job",
        "what": "I/O task" if job.io_task else "compute",
        "begin": begin,
        "end": end,
        "seconds": None if begin is None or end is None else end - begin,
        "status": job.status,
        "location": job.location,
        "cpuSeconds": job.cpu_seconds,
        "ioSeconds": job.io_seconds,
        "heldSeconds": job.held_seconds,
        "bytesRead": job.bytes_read,
        "bytesWritten": job.bytes_written,
    }
    if job.waiting is not None and job.waiting[1] > job.waiting[0]:
        since, until = job.waiting
        lacked = sum(job.waited.values())
        waits: dict[str, float] = dict(job.waited.items())
        waits["other"] = max(0.0, until - since - lacked)
        for what, seconds in waits.items():
            # Begin and end are known only for the whole wait.
            yield {**of, "kind": "wait", "what": what, "begin": since, "end": until, "seconds": seconds}
    for stream in job.streams:
        known = stream.begin is not None and stream.end is not None
        yield {
            **of,
            "kind": "stream",
            "begin": stream.begin,
            "end": stream.end,
            "seconds": (stream.end or 0.0) - (stream.begin or 0.0) if known else None,
            "source": stream.source,
            "output": stream.output,
            "input": stream.input,
            "bytes": stream.bytes,
            "waited": stream.waited,
            "behind": stream.behind,
        }
    for commit in job.commits:
        yield {
            **of,
            "kind": "commit",
            "begin": commit.time,
            "end": commit.time,
            "seconds": 0.0,
            "output": commit.output,
            "bytes": commit.bytes,
        }


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()}
