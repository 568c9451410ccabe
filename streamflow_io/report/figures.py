"""Figures of results as plain data: jobs, storages, required bandwidth, read sessions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from .analysis.model import MB
from .analysis.requirements import StorageRequirement
from .analysis.results import AdmittedBandwidth, RunResult
from .analysis.session_results import SessionResult
from .chart import MOST, ChartLine, Figure, bins_line, how_many_are_shown, levels_line, limit, of_run


def draw(runs: Sequence[RunResult]) -> list[Figure]:
    """Return all figures of one or several runs, except timelines. Figures that would be empty are left out."""
    figures = []
    for run in runs:
        of = of_run(run.run, len(runs))
        if run.jobs:
            figures.append(_activity(run, of))
        busiest = sorted(run.admitted, key=lambda storage: -len(storage.levels))[:MOST]
        figures += [_admitted(run, admitted, of) for admitted in busiest]
        if run.held:
            figures.append(_held(run, of))
        read = [one for one in run.sessions if one.storage_bytes + one.cached_bytes]
        most = sorted(read, key=lambda one: -(one.storage_bytes + one.cached_bytes))[:MOST]
        figures += [_session(one, len(read), of) for one in sorted(most, key=lambda one: one.session)]
        found = () if run.requirements is None else run.requirements.storages
        shown = sorted((one for one in found if one.phases), key=lambda one: -one.phases)
        figures += [_bandwidth(run, one, len(shown), of) for one in shown[:MOST]]
    return figures


def _activity(run: RunResult, of: str) -> Figure:
    activity = run.activity
    series = (("compute jobs", activity.compute), ("I/O tasks", activity.io_tasks), ("waiting jobs", activity.waiting))
    shown = [(name, values) for name, values in series if any(values)]
    return Figure(
        f"Jobs over time{of}",
        "How many jobs run or wait at a time: I/O tasks run beside compute jobs, which hold the cores.",
        "jobs",
        [bins_line(name, index, activity.width, values) for index, (name, values) in enumerate(shown)],
    )


def _held(run: RunResult, of: str) -> Figure:
    return Figure(
        f"Disk space of the directories of jobs{of}",
        "The bytes on disk in the directories of jobs that have ended and were not removed, with results of the run.",
        "disk space (MB)",
        [levels_line("held", 0, run.held, run.seconds, area=0.12)],
    )


def _admitted(run: RunResult, admitted: AdmittedBandwidth, of: str) -> Figure:
    where = "" if admitted.location is None else f" on {admitted.location}"
    more = how_many_are_shown(len(run.admitted), "storages")
    lines = [levels_line("admitted", 0, admitted.levels, run.seconds, area=0.12)]
    if any(admitted.measured):
        lines.append(bins_line("measured", 1, run.seconds / len(admitted.measured), admitted.measured))
    return Figure(
        f"Admitted and measured {admitted.direction} bandwidth: {admitted.storage}{where}{of}",
        "Admitted: the sum of the storageBW of the jobs that were admitted and have not ended. Measured: what these "
        f"jobs have moved, spread evenly over the time that their commands took.{more}",
        "bandwidth (MB/s)",
        lines,
        () if admitted.limit is None else [limit(admitted.limit)],
    )


def _bandwidth(run: RunResult, storage: StorageRequirement, storages: int, of: str) -> Figure:
    lines = [("required", storage.required_over_time), ("throughput", storage.throughput_over_time)]
    if storage.limit_over_time:
        lines.append(("limit", storage.limit_over_time))
    where = "I/O tasks without a storage" if storage.storage is None else storage.storage
    caption = (
        "The bandwidth that I/O tasks need together so that no job waits, and the throughput they "
        "reached. A much higher throughput means that data moved faster than needed. Exposed requests are left out."
    )
    if storage.limit_over_time:
        caption += " Limit: how fast those that had a limit might move together, while they moved."
    and_limit = ", limit" if storage.limit_over_time else ""
    return Figure(
        f"Required bandwidth{and_limit} and throughput: {where}, {storage.direction}{of}",
        caption + how_many_are_shown(storages, "storages"),
        "bandwidth (MB/s)",
        [levels_line(name, index, found, run.seconds) for index, (name, found) in enumerate(lines)],
        () if storage.bandwidth is None else [limit(storage.bandwidth, "storage")],
    )


def _session(session: SessionResult, sessions: int, of: str) -> Figure:
    arrived = [(point.time, point.arrived / MB) for point in session.over_time]
    consumed = [(point.time, point.consumed / MB) for point in session.over_time]
    return Figure(
        f"Read session {session.session}: {PurePath(session.file).name}, {session.step}{of}",
        "The bytes that had arrived in the page cache, and those of them whose jobs had ended. Between them is what "
        f"the window holds, {session.window / MB:,.0f} MB and one chunk at most."
        f"{how_many_are_shown(sessions, 'sessions')}",
        "bytes (MB)",
        [ChartLine("arrived", arrived, 0, area=0.15), ChartLine("consumed", consumed, 1)],
    )
