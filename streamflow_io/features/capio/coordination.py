"""The options of `streamflow-io coordination` that need CAPIO: `--script` and `--check`. Nothing is run."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from rich.console import Console
from rich.text import Text

from streamflow_io.commands.console import say, table
from streamflow_io.commands.coordination import MoreOptions
from streamflow_io.commands.output import write_output
from streamflow_io.engine.plan import Plan
from streamflow_io.hints.errors import HintErrors

from .language.comparison import Difference, compare
from .language.launcher import write_launcher
from .loading import load_capio_cl

_MOST_PATHS = 5


class Check(Struct, frozen=True):
    """Contradictions between a CAPIO-CL file and a workflow."""

    file: str
    workflow: str
    findings: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        return not self._count("error")

    def to_json(self) -> dict[str, Any]:
        return {"file": self.file, "workflow": self.workflow, "findings": [to_builtins(each) for each in self.findings]}

    def show(self, console: Console) -> None:
        if self.findings:
            columns = ("", "what", "workflow, file, consequence")
            console.print(table(None, columns, map(_row, self.findings), lines=True))
        counted = f"{_several(self._count('error'), 'error')}, {_several(self._count('warning'), 'warning')}"
        verdict = counted if self.findings else f"says what the workflow {self.workflow} and its hints say"
        text = f"{os.path.relpath(self.file)}: {verdict}"
        say(console, text, "bold")

    def _count(self, severity: str) -> int:
        return sum(finding.severity == severity for finding in self.findings)


class CapioOptions(MoreOptions):
    """The options `--script` and `--check`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--script",
            metavar="FILE",
            type=Path,
            help="write a script that runs the workflow under CAPIO",
        )
        parser.add_argument("--check", metavar="FILE", type=Path, help="compare a CAPIO-CL file with the workflow")

    def run(self, arguments: argparse.Namespace, plan: Plan) -> Check | None:
        """Write the script, or compare a file with the plan of a workflow.

        :raises HintErrors: if the file has mistakes, or the script cannot be written
        """
        if arguments.check is not None:
            return check(plan, arguments.check)
        if arguments.script is not None:
            if arguments.directory is None:
                raise HintErrors.one(
                    arguments.script, "--script", "needs --directory", "the directory for CAPIO's files"
                )
            write_output(arguments.script, write_launcher(plan.configuration, str(arguments.directory.absolute())))
        return None


def check(plan: Plan, file: Path) -> Check:
    """Compare a CAPIO-CL file with the plan of a workflow.

    :raises HintErrors: if the file has mistakes
    """
    ours = plan.configuration
    return Check(os.path.abspath(file), ours.name, compare(ours, load_capio_cl(file), plan.graph.steps))


def _row(finding: Difference) -> tuple[Text, ...]:
    colour = "red" if finding.severity == "error" else "yellow"
    what = f"{finding.kind}\n{finding.subject}{_paths(finding.paths)}"
    sides = f"workflow: {finding.workflow}\nfile: {finding.file}\n{finding.consequence}"
    return Text(finding.severity, colour), Text(what), Text(sides)


def _paths(paths: tuple[str, ...]) -> str:
    more = [f"and {len(paths) - _MOST_PATHS} more"] if len(paths) > _MOST_PATHS else []
    return "".join(f"\n  {line}" for line in (*paths[:_MOST_PATHS], *more))


def _several(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
