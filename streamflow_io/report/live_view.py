"""Views of the state of a run: words, one line, and a terminal of 80 columns or more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from streamflow_io.records.jobs import CAUSES
from streamflow_io.wording import counted, displayed, size_text

from .analysis.live import LocationView, RunView, StepView, StorageView, StreamView

_STYLES = {"running": "bold", "completed": "bold green", "failed": "bold red", "killed": "bold red"}
# Lines that are no row of a table: title, headers, lines between.
_FRAME = 9
_LEAST_ROWS = 3
# The jobs that are named of each location.
_NAMED = 4


def screen(view: RunView, height: int) -> RenderableType:
    """Return the state of a run, in at most `height` lines."""
    rows = max(3 * _LEAST_ROWS, height - _FRAME - len(view.queued) - len(view.storages) - len(view.failures))
    streams = view.streams[: max(_LEAST_ROWS, rows // 3)]
    locations = shown_locations(view, max(_LEAST_ROWS, rows // 4))
    taken = len(streams) + len(locations) + bool(locations)
    return Group(*_parts(view, max(_LEAST_ROWS, rows - taken), streams, locations))


def _parts(
    view: RunView, rows: int, streams: Sequence[StreamView], locations: Sequence[tuple[str, ...]]
) -> Iterator[RenderableType]:
    title = _text(view.label, "bold", no_wrap=True, overflow="ellipsis")
    title.append(f" {STATES[view.state]}", _STYLES.get(view.state, "bold yellow"))
    yield title
    yield _text(time_and_jobs(view))
    for queued in queued_texts(view):
        yield _text(queued)
    if view.steps:
        yield _steps(view.steps, rows)
    if locations:
        yield _locations(locations)
    if streams:
        yield _streams(streams, len(view.streams) - len(streams) + view.more_streams)
    if view.streamed:
        yield _text(streamed_text(view), "dim")
    if view.storages:
        yield _storages(view.storages)
    for failure in view.failures:
        yield _text(f"failed: {failure}", "red")
    if view.fallbacks:
        more = f" (and {len(view.fallbacks) - 1} more)" if len(view.fallbacks) > 1 else ""
        yield _text(f"Not delivered as asked{more}: {view.fallbacks[0]}", "yellow")


def _table(*columns: tuple[str, bool]) -> Table:
    """Make a table.

    :param columns: the title of each column, and whether it has numbers
    """
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, expand=False, header_style="underline")
    for number, (column, is_number) in enumerate(columns):
        fold = number in (0, len(columns) - 1)
        made.add_column(
            column, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold" if fold else "ellipsis"
        )
    return made


def _steps(steps: Sequence[StepView], rows: int) -> Table:
    shown = list(steps)
    if len(shown) > rows:
        # First the steps where something happens, then the steps that are to come, then the steps that are done.
        ranked = sorted(range(len(steps)), key=lambda index: (_rank(steps[index]), index))[: rows - 1]
        shown = [steps[index] for index in sorted(ranked)]
    made = _table(
        ("step", False), ("wait", True), ("run", True), ("done", True), ("failed", True), ("waits for", False)
    )
    for step in shown:
        style = "dim" if not step.waiting and not step.running else None
        failed = _text(f"{step.failed:,}", "red" if step.failed else "")
        name = f"{step.name} (I/O)" if step.io_task else step.name
        made.add_row(
            _text(name),
            f"{step.waiting:,}",
            f"{step.running:,}",
            f"{step.done:,}",
            failed,
            waits_text(step),
            style=style,
        )
    if len(shown) < len(steps):
        made.add_row(_text(f"and {len(steps) - len(shown):,} more", "dim"))
    return made


def _locations(rows: Sequence[tuple[str, ...]]) -> Table:
    made = _table(("location", False), ("run", True), ("cores", True), ("jobs", False))
    made.columns[-1].no_wrap, made.columns[-1].overflow = True, "ellipsis"
    for row in rows:
        made.add_row(*map(_text, row))
    return made


def _rank(step: StepView) -> int:
    if step.running or step.waiting or step.failed:
        return 0
    return 2 if step.done else 1


def _streams(streams: Sequence[StreamView], more: int) -> Table:
    made = _table(("byte stream", False), ("so far", True), ("now", False))
    for stream in streams:
        style = None if stream.stalled is None else "yellow"
        made.add_row(_text(way_text(stream)), size_text(stream.bytes), _text(rate_text(stream)), style=style)
    if more:
        made.add_row(_text(f"and {more:,} more", "dim"))
    return made


def _storages(storages: Sequence[StorageView]) -> Table:
    made = _table(("storage", False), ("jobs", True), ("admitted", True), ("of, MB/s", True))
    for storage in storages:
        of = "" if storage.bandwidth is None else f"{storage.bandwidth:g}"
        made.add_row(_text(storage.name), f"{storage.jobs:,}", f"{storage.admitted:g}", of)
    return made


def _text(text: str, style: str = "", **layout: Any) -> Text:
    return Text(displayed(text), style, **layout)


_STREAM_WAITS = {
    "producer": "waits for its producer",
    "reader": "waits for its reader",
    "opening": "its reader has not opened it",
}
STATES = {
    "running": "is running",
    "completed": "has succeeded",
    "failed": "has FAILED",
    "cancelled": "was cancelled",
    "ended": "has ended",
    "killed": "was KILLED: no process writes its records any more",
}


def time_text(seconds: float) -> str:
    """Return a duration: `12 s`, `2 min 5 s`, `3 h 12 min`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole // 60 % 60} min"


