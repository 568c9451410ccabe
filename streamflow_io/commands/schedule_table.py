"""What is said of a schedule in the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape

from streamflow_io.periodic.model import Schedule

from .console import say, table

_HEADER = ("name", "nodes", "work (s)", "volume (MB)", "instances", "computes", "dilation")


def show_figures(console: Console, schedule: Schedule) -> None:
    """How good a schedule is, and how good it could be."""
    console.print(table(None, _HEADER, _rows(schedule), numbers=_HEADER[1:], unfolded=_HEADER[1:]))
    found, bounds = schedule.figures, schedule.figures.bounds
    count = sum(schedule.pattern.counts)
    say(console, f"Period: {schedule.pattern.period:,.6g} s, {count:,} instances; goal: {schedule.goal}")
    say(console, f"Efficiency: {found.efficiency:.5f} (no schedule has more than {bounds.efficiency:.5f})")
    say(console, f"Dilation: {found.dilation:.4f} (no schedule has less than {bounds.dilation:.4f})")


def _rows(schedule: Schedule) -> Iterator[list[str]]:
    for index, one in enumerate(schedule.set.applications):
        yield [
            escape(one.name),
            f"{one.nodes:,}",
            f"{one.work:,.6g}",
            f"{one.volume:,.6g}",
            f"{schedule.pattern.counts[index]:,}",
            f"{schedule.figures.work_shares[index]:.1%}",
            f"{schedule.figures.dilations[index]:.4f}",
        ]
