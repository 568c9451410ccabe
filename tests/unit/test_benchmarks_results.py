"""Goals are reached or missed, and results that were kept can be read and are shown on the page of benchmarks."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks.__main__ import RESULTS, WORKLOADS, main
from benchmarks.harness import run_workload
from benchmarks.model import Comparison, Machine, Report, Sample, evaluate
from benchmarks.workload import Outcome, Variant, Workload
from scripts import results

SLOW, FAST = (4.0, 2.0, 8.0), (1.0, 1.0, 2.0)


def workload(name: str) -> Workload:
    """A workload whose figures are known."""

    def variant(variant_name: str, walls: tuple[float, ...], skipped: str | None = None) -> Variant:
        left = iter(walls)
        return Variant(
            variant_name, lambda _: Outcome(Sample(wall=next(left), window=1), {"result": "same"}), skipped=skipped
        )

    return Workload(
        name,
        "of a test",
        lambda _: [variant("slow", SLOW), variant("fast", FAST), variant("gone", (), skipped="no disk")],
        (Comparison(name="fast / slow", variant="fast", baseline="slow", at_most=0.3),),
    )


def test_what_is_saved_is_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarks, "RESULTS", tmp_path)
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    for module in (benchmarks, results):
        monkeypatch.setattr(module, "WORKLOADS", {"w": workload("w"), "other": workload("other")})
    assert main(["run", "w", "--reps", "3", "--save"]) == 0
    text = results.page()
    assert "|`w`|of a test|[1 of 1](#w)|" in text
    assert "|`other`|of a test||" in text
    # 1/4, 1/2, 2/8
    assert "|fast / slow|≤ 0.3|0.250|0.250-0.500|" in text
    # Seconds of one machine are in the file alone.
    assert "|slow|" not in text
    assert "- gone: skipped, no disk" in text
    assert f"{datetime.now(timezone.utc):%Y-}" in text
    assert f"Machines have {Machine.here().cores} cores" in text
    assert re.search(r", load \d", text)


@pytest.mark.parametrize(("limit", "output", "code"), [(0.5, "same", 0), (0.4, "same", 1), (0.5, "other", 1)])
def test_a_goal_is_missed_or_outputs_differ(
    limit: float, output: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variant with the least median counts for several; a goal without samples is not reached."""

    def variant(name: str, walls: tuple[float, ...], output: str = "same") -> Variant:
        left = iter(walls)
        return Variant(name, lambda _: Outcome(Sample(wall=next(left), window=1), {"result": output}))

    variants = [variant("slow", (4, 4, 4)), variant("one", (2, 2, 2), output), variant("other", (1, 3, 3))]
    goal = Comparison(name="best / slow", variant=("other", "one"), baseline="slow", at_most=limit)
    made = Workload("w", "of a test", lambda _: variants, [goal])
    monkeypatch.setitem(WORKLOADS, "w", made)
    assert main(["run", "w", "--reps", "3", "--json", str(tmp_path / "report.json")]) == code
    missing = replace(made, prepare=lambda _: [replace(variants[0], skipped="no disk"), *variants[1:]])
    assert [evaluate(goal, []).met, run_workload(missing, 0).met] == [False, False]


def test_each_kept_result_is_of_a_workload() -> None:
    kept = {file.stem: Report.read(file) for file in RESULTS.glob("*.json")}
    assert {name: report.name for name, report in kept.items()} == {name: name for name in kept}
    assert kept.keys() <= WORKLOADS.keys()
