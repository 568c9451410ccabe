"""`streamflow-io schedule check`: whether a schedule can be kept."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict
from rich.console import Console

from streamflow_io.commands.console import say
from streamflow_io.features.schedules.check import Problem, check
from streamflow_io.features.schedules.files import read_schedule
from streamflow_io.features.schedules.model import Schedule

from .table import show_figures

_MOST_SHOWN = 20


class CheckResult(Struct, frozen=True):
    """The problems of a schedule."""

    file: Path
    schedule: Schedule
    problems: Sequence[Problem]

    @property
    def ok(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        return {"file": str(self.file), "problems": [asdict(one) for one in self.problems]}

    def show(self, console: Console) -> None:
        for one in self.problems[:_MOST_SHOWN]:
            say(console, f"{self.file}: {one.field}", "bold red")
            say(console, f"  {one.message}")
        if len(self.problems) > _MOST_SHOWN:
            say(console, f"... and {len(self.problems) - _MOST_SHOWN:,} more")
        if not self.problems:
            show_figures(console, self.schedule)
            say(console, f"{self.file}: every application can keep to it in every period")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="a schedule file")


def run(arguments: argparse.Namespace) -> CheckResult:
    """:raises HintErrors: if it is no schedule file"""
    schedule = read_schedule(arguments.file)
    return CheckResult(arguments.file, schedule, check(schedule))
