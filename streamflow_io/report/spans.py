"""Runs as spans of OpenTelemetry, in the JSON of its protocol (OTLP), for collectors such as Jaeger and Tempo.

A trace is a run. Its spans are the attempts of jobs, and below each the byte streams that the attempt read. A stream
has a link to the span of the job that wrote the stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

from .analysis.results import RunResult
from .analysis.timeline import TimelineJob, TimelineStream
from .trace_events import FACTS

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
