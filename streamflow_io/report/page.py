"""The report as one HTML file that needs no other file; its template is `report.html`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.hints.reasons import SessionReason
from streamflow_io.records.files import SessionForm
from streamflow_io.wording import counted, displayed, how_often

from .analysis.edges import EdgeResult
from .analysis.locations import LocationResult, rest_of
from .analysis.model import MB, Advice
from .analysis.results import COMPARED_HEADER, LeaseResult, RunResult, StepLearning, StepResult, compared, compared_rows
from .analysis.session_results import SessionResult
from .analysis.verdict import path_text
from .chart import Figure, draw_figure
from .graph_drawing import draw_graph, draw_legend, draw_timeline

# Shorter waits of a job are not shown, in seconds: a request takes a moment, too.
_TO_SPEAK_OF = 0.1
_NUMBER = re.compile(r"[-+0-9.,%e]*")
# The most rows of a table of locations.
_LOCATIONS = 20
LEARNING_HEADER = ("step", "storage", "epoch", "storageBW (MB/s)", "jobs at once", "jobs", "mean time (s)", "counts")
_DELIVERY = {
    Delivery.STREAM: "as a byte stream",
    Delivery.GATE: "at the gate",
    Delivery.COMMIT: "at commit",
    Delivery.PART: "as parts",
    Delivery.TERMINATION: "at termination",
}
_FORMS: dict[SessionForm, str] = {
    "said": "parts of a virtual split",
    "selected": "parts that jobs select",
}
_REASONS: dict[SessionReason | None, str] = {
    "done": "all was read",
    "cached": "it was in the page cache before",
    "not kept": "its file system keeps nothing in the page cache",
    "window": "the window was full, and no job would make room",
    "stalled": "nothing came for 10 s: jobs read it themselves",
    "lost": "broken off: the reader or the run ended",
    None: "not recorded",
}


_R = TypeVar("_R")
#: The columns of a table by their titles: each returns its text for a result.
Columns = Mapping[str, Callable[[_R], str]]

_RUNS: Columns[RunResult] = {
    "run": lambda run: run.run,
    "workflow": lambda run: run.workflow,
    "total time (s)": lambda run: number(run.seconds),
    "jobs": lambda run: f"{run.jobs:,}",
    "mean I/O throughput (MB/s)": lambda run: "" if run.throughput is None else number(run.throughput.mean),
    "bytes of I/O tasks (MB)": lambda run: "" if run.throughput is None else megabytes(run.throughput.bytes),
}
STEPS: Columns[StepResult] = {
    "step": lambda step: step.step,
    "kind": lambda step: "I/O task" if step.io_task else "compute",
    "storageBW": lambda step: step.storage_bw or "",
    "jobs": lambda step: f"{step.jobs:,}",
    "failed": lambda step: f"{step.failed:,}" if step.failed else "",
    "mean time (s)": lambda step: number(step.mean_seconds),
    "mean wait (s)": lambda step: number(step.mean_wait),
    "of it for (s)": lambda step: waits(step),
    "read (MB)": lambda step: megabytes(step.bytes_read),
    "written (MB)": lambda step: megabytes(step.bytes_written),
    "MB/s of a job": lambda step: number(step.throughput),
    "pauses of a job": lambda step: number(step.pauses),
    "paused (s)": lambda step: number(step.paused_seconds),
}
EDGES: Columns[EdgeResult] = {
    "edge": lambda edge: f"{edge.output} -> {edge.input or 'workflow output'}",
    "delivered": lambda edge: _DELIVERY[edge.delivery],
    "byte streams": lambda edge: f"{edge.streamed:,}" if edge.streamed else "",
    "MB": lambda edge: megabytes(edge.bytes) if edge.streamed and edge.bytes is not None else "",
    "before end (s)": lambda edge: number(edge.before_end),
    "waited (s)": lambda edge: number(edge.waited),
    "why not as asked": lambda edge: "; ".join(edge.remarks),
}
LOCATIONS: Columns[LocationResult] = {
    "location": lambda one: one.location,
    "jobs": lambda one: f"{one.jobs:,}",
    "failed": lambda one: f"{one.failed:,}" if one.failed else "",
    "cores": lambda one: number(one.cores),
    "cores held": lambda one: number(one.held),
    "received (MB)": lambda one: megabytes(one.received),
    "sent (MB)": lambda one: megabytes(one.sent),
}
LEASES: Columns[LeaseResult] = {
    "storage": lambda lease: lease.storage,
    "direction": lambda lease: lease.direction,
    "waited for other runs (s)": lambda lease: number(lease.waited),
    "slowed down, at most": lambda lease: f"{lease.slowdown:.2f} times",
}
SESSIONS: Columns[SessionResult] = {
    "step": lambda session: session.step,
    "file": lambda session: PurePath(session.file).name,
    "form": lambda session: _FORMS[session.form],
    "end": lambda session: _REASONS[session.reason],
    "size (MB)": lambda session: megabytes(session.size),
    "readers": lambda session: f"{session.most_readers} of {session.readers}",
    "from storage (MB)": lambda session: number(session.storage_bytes / MB),
    "cached (MB)": lambda session: number(session.cached_bytes / MB),
    "reading (s)": lambda session: number(session.read_seconds),
    "overlap": lambda session: "" if session.overlap is None else f"{session.overlap:.0%}",
}


def row(columns: Columns[_R], result: _R) -> tuple[str, ...]:
    """Return a row of a table."""
    return tuple(text(result) for text in columns.values())


def render(
    runs: Sequence[RunResult],
    figures: Sequence[Figure],
    advice: Sequence[Sequence[Advice]] = (),
) -> str:
    """Return the page.

    :param advice: for each run, the next steps
    """
    templates = environment(__package__)
    templates.filters |= {
        "learning_rows": learning_rows,
        "most_used": most_used,
        "rows": lambda results, columns: [row(columns, result) for result in results],
        "path_text": path_text,
        "notes": notes,
        "columns": shown_columns,
        "code": _code,
        "remarks": remarks,
        "graph": lambda graph: Markup(draw_graph(graph)),
        "legend": lambda graph: Markup(draw_legend(graph)),
        "timeline": lambda run: Markup(draw_timeline(run, max(one.seconds for one in runs))),
        "chart": lambda figure: Markup(draw_figure(figure)),
    }
    page = templates.get_template("report.html").render(
        runs=runs,
        figures=figures,
        advice=advice or [()] * len(runs),
        compared=[compared(runs[0], other) for other in runs[1:]],
        compared_rows=list(compared_rows(runs)),
        compared_header=COMPARED_HEADER,
        learning_header=LEARNING_HEADER,
        tables={
            "runs": _RUNS,
            "steps": STEPS,
            "edges": EDGES,
            "locations": LOCATIONS,
            "leases": LEASES,
            "sessions": SESSIONS,
        },
    )
    return displayed(page)


def _code(text: str) -> Markup:
    """Return a text with its code, such as `observe: true`, marked."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def shown_columns(
    header: Sequence[str], rows: Iterable[Sequence[str]]
) -> tuple[list[list[str]], list[int], list[bool]]:
    """Return the rows of a table, the columns that have a text in any row, and whether each column holds numbers."""
    found = [list(row) for row in rows]
    shown = [index for index in range(len(header)) if any(row[index] for row in found)]
    numeric = [all(_NUMBER.fullmatch(row[index]) for row in found) for index in range(len(header))]
    return found, shown, numeric


