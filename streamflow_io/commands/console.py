"""The results of commands, how they are printed, and the files that commands write."""

from __future__ import annotations

import argparse
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, OverflowMethod, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from streamflow_io.files import write_atomically
from streamflow_io.hints.errors import HintError, HintErrors
from streamflow_io.wording import displayed

# The most columns of a terminal (of 80) that a table column may take without being folded.
_UNFOLDED = 40


class CommandResult(Protocol):
    """The result of a subcommand."""

    @property
    def ok(self) -> bool:
        """Whether all is well: the exit code is 0 then, and only then."""

    def to_json(self) -> dict[str, Any]:
        """Return the result for programs; `ok` is added."""

    def show(self, console: Console) -> None:
        """Print the result for people."""


class PlainResult(Struct, frozen=True):
    """A result that is data for programs, and texts and tables for people.

    :ivar shown: printed one after the other; nothing in a string is markup
    """

    facts: Mapping[str, Any]
    shown: Sequence[RenderableType]
    ok: bool = True

    def to_json(self) -> dict[str, Any]:
        return dict(self.facts)

    def show(self, console: Console) -> None:
        for part in self.shown:
            if isinstance(part, str):
                say(console, part)
            else:
                console.print(part)


class DocumentResult(Struct, frozen=True):
    """A document that a command has made.

    :ivar facts: for programs
    :ivar output: the file that was written. None: the text is printed
    :ivar told: what people are told once the file is written, each text with its style
    :ivar missing: why there is no text. None: the text is written or printed
    """

    text: str
    facts: Mapping[str, Any]
    output: Path | None = None
    told: Sequence[tuple[str, str]] = ()
    ok: bool = True
    missing: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"output": None if self.output is None else str(self.output), **self.facts}

    def show(self, console: Console) -> None:
        if self.missing is not None:
            # Standard output may be redirected into the file.
            say(SafeConsole(stderr=True), self.missing, "yellow")
        elif self.output is None:
            # The console would fold the text at the width of the terminal.
            console.file.write(self.text)
        else:
            for text, style in self.told:
                say(console, text, style)


class Command(Protocol):
    """A module that implements a subcommand."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments, except `--json`."""

    def run(self, arguments: argparse.Namespace) -> CommandResult:
        """Do the work.

        :raises HintErrors: if hints have mistakes; they are shown, and the exit code is 1
        """


class SafeConsole(Console):
    """A console that shows texts of others without characters that control a terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=displayed(segment.text))


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
    cut: Container[str] = (),
) -> Table:
    """Make a table. Text that is wider than its column is folded. Nothing in a string is markup.

    :param numbers: the columns that are aligned at their right
    :param unfolded: the columns that are as wide as their text, unless a text is wider than half a terminal. On a
        terminal that is too small for them, such a text ends in an ellipsis
    :param cut: the columns in which a word that is too long ends in an ellipsis
    """
    made = Table(title=None if title is None else escape(title), title_justify="left")
    kept = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    for number, column in enumerate(columns):
        justify: JustifyMethod = "right" if column in numbers else "left"
        is_narrow = max((_width(row[number]) for row in kept), default=0) <= _UNFOLDED
        no_wrap = column in unfolded and is_narrow
        overflow: OverflowMethod = "ellipsis" if no_wrap or column in cut else "fold"
        made.add_column(column, justify=justify, overflow=overflow, no_wrap=no_wrap)
    for row in kept:
        made.add_row(*row)
    return made


def _width(cell: RenderableType) -> int:
    """Return the columns that a text takes, if it is not folded."""
    return max(map(cell_len, str(cell).splitlines()), default=0)


def show_errors(console: Console, errors: Sequence[HintError]) -> None:
    """Print mistakes for people, each with its position first so that a terminal or an editor can go there."""
    for error in errors:
        file = os.path.relpath(error.file) if os.path.isabs(error.file) else error.file
        position = file if error.line is None else f"{file}:{error.line}"
        say(console, f"{position}: {error.field}", "bold red")
        say(console, f"  {error.message}\n  allowed: {error.allowed}")


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the file that a command writes, and for the workflow."""
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write into this file (default: print)")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.add_argument("--workflow", metavar="NAME", help="a workflow, if the StreamFlow file has several")


def output_of(arguments: argparse.Namespace) -> Path | None:
    """Return the file to write. None: the result is printed.

    :raises HintErrors: if the file exists, and is not to be overwritten
    """
    output: Path | None = arguments.output
    if output is not None and not arguments.force and os.path.lexists(output):
        raise HintErrors.one(output, "--output", "exists", "another file, or --force to overwrite it")
    return output


def write_output(path: Path, text: str) -> None:
    """Write all of a file or nothing.

    :raises HintErrors: if the file cannot be written
    """
    try:
        write_atomically(path, text)
    except OSError as error:
        raise HintErrors.one(
            path, "--output", f"cannot be written: {error.strerror}", "a file that can be written"
        ) from None
