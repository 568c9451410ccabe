"""`streamflow-io coordination STREAMFLOW_FILE --check FILE`: a CAPIO-CL file against the workflow. Nothing is run."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from streamflow_io.capio_cl.comparison import Finding, compare
from streamflow_io.capio_cl.loading import load_capio_cl

from .console import say, table
from .plan import plan_workflow

_MOST_PATHS = 5


@dataclass(frozen=True)
class Check:
    """What in a CAPIO-CL file contradicts a workflow."""

    file: str
    workflow: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self._count("error")

    def to_json(self) -> dict[str, Any]:
        return {"file": self.file, "workflow": self.workflow, "findings": [asdict(each) for each in self.findings]}

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


def check(streamflow_file: Path, file: Path, workflow: str | None = None) -> Check:
    """Compare a CAPIO-CL file with a workflow of a StreamFlow file.

    :param workflow: its name, if the StreamFlow file has several
    :raises HintErrors: if one of the files, the workflow or a hint has mistakes
    """
    theirs = load_capio_cl(file)
    plan = plan_workflow(streamflow_file, workflow)
    ours = plan.configuration
    return Check(os.path.abspath(file), ours.name, compare(ours, theirs, plan.steps))


def _row(finding: Finding) -> tuple[Text, ...]:
    colour = "red" if finding.severity == "error" else "yellow"
    what = f"{finding.kind}\n{finding.subject}{_paths(finding.paths)}"
    sides = f"workflow: {finding.workflow}\nfile: {finding.file}\n{finding.consequence}"
    return Text(finding.severity, colour), Text(what), Text(sides)


def _paths(paths: tuple[str, ...]) -> str:
    more = [f"and {len(paths) - _MOST_PATHS} more"] if len(paths) > _MOST_PATHS else []
    return "".join(f"\n  {line}" for line in (*paths[:_MOST_PATHS], *more))


def _several(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