def environment(package: str) -> Environment:
    """Return the templates of pages in a package."""
    loader = PackageLoader(package, ".")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def notes(run: RunResult) -> list[str]:
    """Return remarks about results that are missing in the report, and why."""
    result = []
    if not run.ended:
        result.append(f"{run.run}: its end was not recorded. It was killed, or goes on.")
    if run.throughput is None and any(step.io_task for step in run.steps):
        result.append(f"{run.run}: no I/O task was measured, hence no I/O throughput.")
    return result


def remarks(run: RunResult) -> list[str]:
    """Return remarks about a run that no table shows."""
    lent = (
        f"{run.run}: {counted(lent.jobs, 'job')} of {lent.step} ran on cores that {' and '.join(lent.lenders)} "
        "held and did not use."
        for lent in run.lent
    )
    rehearsed = (
        f"{run.run}: {of.input} was rehearsed {how_often(of.rehearsals)}, in {number(of.seconds)} s: {of.finding}."
        for of in run.rehearsed
    )
    held_back = (
        f"{run.run}: {counted(of.bursts, 'burst')} on {of.storage} waited for slots in a schedule, "
        f"{number(of.seconds)} s at most."
        for of in run.held_back
    )
    return [*lent, *rehearsed, *held_back]


def waits(step: StepResult) -> str:
    """Return the mean seconds of a step's jobs by cause, where they are long enough to matter."""
    return ", ".join(f"{cause} {number(seconds)}" for cause, seconds in step.waited.items() if seconds >= _TO_SPEAK_OF)


def learning_rows(learning: StepLearning) -> list[tuple[str, ...]]:
    """Return the rows of the table of learning: a row for each epoch, and the choice."""
    of = learning.step, learning.storage
    rows: list[tuple[str, ...]] = [
        (
            *of,
            f"{epoch.number}",
            number(epoch.constraint),
            f"{epoch.concurrency:,}",
            f"{epoch.jobs:,}",
            number(epoch.mean_seconds),
            "yes" if epoch.registered else "no",
        )
        for epoch in learning.epochs
    ]
    return rows if learning.chosen is None else [*rows, (*of, "chosen", number(learning.chosen), "", "", "", "")]


def most_used(locations: Sequence[LocationResult], most: int = _LOCATIONS) -> list[LocationResult]:
    """Return the locations with a row in their table.

    :param most: the number of rows. Of more locations, those with the most jobs and bytes have a row each, and the last
        row has the others
    """
    if len(locations) <= most:
        return list(locations)
    busiest = sorted(locations, key=lambda one: (-one.jobs, -one.received - one.sent))
    first = busiest[: most - 1]
    return [*(one for one in locations if one in first), rest_of(busiest[most - 1 :])]


def number(value: float | None) -> str:
    """Return a number as text. Empty: no number."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def megabytes(count: int) -> str:
    """Return bytes in MB, as text."""
    if 0 < count < 10_000:
        return "< 0.01"
    return number(count / 1e6) if count else ""
