"""`python -m benchmarks demo`: what streaming gains on the README's example and on templates."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from .harness import run_workload
from .model import Report
from .processes import CommandError
from .workload import Workload


def run_demo(workloads: Sequence[Workload]) -> int:
    """Run each workload once, plain and streaming. One that cannot be prepared here is left out, with the reason.

    :return: 0 if at least one ran and all outputs were identical
    """
    progress = Console(stderr=True)
    reports, left_out = [], []
    for workload in workloads:
        progress.print(f"{workload.name}: {workload.summary}", markup=False)
        try:
            reports.append(run_workload(workload, 1, lambda text: progress.print(f"  {text}", style="dim")))
        except CommandError as error:
            left_out.append(f"{workload.name}: {error}")
    console = Console()
    console.print(_table(reports))
    for text in left_out:
        console.print(f"Left out: {text}", style="yellow", markup=False)
    return 0 if reports and all(report.identical for report in reports) else 1


def _table(reports: Sequence[Report]) -> Table:
    table = Table(title="One run each: seconds from start to end", title_justify="left")
    for column in ("workflow", "plain StreamFlow", "with StreamFlow-IO", "gain", "results"):
        table.add_column(column, justify="left" if column in ("workflow", "results") else "right")
    for report in reports:
        plain, streaming = (variant.samples[0].wall for variant in report.variants)
        results = "[green]identical[/green]" if report.identical else "[bold red]different[/bold red]"
        gain = f"{1 - streaming / plain:.0%}"
        table.add_row(report.name, f"{plain:.1f}", f"{streaming:.1f}", gain, results)
    return table
