"""Draws results, each figure as plain data. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from streamflow_io.grouping import grouped

from .drawing import (
    MOST,
    TIME,
    Bars,
    Figure,
    Line,
    bins_line,
    how_many_are_shown,
    levels_line,
    limit,
    of_run,
)
from .lease_figures import lease_figures
from .requirement_figures import requirement_figures
from .results import AdmittedBandwidth, EpochResult, Learning, RunResult
from .session_figures import session_figures

_LEARNING_STEPS = 12


def draw(runs: Sequence[RunResult]) -> list[Figure]:
    """All figures of one or several runs, but for timelines; those that would be empty are left out."""
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


def _learning_of(step: str, storage: str, learnings: Sequence[tuple[str, Learning]], more: str) -> Figure:
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


def _learning_line(index: int, name: str, learning: Learning) -> Line:
    epochs = [epoch for epoch in learning.epochs if epoch.mean_seconds is not None]
    return Line(
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
    lines: list[Line] = []
    for run in runs:
        for constraint in run.constraints:
            name = constraint.step if len(runs) == 1 else f"{run.run}: {constraint.step}"
            points = [(choice.time, choice.constraint) for choice in constraint.choices]
            labels = [choice.reason for choice in constraint.choices]
            # Where it changes often, the reasons would hide each other.
            shown = [*labels, ""] if len(labels) <= MOST else ()
            lines.append(Line(name, [*points, (run.seconds, points[-1][1])], len(lines), labels=shown))
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


def _busiest(admitted: Sequence[AdmittedBandwidth]) -> list[AdmittedBandwidth]:
    """The storages with the most admissions, if there are too many of them to draw all."""
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
