"""The report as one HTML file that needs nothing else; its template is `report.html`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from jinja2 import Environment, PackageLoader, StrictUndefined

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.sessions.director import Reason

from .drawing import Figure, Plot
from .edge_results import EdgeResult
from .lease_results import LeaseResult
from .numbers import MB
from .results import RunResult, StepResult
from .session_records import Form
from .session_results import SessionResult

_LAYOUT = {
    "font": {"family": "system-ui, sans-serif", "size": 13},
    "legend": {"orientation": "h", "x": 0, "y": 1, "yref": "container", "yanchor": "top"},
    "hovermode": "closest",
    "margin": {"t": 70, "r": 30},
    "height": 450,
}
_AXIS = {"automargin": True, "zeroline": False, "gridcolor": "#e5e5e5", "linecolor": "#888", "showline": True}
# Seconds that a job has waited: to ask for something takes a moment, too.
_TO_SPEAK_OF = 0.1
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
    "storageBW",
    "mean wait (s)",
    "chunk (MB)",
    "window (MB)",
    "from storage (MB)",
    "cached (MB)",
    "read / size",
    "peak of window (MB)",
    "reading (s)",
    "overlap",
    "parts",
    "arrived",
    "consumed",
)
LEASE_HEADER = (
    "storage",
    "direction",
    "waited for other runs (s)",
    "slowed down, at most",
    "bursts held for a slot",
    "begun at it",
    "held (s)",
)
EDGE_HEADER = ("edge", "delivered", "byte streams", "MB", "before end (s)", "waited (s)", "why not as asked")
_DELIVERY = {
    Delivery.STREAM: "as a byte stream",
    Delivery.GATE: "at the gate",
    Delivery.COMMIT: "at commit",
    Delivery.PART: "as parts",
    Delivery.TERMINATION: "at termination",
}
_FORMS: dict[Form, str] = {
    "said": "parts of a virtual split",
    "selected": "parts that jobs select",
    "whole": "whole file, ahead of its checksum",
}
_REASONS: dict[Reason | None, str] = {
    "done": "all was read",
    "cached": "it was in the page cache before",
    "not kept": "its file system keeps nothing in the page cache",
    "window": "the window was full, and no job would make room",
    "stalled": "nothing came for 10 s: jobs read it themselves",
    "lost": "broken off: the reader or the run ended",
    None: "not recorded",
}


def render(runs: Sequence[RunResult], figures: Sequence[Figure], plotly_js: str) -> str:
    """The page.

    :param plotly_js: the source of plotly.js, which becomes part of the page
    """
    templates = environment(__package__)
    templates.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    templates.filters |= {
        "run_row": _run_row,
        "step_row": step_row,
        "session_row": session_row,
        "edge_row": edge_row,
        "lease_row": lease_row,
        "notes": notes,
        "remarks": remarks,
        "drawing": _drawing,
    }
    return templates.get_template("report.html").render(
        runs=runs,
        figures=figures,
        plotly_js=plotly_js,
        run_header=_RUN_HEADER,
        step_header=STEP_HEADER,
        session_header=SESSION_HEADER,
        edge_header=EDGE_HEADER,
        lease_header=LEASE_HEADER,
    )


def environment(package: str) -> Environment:
    """The templates of pages in a package."""
    loader = PackageLoader(package, ".")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _drawing(figure: Figure) -> Plot:
    """What plotly.js draws: the figure in the style of the page."""
    axes = {axis: _AXIS | figure.layout[axis] for axis in ("xaxis", "yaxis", "yaxis2") if axis in figure.layout}
    return {"traces": figure.traces, "layout": {**_LAYOUT, **figure.layout, **axes}}


def _run_row(run: RunResult) -> tuple[str, ...]:
    """A row of the table of runs."""
    throughput = run.throughput
    moved = ("", "") if throughput is None else (number(throughput.mean), megabytes(throughput.bytes))
    return (run.run, run.workflow, number(run.seconds), f"{run.jobs:,}", *moved)


def notes(run: RunResult) -> list[str]:
    """What is missing in the report of a run, and why."""
    result = []
    if not run.ended:
        result.append(f"{run.run}: its end was not recorded. It was killed, or goes on.")
    if not any(step.io_task for step in run.steps):
        result.append(f"{run.run}: no step is an I/O task (hint sfio:IOTask).")
    elif run.throughput is None:
        result.append(f"{run.run}: no I/O task was measured, hence no I/O throughput.")
    if run.sessions and all(session.nothing_to_gain for session in run.sessions):
        result.append(
            f"{run.run}: what its read sessions were to read was in the page cache before: there was nothing to gain."
        )
    return result


def remarks(run: RunResult) -> list[str]:
    """What was done in a run that no table shows."""
    return [
        f"{run.run}: {lent.jobs:,} jobs of {lent.step} ran on cores that {' and '.join(lent.lenders)} "
        "held and did not use."
        for lent in run.lent
    ]


def step_row(step: StepResult) -> tuple[str, ...]:
    """A row of the table of steps."""
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
    """What a job of a step has waited for, where that is long enough to speak of, and so many seconds in the mean."""
    return ", ".join(f"{cause} {number(seconds)}" for cause, seconds in step.waited.items() if seconds >= _TO_SPEAK_OF)


def edge_row(edge: EdgeResult) -> tuple[str, ...]:
    """A row of the table of stream edges."""
    return (
        f"{edge.output} -> {edge.input or 'workflow output'}",
        _DELIVERY[edge.delivery],
        f"{edge.streamed:,}" if edge.streamed else "",
        megabytes(edge.bytes) if edge.streamed and edge.bytes is not None else "",
        number(edge.before_end),
        number(edge.waited),
        "; ".join(edge.reasons),
    )


def lease_row(lease: LeaseResult) -> tuple[str, ...]:
    """A row of the table of shared storages."""
    held = [one.seconds for one in lease.held]
    at_slot = sum(one.is_at_slot for one in lease.held)
    shown = (f"{len(held):,}", f"{at_slot:,}", number(sum(held))) if held else ("", "", "")
    return lease.storage, lease.direction, number(lease.waited), f"{lease.slowdown:.2f} times", *shown


def session_row(session: SessionResult) -> tuple[str, ...]:
    """A row of the table of read sessions."""
    return (
        session.step,
        PurePath(session.file).name,
        _FORMS[session.form],
        _REASONS[session.reason],
        megabytes(session.size),
        f"{session.most_readers} of {session.readers}",
        session.constraint or "",
        number(session.mean_wait),
        megabytes(session.chunk),
        megabytes(session.window),
        number(session.storage_bytes / MB),
        number(session.cached_bytes / MB),
        f"{session.read_ratio:.2f}",
        number(session.peak_window / MB),
        number(session.read_seconds),
        "" if session.overlap is None else f"{session.overlap:.0%}",
        f"{session.parts:,}",
        f"{session.arrived:,}",
        f"{session.consumed:,}",
    )


def number(value: float | None) -> str:
    """A number for people."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def megabytes(count: int) -> str:
    """Bytes in MB, for people."""
    return number(count / 1e6) if count else ""
