"""The report as one HTML file that needs no other file; its template is `report.html`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.hints.reasons import SessionReason
from streamflow_io.records.files import SessionForm
from streamflow_io.wording import displayed

from .analysis.comparison import COMPARED_HEADER, compared, compared_rows
from .analysis.edges import EdgeResult
from .analysis.lease_results import LeaseResult
from .analysis.locations import LocationResult, rest_of
from .analysis.model import MB, Advice
from .analysis.results import RunResult, StepLearning, StepResult
from .analysis.session_results import SessionResult
from .analysis.verdict import path_text
from .chart import Figure, draw_figure
from .graph_drawing import draw_graph, draw_legend
from .timeline_drawing import draw_timeline

# Shorter waits of a job are not shown, in seconds: a request takes a moment, too.
_TO_SPEAK_OF = 0.1
_NUMBER = re.compile(r"[-+0-9.,%e]*")
# The most rows of a table of locations.
_LOCATIONS = 20
_RUN_HEADER = ("run", "workflow", "total time (s)", "jobs", "mean I/O throughput (MB/s)", "bytes of I/O tasks (MB)")
STEP_HEADER = (
    "step",
    "kind",
    "storageBW",
    "jobs",
    "failed",
    "mean time (s)",
    "mean wait (s)",
    "of it for (s)",
    "read (MB)",
    "written (MB)",
    "MB/s of a job",
    "pauses of a job",
    "paused (s)",
)
SESSION_HEADER = (
    "step",
    "file",
    "form",
    "end",
    "size (MB)",
    "readers",
    "from storage (MB)",
    "cached (MB)",
    "reading (s)",
    "overlap",
)
LEASE_HEADER = ("storage", "direction", "waited for other runs (s)", "slowed down, at most")
LEARNING_HEADER = ("step", "storage", "epoch", "storageBW (MB/s)", "jobs at once", "jobs", "mean time (s)", "counts")
LOCATION_HEADER = ("location", "jobs", "failed", "cores", "cores held", "received (MB)", "sent (MB)")
EDGE_HEADER = ("edge", "delivered", "byte streams", "MB", "before end (s)", "waited (s)", "why not as asked")
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
        "run_row": _run_row,
        "step_row": step_row,
        "session_row": session_row,
        "edge_row": edge_row,
        "lease_row": lease_row,
        "learning_rows": learning_rows,
        "location_rows": location_rows,
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
        run_header=_RUN_HEADER,
        step_header=STEP_HEADER,
        session_header=SESSION_HEADER,
        edge_header=EDGE_HEADER,
        lease_header=LEASE_HEADER,
        learning_header=LEARNING_HEADER,
        location_header=LOCATION_HEADER,
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


def _run_row(run: RunResult) -> tuple[str, ...]:
    """Return a row of the table of runs."""
    throughput = run.throughput
    moved = ("", "") if throughput is None else (number(throughput.mean), megabytes(throughput.bytes))
    return (run.run, run.workflow, number(run.seconds), f"{run.jobs:,}", *moved)


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
    return [
        f"{run.run}: {lent.jobs:,} jobs of {lent.step} ran on cores that {' and '.join(lent.lenders)} "
        "held and did not use."
        for lent in run.lent
    ]


def step_row(step: StepResult) -> tuple[str, ...]:
    """Return a row of the table of steps."""
    return (
        step.step,
        "I/O task" if step.io_task else "compute",
        step.storage_bw or "",
        f"{step.jobs:,}",
        f"{step.failed:,}" if step.failed else "",
        number(step.mean_seconds),
        number(step.mean_wait),
        waits(step),
        megabytes(step.bytes_read),
        megabytes(step.bytes_written),
        number(step.throughput),
        number(step.pauses),
        number(step.paused_seconds),
    )


def waits(step: StepResult) -> str:
    """Return the mean seconds of a step's jobs by cause, where they are long enough to matter."""
    return ", ".join(f"{cause} {number(seconds)}" for cause, seconds in step.waited.items() if seconds >= _TO_SPEAK_OF)


def edge_row(edge: EdgeResult) -> tuple[str, ...]:
    """Return a row of the table of stream edges."""
    return (
        f"{edge.output} -> {edge.input or 'workflow output'}",
        _DELIVERY[edge.delivery],
        f"{edge.streamed:,}" if edge.streamed else "",
        megabytes(edge.bytes) if edge.streamed and edge.bytes is not None else "",
        number(edge.before_end),
        number(edge.waited),
        "; ".join(edge.remarks),
    )


def lease_row(lease: LeaseResult) -> tuple[str, ...]:
    """Return a row of the table of shared storages."""
    return lease.storage, lease.direction, number(lease.waited), f"{lease.slowdown:.2f} times"


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


def location_rows(locations: Sequence[LocationResult], most: int = _LOCATIONS) -> list[tuple[str, ...]]:
    """Return the rows of the table of locations.

    :param most: the number of rows. Of more locations, those with the most jobs and bytes have a row each, and the last
        row has the others
    """
    shown = list(locations)
    if len(shown) > most:
        busiest = sorted(shown, key=lambda one: (-one.jobs, -one.received - one.sent))
        first = busiest[: most - 1]
        shown = [*(one for one in shown if one in first), rest_of(busiest[most - 1 :])]
    return [
        (
            one.location,
            f"{one.jobs:,}",
            f"{one.failed:,}" if one.failed else "",
            number(one.cores),
            number(one.held),
            megabytes(one.received),
            megabytes(one.sent),
        )
        for one in shown
    ]


def session_row(session: SessionResult) -> tuple[str, ...]:
    """Return a row of the table of read sessions."""
    return (
        session.step,
        PurePath(session.file).name,
        _FORMS[session.form],
        _REASONS[session.reason],
        megabytes(session.size),
        f"{session.most_readers} of {session.readers}",
        number(session.storage_bytes / MB),
        number(session.cached_bytes / MB),
        number(session.read_seconds),
        "" if session.overlap is None else f"{session.overlap:.0%}",
    )


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
