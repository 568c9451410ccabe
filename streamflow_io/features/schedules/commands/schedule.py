"""`streamflow-io schedule`: make a schedule for a set of applications that compute and transfer by turns."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from rich.console import Console

from streamflow_io.commands.console import say, table, write_output
from streamflow_io.features.schedules.check import check
from streamflow_io.features.schedules.files import (
    SET_ALLOWED,
    paper_number,
    published,
    read_set,
    schedule_text,
    schedule_to_json,
)
from streamflow_io.features.schedules.model import ApplicationSet, Goal, Schedule
from streamflow_io.features.schedules.persched import LARGEST_FACTOR, STEP, Sweep, persched
from streamflow_io.hints.errors import HintErrors
from streamflow_io.wording import counted

_HEADER = ("name", "nodes", "work (s)", "volume (MB)", "instances", "computes", "dilation")


class ComputeResult(Struct, frozen=True):
    """
    :ivar document: the schedule, as it is in a file
    :ivar file: where it was written
    """

    schedule: Schedule
    goal: Goal
    seconds: float
    document: Mapping[str, Any]
    file: Path | None
    ok = True

    def to_json(self) -> dict[str, Any]:
        return {"file": None if self.file is None else str(self.file), "schedule": self.document}

    def show(self, console: Console) -> None:
        _show_figures(console, self.schedule, self.goal)
        say(console, f"Made by PerSched in {self.seconds:.1f} s of CPU time")
        say(console, f"Written: {self.file}" if self.file else "Not written: say -o FILE")


def _show_figures(console: Console, schedule: Schedule, goal: Goal) -> None:
    """How good a schedule is, and how good it could be."""
    console.print(table(None, _HEADER, _rows(schedule), numbers=_HEADER[1:], unfolded=_HEADER[1:]))
    of, rates = schedule.set, schedule.pattern.rates
    instances = counted(sum(schedule.pattern.counts), "instance")
    say(console, f"Period: {schedule.pattern.period:,.6g} s, {instances}; goal: {goal}")
    say(console, f"Efficiency: {of.efficiency(rates):.5f} (no schedule has more than {of.bounds.efficiency:.5f})")
    say(console, f"Dilation: {of.dilation(rates):.4f} (no schedule has less than {of.bounds.dilation:.4f})")


def _rows(schedule: Schedule) -> Iterator[list[str]]:
    pattern, dilations = schedule.pattern, schedule.set.dilations(schedule.pattern.rates)
    for one, count, rate, dilation in zip(
        schedule.set.applications, pattern.counts, pattern.rates, dilations, strict=True
    ):
        yield [
            one.name,
            f"{one.nodes:,}",
            f"{one.work:,.6g}",
            f"{one.volume:,.6g}",
            f"{count:,}",
            f"{one.work * rate:.1%}",
            f"{dilation:.4f}",
        ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("set", metavar="SET", help=SET_ALLOWED)
    parser.add_argument(
        "--goal",
        choices=("efficiency", "dilation"),
        default="efficiency",
        help="largest efficiency (default) or smallest dilation",
    )
    parser.add_argument(
        "--seconds",
        type=_positive,
        default=10.0,
        metavar="S",
        help="the CPU time of the search (default: 10)",
    )
    parser.add_argument(
        "--least-period",
        type=_positive,
        metavar="S",
        help="the shortest period (default: the longest instance)",
    )
    parser.add_argument(
        "--paper",
        action="store_true",
        help="no limit of time; paper sets: its shortest period",
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write the schedule into this file")


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: a number of seconds above 0")
    return value


def run(arguments: argparse.Namespace) -> ComputeResult:
    """:raises HintErrors: if the set has mistakes, no schedule is found, or the file cannot be written"""
    applications = read_set(arguments.set)
    begin = time.process_time()
    least = arguments.least_period or _least_period(applications, arguments)
    until = math.inf if arguments.paper else begin + arguments.seconds
    found = persched(applications, Sweep(least), arguments.goal, lambda: time.process_time() < until)
    ended = time.process_time()
    if found is None and ended >= until:
        message = f"nothing was found in {arguments.seconds:g} s of CPU time"
        raise HintErrors.one(arguments.set, "--seconds", message, "more seconds, or a longer --least-period")
    if found is None:
        message = f"no period from {least:.6g} s to {LARGEST_FACTOR * least:.6g} s has room for all applications"
        raise HintErrors.one(arguments.set, "--least-period", message, "a longer period")
    parameters = {"leastPeriod": least, "largestFactor": LARGEST_FACTOR, "step": STEP}
    schedule = Schedule(applications, found)
    if problems := check(schedule):
        raise RuntimeError(f"the schedule cannot be kept: {problems[0].field} {problems[0].message}")
    algorithm = {"name": "persched", "parameters": parameters, "seconds": ended - begin}
    document = {**schedule_to_json(schedule), "goal": arguments.goal, "algorithm": algorithm}
    if arguments.output is not None:
        write_output(arguments.output, schedule_text(document))
    return ComputeResult(schedule, arguments.goal, ended - begin, document, arguments.output)


def _least_period(applications: ApplicationSet, arguments: argparse.Namespace) -> float:
    number = paper_number(arguments.set)
    if arguments.paper and number is not None:
        return published(number).least_period
    return max(applications.durations)