def jobs_text(view: RunView) -> str:
    """Return the numbers of jobs: `jobs: 3 waiting, 2 running, 10 done`."""
    waiting, running, done, failed = view.jobs
    parts = [f"{waiting:,} waiting", f"{running:,} running", f"{done:,} done"]
    return "jobs: " + ", ".join(parts + ([f"{failed:,} failed"] if failed else []))


def waits_text(step: StepView) -> str:
    """Return the causes for which a step's jobs wait: `cores (10), the queue (2)`."""
    return ", ".join(f"{CAUSES.get(cause, cause)} ({count:,})" for cause, count in step.waits.items() if count)


def way_text(stream: StreamView) -> str:
    """Return the way of a stream: `/a/out -> /b/in`, with the tag of a scattered job."""
    tag = "" if stream.tag == "0" else f" ({stream.tag.removeprefix('0.')})"
    return f"{stream.output} -> {stream.input or '?'}{tag}"


def rate_text(stream: StreamView) -> str:
    """Return the rate of a stream, or why nothing moves: `12.0 MB/s`."""
    if stream.rate is None:
        return "begins"
    if stream.stalled is None:
        return f"{size_text(stream.rate)}/s"
    why = _STREAM_WAITS.get(stream.waits or "", "nothing moves")
    return f"stalled {stream.stalled:.0f} s: {why}"


def storage_text(storage: StorageView) -> str:
    """Return the admitted share of a storage: `48 of 64 MB/s admitted to 3 jobs`."""
    of = "" if storage.bandwidth is None else f" of {storage.bandwidth:g}"
    return f"{storage.admitted:g}{of} MB/s admitted to {counted(storage.jobs, 'job')}"


def shown_locations(view: RunView, most: int) -> list[tuple[str, ...]]:
    """Return a row for each location: name, number of jobs that run, `3 of 4` cores, jobs. Empty: there is only one.

    :param most: the number of rows. Of more locations, those with the most cores in use have a row each, and the last
        row has the others
    """
    if len(view.locations) < 2:
        return []
    shown, rest = view.locations, list[LocationView]()
    if len(shown) > most:
        busiest = sorted(shown, key=lambda one: -one.held)
        first, rest = busiest[: most - 1], busiest[most - 1 :]
        shown = tuple(one for one in shown if one in first)
    rows: list[tuple[str, ...]] = [
        (one.name, f"{len(one.jobs):,}", cores_text([one]), _jobs_there(one)) for one in shown
    ]
    if rest:
        idle = sum(not one.jobs for one in rest)
        told = f"{idle:,} of them idle" if idle else ""
        rows.append((f"and {len(rest):,} more", f"{sum(len(one.jobs) for one in rest):,}", cores_text(rest), told))
    return rows


def _jobs_there(location: LocationView) -> str:
    more = f", and {len(location.jobs) - _NAMED:,} more" if len(location.jobs) > _NAMED else ""
    return f"{', '.join(location.jobs[:_NAMED])}{more}"


def cores_text(locations: Sequence[LocationView]) -> str:
    """Return the cores that jobs hold: `3 of 4`."""
    held, cores = sum(one.held for one in locations), [one.cores for one in locations if one.cores is not None]
    return f"{held:g} of {sum(cores):g}" if len(cores) == len(locations) else f"{held:g}"


def time_and_jobs(view: RunView) -> str:
    """Return the time of a run and the states of its jobs: `9 s; jobs: 1 waiting, 2 running, 1 done`."""
    text = f"{time_text(view.seconds)}; {jobs_text(view)}"
    if view.disk is not None:
        limit = "" if view.disk.limit is None else f", limit {size_text(view.disk.limit)}"
        text += f"; files of jobs: {size_text(view.disk.held)} (at most {size_text(view.disk.peak)}{limit})"
    return text if view.expected is None else f"{text}; the last time it took {time_text(view.expected)}"


def queued_texts(view: RunView) -> list[str]:
    """Return what each deployment waits for: `nodes waits for allocation 7 of Slurm: Resources`."""
    return [f"{deployment} waits for {waits}" for deployment, waits in view.queued.items()]


def streamed_text(view: RunView) -> str:
    """Return the streams that have ended: `2 byte streams ended, 1.5 GB`. Empty: none has ended."""
    if not view.streamed:
        return ""
    return f"{counted(view.streamed, 'byte stream')} ended, {size_text(view.streamed_bytes)}"


def plain_line(view: RunView) -> str:
    """Return the state of a run in one line, for output without a terminal."""
    return f"{view.label}: {time_text(view.seconds)}, " + "; ".join(_line_parts(view))


def end_line(view: RunView) -> str:
    """Return how a run has ended."""
    text = f"{view.label} {STATES[view.state]} after {time_text(view.seconds)}; {jobs_text(view)}"
    return text + (f"; failed: {', '.join(view.failures)}" if view.failures else "")


def _line_parts(view: RunView) -> Iterator[str]:
    yield jobs_text(view)
    yield from queued_texts(view)
    for step in view.steps:
        if waits := waits_text(step):
            yield f"{step.name} waits for {waits}"
    if len(view.locations) > 1:
        busy = sum(bool(location.jobs) for location in view.locations)
        yield f"{busy:,} of {len(view.locations):,} locations run jobs, with {cores_text(view.locations)} cores"
    moving = [stream for stream in view.streams if stream.stalled is None]
    if moving:
        yield f"{counted(len(moving), 'byte stream')} with {size_text(sum(stream.rate or 0.0 for stream in moving))}/s"
    for stream in view.streams:
        if stream.stalled is not None:
            yield f"{way_text(stream)} {rate_text(stream)}"
    for storage in view.storages:
        if storage.jobs:
            yield f"{storage.name}: {storage_text(storage)}"
