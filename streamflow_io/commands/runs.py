"""`streamflow-io runs`: the runs that have telemetry, by the names that other commands take."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import PurePath

from msgspec import to_builtins

from streamflow_io.files import file_of
from streamflow_io.records.learned.database import date_of
from streamflow_io.records.reader import RunSummary, list_runs
from streamflow_io.records.runs import runs_directory
from streamflow_io.report.page import number

from .console import PlainResult, table

_SHOWN = 20
# A longer name of a run leaves no room for a column with the workflow, which then stands below the name.
_SHORT = 16
# The least columns for the name and the workflow together.
_LEAST = 30
# As `watch` says.
_STATES = {"completed": "succeeded"}


def answer(runs: Sequence[RunSummary], more: bool) -> PlainResult:
    """Return the table of runs.

    :param more: whether there are older runs, which are not shown
    """
    facts = {"runs": [to_builtins(run) for run in runs], "more": more}
    if not runs:
        return PlainResult(facts, [f"There is no run in {runs_directory()}"])
    longest = max(len(run.name) for run in runs)
    workflows = told_apart({run.workflow for run in runs})
    is_wide = longest > _SHORT
    first = ("RUN\n  workflow",) if is_wide else ("RUN", "workflow")
    rows = []
    for run in runs:
        workflow = f"{run.workflow_name}: {workflows[run.workflow]}" if run.workflow_name else workflows[run.workflow]
        if is_wide:
            most = max(longest, _LEAST) - 2
            workflow = workflow if len(workflow) <= most else f"{workflow[: most - 1]}…"
        named = (f"{run.name}\n  {workflow}",) if is_wide else (run.name, workflow)
        rows.append((*named, date_of(run.began), number(run.seconds), _STATES.get(run.state, run.state)))
    unfolded = [first[0], "time (s)", "state"] + ([] if is_wide else ["began"])
    columns = (*first, "began", "time (s)", "state")
    made = table(None, columns, rows, numbers=("time (s)",), unfolded=unfolded, cut=("workflow",))
    return PlainResult(facts, [made, "There are older runs: streamflow-io runs --all"] if more else [made])


def told_apart(workflows: Collection[str]) -> dict[str, str]:
    """Return for each CWL file its name, with the last directories that tell the file from the others.

    :param workflows: paths or `file:` URIs
    """
    parts = {workflow: PurePath(file_of(workflow)).parts for workflow in workflows}
    ends = Counter(own[-count:] for own in parts.values() for count in range(1, len(own) + 1))
    names = {}
    for workflow, own in parts.items():
        count = next((count for count in range(1, len(own)) if ends[own[-count:]] == 1), len(own))
        names[workflow] = str(PurePath(*own[-count:]))
    return names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help=f"show all runs, not only the last {_SHOWN}")


def run(arguments: argparse.Namespace) -> PlainResult:
    found = list_runs(None if arguments.all else _SHOWN + 1)
    shown = found if arguments.all else found[:_SHOWN]
    return answer(shown, len(found) > len(shown))
