"""What figures are made of: plain data. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Figures of one kind in a run: more of them would hide the others.
MOST = 8
TIME = "time since the start of the run (s)"

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """A line of a figure.

    :ivar index: which colour and which dash it has
    :ivar steps: each value holds until the next; otherwise straight lines lead from one to the next
    :ivar colour: instead of that of its index
    :ivar area: what is below it is filled, with this opacity
    :ivar labels: beside points, as many as there are points
    :ivar open: points that are drawn as circles that are not filled
    """

    name: str
    points: Points
    index: int = 0
    steps: bool = True
    colour: str | None = None
    area: float = 0.0
    labels: Sequence[str] = ()
    open: Sequence[bool] = ()


@dataclass(frozen=True)
class Bars:
    """A row of bars of a figure, one after the other, in one line.

    :ivar parts: from where to where, the index of the kind, and what there is to say of it
    """

    name: str
    parts: Sequence[tuple[float, float, int, str]]
    text: str = ""


@dataclass(frozen=True)
class Figure:
    """One figure: lines, or rows of bars.

    :ivar caption: how to read it, in a sentence or two
    :ivar x_title: with its unit
    :ivar y_title: the same; of bars none
    :ivar until: where the x axis ends, at least
    :ivar limits: values that are not to be passed, with their names
    :ivar bands: above the x axis: a name, a colour, and from when to when
    :ivar kinds: of bars: what each kind is
    :ivar whole: the x axis counts something: it has whole numbers only
    """

    title: str
    caption: str
    x_title: str
    y_title: str = ""
    lines: Sequence[Line] = ()
    bars: Sequence[Bars] = ()
    until: float = 0.0
    limits: Sequence[tuple[str, float]] = ()
    bands: Sequence[tuple[str, str, Points]] = ()
    kinds: Sequence[tuple[str, str]] = ()
    whole: bool = False


def levels_line(
    name: str, index: int, levels: Points, until: float, area: float = 0.0, colour: str | None = None
) -> Line:
    """A line of levels, each of which holds until the next: from 0 at the start of the run to its end."""
    last = levels[-1][1] if levels else 0.0
    return Line(name, [(0.0, 0.0), *levels, (until, last)], index, area=area, colour=colour)


def bins_line(name: str, index: int, width: float, values: Sequence[float]) -> Line:
    """A line of means, each of an interval of the same width, from the start of the run on."""
    points = [(number * width, value) for number, value in enumerate(values)]
    return Line(name, [*points, (len(values) * width, values[-1] if values else 0.0)], index)


def limit(value: float, name: str = "limit") -> tuple[str, float]:
    """A line that is not to be passed; MB/s."""
    return f"{name}: {value:g} MB/s", value


def of_run(run: str, runs: int) -> str:
    """The end of a title, where several runs are shown."""
    return f" of {run}" if runs > 1 else ""


def how_many_are_shown(count: int, what: str) -> str:
    """The end of a caption, if not all of a kind have a figure."""
    return "" if count <= MOST else f" {MOST} of {count} {what} are shown."
