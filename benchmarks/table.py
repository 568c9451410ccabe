"""A report as tables for people."""

from __future__ import annotations

import statistics

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .model import Comparison, Report, Result, VariantReport


def render(report: Report) -> RenderableType:
    """The seconds of each variant, the ratios, and whether all is well."""
    parts: list[RenderableType] = [_seconds(report), _results(report)]
    parts.extend(Text(note) for note in report.notes)
    if not report.identical:
        parts.append(Text(f"Outputs differ between runs: {', '.join(report.differing)}", style="bold red"))
    goals = [result for result in report.results if result.comparison.is_goal]
    reached = sum(result.met is True for result in goals)
    outputs = "identical" if report.identical else "different"
    style = "bold green" if report.met else "bold red"
    parts.append(Text(f"{reached} of {len(goals)} goals reached, outputs {outputs}", style=style))
    return Group(*parts)


def _seconds(report: Report) -> Table:
    table = Table(title=f"{report.name}: seconds, median of {report.repetitions} (least - most)", title_justify="left")
    table.add_column("variant")
    table.add_column("wall", justify="right")
    table.add_column("execution window", justify="right")
    for variant in report.variants:
        if variant.skipped is not None:
            table.add_row(variant.name, f"skipped: {variant.skipped}", "", style="yellow")
        else:
            table.add_row(variant.name, _spread(variant, "wall"), _spread(variant, "window"))
    return table


def _spread(variant: VariantReport, measure: str) -> str:
    values = [sample.measure(measure) for sample in variant.samples]
    return f"{statistics.median(values):.2f} ({min(values):.2f} - {max(values):.2f})" if values else ""


def _results(report: Report) -> Table:
    table = Table(title="ratios, median of the repetitions", title_justify="left")
    table.add_column("comparison")
    table.add_column("value", justify="right")
    table.add_column("goal", justify="right")
    table.add_column("reached")
    for result in report.results:
        value = "not measured" if result.value is None else f"{result.value:.3f}"
        table.add_row(result.comparison.name, value, _limit(result.comparison), _verdict(result))
    return table


def _limit(comparison: Comparison) -> str:
    if comparison.at_most is not None:
        return f"<= {comparison.at_most:g}"
    return f">= {comparison.at_least:g}" if comparison.at_least is not None else ""


def _verdict(result: Result) -> Text:
    if result.met is None:
        return Text("")
    return Text("yes", style="green") if result.met else Text("no", style="red")
