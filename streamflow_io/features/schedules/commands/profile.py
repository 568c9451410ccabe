"""`streamflow-io schedule profile`: the periodic bursts of runs, as a set of applications."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from rich.console import Console

from streamflow_io.commands.console import say, table
from streamflow_io.commands.output import write_output
from streamflow_io.features.schedules.files import set_to_json
from streamflow_io.features.schedules.model import Application, ApplicationSet, Platform

from .runs import ProfiledRuns, add_run_arguments, profiled_runs

_HEADER = ("run", "bursts", "jobs", "MB", "MB/s", "I/O (s)", "work (s)", "spread", "error")


class ProfileResult(Struct, frozen=True):
    """:ivar file: where the set was written"""

    found: ProfiledRuns
    file: Path | None
    ok = True

    def to_json(self) -> dict[str, Any]:
        profiles = [{"run": one.name, **one.profile.model_dump(by_alias=True)} for one in self.found.runs]
        return {"file": None if self.file is None else str(self.file), "profiles": profiles}

    def show(self, console: Console) -> None:
        found = self.found
        say(console, f"Bursts on {found.storage}, {found.direction}; medians:")
        console.print(table(None, _HEADER, self._rows(), numbers=_HEADER[1:], unfolded=_HEADER[1:]))
        for one in found.runs:
            if not one.profile.compact:
                say(console, f"{one.name}: its I/O overlaps with compute; `work` is what is left of a period")
        say(console, f"Written: {self.file}" if self.file else "Not written: say -o SET")

    def _rows(self) -> Iterator[list[str]]:
        for one in self.found.runs:
            own = one.profile
            yield [
                one.name,
                f"{own.bursts:,}",
                f"{own.jobs:,}",
                f"{own.volume:,.4g}",
                f"{own.rate:,.4g}",
                f"{own.io_seconds:,.3g}",
                f"{own.work:,.3g}",
                f"{own.spread:.0%}",
                f"{own.error:.1%}",
            ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_arguments(parser)
    parser.add_argument("-o", "--output", metavar="SET", type=Path, help="write the set into this file")


def run(arguments: argparse.Namespace) -> ProfileResult:
    """:raises HintErrors: if a run is not periodic, or the file cannot be written"""
    found = profiled_runs(arguments)
    if arguments.output is not None:
        text = json.dumps({"version": 1, **set_to_json(applications(found))}, indent=2)
        write_output(arguments.output, f"{text}\n")
    return ProfileResult(found, arguments.output)


def applications(found: ProfiledRuns) -> ApplicationSet:
    """A set with an application of one node for each run; each has the rate that the ledger gives its bursts."""
    platform = Platform(len(found.runs), found.bandwidth, found.bandwidth)
    return ApplicationSet(
        platform,
        tuple(Application(one.name, 1, one.profile.work, one.profile.volume, one.profile.rate) for one in found.runs),
    )
