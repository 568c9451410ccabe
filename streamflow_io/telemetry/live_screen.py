"""The state of a run on a terminal, 80 columns wide or more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from streamflow_io.wording import displayed, size_text

from .live import RunView, StepView, StorageView, StreamView
from .live_text import STATES, rate_text, streamed_text, time_and_jobs, waits_text, way_text

_STYLES = {"running": "bold", "completed": "bold green", "failed": "bold red", "killed": "bold red"}
# What is not a row of a table: title, headers, lines between.
_FRAME = 9
_LEAST_ROWS = 3


def screen(view: RunView, height: int) -> RenderableType:
    """All that there is to see of a run, in so many lines at most."""
    rows = max(3 * _LEAST_ROWS, height - _FRAME - len(view.storages) - len(view.failures))
    streams = view.streams[: max(_LEAST_ROWS, rows // 3)]
    return Group(*_parts(view, max(_LEAST_ROWS, rows - len(streams)), streams))


def _parts(view: RunView, rows: int, streams: Sequence[StreamView]) -> Iterator[RenderableType]:
    title = _text(view.label, "bold", no_wrap=True, overflow="ellipsis")
    title.append(f" {STATES[view.state]}", _STYLES.get(view.state, "bold yellow"))
    yield title
    yield _text(time_and_jobs(view))
    if view.steps:
        yield _steps(view.steps, rows)
    if streams:
        yield _streams(streams, len(view.streams) - len(streams) + view.more_streams)
    if view.streamed:
        yield _text(streamed_text(view), "dim")
    if view.storages:
        yield _storages(view.storages)
    for step in view.steps:
        if step.learning is not None and view.state == "running":
            yield _text(f"storageBW of {step.name}: {step.learning}", no_wrap=True, overflow="ellipsis")
    for failure in view.failures:
        yield _text(f"failed: {failure}", "red")
    if view.fallbacks:
        more = f" (and {len(view.fallbacks) - 1} more)" if len(view.fallbacks) > 1 else ""
        yield _text(f"Not delivered as asked{more}: {view.fallbacks[0]}", "yellow")


def _table(*columns: tuple[str, bool]) -> Table:
    """:param columns: the title of each, and whether it has numbers"""
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
        # Those where something happens, then those that are to come, then those that are done.
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
    made = _table(("storage", False), ("jobs", True), ("admitted", True), ("of", True), ("measured, MB/s", True))
    for storage in storages:
        of = "" if storage.bandwidth is None else f"{storage.bandwidth:g}"
        measured = "" if storage.measured is None else f"{storage.measured:.3g}"
        made.add_row(_text(storage.name), f"{storage.jobs:,}", f"{storage.admitted:g}", of, measured)
    return made


def _text(text: str, style: str = "", **layout: Any) -> Text:
    return Text(displayed(text), style, **layout)
