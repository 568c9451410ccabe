"""The explanations of all codes, and how they are shown: as Markdown in a terminal, and as the page of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from itertools import groupby
from textwrap import wrap

from msgspec import Struct, convert
from ruamel.yaml import YAML

from .codes import Code


class Case(Struct, frozen=True):
    """One wording of a message, and what to do about it.

    :ivar message: the message as printed; words in capitals and `...` stand for the parts that differ
    :ivar to_do: what to do
    """

    message: str
    to_do: str


class Explanation(Struct, frozen=True):
    """The meaning of a code.

    :ivar title: what has happened
    :ivar why: why that is so, and what it means for the results
    :ivar cases: the wordings, at least one, each with what to do
    :ivar more: a page of the documentation, with an anchor, that says more
    """

    title: str
    why: str
    cases: tuple[Case, ...]
    more: str | None = None


_TEXT = files(__package__).joinpath("explanations.yml").read_text("utf-8")
EXPLANATIONS: Mapping[Code, Explanation] = convert(YAML(typ="safe", pure=True).load(_TEXT), dict[Code, Explanation])
_GROUPS = {
    "S": "Streams and commits",
    "N": "The node runtime",
    "B": "Storage bandwidth, cores, memory",
    "L": "What is learned",
    "P": "Parts of files",
    "T": "Telemetry",
    "C": "CAPIO",
}
_WIDTH = 120
_HEAD = """\
# Message codes

This page is for you if a message ends in a code, as `[SFIO-S001]`. `streamflow-io explain SFIO-S001` prints the same
explanation, and `streamflow-io explain` lists all codes. In quoted messages, words in capitals and `...` stand for
values.

Results are those of plain StreamFlow, unless this page says that a run fails.
"""


def explanation_text(code: Code, documentation: str | None = None) -> str:
    """Return the explanation of a code, for a terminal.

    :param documentation: the address of the directory with the pages. None: the repository is named instead
    """
    found = EXPLANATIONS[code]
    more = f"More: {documentation}/{{}}" if documentation else "More: docs/{} in the repository of StreamFlow-IO"
    return "\n".join([f"{code.value}: {found.title}", "", found.why, *_cases(found), *_more(found, more)])


def reference_page() -> str:
    """Return the page with all codes, `docs/messages.md`."""
    parts = [_HEAD]
    for letter, title in _GROUPS.items():
        parts.append(f"## {title}\n")
        for code in (each for each in Code if _letter(each) == letter):
            found = EXPLANATIONS[code]
            lines = [f"### {code.value}\n", f"**{found.title}.** {found.why}", *_cases(found)]
            parts.append("\n".join([*lines, *_more(found, "[More]({}).")]) + "\n")
    lines = "\n".join(parts).split("\n")
    return "\n".join(piece for line in lines for piece in _wrapped(line))


def _wrapped(line: str) -> list[str]:
    indent = "  " if line.startswith("- ") else ""
    return wrap(line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [""]


def _cases(found: Explanation) -> Iterator[str]:
    """Yield what to do. The wordings tell the cases apart, so one case needs none."""
    yield ""
    groups = [(to_do, [*cases]) for to_do, cases in groupby(found.cases, key=lambda case: case.to_do)]
    for to_do, cases in groups:
        wordings = ", ".join(_quoted(case.message) for case in cases)
        yield f"- {wordings}: {to_do}" if len(groups) > 1 else to_do


def _quoted(message: str) -> str:
    # Backticks in a message need two around it.
    return f"`` {message} ``" if "`" in message else f"`{message}`"


def _more(found: Explanation, text: str) -> Iterator[str]:
    if found.more is not None:
        yield ""
        yield text.format(found.more)


def _letter(code: Code) -> str:
    return code.value.removeprefix("SFIO-")[0]
