"""`streamflow-io runs`: which runs have telemetry, for the other commands."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from streamflow_io.learned.database import date_of
from streamflow_io.records.reader import RunSummary, list_runs
from streamflow_io.records.runs import runs_directory
from streamflow_io.report.page import number

from .console import say, table

_SHOWN = 20


@dataclass(frozen=True)
class Runs:
    """:ivar more: whether there are others, which are not shown"""

    runs: Sequence[RunSummary]
    more: bool
    ok = True

    def to_json(self) -> dict[str, Any]:
        return {"runs": [asdict(run) for run in self.runs], "more": self.more}

    def show(self, console: Console) -> None:
        if not self.runs:
            say(console, f"There is no run in {runs_directory()}")
            return
        rows = [
            (run.name, Path(run.workflow).name, date_of(run.began), number(run.seconds), run.state) for run in self.runs
        ]
        columns = ("RUN", "workflow", "began", "time (s)", "state")
        console.print(table(None, columns, rows, numbers=("time (s)",), unfolded=("RUN", "time (s)", "state")))
        if self.more:
            say(console, "Older ones: --all")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help=f"all of them, not only the last {_SHOWN}")


def run(arguments: argparse.Namespace) -> Runs:
    found = list_runs(None if arguments.all else _SHOWN + 1)
    shown = found if arguments.all else found[:_SHOWN]
    return Runs(shown, len(found) > len(shown))
