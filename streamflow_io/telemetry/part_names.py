"""What the files of a list are called, if they are numbered. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_DIGITS = re.compile(r"[0-9]+")
# The most that a rule of a read session can have.
_WIDEST = 18


@dataclass(frozen=True)
class PartNames:
    """:ivar names: with one `%d`, or `%0Nd`, for the number

    :ivar first: the number of the first one
    """

    names: str
    first: int


def names_of_parts(found: Sequence[str]) -> PartNames | None:
    """What these names, in order, have in common; None: they are not numbered one after the other.

    :param found: names without a slash
    """
    if not found or "%" in found[0] or not all(name.isprintable() for name in found):
        return None
    ends = ((start, run.end()) for run in _DIGITS.finditer(found[0]) for start in range(run.start(), run.end()))
    for start, end in ends:
        before, digits, after = found[0][:start], found[0][start:end], found[0][end:]
        first, width = int(digits), len(digits) if digits.startswith("0") and len(digits) > 1 else 0
        if width <= _WIDEST and all(
            name == f"{before}{number:0{width}d}{after}" for number, name in enumerate(found, first)
        ):
            return PartNames(f"{before}%{f'0{width}' if width else ''}d{after}", first)
    return None
