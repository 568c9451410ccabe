"""Runs in the formats of other programs: Perfetto and speedscope, OpenTelemetry, MultiQC.

In a trace, a process is a location of a run. A thread is a lane of a step, with jobs that ran one after the other.
Waiting is asynchronous, bandwidth is a counter, and an arrow leads from the writer of a byte stream to its reader.

Among spans of OpenTelemetry, a run is a trace. Its spans are the attempts of jobs, and below each the byte streams that
the attempt read. A stream has a link to the span of the job that wrote the stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from html import escape
from itertools import count
from typing import Any

from streamflow_io.records.jobs import CAUSES

from .analysis.results import RunResult, StepResult
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


_NANOSECONDS = 1e9
_INTERNAL = 1
_ERROR = 2
Span = dict[str, Any]


def as_spans(runs: Sequence[RunResult]) -> str:
    """Return the spans, as JSON on one line: a receiver of files takes a line for a message.

    The same run has the same identifiers each time.
    """
    resource = {"attributes": _attributes({"service.name": "streamflow-io"})}
    spans = [span for run in runs for span in _spans(run)]
    scopes = [{"scope": {"name": "streamflow_io"}, "spans": spans}]
    made = {"resourceSpans": [{"resource": resource, "scopeSpans": scopes}]}
    return json.dumps(made, separators=(",", ":")) + "\n"


def _spans(run: RunResult) -> Iterator[Span]:
    trace = _identifier(32, run.run, run.began)
    facts = {"streamflow.workflow": run.workflow, "streamflow.verdict": run.verdict}
    yield _span(run, trace, ("run",), None, run.run, (0.0, run.seconds), facts, run.status)
    for number, job in enumerate(run.timeline):
        if job.running is not None:
            yield _job(run, trace, number, job, job.running)
            for place, stream in enumerate(job.streams):
                if stream.begin is not None:
                    yield _stream(run, trace, (number, place), job, stream, stream.begin)


def _job(run: RunResult, trace: str, number: int, job: TimelineJob, running: tuple[float, float]) -> Span:
    facts: dict[str, Any] = {"step": job.step, "location": job.location}
    facts |= job.model_dump(by_alias=True, exclude_none=True, include=FACTS - {"waited"})
    facts |= {f"waited.{cause}": seconds for cause, seconds in job.waited.items()}
    named = {f"streamflow.{name}": value for name, value in facts.items() if value is not None}
    return _span(run, trace, ("job", number), ("run",), job.job, running, named, job.status)


def _stream(
    run: RunResult, trace: str, of: tuple[int, int], job: TimelineJob, stream: TimelineStream, begin: float
) -> Span:
    facts = stream.model_dump(by_alias=True, exclude_none=True, exclude={"begin", "end"})
    made = _span(
        run,
        trace,
        ("stream", *of),
        ("job", of[0]),
        f"{stream.output} to {job.job}",
        (begin, max(begin, stream.end or begin)),
        {f"streamflow.{name}": value for name, value in facts.items()},
        None,
    )
    # The last attempt that had begun by then has written the stream.
    writers = [
        place
        for place, one in enumerate(run.timeline)
        if one.job == stream.source and one.running is not None and one.running[0] <= begin
    ]
    if writers:
        made["links"] = [{"traceId": trace, "spanId": _identifier(16, trace, "job", writers[-1])}]
    return made


def _span(
    run: RunResult,
    trace: str,
    of: tuple[object, ...],
    parent: tuple[object, ...] | None,
    name: str,
    when: tuple[float, float],
    facts: dict[str, Any],
    status: str | None,
) -> Span:
    begin, end = (str(round((run.began + time) * _NANOSECONDS)) for time in when)
    return {
        "traceId": trace,
        "spanId": _identifier(16, trace, *of),
        **({} if parent is None else {"parentSpanId": _identifier(16, trace, *parent)}),
        "name": name,
        "kind": _INTERNAL,
        "startTimeUnixNano": begin,
        "endTimeUnixNano": end,
        "attributes": _attributes(facts),
        **({"status": {"code": _ERROR}} if status == "failed" else {}),
    }


def _attributes(facts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in facts.items()]


def _value(value: object) -> dict[str, Any]:
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": str(value)}


def _identifier(digits: int, *of: object) -> str:
    return sha256(json.dumps(of).encode()).hexdigest()[:digits]


# MultiQC finds files whose names end so, and rounds numbers by `format`.
_HEADERS = {
    "jobs": {"title": "Jobs", "description": "Jobs that have succeeded", "format": "{:,.0f}"},
    "failed": {"title": "Failed", "description": "Failed jobs", "format": "{:,.0f}"},
    "seconds": {"title": "Time (s)", "description": "Mean time of a job", "format": "{:,.2f}"},
    "wait": {"title": "Wait (s)", "description": "Mean time until a job ran", "format": "{:,.2f}"},
    "streamed": {"title": "Streamed (MB)", "description": "Bytes that the step read as streams", "format": "{:,.1f}"},
}


def as_multiqc(runs: Sequence[RunResult]) -> str:
    """Return a file for MultiQC's custom content.

    MultiQC takes texts for HTML, so names of steps and runs are escaped. MultiQC takes a name with slashes for a path,
    and keeps its last part, so the slashes of steps become dots.
    """
    rows = {
        escape(_name(step) if len(runs) == 1 else f"{run.run}: {_name(step)}"): _row(run, step)
        for run in runs
        for step in run.steps
    }
    section = {
        "id": "streamflow_io",
        "section_name": "StreamFlow-IO",
        "description": "<br>".join(escape(f"{run.run}: {run.verdict}") for run in runs),
        "plot_type": "table",
        "pconfig": {"id": "streamflow_io_steps", "title": "StreamFlow-IO: steps", "col1_header": "Step"},
        "headers": _HEADERS,
        "data": rows,
    }
    return json.dumps(section, indent=2) + "\n"


def _name(step: StepResult) -> str:
    return step.step.strip("/").replace("/", ".") or "main"


def _row(run: RunResult, step: StepResult) -> dict[str, float]:
    streamed = sum(stream.bytes for job in run.timeline if job.step == step.step for stream in job.streams)
    values = {
        "jobs": step.completed,
        "failed": step.failed,
        "seconds": step.mean_seconds,
        "wait": step.mean_wait,
        "streamed": streamed / 1e6,
    }
    return {name: value for name, value in values.items() if value is not None}
