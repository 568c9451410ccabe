"""Figures of results as plain data: jobs, storages, leases, required bandwidth, read sessions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from streamflow_io.grouping import grouped

from .analysis.lease_results import LeaseResult
from .analysis.model import MB
from .analysis.requirements import StorageRequirement
from .analysis.results import AdmittedBandwidth, EpochResult, RunResult, StepLearning
from .analysis.session_results import SessionResult
from .chart import (
    COLOURS,
    MOST,
    TIME,
    WAITING,
    Bars,
    ChartLine,
    Figure,
    bins_line,
    how_many_are_shown,
    levels_line,
    limit,
    of_run,
)

_LEARNING_STEPS = 12


def draw(runs: Sequence[RunResult]) -> list[Figure]:
    """Return all figures of one or several runs, except timelines. Figures that would be empty are left out."""
    figures = [_total_time(runs)] if len(runs) > 1 else []
    if any(run.throughput for run in runs):
        figures += [_mean_throughput(runs)] if len(runs) > 1 else []
        figures.append(_throughput(runs))
    figures += _learning(runs)
    if any(run.constraints for run in runs):
        figures.append(_constraints(runs))
    for run in runs:
        of = of_run(run.run, len(runs))
        if run.jobs:
            figures.append(_activity(run, of))
        figures += [_admitted(run, admitted, of) for admitted in _busiest(run.admitted)]
        if run.held:
            figures.append(_held(run, of))
    return figures + lease_figures(runs) + session_figures(runs) + requirement_figures(runs)


def _total_time(runs: Sequence[RunResult]) -> Figure:
    rows = []
    for run in runs:
        text = f"{run.seconds:.4g} s" + ("" if run.ended else " (end not recorded)")
        rows.append(Bars(run.run, [(0.0, run.seconds, 0, text)], text))
    caption = "From the start of the run to its end, or to the last record where the end was not recorded."
    return Figure("Total time", caption, "total time (s)", bars=rows)


def _mean_throughput(runs: Sequence[RunResult]) -> Figure:
    measured = [(run.run, run.throughput.mean) for run in runs if run.throughput is not None]
    rows = [Bars(name, [(0.0, mean, 0, f"{mean:.4g} MB/s")], f"{mean:.4g} MB/s") for name, mean in measured]
    caption = "Bytes of all I/O tasks, divided by the time in which at least one of them ran."
    return Figure("Mean I/O throughput", caption, "mean throughput (MB/s)", bars=rows)


def _throughput(runs: Sequence[RunResult]) -> Figure:
    lines = [
        bins_line(run.run, index, run.throughput.width, run.throughput.over_time)
        for index, run in enumerate(runs)
        if run.throughput is not None
    ]
    caption = "Bytes of I/O tasks; those of one job are spread evenly over the time that its command took."
    return Figure("I/O throughput over time", caption, TIME, "I/O throughput (MB/s)", lines=lines)


def _learning(runs: Sequence[RunResult]) -> list[Figure]:
    learnings = ((run.run, learning) for run in runs for learning in run.learning)
    by_step = grouped(learnings, lambda named: (named[1].step, named[1].storage))
    more = "" if len(by_step) <= _LEARNING_STEPS else f" {_LEARNING_STEPS} of {len(by_step)} learning steps are shown."
    return [_learning_of(step, storage, of, more) for (step, storage), of in list(by_step.items())[:_LEARNING_STEPS]]


def _learning_of(step: str, storage: str, learnings: Sequence[tuple[str, StepLearning]], more: str) -> Figure:
    caption = (
        "The mean time of a job in each epoch of learning, with the storageBW of a job and how many jobs fit at once. "
        f"Open circles: epochs that were not registered; the constraint is chosen among the others.{more}"
    )
    return Figure(
        f"Learning progress of {step} on {storage}",
        caption,
        "epoch",
        "mean time of a job (s)",
        lines=[_learning_line(index, name, learning) for index, (name, learning) in enumerate(learnings)],
        until=max(epoch.number for _, learning in learnings for epoch in learning.epochs),
        whole=True,
    )


def _learning_line(index: int, name: str, learning: StepLearning) -> ChartLine:
    epochs = [epoch for epoch in learning.epochs if epoch.mean_seconds is not None]
    return ChartLine(
        name,
        [(epoch.number, epoch.mean_seconds or 0.0) for epoch in epochs],
        index,
        steps=False,
        labels=[_epoch_text(epoch) for epoch in epochs],
        open=[not epoch.registered for epoch in epochs],
    )


def _epoch_text(epoch: EpochResult) -> str:
    return f"{epoch.constraint:.4g} MB/s, {epoch.concurrency} at once"


def _constraints(runs: Sequence[RunResult]) -> Figure:
    lines: list[ChartLine] = []
    for run in runs:
        for constraint in run.constraints:
            name = constraint.step if len(runs) == 1 else f"{run.run}: {constraint.step}"
            points = [(choice.time, choice.constraint) for choice in constraint.choices]
            labels = [choice.reason for choice in constraint.choices]
            # Where the constraint changes often, the reasons would hide each other.
            shown = [*labels, ""] if len(labels) <= MOST else ()
            lines.append(ChartLine(name, [*points, (run.seconds, points[-1][1])], len(lines), labels=shown))
    caption = (
        "The storageBW of the jobs of each step, and why it changed. Where it is static, it is drawn from the first "
        "job on."
    )
    return Figure("Constraint over time", caption, TIME, "storageBW of a job (MB/s)", lines=lines)


def _activity(run: RunResult, of: str) -> Figure:
    activity = run.activity
    series = (("compute jobs", activity.compute), ("I/O tasks", activity.io_tasks), ("waiting jobs", activity.waiting))
    shown = [(name, values) for name, values in series if any(values)]
    return Figure(
        f"Jobs over time{of}",
        "How many jobs run or wait at a time: I/O tasks run beside compute jobs, which hold the cores.",
        TIME,
        "jobs",
        lines=[bins_line(name, index, activity.width, values) for index, (name, values) in enumerate(shown)],
    )


def _held(run: RunResult, of: str) -> Figure:
    return Figure(
        f"Disk space of the directories of jobs{of}",
        "The bytes on disk in the directories of jobs that have ended and were not removed, with results of the run.",
        TIME,
        "disk space (MB)",
        lines=[levels_line("held", 0, run.held, run.seconds, area=0.12)],
    )


def _busiest(admitted: Sequence[AdmittedBandwidth]) -> list[AdmittedBandwidth]:
    """Return the storages with the most admissions, at most :data:`MOST`."""
    return sorted(admitted, key=lambda storage: -len(storage.levels))[:MOST]


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
        TIME,
        "bandwidth (MB/s)",
        lines=lines,
        limits=() if admitted.limit is None else [limit(admitted.limit)],
    )


# Waiting for other runs has a colour, so held bursts have another.
_HELD_COLOUR = COLOURS[3]
_HELD = " A burst that could begin was held back until its slot in a schedule that runs follow."
_Named = tuple[str, LeaseResult]


def lease_figures(runs: Sequence[RunResult]) -> list[Figure]:
    """Return the figures of the storages that runs share."""
    figures = []
    for run in runs:
        shared = [lease for lease in run.leases if any(others for _, _, others in lease.levels)]
        figures += [_levels(run, lease, len(shared), of_run(run.run, len(runs))) for lease in shared[:MOST]]
    named = [(run.run, lease) for run in runs for lease in run.leases]
    together = [of for of in grouped(named, lambda one: (one[1].storage, one[1].direction)).values() if len(of) > 1]
    return figures + [_who(of) for of in together[:MOST]]


def _levels(run: RunResult, lease: LeaseResult, shared: int, of: str) -> Figure:
    own = [(time, used) for time, used, _ in lease.levels]
    # The amounts of other runs stand above those of this run: a second line would cross the first one everywhere.
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
        f"Runs on {one.storage} ({one.direction})",
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
    """Return the spans in which jobs hold bandwidth of a storage."""
    uses: list[tuple[float, float]] = []
    begun: float | None = None
    for time, used, _ in lease.levels:
        if used and begun is None:
            begun = time
        elif not used and begun is not None:
            uses.append((begun, time))
            begun = None
    return uses


def requirement_figures(runs: Sequence[RunResult]) -> list[Figure]:
    """Return the figures of all runs with recorded requests."""
    figures = []
    for run in runs:
        found = () if run.requirements is None else run.requirements.storages
        shown = sorted((one for one in found if one.phases), key=lambda one: -one.phases)
        figures += [_bandwidth(run, one, len(shown), of_run(run.run, len(runs))) for one in shown[:MOST]]
    return figures


def _bandwidth(run: RunResult, storage: StorageRequirement, storages: int, of: str) -> Figure:
    lines = [("required", storage.required_over_time), ("throughput", storage.throughput_over_time)]
    if storage.limit_over_time:
        lines.append(("limit", storage.limit_over_time))
    where = "byte streams, and I/O tasks without a storage" if storage.storage is None else storage.storage
    caption = (
        "The bandwidth that I/O tasks and byte streams need together so that no job waits, and the throughput they "
        "reached. A much higher throughput means that data moved faster than needed. Exposed requests are left out."
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


def session_figures(runs: Sequence[RunResult]) -> list[Figure]:
    """Return two figures for each of the read sessions that read most, run by run."""
    figures = []
    for run in runs:
        read = [session for session in run.sessions if session.storage_bytes + session.cached_bytes]
        shown = sorted(read, key=lambda one: -(one.storage_bytes + one.cached_bytes))[:MOST]
        for session in sorted(shown, key=lambda one: one.session):
            figures += _session(session, len(read), of_run(run.run, len(runs)))
    return figures


def _session(session: SessionResult, sessions: int, of: str) -> list[Figure]:
    arrived = [(point.time, point.arrived / MB) for point in session.over_time]
    consumed = [(point.time, point.consumed / MB) for point in session.over_time]
    name = f"{PurePath(session.file).name}, {session.step}{of}"
    window = Figure(
        f"Read session {session.session}: {name}",
        "The bytes that had arrived in the page cache, and those of them whose jobs had ended. Between them is what "
        f"the window holds, {session.window / MB:,.0f} MB and one chunk at most."
        f"{how_many_are_shown(sessions, 'sessions')}",
        TIME,
        "bytes (MB)",
        lines=[ChartLine("arrived", arrived, 0, area=0.15), ChartLine("consumed", consumed, 1)],
    )
    readers = Figure(
        f"Readers of read session {session.session}: {name}",
        f"How many chunks were read at a time, {session.readers} at most.",
        TIME,
        "chunks",
        lines=[ChartLine("readers at work", session.readers_over_time, 2)],
        until=max((time for time, _ in arrived), default=0.0),
    )
    return [window, readers]
