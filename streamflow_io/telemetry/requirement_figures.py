"""Figures about required bandwidth. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .drawing import MOST, TIME, Bars, Figure, how_many_are_shown, levels_line, limit, of_run
from .requirements import Requirements, StorageRequirement
from .results import RunResult
from .svg import BAD, COLOURS

_USES = (
    ("free", "compute free of I/O", COLOURS[4]),
    ("hidden", "compute beside I/O", COLOURS[2]),
    ("waits", "I/O that a job waits for", BAD),
    ("exposed", "exposed I/O", COLOURS[5]),
)


def requirement_figures(runs: Sequence[RunResult]) -> list[Figure]:
    """Of all runs of which requests are known."""
    known = [(run, run.requirements) for run in runs if run.requirements is not None]
    figures = []
    for run, found in known:
        shown = sorted((one for one in found.storages if one.phases), key=lambda one: -one.phases)
        figures += [_bandwidth(run, one, len(shown), of_run(run.run, len(runs))) for one in shown[:MOST]]
    return [*figures, _use_of_time(known)] if known else []


def _bandwidth(run: RunResult, storage: StorageRequirement, storages: int, of: str) -> Figure:
    lines = [("required", storage.required_over_time), ("throughput", storage.throughput_over_time)]
    if storage.limit_over_time:
        lines.append(("limit", storage.limit_over_time))
    where = "byte streams, and I/O tasks without a storage" if storage.storage is None else storage.storage
    caption = (
        "What I/O tasks and byte streams need together so that nobody waits, and how fast they moved. Where the "
        "throughput is much higher, data moved faster than it had to; exposed requests are left out."
    )
    if storage.limit_over_time:
        caption += " Limit: how fast those that had a limit might move together, while they moved."
    and_limit = ", limit" if storage.limit_over_time else ""
    return Figure(
        f"Required bandwidth{and_limit} and throughput: {where}, {storage.direction}{of}",
        caption + how_many_are_shown(storages, "storages"),
        TIME,
        "bandwidth (MB/s)",
        lines=[levels_line(name, index, found, run.seconds) for index, (name, found) in enumerate(lines)],
        limits=() if storage.bandwidth is None else [limit(storage.bandwidth, "storage")],
    )


def _use_of_time(known: Sequence[tuple[RunResult, Requirements]]) -> Figure:
    rows = []
    for run, found in known:
        at, parts, told = 0.0, [], []
        for kind, (field, name, _) in enumerate(_USES):
            seconds = getattr(found.use_of_time, field)
            if seconds > 0:
                parts.append((at, at + seconds, kind, f"{name}: {seconds:.4g} s"))
                told.append(f"{seconds:.3g}")
                at += seconds
        rows.append(Bars(run.run, parts, f"{' + '.join(told)} s"))
    return Figure(
        "Use of compute time",
        "The time in which a job computed, or an I/O task moved something that a job waited for. Exposed: it was "
        "waited for from the start, or small.",
        "time (s)",
        bars=rows,
        kinds=[(name, colour) for _, name, colour in _USES],
    )
