"""`streamflow-io schedule show`: a drawing of a schedule."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from msgspec import Struct
from rich.console import Console
from rich.text import Text

from streamflow_io.commands.console import say
from streamflow_io.features.schedules.check import check
from streamflow_io.features.schedules.files import read_schedule
from streamflow_io.features.schedules.gantt import gantt
from streamflow_io.features.schedules.model import Schedule
from streamflow_io.hints.errors import HintErrors

from .table import show_figures

_COLUMNS = 100
_LONGEST_NAME = 20


class ShowResult(Struct, frozen=True):
    """A schedule that can be kept."""

    file: Path
    schedule: Schedule
    ok = True

    def to_json(self) -> dict[str, Any]:
        drawn = gantt(self.schedule, _COLUMNS)
        return {
            "file": str(self.file),
            "period": drawn.period,
            "rows": [{"name": row.name, "work": row.work, "transfers": row.transfers} for row in drawn.rows],
            "storage": drawn.storage,
            "note": drawn.note,
        }

    def show(self, console: Console) -> None:
        _draw(console, self.schedule)
        show_figures(console, self.schedule)


def _draw(console: Console, schedule: Schedule) -> None:
    width = min(_LONGEST_NAME, max(len("storage"), *(len(one.name) for one in schedule.set.applications)))
    room = console.width - width - 2 if console.is_terminal else _COLUMNS
    columns = max(10, min(_COLUMNS, room))
    drawn = gantt(schedule, columns)
    lines = [(row.name, row.line(), "blue") for row in drawn.rows]
    for name, line, style in (*lines, ("storage", drawn.storage_line(), "red")):
        shown = name if len(name) <= width else f"{name[: width - 1]}…"
        console.print(Text.assemble(f"{shown:{width}} ", (line, style)), soft_wrap=True)
    end = f"{drawn.period:,.6g} s"
    say(console, f"{'':{width}} 0{end:>{columns - 1}}")
    say(console, "░ computes; ▁ to █ transfers, by the rate; storage: by the part of its bandwidth that is used")
    if drawn.note is not None:
        say(console, drawn.note)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="a schedule file")


def run(arguments: argparse.Namespace) -> ShowResult:
    """:raises HintErrors: if it is no schedule file, or the schedule cannot be kept"""
    schedule = read_schedule(arguments.file)
    if problems := check(schedule):
        message = f"the schedule cannot be kept: {problems[0].message}"
        allowed = "a schedule in which `streamflow-io schedule check` finds nothing"
        raise HintErrors.one(arguments.file.absolute(), problems[0].field, message, allowed)
    return ShowResult(arguments.file, schedule)
