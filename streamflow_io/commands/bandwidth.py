"""`streamflow-io bandwidth`: how fast the data of a run had to move, and how fast it did."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from streamflow_io.hints.errors import HintErrors
from streamflow_io.records.history import History, read_history
from streamflow_io.records.reader import read_records
from streamflow_io.records.runs import find_run, run_label
from streamflow_io.report.analysis.model import MB
from streamflow_io.report.analysis.requirements import (
    RequestAmounts,
    Requirements,
    StepRequirement,
    requirements,
)
from streamflow_io.report.page import number
from streamflow_io.wording import counted

from .console import PlainResult, table

# Two tables, so that a terminal of 80 columns has room for the paths of steps.
_REQUIRED = ("step", "phases", "channels", "window", "MB", "required")
_REACHED = ("step", "together", "reached", "waited", "exposed")


def answer(found: Requirements) -> PlainResult:
    """Return the requests of a run: two tables and a summary."""
    tables = [
        table(title, header, [row(step) for step in found.steps], numbers=header[1:], unfolded=header[1:])
        for title, header, row in (
            ("Required: medians in s, MB and MB/s", _REQUIRED, _required),
            ("Required together at most, and reached: MB/s", _REACHED, _reached),
        )
    ]
    return PlainResult(found.model_dump(by_alias=True), [*tables, *_summary(found)])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the name of a run, `last`, or the path of telemetry")


def run(arguments: argparse.Namespace) -> PlainResult:
    """Show the required bandwidths of a run.

    :raises HintErrors: if there is no such run, or nothing was measured in it
    """
    return answer(requirements(measured_history(find_run(arguments.run))))


def measured_history(file: Path) -> History:
    """Return the history of a run that has requests.

    :raises HintErrors: if the run has none; says why
    """
    history = read_history(run_label(file), read_records(file))
    if not history.requests:
        raise HintErrors.one(file, "request", *_why_none(history))
    return history


def _why_none(history: History) -> tuple[str, str]:
    """Return why a run has no requests, and which run has some."""
    jobs = [job for job in history.jobs if history.is_io_task(job.step)]
    if not any(hints.io_task for hints in history.steps.values()):
        message = "this run has no I/O tasks, and nothing else was seen to move data in bursts"
        return message, "a run of a workflow with `sfio:IOTask`"
    if not any(job.status == "completed" for job in jobs):
        return "no job of an I/O task has succeeded in this run", "a run in which I/O tasks have moved something"
    if not any(job.usage is not None for job in jobs):
        return "the I/O tasks of this run were not measured", "a run with a node runtime (not `runtime: off`)"
    return "nothing is known yet: the run goes on, or was killed", "a run that has ended"


def _required(step: StepRequirement) -> Iterator[str]:
    yield step.step
    yield f"{step.phases:,}"
    yield f"{step.channels:,}"
    yield _number(step.window)
    yield _number(None if step.bytes is None else step.bytes / MB)
    yield _number(step.required)


def _reached(step: StepRequirement) -> Iterator[str]:
    yield step.step
    yield number(step.most_required) if step.phases else ""
    yield _number(step.throughput)
    yield f"{step.waits:,}"
    yield f"{step.exposed:,}"


def _number(value: float | None) -> str:
    return "" if value is None else number(value)


def _summary(found: Requirements) -> Iterator[str]:
    seconds = f"{number(found.seconds)} s" + ("" if found.ended else ", not ended")
    yield f"{found.run}: {seconds}, {counted(found.requests, 'request')} of {counted(found.channels, 'channel')}"
    yield f"All together: {_together(found)}"
    for storage in found.storages:
        if storage.storage is not None:
            yield f"{storage.storage}, {storage.direction}: {_together(storage)}"
    told = [] if found.overlap is None else [f"overlap with compute {found.overlap:.0%}"]
    told.append(f"{counted(found.waits, 'phase')} waited for, {number(found.wait_seconds)} s")
    told.append(f"{counted(found.exposed, 'request')} exposed, {number(found.exposed_seconds)} s")
    yield "; ".join(told)
    for step in found.steps:
        if step.limited and step.limit is not None:
            share = f"{step.limited:,} of {counted(step.phases, 'phase')} ({step.limited / step.phases:.0%})"
            yield f"{step.step}: {share} had a limit, {number(step.limit)} MB/s in the median"


def _together(amounts: RequestAmounts) -> str:
    return f"{number(amounts.most_required)} MB/s required, {number(amounts.most_throughput)} MB/s reached, at most"
