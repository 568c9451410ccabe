"""A schedule as one HTML file that needs nothing else, not even JavaScript, from `schedule.html`. Edge: reads that."""

from __future__ import annotations

from collections.abc import Sequence

from streamflow_io.telemetry.page import environment, number

from .gantt import Gantt, Row

_LEFT, _TOP, _WIDTH, _STEP = 150, 5, 1000, 26
_BAR_HEIGHT = 20
_LONGEST_NAME = 20
_TICKS = 8


def render_schedule(
    name: str, gantt: Gantt, summary: Sequence[str], header: Sequence[str], table: Sequence[Sequence[str]]
) -> str:
    """The page.

    :param name: what the schedule is called
    :param summary: lines below the title
    :param table: a row for each application, below the drawing
    """
    ticks = [(_short(_LEFT + _WIDTH * at / _TICKS), number(gantt.period * at / _TICKS)) for at in range(_TICKS + 1)]
    return (
        environment(__package__)
        .get_template("schedule.html")
        .render(
            name=name,
            summary=summary,
            left=_LEFT,
            top=_TOP,
            width=_WIDTH,
            step=_STEP,
            bottom=_TOP + _STEP * (len(gantt.rows) + 1),
            ticks=ticks,
            rows=[_row(row) for row in gantt.rows],
            storage=_outline(gantt.storage),
            notes=gantt.notes,
            header=header,
            table=table,
        )
    )


def _row(row: Row) -> dict[str, object]:
    bars = [
        (
            bar.kind,
            _short(_LEFT + _WIDTH * bar.start),
            _short(_WIDTH * (bar.end - bar.start)),
            _short(_BAR_HEIGHT * bar.height),
            bar.text,
        )
        for bar in row.bars
    ]
    name = row.name if len(row.name) <= _LONGEST_NAME else f"{row.name[: _LONGEST_NAME - 1]}…"
    return {"name": name, "full_name": row.name, "bars": bars}


def _outline(shares: Sequence[float]) -> str:
    """The path around the columns of the storage."""
    width = _WIDTH / len(shares)
    parts = [f"M{_LEFT} 0"]
    for index, share in enumerate(shares):
        parts.append(f"V{_short(-_BAR_HEIGHT * share)}H{_short(_LEFT + (index + 1) * width)}")
    return "".join([*parts, "V0Z"])


def _short(value: float) -> str:
    """Enough digits for a drawing."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
