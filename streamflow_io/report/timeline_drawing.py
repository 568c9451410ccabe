"""The timeline of a run as SVG: when each of its jobs waited and ran. Perfetto shows the same to look closer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from streamflow_io.grouping import grouped
from streamflow_io.records.jobs import CAUSES
from streamflow_io.wording import counted, size_text

from .analysis.results import RunResult
from .analysis.timeline import TimelineJob, TimelineStream
from .analysis.verdict import span_name
from .chart import WIDTH, cut, scale, short, text_of, time_axis, width_of

# Of more jobs, each step has a row.
_JOBS = 150
_ROW, _BAR, _THIN = 20, 13, 4
_RIGHT = 110
_LONGEST = 34
# Share of the picture. A shorter pause between two jobs of a step would not be seen.
_PAUSE = 0.002
# A job counts as on the critical path from this many seconds on.
_ON_PATH = 0.05


class TimelineRow(Struct, frozen=True):
    """A row of bars.

    :ivar bars: begin, end, class in the style sheet of the page, and a text for each bar
    :ivar text: stands after the last bar
    """

    name: str
    bars: Sequence[tuple[float, float, str, str]]
    text: str = ""


def draw_timeline(run: RunResult, until: float) -> str:
    """Return the drawing.

    :param until: the end of the axis, in seconds: that of the longest run, so that drawings can be compared
    """
    rows = list(timeline_rows(run))
    left = 16 + width_of("x" * min(_LONGEST, max(len(row.name) for row in rows)))
    bottom = _ROW * len(rows) + 4
    x = scale(until, left, WIDTH - _RIGHT)
    parts = [*time_axis(x, until, 0, bottom)]
    for number, row in enumerate(rows):
        y = _ROW * number + (_ROW - _BAR) / 2
        parts.append(
            f'<text class="end" x="{short(left - 8)}" y="{short(y + 11)}"><title>{text_of(row.name)}</title>'
            f"{text_of(cut(row.name, _LONGEST))}</text>"
        )
        for begin, end, kind, said in row.bars:
            at, wide = x(begin), max(0.8, x(end) - x(begin))
            top, height = (y + _BAR - _THIN, _THIN) if kind in ("stream", "commit") else (y, _BAR)
            parts.append(
                f'<rect class="{kind}" x="{short(at)}" y="{short(top)}" width="{short(wide)}" height="{height}">'
                f"<title>{text_of(said)}</title></rect>"
            )
            if kind == "path" and width_of(said) < wide:
                parts.append(f'<text class="on" x="{short(at + 4)}" y="{short(y + 11)}">{text_of(said)}</text>')
        last = max((end for _, end, _, _ in row.bars), default=0.0)
        parts.append(f'<text x="{short(x(last) + 6)}" y="{short(y + 11)}">{text_of(row.text)}</text>')
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {bottom + 44}" role="img" aria-label="timeline">'
        f"{''.join(parts)}</svg>"
    )


def timeline_rows(run: RunResult) -> Iterator[TimelineRow]:
    """Yield the rows: the critical path, and a row for each attempt of a job, or for each step of many jobs."""
    if run.path:
        spans = [(one.begin, one.end, "path", f"{span_name(one)}: {one.seconds:.2f} s") for one in run.path]
        yield TimelineRow("critical path", spans)
    for step, jobs in grouped(run.timeline, lambda job: job.step).items():
        if len(run.timeline) <= _JOBS:
            yield from map(_of_job, jobs)
        else:
            failed = sum(job.status == "failed" for job in jobs)
            text = counted(len(jobs), "job") + (f", {failed:,} failed" if failed else "")
            kind = "run io" if jobs[0].io_task else "run"
            yield TimelineRow(step, [(*span, kind, f"{step}: {text}") for span in _busy(jobs, run.seconds)], text)


def _of_job(job: TimelineJob) -> TimelineRow:
    bars: list[tuple[float, float, str, str]] = []
    text = "" if job.status == "completed" else f"{job.status or 'not ended'} "
    if job.waiting is not None and job.waiting[1] > job.waiting[0]:
        bars.append((*job.waiting, "wait", f"{job.job} waited {job.waiting[1] - job.waiting[0]:.2f} s"))
    if job.running is not None:
        begin, end = job.running
        kinds = {"io": job.io_task, "bad": job.status == "failed", "critical": job.on_path >= _ON_PATH}
        kind = " ".join(["run", *(name for name, holds in kinds.items() if holds)])
        bars.append((begin, end, kind, f"{job.job}: {_said(job)}"))
        for stream in job.streams:
            since, until = (begin if stream.begin is None else stream.begin), stream.end or end
            bars.append((since, until, "stream", _of_stream(stream)))
        text += f"{end - begin:.3g} s"
    for one in job.commits:
        said = f"{one.output}: {one.files:,} committed, {size_text(one.bytes)}"
        bars.append((one.time, one.time, "commit", said))
    return TimelineRow(job.job, bars, text.strip())


def _busy(jobs: Sequence[TimelineJob], seconds: float) -> list[tuple[float, float]]:
    """Return when at least one of some jobs ran."""
    spans: list[tuple[float, float]] = []
    for begin, end in sorted(job.running for job in jobs if job.running is not None):
        if spans and begin - spans[-1][1] <= _PAUSE * seconds:
            spans[-1] = spans[-1][0], max(spans[-1][1], end)
        else:
            spans.append((begin, end))
    return spans


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


def _of_stream(stream: TimelineStream) -> str:
    port = "" if stream.input is None else f" into {stream.input.rpartition('/')[2]}"
    told = f"{stream.output} of {stream.source or 'a job'}{port}: {size_text(stream.bytes)}"
    if stream.waited is not None:
        told += f"; waited {stream.waited:.2f} s for bytes"
    return told + (f", {stream.behind:.2f} s behind" if stream.behind else "")
