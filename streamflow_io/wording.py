"""Words for people."""

import re
from collections.abc import Sequence


def counted(number: float, what: str) -> str:
    """Return a number with its noun: `1 step`, `1,400 steps`, `0.5 cores`."""
    shown = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{shown} {what}{'' if number == 1 else 's'}"


def how_often(number: int) -> str:
    """Return how often something has happened: `once`, `2 times`."""
    return "once" if number == 1 else counted(number, "time")


def first_of(texts: Sequence[str], most: int) -> str:
    """The first texts of a list, with the number of those that are left out: `a, b and 3 more`."""
    shown = ", ".join(texts[:most])
    return f"{shown} and {len(texts) - most:,} more" if len(texts) > most else shown


def size_text(size: float) -> str:
    """Bytes, as `16 B`, `1.2 kB`, `12.3 MB`, with decimal prefixes."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 99.95 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def shortened(text: str) -> str:
    """A text for a message, of at most some 200 characters."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def last_lines(text: str, most: int = 20) -> list[str]:
    """The last lines that a program has printed, as a terminal shows them, without control sequences.

    A line that was written over, such as a progress bar, keeps its last state. A long line keeps its first 500
    characters.
    """
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.rstrip().split("\n")[-most:]]
    shown = [displayed(_SEQUENCES.sub("", line)).rstrip() for line in lines]
    return [line if len(line) <= 500 else f"{line[:500]}..." for line in shown] if text.strip() else []


# What sets colours, moves the cursor, or names the window.
_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")


def displayed(text: str, *, colours: bool = False) -> str:
    """A text with names of others, without what a terminal would obey, and what turns the order of characters.

    :param colours: whether sequences that set colours stay
    """
    if colours and "\x1b" in text:
        parts = _COLOURS.split(text)
        return "".join(part if number % 2 else displayed(part) for number, part in enumerate(parts))
    return text.translate(_NOT_DISPLAYED)


_COLOURS = re.compile(r"(\x1b\[[0-9;]*m)")


_LONGEST = 200
# Control characters, but for those that end lines and columns; marks, embeddings and overrides of a direction.
_NOT_DISPLAYED = dict.fromkeys(
    [*range(9), *range(11, 32), *range(127, 160), 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)],
    "\N{REPLACEMENT CHARACTER}",
)
