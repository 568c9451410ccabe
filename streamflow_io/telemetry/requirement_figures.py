"""Figures about required bandwidth. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .drawing import (
    COLOURS,
    FAILED,
    MOST,
    Figure,
    Plot,
    amount_axis,
    how_many_are_shown,
    limit,
    line,
    plain,
    short,
    time_axis,
)
from .requirements import Requirements, StorageRequirement
from .results import RunResult

_USES = (
    ("free", "compute free of I/O", COLOURS[4], ""),
    ("hidden", "compute beside I/O", COLOURS[2], "/"),
    ("waits", "I/O that a job waits for", FAILED, "x"),
    ("exposed", "exposed I/O", COLOURS[1], "."),
)


def requirement_figures(runs: Sequence[RunResult]) -> list[Figure]:
    """Of all runs of which requests are known."""
    known = [(run, run.requirements) for run in runs if run.requirements is not None]
    figures = []
    for run, found in known:
        of_run = f" of {plain(run.run)}" if len(runs) > 1 else ""
        shown = sorted((one for one in found.storages if one.phases), key=lambda one: -one.phases)
        figures += [_bandwidth(run, one, len(shown), of_run) for one in shown[:MOST]]
    return [*figures, _use_of_time(known)] if known else []


def _bandwidth(run: RunResult, storage: StorageRequirement, storages: int, of_run: str) -> Figure:
    lines = [("required", storage.required_over_time), ("throughput", storage.throughput_over_time)]
    if storage.limit_over_time:
        lines.append(("limit", storage.limit_over_time))
    traces = []
    for index, (name, points) in enumerate(lines):
        times, rates = [time for time, _ in points], [rate for _, rate in points]
        traces.append(line(name, index, [0.0, *times, run.seconds], [0.0, *rates, 0.0], shape="hv"))
    if storage.bandwidth is not None:
        traces.append(limit(storage.bandwidth, run.seconds, "storage"))
    where = "byte streams, and I/O tasks without a storage" if storage.storage is None else plain(storage.storage)
    more = how_many_are_shown(storages, "storages")
    caption = (
        "What I/O tasks and byte streams need together so that nobody waits, and how fast they moved. Where the "
        "throughput is much higher, data moved faster than it had to; exposed requests are left out."
    )
    if storage.limit_over_time:
        caption += " Limit: how fast those that had a limit might move together, while they moved."
    caption += more
    and_limit = ", limit" if storage.limit_over_time else ""
    title = f"Required bandwidth{and_limit} and throughput: {where}, {storage.direction}{of_run}"
    return Figure(title, caption, traces, {"xaxis": time_axis(), "yaxis": amount_axis("bandwidth (MB/s)")})


def _use_of_time(known: Sequence[tuple[RunResult, Requirements]]) -> Figure:
    names = [plain(run.run) for run, _ in known]
    traces: list[Plot] = []
    for field, name, colour, pattern in _USES:
        seconds = [getattr(found.use_of_time, field) for _, found in known]
        traces.append(
            {
                "type": "bar",
                "name": name,
                "x": names,
                "y": [short(value) for value in seconds],
                "marker": {"color": colour, "pattern": {"shape": pattern}},
                "width": 0.5,
                "hovertext": [f"{name}: {value:.4g} s" for value in seconds],
                "hoverinfo": "x+text",
            }
        )
    caption = (
        "The time in which a job computed, or an I/O task moved something that a job waited for. Exposed: it was "
        "waited for from the start, or small."
    )
    layout = {"xaxis": {"title": {"text": "run"}, "type": "category"}, "yaxis": amount_axis("time (s)")}
    return Figure("Use of compute time", caption, traces, {**layout, "barmode": "stack", "height": 360})
