"""`streamflow-io report`: the measurements of runs, and the causes of their duration."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from rich.console import Console

from streamflow_io.records.history import read_history
from streamflow_io.records.reader import read_records
from streamflow_io.records.runs import find_run, run_label
from streamflow_io.report.analysis.edges import EdgeResult
from streamflow_io.report.analysis.model import Advice
from streamflow_io.report.analysis.results import (
    COMPARED_HEADER,
    RunResult,
    StepResult,
    compared,
    compared_rows,
    run_results,
)
from streamflow_io.report.analysis.session_results import SessionResult
from streamflow_io.report.analysis.verdict import path_text
from streamflow_io.report.chart import draw
from streamflow_io.report.formats import as_multiqc, as_spans, as_trace
from streamflow_io.report.page import (
    EDGES,
    LOCATIONS,
    SESSIONS,
    STEPS,
    most_used,
    notes,
    number,
    remarks,
    render,
    row,
    waits,
)
from streamflow_io.report.suggestions.advice import advice
from streamflow_io.wording import counted, size_text

from .console import say, table, write_output

#: The formats of a report, with the default file of each.
FORMATS = {
    "html": "io-report.html",
    "perfetto": "io-report.trace.json",
    "multiqc": "io-report_mqc.json",
    "otel": "io-report.otlp.json",
}
# The most rows of the table of locations.
_LOCATIONS = 8
# The columns of the table of steps.
_STEPS = ("storageBW", "jobs", "failed", "mean time (s)", "mean wait (s)")


class Report(Struct, frozen=True):
    """The results of runs.

    :ivar advice: the next steps for each run
    :ivar file: the file that was written. None: only numbers were asked for
    """

    runs: Sequence[RunResult]
    advice: Sequence[Sequence[Advice]] = ()
    file: Path | None = None

    ok = True

    def to_json(self) -> dict[str, Any]:
        runs = [run.model_dump(by_alias=True) for run in self.runs]
        for run, some in zip(runs, self.advice, strict=False):
            run["advice"] = [one.model_dump(by_alias=True) for one in some]
        return {
            "file": None if self.file is None else str(self.file),
            "runs": runs,
        }

    def show(self, console: Console) -> None:
        for index, run in enumerate(self.runs):
            self._show_run(console, run, self.advice[index] if index < len(self.advice) else ())
        if len(self.runs) > 1:
            for other in self.runs[1:]:
                say(console, compared(self.runs[0], other), "bold")
            header = [name.replace(" ", "\n") for name in COMPARED_HEADER]
            _show_table(console, header, list(compared_rows(self.runs)), header[2:])
        if self.file is not None:
            say(console, f"Written: {self.file.absolute()}")

    def _show_run(self, console: Console, run: RunResult, some: Sequence[Advice]) -> None:
        say(console, f"{run.run}: {run.verdict}", "bold")
        if run.not_as_asked is not None:
            say(console, run.not_as_asked, "yellow")
        if run.path:
            say(console, path_text(run.path))
        for place, one in enumerate(some, 1):
            saved = "" if one.saved is None or one.saved < 0.05 else f" (up to {one.saved:.1f} s less)"
            say(console, f"{'Next:' if place == 1 else '     '} {place}. {one.text}{saved}: {one.why}")
        if run.steps:
            _show_steps(console, run.steps)
        for step in run.steps:
            if waited := waits(step):
                say(console, f"A job of {step.step} waited for, in the mean (s): {waited}")
        if run.edges:
            console.print("Stream edges:")
            for edge in run.edges:
                say(console, _edge_text(edge))
        if run.sessions:
            console.print("Read sessions:")
            for session in run.sessions:
                say(console, _session_text(session))
        if len(run.locations) > 1:
            rows = [row(LOCATIONS, one) for one in most_used(run.locations, _LOCATIONS)]
            _show_table(console, [*LOCATIONS], rows, [*LOCATIONS][1:])
        for remark in remarks(run):
            say(console, remark)
        for note in notes(run):
            say(console, note, "yellow")


def _show_steps(console: Console, steps: Sequence[StepResult]) -> None:
    rows = [
        (f"{step.step} (I/O)" if step.io_task else step.step, *(STEPS[title](step) for title in _STEPS))
        for step in steps
    ]
    header = [title.replace("mean ", "mean\n") for title in _STEPS]
    _show_table(console, ("step", *header), rows, header[1:])


def _show_table(console: Console, header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str]) -> None:
    """Print a table that fits 80 columns, without columns that are empty in all rows."""
    shown = [index for index in range(len(header)) if index == 0 or any(row[index] for row in rows)]
    columns = [header[index] for index in shown]
    console.print(
        table(None, columns, ([row[index] for index in shown] for row in rows), numbers=numbers, unfolded=header[1:])
    )


def _edge_text(edge: EdgeResult) -> str:
    """Return the facts of an edge in a line: a terminal has no room for their table."""
    way, delivered, streams, _, before_end, waited, _ = row(EDGES, edge)
    told = [delivered]
    if streams:
        told.append(counted(edge.streamed, "byte stream") + (f" of {size_text(edge.bytes)}" if edge.bytes else ""))
    if before_end:
        told.append(f"{before_end} s before the end of its job")
    if waited:
        told.append(f"its reader waited {waited} s")
    told += [remark for remark in (edge.unused, edge.capio) if remark]
    if edge.reasons:
        told.append(f"not as asked: {'; '.join(edge.reasons)}")
    return f"  {way}: {', '.join(told)}"


def _session_text(session: SessionResult) -> str:
    step, file, form, end, *_ = row(SESSIONS, session)
    told = [form, end, f"{number(session.storage_bytes / 1e6)} MB from storage"]
    if session.cached_bytes:
        told.append(f"{number(session.cached_bytes / 1e6)} MB cached")
    told.append(f"{number(session.read_seconds)} s")
    if session.overlap is not None:
        told.append(f"{session.overlap:.0%} of it beside compute")
    return f"  {step}, {file}: {', '.join(told)}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="the name of a run, `last`, or a path; others are compared with it",
    )
    parser.add_argument(
        "--format",
        choices=list(FORMATS),
        metavar="FORMAT",
        default="html",
        help="html (default); perfetto, a trace; multiqc, a section; otel, spans. All numbers: --json",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help=f"the file to write (default: {FORMATS['html']} or similar)",
    )


def run(arguments: argparse.Namespace) -> Report:
    """Write or print the results of runs.

    :raises HintErrors: if there is no such run, or the report cannot be written
    """
    output = arguments.output
    if output is None and not (arguments.json and arguments.format == "html"):
        output = Path(FORMATS[arguments.format])
    files = [find_run(text) for text in arguments.runs]
    labels = _distinct([run_label(file) for file in files])
    histories = [read_history(label, read_records(file)) for label, file in zip(labels, files, strict=True)]
    runs = run_results(histories)
    some = [advice(history, of.path, of.edges) for history, of in zip(histories, runs, strict=True)]
    report = Report(runs, some, output)
    if output is not None:
        write_output(output, _CONTENT[arguments.format](report))
    return report


_CONTENT: dict[str, Callable[[Report], str]] = {
    "html": lambda report: render(report.runs, draw(report.runs), report.advice),
    "perfetto": lambda report: as_trace(report.runs),
    "multiqc": lambda report: as_multiqc(report.runs),
    "otel": lambda report: as_spans(report.runs),
}


def _distinct(labels: Sequence[str]) -> list[str]:
    before = [labels[:index].count(label) for index, label in enumerate(labels)]
    return [f"{label} ({count + 1})" if count else label for label, count in zip(labels, before, strict=True)]
