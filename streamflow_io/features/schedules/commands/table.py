"""The table of a schedule in the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from streamflow_io.commands.console import say, table
from streamflow_io.features.schedules.model import Schedule
from streamflow_io.wording import counted

_HEADER = ("name", "nodes", "work (s)", "volume (MB)", "instances", "computes", "dilation")


def show_figures(console: Console, schedule: Schedule) -> None:
    """How good a schedule is, and how good it could be."""
    console.print(table(None, _HEADER, _rows(schedule), numbers=_HEADER[1:], unfolded=_HEADER[1:]))
    found, bounds = schedule.figures, schedule.figures.bounds
    instances = counted(sum(schedule.pattern.counts), "instance")
    say(console, f"Period: {schedule.pattern.period:,.6g} s, {instances}; goal: {schedule.goal}")
    say(console, f"Efficiency: {found.efficiency:.5f} (no schedule has more than {bounds.efficiency:.5f})")
    say(console, f"Dilation: {found.dilation:.4f} (no schedule has less than {bounds.dilation:.4f})")


def _rows(schedule: Schedule) -> Iterator[list[str]]:
    counts = schedule.pattern.counts
    for index, one in enumerate(schedule.set.applications):
        yield [
            one.name,
            f"{one.nodes:,}",
            f"{one.work:,.6g}",
            f"{one.volume:,.6g}",
            f"{counts[index]:,}",
            f"{schedule.figures.work_shares[index]:.1%}",
            f"{schedule.figures.dilations[index]:.4f}",
        ]
