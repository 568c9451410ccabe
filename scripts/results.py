"""The generated parts of `docs/benchmarks.md`: the workloads, and the last result of each."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.__main__ import RESULTS, WORKLOADS
from benchmarks.model import Comparison, Report, single_values

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def page() -> str:
    """Return the page, with its generated parts made anew."""
    reports = {name: Report.read(file) for name in WORKLOADS if (file := RESULTS / f"{name}.json").exists()}
    text = PAGE.read_text(encoding="utf-8")
    for part, lines in (("workloads", _workloads(reports)), ("results", _results([*reports.values()]))):
        begin, end = f"<!-- {part} -->", f"<!-- end of {part} -->"
        before, _, rest = text.partition(begin)
        text = "\n".join([f"{before}{begin}", "", *lines, "", f"{end}{rest.partition(end)[2]}"])
    return text


def _workloads(reports: dict[str, Report]) -> Iterator[str]:
    yield "|workload|what it does|goals reached|"
    yield "|---|---|---|"
    for name, workload in WORKLOADS.items():
        report = reports.get(name)
        reached = "" if report is None else f"[{_reached(report)}](#{name})"
        yield f"|`{name}`|{workload.summary}|{reached}|"


def _reached(report: Report) -> str:
    goals = [result for result in report.results if result.comparison.is_goal]
    return f"{sum(result.met is True for result in goals)} of {len(goals)}"


def _results(reports: Sequence[Report]) -> Iterator[str]:
    usual = statistics.mode(report.machine.cores for report in reports)
    yield f"Machines have {usual} cores, and outputs are identical, unless a line says otherwise. Load is that before"
    yield "the first run. A result that misses its goal is **bold**."
    for report in reports:
        machine = report.machine
        yield ""
        yield f"### {report.name}"
        yield ""
        outputs = "" if report.identical else f", outputs of **{len(report.differing)} differ**"
        cores = "" if machine.cores == usual else f"{machine.cores} cores, "
        where = f"{cores}load {machine.load:.1f}"
        yield f"- {report.date:%Y-%m-%d}, commit `{report.commit or 'unknown'}`, {where}{outputs}"
        yield from (f"- {variant.name}: skipped, {variant.skipped}" for variant in report.variants if variant.skipped)
        yield ""
        yield "|compared|goal|median|range|"
        yield "|---|---|---|---|"
        goals = [result for result in report.results if result.comparison.is_goal]
        for result in goals or report.results:
            value = "not measured" if result.value is None else _number(result.value)
            shown = f"**{value}**" if result.met is False else value
            values = single_values(result.comparison, report.variants)
            spread = f"{_number(min(values))}-{_number(max(values))}" if len(values) > 1 else ""
            yield f"|{result.comparison.name}|{_limit(result.comparison)}|{shown}|{spread}|"


def _limit(comparison: Comparison) -> str:
    if comparison.at_most is not None:
        return f"≤ {comparison.at_most:g}"
    return f"≥ {comparison.at_least:g}" if comparison.at_least is not None else ""


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
