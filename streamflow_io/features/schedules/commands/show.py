"""`streamflow-io schedule show`: a drawing of a schedule."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from rich.console import Console
from rich.text import Text

from streamflow_io.commands.console import say
from streamflow_io.commands.output import write_output
from streamflow_io.features.schedules.check import check
from streamflow_io.features.schedules.files import read_schedule
from streamflow_io.features.schedules.gantt import Gantt, Row, gantt
from streamflow_io.features.schedules.model import Schedule
from streamflow_io.hints.errors import HintErrors
from streamflow_io.report.page import environment, number

from .table import HEADER, rows, show_figures, summary

_COLUMNS = 100
_PAGE_COLUMNS = 1000
_LONGEST_NAME = 20


class ShowResult(Struct, frozen=True):
    """:ivar page: where the page was written"""

    file: Path
    schedule: Schedule
    page: Path | None
    ok = True

    def to_json(self) -> dict[str, Any]:
        drawn = gantt(self.schedule, _COLUMNS)
        return {
            "file": str(self.file),
            "page": None if self.page is None else str(self.page),
            "period": drawn.period,
            "rows": [{"name": row.name, "work": row.work, "transfers": row.transfers} for row in drawn.rows],
            "storage": drawn.storage,
            "notes": drawn.notes,
        }

    def show(self, console: Console) -> None:
        _draw(console, self.schedule)
        show_figures(console, self.schedule)
        if self.page is not None:
            say(console, f"Drawn: {self.page}")


def _draw(console: Console, schedule: Schedule) -> None:
    width = min(_LONGEST_NAME, max(len("storage"), *(len(one.name) for one in schedule.set.applications)))
    room = console.width - width - 2 if console.is_terminal else _COLUMNS
    columns = max(10, min(_COLUMNS, room))
    drawn = gantt(schedule, columns)
    for name, line, style in _lines(drawn):
        text = Text.assemble(f"{_cut(name, width):{width}} ", (line, style))
        console.print(text, soft_wrap=True)
    end = f"{drawn.period:,.6g} s"
    say(console, f"{'':{width}} 0{end:>{columns - 1}}")
    say(console, "░ computes; ▁ to █ transfers, by the rate; storage: by the part of its bandwidth that is used")
    for note in drawn.notes:
        say(console, note)


def _lines(drawn: Gantt) -> list[tuple[str, str, str]]:
    lines = [(row.name, row.line(), "blue") for row in drawn.rows]
    return [*lines, ("storage", drawn.storage_line(), "red")]


def _cut(name: str, width: int) -> str:
    return name if len(name) <= width else f"{name[: width - 1]}…"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="a schedule file")
    parser.add_argument(
        "-o", "--output", metavar="PAGE.html", type=Path, help="draw the schedule into an HTML file, too"
    )


def run(arguments: argparse.Namespace) -> ShowResult:
    """:raises HintErrors: if it is no schedule file, the schedule cannot be kept, or the page cannot be written"""
    schedule = read_schedule(arguments.file)
    if problems := check(schedule):
        message = f"the schedule cannot be kept: {problems[0].message}"
        allowed = "a schedule in which `streamflow-io schedule check` finds nothing"
        raise HintErrors.one(arguments.file.absolute(), problems[0].field, message, allowed)
    if arguments.output is not None:
        drawn = gantt(schedule, _PAGE_COLUMNS)
        page = render_schedule(arguments.file.name, drawn, summary(schedule), HEADER, list(rows(schedule)))
        write_output(arguments.output, page)
    return ShowResult(arguments.file, schedule, arguments.output)


_LEFT, _TOP, _WIDTH, _STEP = 150, 5, 1000, 26
_BAR_HEIGHT = 20
_TICKS = 8


def render_schedule(
    name: str, drawn: Gantt, summary: Sequence[str], header: Sequence[str], table: Sequence[Sequence[str]]
) -> str:
    """The page.

    :param name: what the schedule is called
    :param summary: lines below the title
    :param table: a row for each application, below the drawing
    """
    ticks = [(_short(_LEFT + _WIDTH * at / _TICKS), number(drawn.period * at / _TICKS)) for at in range(_TICKS + 1)]
    return (
        environment(__package__)
        .get_template("schedule.html")
        .render(
            name=name,
            summary=summary,
            left=_LEFT,
            top=_TOP,
            width=_WIDTH,
            step=_STEP,
            bottom=_TOP + _STEP * (len(drawn.rows) + 1),
            ticks=ticks,
            rows=[_row(row) for row in drawn.rows],
            storage=_outline(drawn.storage),
            notes=drawn.notes,
            header=header,
            table=table,
        )
    )


def _row(row: Row) -> dict[str, object]:
    bars = [
        (
            bar.kind,
            _short(_LEFT + _WIDTH * bar.start),
            _short(_WIDTH * (bar.end - bar.start)),
            _short(_BAR_HEIGHT * bar.height),
            bar.text,
        )
        for bar in row.bars
    ]
    name = row.name if len(row.name) <= _LONGEST_NAME else f"{row.name[: _LONGEST_NAME - 1]}…"
    return {"name": name, "full_name": row.name, "bars": bars}


def _outline(shares: Sequence[float]) -> str:
    """The path around the columns of the storage."""
    width = _WIDTH / len(shares)
    parts = [f"M{_LEFT} 0"]
    for index, share in enumerate(shares):
        parts.append(f"V{_short(-_BAR_HEIGHT * share)}H{_short(_LEFT + (index + 1) * width)}")
    return "".join([*parts, "V0Z"])


def _short(value: float) -> str:
    """Enough digits for a drawing."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
