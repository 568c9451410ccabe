"""What commands print for people."""

from __future__ import annotations

import argparse
import os
from collections.abc import Container, Iterable, Sequence
from typing import Any, Protocol

from rich.console import Console, JustifyMethod, RenderableType
from rich.table import Table

from streamflow_io.hints.errors import HintError


class Result(Protocol):
    """What a subcommand found out."""

    @property
    def ok(self) -> bool:
        """Whether all is well: the exit code is 0 then, and only then."""

    def to_json(self) -> dict[str, Any]:
        """The result for programs; `ok` is added."""

    def show(self, console: Console) -> None:
        """The result for people."""


class Command(Protocol):
    """A module that implements a subcommand."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments; `--json` is there already."""

    def run(self, arguments: argparse.Namespace) -> Result:
        """Do the work.

        :raises HintErrors: if hints have mistakes; they are shown, and the exit code is 1
        """


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print a text as it is: nothing in it is markup, and no line is folded."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def table(
    title: str | None,
    columns: Iterable[str],
    rows: Iterable[Iterable[RenderableType]],
    *,
    numbers: Container[str] = (),
    unfolded: Container[str] = (),
    lines: bool = False,
) -> Table:
    """A table; what is wider than its column is folded.

    :param numbers: the columns that are aligned at their right
    :param unfolded: the columns that are as wide as what is in them
    :param lines: between the rows
    """
    made = Table(title=title, title_justify="left", show_lines=lines)
    for column in columns:
        justify: JustifyMethod = "right" if column in numbers else "left"
        made.add_column(column, justify=justify, overflow="fold", no_wrap=column in unfolded)
    for row in rows:
        made.add_row(*row)
    return made


def show_errors(console: Console, errors: Sequence[HintError]) -> None:
    """Print mistakes for people, each with its position first so that a terminal or an editor can go there."""
    for error in errors:
        file = os.path.relpath(error.file) if os.path.isabs(error.file) else error.file
        position = file if error.line is None else f"{file}:{error.line}"
        say(console, f"{position}: {error.field}", "bold red")
        say(console, f"  {error.message}\n  allowed: {error.allowed}")
