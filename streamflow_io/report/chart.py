"""Figures as plain data, and as SVG: lines over an axis, and rows of bars.

The colours are those of Okabe and Ito, which colour-blind people can tell apart; dashes, patterns and words say the
same without colours. Every text can be selected.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

_WIDTH = 1040
_HEIGHT = 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 24, 26, 44
_ROW, _BAR = 26, 16
_LEGEND = 20
_LONGEST = 34
# The most numbers of a line that stand below its figure.
_NUMBERS = 40


def draw_figure(figure: Figure) -> str:
    """Return the SVG of a figure."""
    return _bars(figure) if figure.bars else _lines(figure)


def numbers(figure: Figure) -> str:
    """Return the numbers of a figure, as text that can be copied: for each line, a column of x, and one of y."""
    parts = []
    for line in figure.lines:
        some = _few(line.points)
        of = (
            ""
            if len(some) == len(line.points)
            else f" ({len(some)} of {len(line.points):,}, the highest of neighbours)"
        )
        parts.append(f"{line.name}{of}\n" + "\n".join(f"{x:.6g}\t{y:.6g}" for x, y in some))
    for row in figure.bars:
        spans = row.parts[:_NUMBERS]
        of = "" if len(spans) == len(row.parts) else f" (the first {len(spans)} of {len(row.parts):,})"
        parts.append(
            f"{row.name}{of}\n" + "\n".join(f"{begin:.6g}\t{end:.6g}\t{text}" for begin, end, _, text in spans)
        )
    return "\n\n".join(parts)


def _few(all_points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    stride = -(-len(all_points) // _NUMBERS) or 1
    return [max(all_points[at : at + stride], key=lambda one: one[1]) for at in range(0, len(all_points), stride)]


class _Scale:
    """Maps values to places in a drawing."""

    def __init__(self, most: float, begin: float, end: float) -> None:
        self.most = most if most > 0 else 1.0
        self.begin, self.end = begin, end

    def __call__(self, value: float) -> float:
        return self.begin + (self.end - self.begin) * value / self.most


def _svg(figure: Figure, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {short(height)}" role="img" aria-label="{text_of(figure.title)}">'
        f"{''.join(parts)}</svg>"
    )


def _lines(figure: Figure) -> str:
    x_most = max(figure.until, max((x for line in figure.lines for x, _ in line.points), default=0.0))
    y_most = max([y for line in figure.lines for _, y in line.points] + [value for _, value in figure.limits] + [0.0])
    named = [line.name for line in figure.lines] + [name for name, _ in figure.limits]
    legend, rows = _legend(figure)
    top = _TOP + _LEGEND * (rows - 1 if named else 0)
    bottom = top + _HEIGHT
    labelled = any(line.labels for line in figure.lines)
    x = _Scale(x_most * (1.06 if labelled else 1.0), _LEFT, _WIDTH - _RIGHT)
    y = _Scale(y_most * (1.22 if labelled else 1.06), bottom, top)
    parts = [legend, *_axes(figure, x, y, x_most, y_most, top, bottom)]
    for line in figure.lines:
        parts += _line(line, x, y)
    for _, colour, spans in figure.bands:
        parts += [_rule(x(begin), x(end), bottom, colour, 8) for begin, end in spans]
    for _, value in figure.limits:
        at = short(y(value))
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at}" y2="{at}" stroke="{BAD}" stroke-width="1.5"'
            ' stroke-dasharray="7 4"/>'
        )
    return _svg(figure, bottom + _BOTTOM, parts)


def _rule(begin: float, end: float, y: float, colour: str, width: int) -> str:
    at = short(y)
    return f'<line x1="{short(begin)}" x2="{short(end)}" y1="{at}" y2="{at}" stroke="{colour}" stroke-width="{width}"/>'


def _axes(
    figure: Figure, x: _Scale, y: _Scale, x_most: float, y_most: float, top: float, bottom: float
) -> Iterator[str]:
    for value in ticks(y_most, 5):
        at = short(y(value))
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at}" y2="{at}"/>'
        yield f'<text class="tick end" x="{_LEFT - 7}" y="{short(y(value) + 4)}">{tick_text(value)}</text>'
    yield from _time_axis(figure, x, x_most, top, bottom)
    middle = short((top + bottom) / 2)
    yield f'<text class="title" transform="translate(14 {middle}) rotate(-90)">{text_of(figure.y_title)}</text>'


def _time_axis(figure: Figure, x: _Scale, most: float, top: float, bottom: float) -> Iterator[str]:
    values = ticks(most, 8)
    if figure.whole:
        values = [float(value) for value in range(1, int(most) + 1)]
    for value in values:
        at = short(x(value))
        yield f'<line class="grid" x1="{at}" x2="{at}" y1="{short(top)}" y2="{short(bottom)}"/>'
        yield f'<text class="tick" x="{at}" y="{short(bottom + 16)}">{tick_text(value)}</text>'
    begin, end = short(x.begin), short(x.end)
    yield f'<line class="axis" x1="{begin}" x2="{end}" y1="{short(bottom)}" y2="{short(bottom)}"/>'
    middle = short((x.begin + x.end) / 2)
    yield f'<text class="title" x="{middle}" y="{short(bottom + 36)}">{text_of(figure.x_title)}</text>'


def _line(line: ChartLine, x: _Scale, y: _Scale) -> Iterator[str]:
    colour = line.colour or COLOURS[line.index % len(COLOURS)]
    dash = DASHES[line.index % len(DASHES)]
    way = [(x(one), y(value)) for one, value in line.points]
    if line.steps:
        way = [point for before, now in itertools.pairwise(way) for point in (before, (now[0], before[1]))]
        way += [(x(line.points[-1][0]), y(line.points[-1][1]))] if line.points else []
    if not way:
        return
    if line.area:
        around = [(way[0][0], y(0.0)), *way, (way[-1][0], y(0.0))]
        yield f'<polygon points="{points(around)}" fill="{colour}" fill-opacity="{line.area:g}"/>'
    yield (
        f'<polyline points="{points(way)}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}">'
        f"<title>{text_of(line.name)}</title></polyline>"
    )
    if not line.labels:
        return
    for number, ((one, value), label) in enumerate(zip(line.points, line.labels, strict=True)):
        is_open = bool(line.open) and line.open[number]
        above = line.index % 2 == 0
        yield (
            f'<circle cx="{short(x(one))}" cy="{short(y(value))}" r="4.5" stroke="{colour}" stroke-width="2"'
            f' fill="{"#fff" if is_open else colour}"/>'
            f'<text class="tick" x="{short(x(one))}" y="{short(y(value) + (-10 if above else 20))}">'
            f"{text_of(label)}</text>"
        )


def _legend(figure: Figure) -> tuple[str, int]:
    """Return the names of the lines, as SVG, and how many rows the names take."""
    entries = [
        (line.name, line.colour or COLOURS[line.index % len(COLOURS)], DASHES[line.index % len(DASHES)])
        for line in figure.lines
    ]
    entries += [(name, BAD, "7 4") for name, _ in figure.limits]
    entries += [(name, colour, "") for name, colour, _ in figure.bands]
    at, row, parts = float(_LEFT), 0, []
    for name, colour, dash in entries:
        width = 34 + width_of(name) + 22
        if at + width > _WIDTH - _RIGHT and at > _LEFT:
            at, row = float(_LEFT), row + 1
        y = 10 + _LEGEND * row
        parts.append(
            f'<line x1="{short(at)}" x2="{short(at + 28)}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2.5"'
            f' stroke-dasharray="{dash}"/><text x="{short(at + 34)}" y="{y + 4}">{text_of(name)}</text>'
        )
        at += width
    return "".join(parts), row + 1


def _bars(figure: Figure) -> str:
    left = max(_LEFT, min(_LONGEST, max(len(row.name) for row in figure.bars)) * 7 + 16)
    right = _RIGHT + max(width_of(row.text) for row in figure.bars)
    most = max(figure.until, max((end for row in figure.bars for _, end, _, _ in row.parts), default=0.0))
    top = _TOP if figure.kinds else 6
    bottom = top + _ROW * len(figure.bars) + 4
    x = _Scale(most, left, _WIDTH - right)
    parts = []
    at = float(left)
    for kind, (name, colour) in enumerate(figure.kinds):
        parts.append(
            f'<rect x="{short(at)}" y="3" width="14" height="12" fill="{_fill(kind, colour)}" stroke="{colour}"/>'
            f'<text x="{short(at + 20)}" y="13">{text_of(name)}</text>'
        )
        at += 20 + width_of(name) + 22
    colours = [colour for _, colour in figure.kinds] or [COLOURS[0]]
    parts = [_patterns(colours), *parts, *_time_axis(figure, x, most, top, bottom)]
    for number, row in enumerate(figure.bars):
        y = top + _ROW * number + (_ROW - _BAR) / 2
        parts.append(
            f'<text class="end" x="{left - 8}" y="{short(y + 12)}"><title>{text_of(row.name)}</title>'
            f"{text_of(cut(row.name, _LONGEST))}</text>"
        )
        for begin, end, kind, said in row.parts:
            parts.append(
                f'<rect x="{short(x(begin))}" y="{short(y)}" width="{short(max(0.5, x(end) - x(begin)))}"'
                f' height="{_BAR}" fill="{_fill(kind, colours[kind])}" stroke="{colours[kind]}" stroke-width=".7">'
                f"<title>{text_of(said)}</title></rect>"
            )
        last = max((end for _, end, _, _ in row.parts), default=0.0)
        parts.append(f'<text x="{short(x(last) + 7)}" y="{short(y + 12)}">{text_of(row.text)}</text>')
    return _svg(figure, bottom + _BOTTOM, parts)


def _fill(kind: int, colour: str) -> str:
    """Return the fill of a kind of bar. Kinds differ by a pattern, too: the first kind is filled."""
    return colour if kind == 0 else f"url(#kind{kind}{colour.removeprefix('#')})"


def _patterns(colours: Sequence[str]) -> str:
    made = []
    for kind, colour in list(enumerate(colours))[1:]:
        marks = (
            '<path d="M0 6L6 0"/>',
            '<path d="M0 0L6 6M0 6L6 0"/>',
            '<circle cx="3" cy="3" r="1"/>',
        )[(kind - 1) % 3]
        made.append(
            f'<pattern id="kind{kind}{colour.removeprefix("#")}" width="6" height="6" patternUnits="userSpaceOnUse">'
            f'<rect width="6" height="6" fill="{colour}" fill-opacity=".35"/><g stroke="{colour}" fill="none"'
            f' stroke-width="1.4">{marks}</g></pattern>'
        )
    return f"<defs>{''.join(made)}</defs>" if made else ""


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#8C7B00")
DASHES = ("", "7 4", "2 3", "9 3 2 3", "12 4", "4 2 1 2")
BAD = "#D55E00"
WAITING = "#BBBBBB"
# Width of a character, as a share of its height.
_CHARACTER = 0.57


def text_of(text: str) -> str:
    """Return a text for the inside of an element."""
    return html.escape(text, quote=True)


def short(value: float) -> str:
    """Return a number with enough digits for a drawing."""
    return f"{value:.1f}".removesuffix(".0")


def width_of(text: str, size: float = 12) -> float:
    """Return about how wide a text is."""
    return len(text) * size * _CHARACTER


def cut(text: str, most: int) -> str:
    """Return a name of at most `most` characters: a longer name loses its beginning, as a path does."""
    return text if len(text) <= most else f"…{text[1 - most :]}"


def ticks(most: float, count: int = 6) -> list[float]:
    """Return round numbers from 0 on, about `count` of them."""
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


#: The most figures of one kind in a run: more of them would hide the others.
MOST = 8
TIME = "time since the start of the run (s)"

ChartPoints = Sequence[tuple[float, float]]


class ChartLine(Struct, frozen=True):
    """A line of a figure.

    :ivar index: selects colour and dash
    :ivar steps: each value holds until the next; otherwise straight lines join the points
    :ivar colour: replaces the colour of the index
    :ivar area: the opacity with which the area below the line is filled
    :ivar labels: texts beside the points, one for each
    :ivar open: whether each point is drawn as an open circle
    """

    name: str
    points: ChartPoints
    index: int = 0
    steps: bool = True
    colour: str | None = None
    area: float = 0.0
    labels: Sequence[str] = ()
    open: Sequence[bool] = ()


class Bars(Struct, frozen=True):
    """A row of bars of a figure, one after the other, in one line.

    :ivar parts: begin, end, index of the kind, and a text for each bar
    """

    name: str
    parts: Sequence[tuple[float, float, int, str]]
    text: str = ""


class Figure(Struct, frozen=True):
    """One figure: lines, or rows of bars.

    :ivar caption: how to read the figure, in a sentence or two
    :ivar x_title: with its unit
    :ivar y_title: with its unit; bars have none
    :ivar until: the least end of the x axis
    :ivar limits: values that are not to be exceeded, with their names
    :ivar bands: above the x axis: a name, a colour, and spans
    :ivar kinds: the name and colour of each kind of bar
    :ivar whole: whether the x axis counts, and has whole numbers only
    """

    title: str
    caption: str
    x_title: str
    y_title: str = ""
    lines: Sequence[ChartLine] = ()
    bars: Sequence[Bars] = ()
    until: float = 0.0
    limits: Sequence[tuple[str, float]] = ()
    bands: Sequence[tuple[str, str, ChartPoints]] = ()
    kinds: Sequence[tuple[str, str]] = ()
    whole: bool = False


def levels_line(
    name: str, index: int, levels: ChartPoints, until: float, area: float = 0.0, colour: str | None = None
) -> ChartLine:
    """Return a line of levels that each hold until the next: from 0 at the start of the run to its end."""
    last = levels[-1][1] if levels else 0.0
    return ChartLine(name, [(0.0, 0.0), *levels, (until, last)], index, area=area, colour=colour)


def bins_line(name: str, index: int, width: float, values: Sequence[float]) -> ChartLine:
    """Return a line of means, each of an interval of the same width, from the start of the run on."""
    points = [(number * width, value) for number, value in enumerate(values)]
    return ChartLine(name, [*points, (len(values) * width, values[-1] if values else 0.0)], index)


def limit(value: float, name: str = "limit") -> tuple[str, float]:
    """Return a value that is not to be exceeded, in MB/s, with its name."""
    return f"{name}: {value:g} MB/s", value


def of_run(run: str, runs: int) -> str:
    """Return the end of a title, where several runs are shown."""
    return f" of {run}" if runs > 1 else ""


def how_many_are_shown(count: int, what: str) -> str:
    """Return the end of a caption, if not all of a kind have a figure."""
    return "" if count <= MOST else f" {MOST} of {count} {what} are shown."
