"""Figures of lines over the time of a run: those of its results as plain data, and how each is drawn as SVG.

The colours are those of Okabe and Ito, which colour-blind people can tell apart; dashes and words say the same without
colours. Every text can be selected.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath

from msgspec import Struct

from .analysis.model import MB
from .analysis.requirements import StorageRequirement
from .analysis.results import AdmittedBandwidth, RunResult
from .analysis.session_results import SessionResult

WIDTH = 1040
_HEIGHT = 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 24, 26, 44
_LEGEND = 20

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#8C7B00")
DASHES = ("", "7 4", "2 3", "9 3 2 3", "12 4", "4 2 1 2")
BAD = "#D55E00"
# Width of a character, as a share of its height.
_CHARACTER = 0.57
#: The most figures of one kind in a run: more of them would hide the others.
MOST = 8

ChartPoints = Sequence[tuple[float, float]]


class ChartLine(Struct, frozen=True):
    """A line of a figure. Each value holds until the next.

    :ivar index: selects colour and dash
    :ivar area: the opacity with which the area below the line is filled
    """

    name: str
    points: ChartPoints
    index: int = 0
    area: float = 0.0


class Figure(Struct, frozen=True):
    """One figure.

    :ivar caption: how to read the figure, in a sentence or two
    :ivar y_title: with its unit
    :ivar limits: values that are not to be exceeded, with their names
    """

    title: str
    caption: str
    y_title: str
    lines: Sequence[ChartLine]
    limits: Sequence[tuple[str, float]] = ()


def levels_line(name: str, index: int, levels: ChartPoints, until: float, area: float = 0.0) -> ChartLine:
    """Return a line of levels that each hold until the next: from 0 at the start of the run to its end."""
    last = levels[-1][1] if levels else 0.0
    return ChartLine(name, [(0.0, 0.0), *levels, (until, last)], index, area)


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


def draw_figure(figure: Figure) -> str:
    """Return the SVG of a figure."""
    x_most = max((x for line in figure.lines for x, _ in line.points), default=0.0)
    y_most = max([y for line in figure.lines for _, y in line.points] + [value for _, value in figure.limits] + [0.0])
    legend, rows = _legend(figure)
    top = _TOP + _LEGEND * (rows - 1)
    bottom = top + _HEIGHT
    x, y = scale(x_most, _LEFT, WIDTH - _RIGHT), scale(y_most * 1.06, bottom, top)
    parts = [legend, *_value_axis(figure.y_title, y, y_most, (top + bottom) / 2), *time_axis(x, x_most, top, bottom)]
    for line in figure.lines:
        parts += _line(line, x, y)
    for _, value in figure.limits:
        parts.append(_rule(short(y(value)), f'stroke="{BAD}" stroke-width="1.5" stroke-dasharray="7 4"'))
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {short(bottom + _BOTTOM)}" role="img"'
        f' aria-label="{text_of(figure.title)}">{"".join(parts)}</svg>'
    )


def scale(most: float, begin: float, end: float) -> Callable[[float], float]:
    """Return a function from values, from 0 to `most`, to places in a drawing."""
    return lambda value: begin + (end - begin) * value / (most if most > 0 else 1.0)


def _rule(at: str, style: str) -> str:
    return f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at}" y2="{at}" {style}/>'


def _value_axis(title: str, y: Callable[[float], float], most: float, middle: float) -> Iterator[str]:
    for value in ticks(most, 5):
        yield _rule(short(y(value)), 'class="grid"')
        yield f'<text class="tick end" x="{_LEFT - 7}" y="{short(y(value) + 4)}">{value:,.6g}</text>'
    yield f'<text class="title" transform="translate(14 {short(middle)}) rotate(-90)">{text_of(title)}</text>'


def time_axis(x: Callable[[float], float], most: float, top: float, bottom: float) -> Iterator[str]:
    """Yield the lines and texts of an axis of seconds."""
    for value in ticks(most, 8):
        at = short(x(value))
        yield f'<line class="grid" x1="{at}" x2="{at}" y1="{short(top)}" y2="{short(bottom)}"/>'
        yield f'<text class="tick" x="{at}" y="{short(bottom + 16)}">{value:,.6g}</text>'
    begin, end = x(0.0), x(most)
    yield f'<line class="axis" x1="{short(begin)}" x2="{short(end)}" y1="{short(bottom)}" y2="{short(bottom)}"/>'
    title = "time since the start of the run (s)"
    yield f'<text class="title" x="{short((begin + end) / 2)}" y="{short(bottom + 36)}">{title}</text>'


def _line(line: ChartLine, x: Callable[[float], float], y: Callable[[float], float]) -> Iterator[str]:
    way = [(x(one), y(value)) for one, value in line.points]
    if not way:
        return
    steps = [point for before, now in itertools.pairwise(way) for point in (before, (now[0], before[1]))] + way[-1:]
    colour, dash = COLOURS[line.index % len(COLOURS)], DASHES[line.index % len(DASHES)]
    if line.area:
        around = [(way[0][0], y(0.0)), *steps, (way[-1][0], y(0.0))]
        yield f'<polygon points="{points(around)}" fill="{colour}" fill-opacity="{line.area:g}"/>'
    yield (
        f'<polyline points="{points(steps)}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}">'
        f"<title>{text_of(line.name)}</title></polyline>"
    )


def _legend(figure: Figure) -> tuple[str, int]:
    """Return the names of the lines, as SVG, and how many rows the names take."""
    entries = [
        (line.name, COLOURS[line.index % len(COLOURS)], DASHES[line.index % len(DASHES)]) for line in figure.lines
    ]
    entries += [(name, BAD, "7 4") for name, _ in figure.limits]
    at, row, parts = float(_LEFT), 0, []
    for name, colour, dash in entries:
        width = 34 + width_of(name) + 22
        if at + width > WIDTH - _RIGHT and at > _LEFT:
            at, row = float(_LEFT), row + 1
        y = 10 + _LEGEND * row
        parts.append(
            f'<line x1="{short(at)}" x2="{short(at + 28)}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2.5"'
            f' stroke-dasharray="{dash}"/><text x="{short(at + 34)}" y="{y + 4}">{text_of(name)}</text>'
        )
        at += width
    return "".join(parts), row + 1


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


def ticks(most: float, count: int) -> list[float]:
    """Return round numbers from 0 on, about `count` of them."""
    if most <= 0 or not math.isfinite(most):
        return [0.0]
    rough = most / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    return [step * index for index in range(math.floor(most / step * 1.0001) + 1)]


def points(pairs: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{short(x)},{short(y)}" for x, y in pairs)


def draw(runs: Sequence[RunResult]) -> list[Figure]:
    """Return all figures of one or several runs, except timelines. Figures that would be empty are left out."""
    figures = []
    for run in runs:
        of = of_run(run.run, len(runs))
        if run.jobs:
            figures.append(_activity(run, of))
        busiest = sorted(run.admitted, key=lambda storage: -len(storage.levels))[:MOST]
        figures += [_admitted(run, admitted, of) for admitted in busiest]
        if run.held:
            figures.append(_held(run, of))
        read = [one for one in run.sessions if one.storage_bytes + one.cached_bytes]
        most = sorted(read, key=lambda one: -(one.storage_bytes + one.cached_bytes))[:MOST]
        figures += [_session(one, len(read), of) for one in sorted(most, key=lambda one: one.session)]
        found = () if run.requirements is None else run.requirements.storages
        shown = sorted((one for one in found if one.phases), key=lambda one: -one.phases)
        figures += [_bandwidth(run, one, len(shown), of) for one in shown[:MOST]]
    return figures


def _activity(run: RunResult, of: str) -> Figure:
    activity = run.activity
    series = (("compute jobs", activity.compute), ("I/O tasks", activity.io_tasks), ("waiting jobs", activity.waiting))
    shown = [(name, values) for name, values in series if any(values)]
    return Figure(
        f"Jobs over time{of}",
        "How many jobs run or wait at a time: I/O tasks run beside compute jobs, which hold the cores.",
        "jobs",
        [bins_line(name, index, activity.width, values) for index, (name, values) in enumerate(shown)],
    )


def _held(run: RunResult, of: str) -> Figure:
    return Figure(
        f"Disk space of the directories of jobs{of}",
        "The bytes on disk in the directories of jobs that have ended and were not removed, with results of the run.",
        "disk space (MB)",
        [levels_line("held", 0, run.held, run.seconds, area=0.12)],
    )


def _admitted(run: RunResult, admitted: AdmittedBandwidth, of: str) -> Figure:
    where = "" if admitted.location is None else f" on {admitted.location}"
    more = how_many_are_shown(len(run.admitted), "storages")
    lines = [levels_line("admitted", 0, admitted.levels, run.seconds, area=0.12)]
    if any(admitted.measured):
        lines.append(bins_line("measured", 1, run.seconds / len(admitted.measured), admitted.measured))
    return Figure(
        f"Admitted and measured {admitted.direction} bandwidth: {admitted.storage}{where}{of}",
        "Admitted: the sum of the storageBW of the jobs that were admitted and have not ended. Measured: what these "
        f"jobs have moved, spread evenly over the time that their commands took.{more}",
        "bandwidth (MB/s)",
        lines,
        () if admitted.limit is None else [limit(admitted.limit)],
    )


def _bandwidth(run: RunResult, storage: StorageRequirement, storages: int, of: str) -> Figure:
    lines = [("required", storage.required_over_time), ("throughput", storage.throughput_over_time)]
    if storage.limit_over_time:
        lines.append(("limit", storage.limit_over_time))
    where = "I/O tasks without a storage" if storage.storage is None else storage.storage
    caption = (
        "The bandwidth that I/O tasks need together so that no job waits, and the throughput they "
        "reached. A much higher throughput means that data moved faster than needed. Exposed requests are left out."
    )
    if storage.limit_over_time:
        caption += " Limit: how fast those that had a limit might move together, while they moved."
    and_limit = ", limit" if storage.limit_over_time else ""
    return Figure(
        f"Required bandwidth{and_limit} and throughput: {where}, {storage.direction}{of}",
        caption + how_many_are_shown(storages, "storages"),
        "bandwidth (MB/s)",
        [levels_line(name, index, found, run.seconds) for index, (name, found) in enumerate(lines)],
        () if storage.bandwidth is None else [limit(storage.bandwidth, "storage")],
    )


def _session(session: SessionResult, sessions: int, of: str) -> Figure:
    arrived = [(point.time, point.arrived / MB) for point in session.over_time]
    consumed = [(point.time, point.consumed / MB) for point in session.over_time]
    return Figure(
        f"Read session {session.session}: {PurePath(session.file).name}, {session.step}{of}",
        "The bytes that had arrived in the page cache, and those of them whose jobs had ended. Between them is what "
        f"the window holds, {session.window / MB:,.0f} MB and one chunk at most."
        f"{how_many_are_shown(sessions, 'sessions')}",
        "bytes (MB)",
        [ChartLine("arrived", arrived, 0, area=0.15), ChartLine("consumed", consumed, 1)],
    )
