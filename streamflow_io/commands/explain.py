"""`streamflow-io explain`: what a message means whose code is given."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from streamflow_io.messages import EXPLANATIONS, Code
from streamflow_io.messages.page import explanation_text

from .console import say, table

_PREFIX = "SFIO-"


@dataclass(frozen=True)
class Explained:
    """:ivar codes: those that were asked for; none: the list of all"""

    codes: Sequence[Code]
    ok = True

    def to_json(self) -> dict[str, Any]:
        return {"codes": {code.value: asdict(EXPLANATIONS[code]) for code in self.codes or Code}}

    def show(self, console: Console) -> None:
        for number, code in enumerate(self.codes):
            if number:
                say(console, "")
            console.print(Markdown(explanation_text(code)))
        if not self.codes:
            rows = [(code.value, EXPLANATIONS[code].title) for code in Code]
            console.print(table(None, ("code", "what has happened"), rows, unfolded=("code",)))
            say(console, "What to do: streamflow-io explain CODE")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "codes", metavar="CODE", nargs="*", type=_code, help="as at the end of a message, SFIO-S001; none: list them"
    )


def run(arguments: argparse.Namespace) -> Explained:
    return Explained(arguments.codes)


def _code(text: str) -> Code:
    """A code as people copy it: in brackets, or without its prefix."""
    try:
        return Code(_PREFIX + text.strip("[]").upper().removeprefix(_PREFIX))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no code; `streamflow-io explain` lists them") from None
