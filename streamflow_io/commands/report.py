"""`streamflow-io report`: what runs measured, in figures and tables."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from streamflow_io.hints.errors import HintErrors
from streamflow_io.telemetry.edge_results import EdgeResult
from streamflow_io.telemetry.figures import draw
from streamflow_io.telemetry.history import read_history
from streamflow_io.telemetry.page import (
    SESSION_HEADER,
    STEP_HEADER,
    edge_row,
    megabytes,
    notes,
    number,
    remarks,
    render,
    session_row,
    step_row,
    waits,
)
from streamflow_io.telemetry.reader import read_records
from streamflow_io.telemetry.results import RunResult, run_results
from streamflow_io.telemetry.runs import find_run, run_label
from streamflow_io.telemetry.session_results import SessionResult
from streamflow_io.wording import counted

from .console import say, table
from .output import write_output

DEFAULT_OUTPUT = "io-report.html"
# A terminal has no room for the others.
_COLUMNS = tuple(map(STEP_HEADER.index, ("step", "kind", "storageBW", "jobs", "mean time (s)", "mean wait (s)")))
_SESSION_COLUMNS = tuple(
    map(SESSION_HEADER.index, ("step", "file", "end", "from storage (MB)", "cached (MB)", "reading (s)", "overlap"))
)


@dataclass(frozen=True)
class Report:
    """What runs measured.

    :ivar file: where the figures are; none: only numbers were asked for
    """

    runs: Sequence[RunResult]
    file: Path | None

    ok = True

    def to_json(self) -> dict[str, Any]:
        runs = [run.model_dump(by_alias=True) for run in self.runs]
        return {"file": None if self.file is None else str(self.file), "runs": runs}

    def show(self, console: Console) -> None:
        for run in self.runs:
            what = f"{number(run.seconds)} s, {run.jobs:,} jobs"
            if run.throughput is not None:
                what += f", {megabytes(run.throughput.bytes)} MB by I/O tasks, {number(run.throughput.mean)} MB/s"
            say(console, f"{run.run}: {what}")
            rows = ([row[index] for index in _COLUMNS] for row in map(step_row, run.steps))
            console.print(table(None, [STEP_HEADER[index] for index in _COLUMNS], rows, numbers=STEP_HEADER[3:]))
            for step in run.steps:
                if waited := waits(step):
                    say(console, f"A job of {step.step} waited for, in the mean (s): {waited}")
            if run.edges:
                console.print("Stream edges:")
                for edge in run.edges:
                    say(console, _edge_text(edge))
            if run.sessions:
                console.print(_session_table(run.sessions))
            for remark in remarks(run):
                say(console, remark)
            for note in notes(run):
                say(console, note, "yellow")
        if self.file is not None:
            say(console, f"Figures: {self.file.absolute()}")


def _edge_text(edge: EdgeResult) -> str:
    """What there is to say of an edge: a terminal has no room for a table of it."""
    way, delivered, streams, size, before_end, waited, reasons = edge_row(edge)
    told = [delivered]
    if streams:
        told.append(counted(edge.streamed, "byte stream") + (f" of {size} MB" if size else ""))
    if before_end:
        told.append(f"{before_end} s before the end of its job")
    if waited:
        told.append(f"its reader waited {waited} s")
    if reasons:
        told.append(f"not as asked: {reasons}")
    return f"  {way}: {', '.join(told)}"


def _session_table(sessions: Sequence[SessionResult]) -> Table:
    rows = ([row[index] for index in _SESSION_COLUMNS] for row in map(session_row, sessions))
    columns = [SESSION_HEADER[index] for index in _SESSION_COLUMNS]
    return table("Read sessions", columns, rows, numbers=SESSION_HEADER[4:])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="name of a run, `last`, or path of telemetry; several are compared"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.html",
        type=Path,
        help=f"where to put the figures (default: {DEFAULT_OUTPUT}; with --json none)",
    )


def run(arguments: argparse.Namespace) -> Report:
    """:raises HintErrors: if there is no such run, or the report cannot be drawn or written"""
    output = arguments.output
    if output is None and not arguments.json:
        output = Path(DEFAULT_OUTPUT)
    plotly_js = "" if output is None else _plotly_js()
    files = [find_run(text) for text in arguments.runs]
    labels = _distinct([run_label(file) for file in files])
    runs = run_results([read_history(label, read_records(file)) for label, file in zip(labels, files, strict=True)])
    if output is not None:
        write_output(output, render(runs, draw(runs), plotly_js))
    return Report(runs, output)


def _distinct(labels: Sequence[str]) -> list[str]:
    before = [labels[:index].count(label) for index, label in enumerate(labels)]
    return [f"{label} ({count + 1})" if count else label for label, count in zip(labels, before, strict=True)]


def _plotly_js() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise HintErrors.one(
            "streamflow-io report",
            "plotly",
            "plotly draws the figures, and it is not installed",
            "pip install 'streamflow-io[report]'; or --json, which needs no plotly",
        ) from None
    return str(get_plotlyjs())
