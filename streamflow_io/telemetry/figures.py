"""Draws results, each figure as plain data. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamflow_io.grouping import grouped

from .drawing import (
    COLOURS,
    FAILED,
    MOST,
    SYMBOLS,
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
from .lease_figures import lease_figures
from .requirement_figures import requirement_figures
from .results import AdmittedBandwidth, EpochResult, Learning, RunResult, TimelineJob
from .session_figures import session_figures

_HATCHED: Plot = {"shape": "/", "size": 6, "fillmode": "overlay", "fgcolor": "#FFFFFF"}
_LEARNING_STEPS = 12
_NAMED_ROWS = 60


def draw(runs: Sequence[RunResult]) -> list[Figure]:
    """All figures of one or several runs; those that would be empty are left out."""
    figures = [_total_time(runs)]
    if any(run.throughput for run in runs):
        figures += [_mean_throughput(runs), _throughput(runs)]
    figures += _learning(runs)
    if any(run.constraints for run in runs):
        figures.append(_constraints(runs))
    for run in runs:
        of_run = f" of {plain(run.run)}" if len(runs) > 1 else ""
        if run.jobs:
            figures += [_timeline(run, of_run), _activity(run, of_run)]
        figures += [_admitted(run, admitted, of_run) for admitted in _busiest(run.admitted)]
    return figures + lease_figures(runs) + session_figures(runs) + requirement_figures(runs)


def _total_time(runs: Sequence[RunResult]) -> Figure:
    names = [plain(run.run) + ("" if run.ended else "<br>(end not recorded)") for run in runs]
    seconds = [run.seconds for run in runs]
    caption = "From the start of the run to its end, or to the last record where the end was not recorded."
    return _bars("Total time", caption, names, seconds, "total time (s)", "s")


def _mean_throughput(runs: Sequence[RunResult]) -> Figure:
    measured = [(plain(run.run), run.throughput.mean) for run in runs if run.throughput is not None]
    caption = "Bytes of all I/O tasks, divided by the time in which at least one of them ran."
    names, means = [name for name, _ in measured], [mean for _, mean in measured]
    return _bars("Mean I/O throughput", caption, names, means, "mean throughput (MB/s)", "MB/s")


def _bars(title: str, caption: str, names: list[str], values: list[float], axis: str, unit: str) -> Figure:
    trace = {
        "type": "bar",
        "x": names,
        "y": values,
        "marker": {"color": COLOURS[0]},
        "width": 0.5,
        "text": [f"{value:.4g} {unit}" for value in values],
        "textposition": "outside",
        "cliponaxis": False,
        "hoverinfo": "x+text",
    }
    layout = {"xaxis": {"title": {"text": "run"}, "type": "category"}, "yaxis": amount_axis(axis), "height": 320}
    return Figure(title, caption, [trace], layout)


def _throughput(runs: Sequence[RunResult]) -> Figure:
    traces = []
    for index, run in enumerate(runs):
        if (throughput := run.throughput) is not None:
            middles = [(bin_ + 0.5) * throughput.width for bin_ in range(len(throughput.over_time))]
            traces.append(line(run.run, index, middles, throughput.over_time, shape="hvh"))
    caption = "Bytes of I/O tasks; those of one job are spread evenly over the time that its command took."
    return Figure(
        "I/O throughput over time",
        caption,
        traces,
        {"xaxis": time_axis(), "yaxis": amount_axis("I/O throughput (MB/s)")},
    )


def _learning(runs: Sequence[RunResult]) -> list[Figure]:
    learnings = ((run.run, learning) for run in runs for learning in run.learning)
    by_step = grouped(learnings, lambda named: (named[1].step, named[1].storage))
    more = "" if len(by_step) <= _LEARNING_STEPS else f" {_LEARNING_STEPS} of {len(by_step)} learning steps are shown."
    return [_learning_of(step, storage, of, more) for (step, storage), of in list(by_step.items())[:_LEARNING_STEPS]]


def _learning_of(step: str, storage: str, learnings: Sequence[tuple[str, Learning]], more: str) -> Figure:
    traces = [_learning_trace(index, name, learning) for index, (name, learning) in enumerate(learnings)]
    most = max(epoch.number for _, learning in learnings for epoch in learning.epochs)
    caption = (
        "The mean time of a job in each epoch of learning, with the storageBW of a job and how many jobs fit at once. "
        f"Open symbols: epochs that were not registered; the constraint is chosen among the others.{more}"
    )
    layout = {
        "xaxis": {"title": {"text": "epoch"}, "dtick": 1, "range": [0.5, most + 0.5]},
        "yaxis": amount_axis("mean time of a job (s)"),
    }
    return Figure(f"Learning progress of {plain(step)} on {plain(storage)}", caption, traces, layout)


def _learning_trace(index: int, name: str, learning: Learning) -> Plot:
    symbol = SYMBOLS[index % len(SYMBOLS)]
    epochs = [epoch for epoch in learning.epochs if epoch.mean_seconds is not None]
    trace = line(name, index, [epoch.number for epoch in epochs], [epoch.mean_seconds or 0.0 for epoch in epochs])
    labels = [f"{epoch.constraint:.4g} MB/s<br>{epoch.concurrency} at once" for epoch in epochs]
    return trace | {
        "mode": "lines+markers+text",
        "marker": {"size": 10, "symbol": [symbol if e.registered else f"{symbol}-open" for e in epochs]},
        "text": labels,
        "textposition": "top center" if index % 2 == 0 else "bottom center",
        "cliponaxis": False,
        "hovertext": [_epoch_text(epoch) for epoch in epochs],
        "hoverinfo": "text+name",
    }


def _epoch_text(epoch: EpochResult) -> str:
    registered = "" if epoch.registered else "<br>not registered"
    return (
        f"epoch {epoch.number}: {epoch.constraint:.4g} MB/s, {epoch.concurrency} at once"
        f"<br>mean of {epoch.jobs} jobs: {epoch.mean_seconds:.4g} s{registered}"
    )


def _constraints(runs: Sequence[RunResult]) -> Figure:
    traces: list[Plot] = []
    for run in runs:
        for constraint in run.constraints:
            name = constraint.step if len(runs) == 1 else f"{run.run}: {constraint.step}"
            times = [choice.time for choice in constraint.choices]
            values = [choice.constraint for choice in constraint.choices]
            trace = line(name, len(traces), [*times, run.seconds], [*values, values[-1]], shape="hv")
            reasons = [choice.reason for choice in constraint.choices]
            marker = {"size": [7] * len(times) + [0], "symbol": SYMBOLS[len(traces) % len(SYMBOLS)]}
            trace |= {"mode": "lines+markers", "marker": marker, "hovertext": [*reasons, ""]}
            traces.append(trace | {"hoverinfo": "x+y+text+name"})
    caption = (
        "The storageBW of the jobs of each step. It holds until the next mark; the pointer shows why it changed. "
        "Where it is static, it is drawn from the first job on."
    )
    return Figure(
        "Constraint over time",
        caption,
        traces,
        {"xaxis": time_axis(), "yaxis": amount_axis("storageBW of a job (MB/s)")},
    )


def _timeline(run: RunResult, of_run: str) -> Figure:
    rows = list(enumerate(run.timeline))
    traces = [
        _spans("waits", rows, lambda job: job.waiting, {"color": WAITING}, _waits),
        *(
            _spans(
                f"{step} (I/O task)" if io_task else step,
                [(row, job) for row, job in rows if job.step == step],
                lambda job: job.running,
                {"color": COLOURS[index % len(COLOURS)], "pattern": _HATCHED if io_task else {}},
                _pauses,
            )
            for index, (step, io_task) in enumerate({job.step: job.io_task for job in run.timeline}.items())
        ),
    ]
    bad = [(row, job) for row, job in rows if job.status in ("failed", "cancelled", "rolled back") and job.running]
    if bad:
        traces.append(_bad_ends(bad))
    selection = "" if len(rows) == run.jobs else f" {len(rows)} of {run.jobs:,} jobs are shown, evenly chosen."
    caption = (
        "A row for each job, in order of their start. Grey: it waits for cores, storage bandwidth or an I/O executor. "
        f"Hatched: an I/O task, which takes no core.{selection}"
    )
    axis: Plot = {"title": {"text": "job, in order of start"}, "autorange": "reversed", "showgrid": False}
    axis |= {
        "showticklabels": len(rows) <= _NAMED_ROWS,
        "tickvals": [row for row, _ in rows],
        "ticktext": [plain(job.job) for _, job in rows],
    }
    height = 240 + min(700, 14 * len(rows))
    layout = {"xaxis": time_axis(), "yaxis": axis, "barmode": "overlay", "height": height}
    return Figure(f"Timeline{of_run}", caption, traces, layout)


def _spans(
    name: str,
    rows: Sequence[tuple[int, TimelineJob]],
    interval: Callable[[TimelineJob], tuple[float, float] | None],
    marker: Plot,
    note: Callable[[TimelineJob], str] = lambda _: "",
) -> Plot:
    spans = [(row, job, span) for row, job in rows if (span := interval(job)) is not None]
    return {
        "type": "bar",
        "orientation": "h",
        "width": 0.85,
        "name": plain(name),
        "showlegend": True,
        "y": [row for row, _, _ in spans],
        "base": [short(start) for _, _, (start, _) in spans],
        "x": [short(end - start) for _, _, (start, end) in spans],
        "marker": marker | {"line": {"width": 0}},
        "hovertext": [f"{plain(job.job)}<br>{start:.2f} to {end:.2f} s{note(job)}" for _, job, (start, end) in spans],
        "hoverinfo": "text+name",
    }


def _waits(job: TimelineJob) -> str:
    return "".join(f"<br>for {cause}: {seconds:.2f} s" for cause, seconds in job.waited.items())


def _pauses(job: TimelineJob) -> str:
    if not job.pauses or job.paused_seconds is None:
        return ""
    return f"<br>paused {job.pauses:,} times, {job.paused_seconds:.2f} s"


def _bad_ends(rows: Sequence[tuple[int, TimelineJob]]) -> Plot:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "failed or cancelled",
        "x": [job.running[1] for _, job in rows if job.running],
        "y": [row for row, _ in rows],
        "marker": {"symbol": "x", "color": FAILED, "size": 9},
        "hovertext": [f"{plain(job.job)}: {job.status}" for _, job in rows],
        "hoverinfo": "text",
    }


def _activity(run: RunResult, of_run: str) -> Figure:
    activity = run.activity
    middles = [(bin_ + 0.5) * activity.width for bin_ in range(len(activity.compute))]
    series = (("compute jobs", activity.compute), ("I/O tasks", activity.io_tasks), ("waiting jobs", activity.waiting))
    traces = [line(name, index, middles, values, shape="hvh") for index, (name, values) in enumerate(series)]
    caption = "How many jobs run or wait at a time: I/O tasks run beside compute jobs, which hold the cores."
    return Figure(f"Jobs over time{of_run}", caption, traces, {"xaxis": time_axis(), "yaxis": amount_axis("jobs")})


def _busiest(admitted: Sequence[AdmittedBandwidth]) -> list[AdmittedBandwidth]:
    """The storages with the most admissions, if there are too many of them to draw all."""
    return sorted(admitted, key=lambda storage: -len(storage.levels))[:MOST]


def _admitted(run: RunResult, admitted: AdmittedBandwidth, of_run: str) -> Figure:
    times, values = zip(*admitted.levels, strict=True)
    trace = line("admitted", 0, [*times, run.seconds], [*values, values[-1]], shape="hv")
    traces = [trace | {"fill": "tozeroy"}]
    if admitted.limit is not None:
        traces.append(limit(admitted.limit, run.seconds))
    where = "" if admitted.location is None else f" on {plain(admitted.location)}"
    more = how_many_are_shown(len(run.admitted), "storages")
    caption = f"The sum of the storageBW of the jobs that were admitted and have not ended.{more}"
    title = f"Admitted {admitted.direction} bandwidth: {plain(admitted.storage)}{where}{of_run}"
    return Figure(title, caption, traces, {"xaxis": time_axis(), "yaxis": amount_axis("admitted bandwidth (MB/s)")})
