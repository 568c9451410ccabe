"""Runs as a section of a report of MultiQC: a row for each step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from .analysis.results import RunResult, StepResult

# MultiQC finds files whose names end so, and rounds numbers by `format`.
_HEADERS = {
    "jobs": {"title": "Jobs", "description": "Jobs that have succeeded", "format": "{:,.0f}"},
    "failed": {"title": "Failed", "description": "Failed jobs", "format": "{:,.0f}"},
    "seconds": {"title": "Time (s)", "description": "Mean time of a job", "format": "{:,.2f}"},
    "wait": {"title": "Wait (s)", "description": "Mean time until a job ran", "format": "{:,.2f}"},
    "streamed": {"title": "Streamed (MB)", "description": "Bytes that the step read as streams", "format": "{:,.1f}"},
}


def as_multiqc(runs: Sequence[RunResult]) -> str:
    """Return a file for MultiQC's custom content.

    MultiQC takes texts for HTML, so names of steps and runs are escaped. MultiQC takes a name with slashes for a path,
    and keeps its last part, so the slashes of steps become dots.
    """
    rows = {
        escape(_name(step) if len(runs) == 1 else f"{run.run}: {_name(step)}"): _row(run, step)
        for run in runs
        for step in run.steps
    }
    section = {
        "id": "streamflow_io",
        "section_name": "StreamFlow-IO",
        "description": "<br>".join(escape(f"{run.run}: {run.verdict}") for run in runs),
        "plot_type": "table",
        "pconfig": {"id": "streamflow_io_steps", "title": "StreamFlow-IO: steps", "col1_header": "Step"},
        "headers": _HEADERS,
        "data": rows,
    }
    return json.dumps(section, indent=2) + "\n"


def _name(step: StepResult) -> str:
    return step.step.strip("/").replace("/", ".") or "main"


def _row(run: RunResult, step: StepResult) -> dict[str, float]:
    streamed = sum(stream.bytes for job in run.timeline if job.step == step.step for stream in job.streams)
    values = {
        "jobs": step.completed,
        "failed": step.failed,
        "seconds": step.mean_seconds,
        "wait": step.mean_wait,
        "streamed": streamed / 1e6,
    }
    return {name: value for name, value in values.items() if value is not None}
