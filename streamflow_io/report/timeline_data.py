"""The data from which the page draws timelines: short lists of numbers and texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamflow_io.records.jobs import CAUSES
from streamflow_io.wording import size_text

from .analysis.results import AdmittedBandwidth, RunResult
from .analysis.timeline import TimelineJob, TimelineStream
from .analysis.verdict import span_name

# The most points of a line of a storage.
_POINTS = 400

#: The shares of the time of a job that are drawn at its lower edge, in this order.
SPENT = ("waits for bytes", "waits at the gate", "waits for a device", "is paused", "computes")


def timeline_data(runs: Sequence[RunResult]) -> dict[str, Any]:
    """Return the data of all runs, for `timeline.js`."""
    return {"spent": SPENT, "runs": [_run(run) for run in runs]}


def _run(run: RunResult) -> dict[str, Any]:
    began = {job.step: None for job in run.timeline}
    steps = {step: index for index, step in enumerate(began)}
    locations = sorted({job.location for job in run.timeline if job.location is not None})
    places = {location: index for index, location in enumerate(locations)}
    io_tasks = {job.step for job in run.timeline if job.io_task}
    return {
        "name": run.run,
        "seconds": _short(run.seconds),
        "steps": [[step, step in io_tasks] for step in steps],
        "locations": locations,
        "jobs": [
            _job(job, steps[job.step], None if job.location is None else places[job.location]) for job in run.timeline
        ],
        "path": [[_short(span.begin), _short(span.end), span_name(span)] for span in run.path],
        "storages": [_storage(run, one) for one in run.admitted],
    }


def _job(job: TimelineJob, step: int, location: int | None) -> list[Any]:
    """Return the list of a job, which `timeline.js` reads by the order of the items."""
    submitted = None if job.waiting is None else job.waiting[0]
    started, ended = job.running or (None, None)
    if ended is None and job.waiting is not None:
        ended = job.waiting[1]
    return [
        step,
        job.job.rpartition("/")[2],
        _short(submitted),
        _short(started),
        _short(ended),
        "" if job.status == "completed" else job.status or "not ended",
        _short(job.on_path),
        _spent(job),
        _said(job),
        [_stream(stream) for stream in job.streams],
        [[_short(one.time), f"{one.output}: {one.files:,} committed, {size_text(one.bytes)}"] for one in job.commits],
        location,
    ]


def _spent(job: TimelineJob) -> list[float] | int:
    """Return the seconds of a job by activity. 0: unknown."""
    if job.running is None:
        return 0
    took = job.running[1] - job.running[0]
    seconds = [
        max((stream.waited or 0.0 for stream in job.streams), default=0.0),
        job.held_seconds or 0.0,
        job.io_seconds or 0.0,
        job.paused_seconds or 0.0,
        job.cpu_seconds or 0.0,
    ]
    if took <= 0 or not any(seconds):
        return 0
    # Jobs with several threads compute for longer than they take, so waiting times come first.
    left, parts = took, []
    for one in seconds:
        parts.append(_short(min(one, left)) or 0.0)
        left -= min(one, left)
    return parts


def _said(job: TimelineJob) -> str:
    """Return the facts of a job that no bar shows, in a line."""
    told = [f"waited for {CAUSES[cause]} {seconds:.2f} s" for cause, seconds in job.waited.items() if seconds >= 0.005]
    for name, seconds in (
        ("CPU time", job.cpu_seconds),
        ("waited for devices", job.io_seconds),
        ("held at the gate", job.held_seconds),
    ):
        if seconds:
            told.append(f"{name} {seconds:.2f} s")
    if job.pauses:
        told.append(f"paused {job.pauses:,} times, {job.paused_seconds or 0.0:.2f} s")
    if job.bytes_read or job.bytes_written:
        told.append(f"read {size_text(job.bytes_read or 0)}, wrote {size_text(job.bytes_written or 0)}")
    if job.location is not None:
        told.append(f"on {job.location}")
    return "; ".join(told)


def _stream(stream: TimelineStream) -> list[Any]:
    """Return when a stream moved, its rate or size, and its description."""
    rate = ""
    if stream.begin is not None and stream.end is not None and stream.end > stream.begin:
        rate = f"{size_text(stream.bytes / (stream.end - stream.begin))}/s"
    port = "" if stream.input is None else f" into {stream.input.rpartition('/')[2]}"
    told = f"{stream.output} of {stream.source or 'a job'}{port}: {size_text(stream.bytes)}"
    told += f", {rate}" if rate else ""
    if stream.waited is not None:
        told += f"; waited {stream.waited:.2f} s for bytes"
    if stream.behind:
        told += f", {stream.behind:.2f} s behind"
    return [_short(stream.begin), _short(stream.end), rate or size_text(stream.bytes), told]


def _storage(run: RunResult, admitted: AdmittedBandwidth) -> dict[str, Any]:
    where = "" if admitted.location is None else f" on {admitted.location}"
    stride = -(-len(admitted.levels) // _POINTS) or 1
    levels = [
        (admitted.levels[at][0], max(level for _, level in admitted.levels[at : at + stride]))
        for at in range(0, len(admitted.levels), stride)
    ]
    return {
        "name": f"{admitted.storage}{where}, {admitted.direction}",
        "limit": admitted.limit,
        "admitted": [[_short(time), _short(level)] for time, level in levels],
        "measured": [_short(value) for value in admitted.measured],
    }


def _short(value: float | None) -> float | None:
    """Return a number with three decimals: further digits would not be seen, and make the page larger."""
    return None if value is None else round(value, 3)
