"""Draws a schedule: when each application computes and transfers, and the load of the storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeVar

from msgspec import Struct

from .model import Instance, Schedule

T = TypeVar("T")
MOST_ROWS = 40
MOST_BARS = 2000
_BLOCKS = " ▁▂▃▄▅▆▇█"
_WORK = "░"
# Less of a column is not drawn as a transfer, where the application computes, too.
_LEAST_SHARE = 1 / 16


class Bar(NamedTuple):
    """A compute or a transfer.

    :ivar start: in parts of the period, as `end`
    :ivar height: of a transfer, its rate as a part of the peak of the application
    :ivar text: for people
    """

    kind: Literal["work", "transfer"]
    start: float
    end: float
    height: float
    text: str


class Row(Struct, frozen=True):
    """The computes and transfers of an application.

    :ivar work: the part of each column of the period in which the application computes
    :ivar transfers: its mean rate in each column, as a part of its peak
    """

    name: str
    bars: Sequence[Bar]
    work: Sequence[float]
    transfers: Sequence[float]

    def line(self) -> str:
        """A character for each column: how much it transfers, or that it computes."""
        return "".join(map(_character, self.work, self.transfers))


class Gantt(Struct, frozen=True):
    """A drawing of a schedule.

    :ivar storage: the part of the bandwidth that is used in each column
    :ivar notes: what is left out
    """

    period: float
    rows: Sequence[Row]
    storage: Sequence[float]
    notes: Sequence[str]

    def storage_line(self) -> str:
        """A character for each column."""
        return "".join(_character(0, share) for share in self.storage)


def gantt(schedule: Schedule, columns: int) -> Gantt:
    """The drawing of a schedule: at most 40 applications and 2,000 bars, evenly chosen.

    :param columns: into how many the period is divided
    """
    period, count = schedule.pattern.period, len(schedule.set.applications)
    shown = evenly(range(count), MOST_ROWS)
    instances = [each for index in shown for each in schedule.pattern.instances[index]]
    bars = sum(1 + len(each.transfers) for each in instances)
    storage = [0.0] * columns
    rows = []
    for index in range(count):
        share = schedule.set.peaks[index] / schedule.set.platform.bandwidth
        own = schedule.pattern.instances[index]
        work = _columns(((*one.work, 1.0) for one in own), period, columns)
        rates = ((each.start, each.end, each.rate) for one in own for each in one.transfers)
        transfers = [rate / schedule.set.peaks[index] for rate in _columns(rates, period, columns)]
        storage = [sum_ + share * rate for sum_, rate in zip(storage, transfers, strict=True)]
        if index in shown:
            chosen = evenly(own, max(1, len(own) * MOST_BARS // bars) if bars > MOST_BARS else len(own))
            rows.append(Row(schedule.set.applications[index].name, _bars(schedule, index, chosen), work, transfers))
    drawn = sum(len(row.bars) for row in rows)
    return Gantt(period, _limited(rows), storage, list(_notes(count, len(shown), bars, min(drawn, MOST_BARS))))


def _notes(count: int, rows: int, bars: int, drawn: int) -> Iterator[str]:
    if rows < count:
        yield f"{rows} of {count:,} applications are shown, evenly chosen; the storage bears all of them."
    if bars > MOST_BARS:
        yield f"{drawn:,} of {bars:,} computes and transfers are drawn, evenly chosen."


def _limited(rows: Sequence[Row]) -> list[Row]:
    """Never more bars than may be: transfers of one instance are not chosen one by one."""
    if sum(len(row.bars) for row in rows) <= MOST_BARS:
        return list(rows)
    most = MOST_BARS // len(rows)
    return [Row(row.name, evenly(row.bars, most), row.work, row.transfers) for row in rows]


def evenly(values: Sequence[T], most: int) -> Sequence[T]:
    """Choose some values, at equal distances.

    :param most: the largest number of values
    """
    count = len(values)
    return values if count <= most else [values[number * count // most] for number in range(most)]


def _bars(schedule: Schedule, index: int, instances: Iterable[Instance]) -> list[Bar]:
    period, peak = schedule.pattern.period, schedule.set.peaks[index]
    bars = []
    for one in instances:
        begin, end = one.work
        bars.append(Bar("work", begin / period, end / period, 1.0, f"computes from {begin:,.6g} to {end:,.6g} s"))
        for each in one.transfers:
            text = f"{each.rate:,.4g} MB/s from {each.start:,.6g} to {each.end:,.6g} s"
            bars.append(Bar("transfer", each.start / period, each.end / period, each.rate / peak, text))
    return [part for bar in bars for part in _within(bar)]


def _within(bar: Bar) -> Iterator[Bar]:
    """The parts of a bar that lie within the period; what is beyond its end is at its beginning."""
    start = bar.start % 1
    end = start + bar.end - bar.start
    yield bar._replace(start=start, end=min(end, 1.0))
    if end > 1:
        yield bar._replace(start=0.0, end=min(end - 1, 1.0))


def _columns(spans: Iterable[tuple[float, float, float]], period: float, columns: int) -> list[float]:
    """The mean of a value in each column of the period.

    :param spans: from when to when there is which value
    """
    width = period / columns
    sums = [0.0] * columns
    for start, end, value in spans:
        now, stop = start / width, end / width
        while now < stop:
            column = int(now)
            following = min(stop, column + 1)
            sums[column % columns] += value * (following - now)
            now = following
    return sums


def _character(work: float, transfer: float) -> str:
    if transfer >= _LEAST_SHARE or transfer > work:
        return _BLOCKS[max(1, min(8, round(8 * transfer)))]
    return _WORK if work > 0 else " "
