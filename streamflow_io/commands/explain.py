"""`streamflow-io explain`: the meaning of the messages with given codes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.metadata import metadata

from msgspec import to_builtins
from rich.console import RenderableType
from rich.markdown import Markdown

from streamflow_io.messages import Code
from streamflow_io.messages.explanations import EXPLANATIONS, explanation_text

from .console import PlainResult, table

_PREFIX = "SFIO-"


def answer(codes: Sequence[Code]) -> PlainResult:
    """Return the meaning of each code.

    :param codes: empty: all codes are listed
    """
    facts = {"codes": {code.value: to_builtins(EXPLANATIONS[code]) for code in codes or Code}}
    if codes:
        documentation = documentation_of(metadata("streamflow-io").get_all("Project-URL") or ())
        shown: list[RenderableType] = []
        for code in codes:
            shown += ["", Markdown(explanation_text(code, documentation))]
        return PlainResult(facts, shown[1:])
    rows = [(code.value, EXPLANATIONS[code].title) for code in Code]
    listed = table(None, ("code", "what has happened"), rows, unfolded=("code",))
    return PlainResult(facts, [listed, "What to do: streamflow-io explain CODE"])


def documentation_of(urls: Sequence[str]) -> str | None:
    """Return the address of the directory with the pages. None: the package was built without an address.

    :param urls: as metadata of a package have them: `Documentation, https://.../docs/index.md`
    """
    pages = (url.partition(", ")[2] for url in urls if url.startswith("Documentation, "))
    return next((page.rpartition("/")[0] for page in pages), None)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "codes",
        metavar="CODE",
        nargs="*",
        type=_code,
        help="the code at the end of a message, as SFIO-S001 (default: a list of all codes)",
    )


def run(arguments: argparse.Namespace) -> PlainResult:
    return answer(arguments.codes)


def _code(text: str) -> Code:
    """Return a code from a text in which people write it: in brackets, or without its prefix."""
    try:
        return Code(_PREFIX + text.strip("[]").upper().removeprefix(_PREFIX))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no code; `streamflow-io explain` lists them") from None
