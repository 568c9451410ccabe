"""Figures about storages that runs share. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from streamflow_io.grouping import grouped

from .drawing import (
    COLOURS,
    MOST,
    WAITING,
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
from .lease_results import LeaseResult
from .results import RunResult

# A colour of its own beside waiting, for which somebody else is the reason.
HELD = COLOURS[3]
_HELD = " A burst that could begin was held back until its slot in a schedule that runs follow."
_Named = tuple[str, LeaseResult]


def lease_figures(runs: Sequence[RunResult]) -> list[Figure]:
    """Who had the storages that runs share."""
    figures = []
    for run in runs:
        of_run = f" of {plain(run.run)}" if len(runs) > 1 else ""
        shared = [lease for lease in run.leases if any(others for _, _, others in lease.levels)]
        figures += [_levels(run, lease, len(shared), of_run) for lease in shared[:MOST]]
    named = [(run.run, lease) for run in runs for lease in run.leases]
    together = [of for of in grouped(named, lambda one: (one[1].storage, one[1].direction)).values() if len(of) > 1]
    return figures + [_who(of) for of in together[:MOST]]


def _levels(run: RunResult, lease: LeaseResult, shared: int, of_run: str) -> Figure:
    times = [0.0, *(time for time, _, _ in lease.levels), run.seconds]
    own = [0.0, *(used for _, used, _ in lease.levels)]
    all_runs = [0.0, *(used + others for _, used, others in lease.levels)]
    # What others have shows above what this run has: a second line would cross the first one everywhere.
    traces = [
        line("other runs", 0, times, [*all_runs, all_runs[-1]], shape="hv") | _area(WAITING),
        line("this run", 0, times, [*own, own[-1]], shape="hv") | _area(COLOURS[0]),
    ]
    if lease.held:
        traces.append(_held_back(lease))
    if lease.limit is not None:
        traces.append(limit(lease.limit, run.seconds))
    caption = (
        "What the jobs of this run have of the storage, and above it what other runs hold, as this run last knew: it is"
        " told when they begin and end to hold something."
        f"{_HELD if lease.held else ''}{how_many_are_shown(shared, 'storages')}"
    )
    title = f"Shared {lease.direction} bandwidth: {plain(lease.storage)}{of_run}"
    return Figure(title, caption, traces, {"xaxis": time_axis(), "yaxis": amount_axis("bandwidth (MB/s)")})


def _area(colour: str) -> Plot:
    return {"fill": "tozeroy", "fillcolor": colour, "line": {"color": colour, "width": 1, "shape": "hv"}}


def _held_back(lease: LeaseResult) -> Plot:
    """A line at the bottom for as long as a burst was held back."""
    times = [time for held in lease.held for time in (held.since, held.since + held.seconds, None)]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "burst held for its slot",
        "showlegend": True,
        "x": [None if time is None else short(time) for time in times],
        "y": [None if time is None else 0 for time in times],
        "line": {"color": HELD, "width": 8},
        "cliponaxis": False,
    }


def _who(named: Sequence[_Named]) -> Figure:
    first = min(lease.begun for _, lease in named)
    rows = list(range(len(named)))
    waits = [(row, lease.begun - first, wait) for row, (_, lease) in enumerate(named) for wait in lease.waits]
    held = [
        (row, lease.begun - first, (one.since, one.since + one.seconds))
        for row, (_, lease) in enumerate(named)
        for one in lease.held
    ]
    uses = [(row, lease.begun - first, use) for row, (_, lease) in enumerate(named) for use in _uses(lease)]
    _, one = named[0]
    layout = {
        "xaxis": time_axis() | {"title": {"text": "time since the start of the first run (s)"}},
        "yaxis": {"tickvals": rows, "ticktext": [plain(run) for run, _ in named], "autorange": "reversed"},
        "barmode": "overlay",
        "height": 200 + 30 * len(rows),
    }
    caption = "When each run had some of the storage, and when a job of it waited for what others held."
    traces = [_bars("waits", waits, WAITING), _bars("has some of it", uses, COLOURS[0])]
    if held:
        caption += _HELD
        traces.append(_bars("held for its slot", held, HELD))
    return Figure(f"Who had {plain(one.storage)} ({one.direction})", caption, traces, layout)


def _bars(name: str, spans: Sequence[tuple[int, float, tuple[float, float]]], colour: str) -> Plot:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [row for row, _, _ in spans],
        "base": [short(offset + begin) for _, offset, (begin, _) in spans],
        "x": [short(end - begin) for _, _, (begin, end) in spans],
        "marker": {"color": colour},
        "width": 0.6,
        "hoverinfo": "none",
    }


def _uses(lease: LeaseResult) -> list[tuple[float, float]]:
    """From when to when jobs have some of a storage."""
    uses: list[tuple[float, float]] = []
    begun: float | None = None
    for time, used, _ in lease.levels:
        if used and begun is None:
            begun = time
        elif not used and begun is not None:
            uses.append((begun, time))
            begun = None
    return uses
