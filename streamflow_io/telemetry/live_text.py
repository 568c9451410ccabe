"""The words for the state of a run, and all of it in one line. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamflow_io.wording import counted, size_text

from .live import RunView, StepView, StorageView, StreamView
from .waiting_words import CAUSES

_STREAM_WAITS = {
    "producer": "waits for its producer",
    "reader": "waits for its reader",
    "opening": "its reader has not opened it",
    "rate": "held to its rate",
}
STATES = {
    "running": "is running",
    "completed": "has succeeded",
    "failed": "has FAILED",
    "cancelled": "was cancelled",
    "ended": "has ended",
    "killed": "was KILLED: nobody writes its records any more",
}


def time_text(seconds: float) -> str:
    """As `12 s`, `2 min 5 s`, `3 h 12 min`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole // 60 % 60} min"


def jobs_text(view: RunView) -> str:
    """As `3 jobs wait, 2 run, 10 are done`."""
    waiting, running, done, failed = view.jobs
    parts = [f"{waiting:,} waiting", f"{running:,} running", f"{done:,} done"]
    return "jobs: " + ", ".join(parts + ([f"{failed:,} failed"] if failed else []))


def waits_text(step: StepView) -> str:
    """What the jobs of a step wait for, as `cores 10, storage 2`."""
    return ", ".join(f"{CAUSES.get(cause, cause)} ({count:,})" for cause, count in step.waits.items() if count)


def way_text(stream: StreamView) -> str:
    """From where to where, as `/a/out -> /b/in`; the jobs of a scatter are told by their tags."""
    tag = "" if stream.tag == "0" else f" ({stream.tag.removeprefix('0.')})"
    return f"{stream.output} -> {stream.input or '?'}{tag}"


def rate_text(stream: StreamView) -> str:
    """How fast it is, or why it is not, as `12.0 MB/s`."""
    if stream.rate is None:
        return "begins"
    if stream.stalled is None:
        return f"{size_text(stream.rate)}/s"
    why = _STREAM_WAITS.get(stream.waits or "", "nothing moves")
    return f"stalled {stream.stalled:.0f} s: {why}"


def storage_text(storage: StorageView) -> str:
    """What is admitted, of what there is, as `48 of 64 MB/s for 3 jobs`."""
    of = "" if storage.bandwidth is None else f" of {storage.bandwidth:g}"
    return f"{storage.admitted:g}{of} MB/s admitted to {counted(storage.jobs, 'job')}"


def time_and_jobs(view: RunView) -> str:
    """How long it has taken, and what its jobs do, as `9 s; jobs: 1 waiting, 2 running, 1 done`."""
    text = f"{time_text(view.seconds)}; {jobs_text(view)}"
    return text if view.expected is None else f"{text}; the last time it took {time_text(view.expected)}"


def streamed_text(view: RunView) -> str:
    """What has streamed, as `2 byte streams ended, 1.5 GB`; empty if nothing has."""
    if not view.streamed:
        return ""
    return f"{counted(view.streamed, 'byte stream')} ended, {size_text(view.streamed_bytes)}"


def plain_line(view: RunView) -> str:
    """The state of a run in one line, for where there is no terminal."""
    return f"{view.label}: {time_text(view.seconds)}, " + "; ".join(_parts(view))


def end_line(view: RunView) -> str:
    """How a run has ended."""
    text = f"{view.label} {STATES[view.state]} after {time_text(view.seconds)}; {jobs_text(view)}"
    return text + (f"; failed: {', '.join(view.failures)}" if view.failures else "")


def page_facts(view: RunView) -> dict[str, Any]:
    """All that a page shows of a run, mostly as words."""
    return {
        "label": view.label,
        "state": view.state,
        "stateText": STATES[view.state],
        "line": time_and_jobs(view),
        "steps": [
            {
                "name": f"{step.name} (I/O)" if step.io_task else step.name,
                "waiting": step.waiting,
                "running": step.running,
                "done": step.done,
                "failed": step.failed,
                "waits": waits_text(step),
            }
            for step in view.steps
        ],
        "streams": [
            {
                "way": way_text(stream),
                "size": size_text(stream.bytes),
                "now": rate_text(stream),
                "rate": stream.rate or 0.0,
                "stalled": stream.stalled is not None,
            }
            for stream in view.streams
        ],
        "moreStreams": view.more_streams,
        "streamed": streamed_text(view),
        "storages": [
            {
                "name": storage.name,
                "jobs": f"{storage.jobs:,}",
                "admitted": f"{storage.admitted:g}",
                "bandwidth": "" if storage.bandwidth is None else f"{storage.bandwidth:g}",
                "measured": "" if storage.measured is None else f"{storage.measured:.3g}",
            }
            for storage in view.storages
        ],
        "learning": [f"storageBW of {step.name}: {step.learning}" for step in view.steps if step.learning is not None],
        "failures": list(view.failures),
        "fallbacks": [f"Not delivered as asked: {fallback}" for fallback in view.fallbacks],
    }


def _parts(view: RunView) -> Iterator[str]:
    yield jobs_text(view)
    for step in view.steps:
        if waits := waits_text(step):
            yield f"{step.name} waits for {waits}"
    moving = [stream for stream in view.streams if stream.stalled is None]
    if moving:
        yield f"{counted(len(moving), 'byte stream')} with {size_text(sum(stream.rate or 0.0 for stream in moving))}/s"
    for stream in view.streams:
        if stream.stalled is not None:
            yield f"{way_text(stream)} {rate_text(stream)}"
    for storage in view.storages:
        if storage.jobs:
            yield f"{storage.name}: {storage_text(storage)}"
