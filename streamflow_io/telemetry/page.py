"""The report as one HTML file that needs nothing else. Pure."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence

from .figures import Figure
from .results import RunResult, StepResult

# The browser itself refuses every request that the page might make.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "form-action 'none'; base-uri 'none'"
)
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 1100px; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.6em } h2 { font-size: 1.2em; margin: 2em 0 .3em }
p.caption { color: #555; margin: 0 0 .5em }
.table { overflow-x: auto } table { border-collapse: collapse } th, td { padding: .3em .8em; text-align: right; border-bottom: 1px solid #ddd }
th { background: #f4f4f4 } th.text, td.text { text-align: left } td { white-space: nowrap }
"""  # noqa: E501
# Only these buttons: among the others is one that uploads the figure to a server.
_SCRIPT = """
const config = {
  responsive: true,
  displaylogo: false,
  plotlyServerURL: "",
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
};
for (const element of document.querySelectorAll(".figure")) {
  const figure = JSON.parse(element.nextElementSibling.textContent);
  Plotly.newPlot(element, figure.traces, figure.layout, config);
}
"""
_LAYOUT = {
    "font": {"family": "system-ui, sans-serif", "size": 13},
    "legend": {"orientation": "h", "x": 0, "y": 1, "yref": "container", "yanchor": "top"},
    "hovermode": "closest",
    "margin": {"t": 70, "r": 30},
    "height": 450,
}
_AXIS = {"automargin": True, "zeroline": False, "gridcolor": "#e5e5e5", "linecolor": "#888", "showline": True}


def render(runs: Sequence[RunResult], figures: Sequence[Figure], plotly_js: str) -> str:
    """The page.

    :param plotly_js: the source of plotly.js, which becomes part of the page
    """
    title = f"I/O of {', '.join(run.run for run in runs)}"
    return "".join(
        [
            "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n",
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n',
            "<meta name='viewport' content='width=device-width, initial-scale=1'>\n",
            f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n",
            f"<h1>{html.escape(title)}</h1>\n",
            _runs_table(runs),
            *(f"<p>{html.escape(note)}</p>\n" for run in runs for note in notes(run)),
            *(_steps(run) for run in runs),
            "<noscript><p>The figures need JavaScript.</p></noscript>\n",
            *map(_figure, figures),
            f"<script>{plotly_js}</script>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n",
        ]
    )


def _figure(figure: Figure) -> str:
    axes = {axis: _AXIS | figure.layout[axis] for axis in ("xaxis", "yaxis")}
    data = {"traces": figure.traces, "layout": {**_LAYOUT, **figure.layout, **axes}}
    # In a script nothing but `<` could end it.
    content = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f"<h2>{figure.title}</h2>\n<p class='caption'>{html.escape(figure.caption)}</p>\n"
        f"<div class='figure'></div><script type='application/json'>{content}</script>\n"
    )


def _runs_table(runs: Sequence[RunResult]) -> str:
    rows = [
        (
            run.run,
            run.workflow,
            number(run.seconds),
            f"{run.jobs:,}",
            number(run.throughput.mean) if run.throughput else "",
            megabytes(run.throughput.bytes) if run.throughput else "",
        )
        for run in runs
    ]
    header = ("run", "workflow", "total time (s)", "jobs", "mean I/O throughput (MB/s)", "bytes of I/O tasks (MB)")
    return _table(header, rows, text_columns=2)


def notes(run: RunResult) -> list[str]:
    """What is missing in the report of a run, and why."""
    result = []
    if not run.ended:
        result.append(f"{run.run}: its end was not recorded. It was killed, or goes on.")
    if not any(step.io_task for step in run.steps):
        result.append(f"{run.run}: no step is an I/O task (hint sfio:IOTask).")
    elif run.throughput is None:
        result.append(f"{run.run}: no I/O task was measured, hence no I/O throughput.")
    return result


STEP_HEADER = (
    "step",
    "kind",
    "storageBW",
    "jobs",
    "failed",
    "mean time (s)",
    "mean wait (s)",
    "read (MB)",
    "written (MB)",
    "MB/s of a job",
)


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
        megabytes(step.bytes_read),
        megabytes(step.bytes_written),
        number(step.throughput),
    )


def _steps(run: RunResult) -> str:
    table = _table(STEP_HEADER, [step_row(step) for step in run.steps], text_columns=3)
    return f"<h2>Steps of {html.escape(run.run)}</h2>\n{table}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int) -> str:
    return f"<div class='table'><table>\n{_row('th', header, text_columns)}" + (
        "".join(_row("td", row, text_columns) for row in rows) + "</table></div>\n"
    )


def _row(tag: str, cells: Sequence[str], text_columns: int) -> str:
    marks = [f"<{tag} class='text'>" if index < text_columns else f"<{tag}>" for index in range(len(cells))]
    return "<tr>" + "".join(f"{m}{html.escape(cell)}</{tag}>" for m, cell in zip(marks, cells, strict=True)) + "</tr>\n"


def number(value: float | None) -> str:
    """A number for people."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def megabytes(count: int) -> str:
    """Bytes in MB, for people."""
    return number(count / 1e6) if count else ""
