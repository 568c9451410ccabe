"""Figures about storages that runs share. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from streamflow_io.grouping import grouped

from .drawing import MOST, TIME, Bars, Figure, how_many_are_shown, levels_line, limit, of_run
from .lease_results import LeaseResult
from .results import RunResult
from .svg import COLOURS, WAITING

# A colour of its own beside waiting, for which somebody else is the reason.
_HELD_COLOUR = COLOURS[3]
_HELD = " A burst that could begin was held back until its slot in a schedule that runs follow."
_Named = tuple[str, LeaseResult]


def lease_figures(runs: Sequence[RunResult]) -> list[Figure]:
    """Who had the storages that runs share."""
    figures = []
    for run in runs:
        shared = [lease for lease in run.leases if any(others for _, _, others in lease.levels)]
        figures += [_levels(run, lease, len(shared), of_run(run.run, len(runs))) for lease in shared[:MOST]]
    named = [(run.run, lease) for run in runs for lease in run.leases]
    together = [of for of in grouped(named, lambda one: (one[1].storage, one[1].direction)).values() if len(of) > 1]
    return figures + [_who(of) for of in together[:MOST]]


def _levels(run: RunResult, lease: LeaseResult, shared: int, of: str) -> Figure:
    own = [(time, used) for time, used, _ in lease.levels]
    # What others have shows above what this run has: a second line would cross the first one everywhere.
    together = [(time, used + others) for time, used, others in lease.levels]
    held = [(one.since, one.since + one.seconds) for one in lease.held]
    return Figure(
        f"Shared {lease.direction} bandwidth: {lease.storage}{of}",
        "What the jobs of this run have of the storage, and above it what other runs hold, as this run last knew: it is"
        f" told when they begin and end to hold something.{_HELD if lease.held else ''}"
        f"{how_many_are_shown(shared, 'storages')}",
        TIME,
        "bandwidth (MB/s)",
        lines=[
            levels_line("other runs", 1, together, run.seconds, area=0.6, colour=WAITING),
            levels_line("this run", 0, own, run.seconds, area=0.5),
        ],
        limits=() if lease.limit is None else [limit(lease.limit)],
        bands=[("burst held for its slot", _HELD_COLOUR, held)] if held else (),
    )


def _who(named: Sequence[_Named]) -> Figure:
    first = min(lease.begun for _, lease in named)
    has_held = any(lease.held for _, lease in named)
    kinds = [("has some of it", COLOURS[0]), ("waits", "#777777"), ("held for its slot", _HELD_COLOUR)]
    _, one = named[0]
    return Figure(
        f"Who had {one.storage} ({one.direction})",
        "When each run had some of the storage, and when a job of it waited for what others held."
        + (_HELD if has_held else ""),
        "time since the start of the first run (s)",
        bars=[_row(run, lease, lease.begun - first) for run, lease in named],
        kinds=kinds if has_held else kinds[:2],
    )


def _row(run: str, lease: LeaseResult, offset: float) -> Bars:
    found = [(*wait, 1, "waits") for wait in lease.waits]
    found += [(*use, 0, "has some of it") for use in _uses(lease)]
    found += [(one.since, one.since + one.seconds, 2, "held for its slot") for one in lease.held]
    parts = [
        (begin + offset, end + offset, kind, f"{what}, {begin:.2f} to {end:.2f} s") for begin, end, kind, what in found
    ]
    return Bars(run, parts)


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
