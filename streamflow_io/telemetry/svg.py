"""What drawings have in common: SVG as text, colours, axes. Pure.

The colours are those of Okabe and Ito, which colour-blind people can tell apart; dashes, patterns and words say the
same without colours.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#8C7B00")
DASHES = ("", "7 4", "2 3", "9 3 2 3", "12 4", "4 2 1 2")
BAD = "#D55E00"
WAITING = "#BBBBBB"
# About as wide as a character is, of its height.
_CHARACTER = 0.57


def text_of(text: str) -> str:
    """A text inside of an element."""
    return html.escape(text, quote=True)


def short(value: float) -> str:
    """Enough digits for a drawing."""
    return f"{value:.1f}".removesuffix(".0")


def width_of(text: str, size: float = 12) -> float:
    """About how wide a text is."""
    return len(text) * size * _CHARACTER


def cut(text: str, most: int) -> str:
    """A name with at most so many characters: what is left out is its beginning, as of a path."""
    return text if len(text) <= most else f"…{text[1 - most :]}"


def ticks(most: float, count: int = 6) -> list[float]:
    """Round numbers from 0 on, about so many."""
    if most <= 0 or not math.isfinite(most):
        return [0.0]
    rough = most / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    return [step * index for index in range(math.floor(most / step * 1.0001) + 1)]


def tick_text(value: float) -> str:
    return f"{value:,.6g}"


def points(pairs: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{short(x)},{short(y)}" for x, y in pairs)
