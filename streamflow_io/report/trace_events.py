"""Runs in the Chrome trace event format, for Perfetto and speedscope.

A process is a location of a run. A thread is a lane of a step, with jobs that ran one after the other. Waiting is
asynchronous, bandwidth is a counter, and an arrow leads from the writer of a byte stream to its reader.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from streamflow_io.records.jobs import CAUSES

from .analysis.results import RunResult
from .analysis.timeline import TimelineJob, TimelineStream
from .analysis.verdict import span_name, span_text

_MICROSECONDS = 1e6
TraceEvent = dict[str, Any]


def as_trace(runs: Sequence[RunResult]) -> str:
    """Return the trace, as JSON."""
    events: list[TraceEvent] = []
    for run in runs:
        events += _Trace(run, len(events)).events()
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, separators=(",", ":"))


class _Trace:
    """The trace of one run.

    :param first: the identifiers of this run begin above this number, so that no other run has them
    """

    def __init__(self, run: RunResult, first: int) -> None:
        self._run = run
        self._ids = count(first + 1)
        self._processes: dict[str, int] = {}
        self._threads: dict[tuple[int, str], list[tuple[int, float]]] = {}
        # Where each job that ran is shown, and when it ran.
        self._shown: dict[str, tuple[int, int, float, float]] = {}
        self._made: list[TraceEvent] = []

    def events(self) -> list[TraceEvent]:
        """Return all events of the run."""
        path = self._process("critical path")
        for span in self._run.path:
            thread = self._thread(path, "critical path", span.begin, span.end)
            self._slice(span_name(span), span_text(span), path, thread, span.begin, span.end, {})
        for job in self._run.timeline:
            self._job(job)
        for job in self._run.timeline:
            for stream in job.streams:
                self._stream(job, stream)
        self._made += self._counters()
        return self._made

    def _process(self, name: str) -> int:
        if name not in self._processes:
            self._processes[name] = next(self._ids)
            self._name("process_name", self._processes[name], None, f"{self._run.run}: {name}")
        return self._processes[name]

    def _thread(self, process: int, name: str, begin: float, end: float) -> int:
        """Return a lane of this name that is free at the time."""
        lanes = self._threads.setdefault((process, name), [])
        for number, (thread, until) in enumerate(lanes):
            if until <= begin:
                lanes[number] = thread, end
                return thread
        thread = next(self._ids)
        lanes.append((thread, end))
        self._name("thread_name", process, thread, name if len(lanes) == 1 else f"{name} ({len(lanes)})")
        return thread

    def _name(self, what: str, process: int, thread: int | None, name: str) -> None:
        of = {"pid": process} if thread is None else {"pid": process, "tid": thread}
        self._made.append({"ph": "M", "name": what, **of, "args": {"name": name}})

    def _slice(
        self, name: str, category: str, process: int, thread: int, begin: float, end: float, facts: dict[str, Any]
    ) -> None:
        at = {"ts": _time(begin), "dur": _time(end) - _time(begin)}
        of = {"ph": "X", "name": name, "cat": category, "pid": process, "tid": thread, **at}
        self._made.append({**of, "args": facts} if facts else of)

    def _job(self, job: TimelineJob) -> None:
        process = self._process(job.location or "nowhere yet")
        if job.waiting is not None and job.waiting[1] > job.waiting[0]:
            self._waiting(job, process, *job.waiting)
        if job.running is None:
            return
        thread = self._thread(process, job.step, *job.running)
        facts = job.model_dump(by_alias=True, exclude_none=True, include=FACTS)
        self._slice(job.job, job.step, process, thread, *job.running, facts)
        self._shown[job.job] = (process, thread, *job.running)

    def _waiting(self, job: TimelineJob, process: int, begin: float, end: float) -> None:
        name = "waits for " + (", ".join(CAUSES[cause] for cause in job.waited) or "StreamFlow")
        of = {"name": name, "cat": "waiting", "id": next(self._ids), "pid": process, "tid": 0}
        self._made.append({"ph": "b", **of, "ts": _time(begin), "args": {"job": job.job, **job.waited}})
        self._made.append({"ph": "e", **of, "ts": _time(end)})

    def _stream(self, job: TimelineJob, stream: TimelineStream) -> None:
        if job.running is None or stream.begin is None or stream.end is None:
            return
        process = self._process(job.location or "nowhere yet")
        thread = self._thread(process, f"{stream.input or job.step}, byte streams", stream.begin, stream.end)
        facts = stream.model_dump(by_alias=True, exclude_none=True)
        self._slice(f"{stream.output} to {job.job}", "stream", process, thread, stream.begin, stream.end, facts)
        source = self._shown.get(stream.source or "")
        if source is None:
            return
        # An arrow begins and ends within a slice.
        begin = min(max(stream.begin, source[2]), source[3])
        of = {"name": "byte stream", "cat": "stream", "id": next(self._ids)}
        self._made.append({"ph": "s", **of, "pid": source[0], "tid": source[1], "ts": _time(begin)})
        last = {"pid": process, "tid": thread, "ts": _time(max(begin, stream.begin))}
        self._made.append({"ph": "f", "bp": "e", **of, **last})

    def _counters(self) -> Iterator[TraceEvent]:
        for storage in self._run.admitted:
            process = self._process("storages")
            where = "" if storage.location is None else f" on {storage.location}"
            name = f"{storage.storage}{where}, {storage.direction} (MB/s)"
            width = self._run.seconds / max(1, len(storage.measured))
            for what, points in (
                ("admitted", storage.levels),
                ("measured", [(number * width, value) for number, value in enumerate(storage.measured)]),
            ):
                for time, value in points:
                    at = {"pid": process, "ts": _time(time)}
                    yield {"ph": "C", "name": f"{name}, {what}", **at, "args": {what: value}}


FACTS = {
    "status",
    "waited",
    "cpu_seconds",
    "io_seconds",
    "held_seconds",
    "paused_seconds",
    "bytes_read",
    "bytes_written",
    "on_path",
}


def _time(seconds: float) -> int:
    return round(seconds * _MICROSECONDS)
