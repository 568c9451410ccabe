"""Draws a schedule: when each application computes and transfers, and the load of the storage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from .model import Schedule

MOST_ROWS = 40
_BLOCKS = " ▁▂▃▄▅▆▇█"
_WORK = "░"
# Less of a column is not drawn as a transfer, where the application computes, too.
_LEAST_SHARE = 1 / 16


class Row(Struct, frozen=True):
    """The computes and transfers of an application.

    :ivar work: the part of each column of the period in which the application computes
    :ivar transfers: its mean rate in each column, as a part of its peak
    """

    name: str
    work: Sequence[float]
    transfers: Sequence[float]

    def line(self) -> str:
        """A character for each column: how much it transfers, or that it computes."""
        return "".join(map(_character, self.work, self.transfers))


class Gantt(Struct, frozen=True):
    """A drawing of a schedule.

    :ivar storage: the part of the bandwidth that is used in each column
    :ivar note: what is left out. None: nothing is
    """

    period: float
    rows: Sequence[Row]
    storage: Sequence[float]
    note: str | None

    def storage_line(self) -> str:
        """A character for each column."""
        return "".join(_character(0, share) for share in self.storage)


def gantt(schedule: Schedule, columns: int) -> Gantt:
    """The drawing of a schedule: at most 40 applications, evenly chosen.

    :param columns: into how many the period is divided
    """
    period, applications = schedule.pattern.period, schedule.set.applications
    count = len(applications)
    shown = {number * count // MOST_ROWS for number in range(MOST_ROWS)} if count > MOST_ROWS else range(count)
    storage = [0.0] * columns
    rows = []
    for index, application in enumerate(applications):
        peak, own = schedule.set.peaks[index], schedule.pattern.instances[index]
        work = _columns(((*one.work, 1.0) for one in own), period, columns)
        rates = _columns(((each.start, each.end, each.rate) for one in own for each in one.transfers), period, columns)
        bandwidth = schedule.set.platform.bandwidth
        storage = [used + rate / bandwidth for used, rate in zip(storage, rates, strict=True)]
        if index in shown:
            rows.append(Row(application.name, work, [rate / peak for rate in rates]))
    note = f"{len(rows)} of {count:,} applications are shown, evenly chosen; the storage bears all of them."
    return Gantt(period, rows, storage, note if len(rows) < count else None)


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
