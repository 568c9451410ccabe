"""What figures are made of: plain data in the format of plotly.js (https://plotly.com/javascript/reference). Pure.

The colours are those of Okabe and Ito, which colour-blind people can tell apart; dashes, symbols and patterns say the
same without colours.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# A trace, a layout or a part of them: nested data whose shape is given by plotly.js.
Plot = dict[str, Any]

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#F0E442")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "star")
FAILED = "#D55E00"
WAITING = "#BBBBBB"
#: Figures of one kind in a run: more of them would hide the others.
MOST = 8
_TIME = "time since the start of the run (s)"


@dataclass(frozen=True)
class Figure:
    """One figure.

    :ivar caption: how to read it, in a sentence or two
    """

    title: str
    caption: str
    traces: Sequence[Plot]
    layout: Plot


def line(name: str, index: int, x: Sequence[float], y: Sequence[float], shape: str = "linear") -> Plot:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plain(name),
        "showlegend": True,
        "x": [short(value) for value in x],
        "y": [short(value) for value in y],
        "line": {
            "color": COLOURS[index % len(COLOURS)],
            "dash": DASHES[index % len(DASHES)],
            "width": 2,
            "shape": shape,
        },
    }


def how_many_are_shown(count: int, what: str) -> str:
    """The end of a caption, if not all of a kind have a figure."""
    return "" if count <= MOST else f" {MOST} of {count} {what} are shown."


def time_axis() -> Plot:
    return {"title": {"text": _TIME}, "rangemode": "tozero"}


def amount_axis(title: str) -> Plot:
    return {"title": {"text": title}, "rangemode": "tozero"}


def short(value: float) -> float:
    """With the six digits that can be seen: a report holds many numbers."""
    return float(f"{value:.6g}")


def plain(text: str) -> str:
    # plotly.js takes some HTML.
    return html.escape(text, quote=False)


def limit(value: float, until: float, name: str = "limit") -> Plot:
    """A line that is not to be passed; MB/s."""
    drawn = line(f"{name}: {value:g} MB/s", 5, [0.0, until], [value] * 2)
    return drawn | {"line": {"color": FAILED, "dash": "dash", "width": 2}}
