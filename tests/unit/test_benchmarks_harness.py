"""How the benchmarks run things: in turn, checked, and with nothing left."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path

import pytest

from benchmarks import __main__ as command_line
from benchmarks.harness import run_workload
from benchmarks.model import Comparison, Sample
from benchmarks.workload import Outcome, Variant, Workload


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(os, "sync", lambda: None)
    return tmp_path


def workload(*variants: Variant, comparisons: Sequence[Comparison] = ()) -> Workload:
    return Workload("test", "a test", lambda _: variants, comparisons)


def recorded(name: str, runs: list[str], output: Callable[[], str] = lambda: "same") -> Variant:
    def action(directory: Path) -> Outcome:
        assert not list(directory.iterdir())
        (directory / "file").touch()
        runs.append(name)
        return Outcome(Sample(wall=1, window=1), {"result": output()})

    return Variant(name, action, verify=lambda _: runs.append(f"verify {name}"))


def test_repetitions_are_interleaved_after_the_verification(temporary: Path) -> None:
    runs: list[str] = []
    report = run_workload(workload(recorded("a", runs), recorded("b", runs)), 3)
    assert runs == ["verify a", "verify b", *["a", "b"] * 3]
    assert [len(variant.samples) for variant in report.variants] == [3, 3]
    assert report.identical
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("in_one_variant", [True, False])
def test_different_outputs_are_found(in_one_variant: bool) -> None:
    runs: list[str] = []
    changing = recorded("a", runs, lambda: f"{len(runs)}")
    variants = [changing] if in_one_variant else [recorded("b", runs), changing]
    report = run_workload(workload(*variants), 2)
    assert report.differing == ("result",)
    assert not report.met


@pytest.mark.parametrize(("limit", "output", "code"), [(1.0, "same", 0), (0.5, "same", 1), (1.0, "changing", 1)])
def test_exit_code_and_json(
    limit: float, output: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []
    variants = (
        recorded("a", runs),
        recorded("b", runs, lambda: "same" if output == "same" else "other"),
    )
    goal = Comparison(name="b / a", variant="b", baseline="a", at_most=limit)
    monkeypatch.setitem(command_line.WORKLOADS, "test", workload(*variants, comparisons=[goal]))
    file = tmp_path / "report.json"
    assert command_line.main(["run", "test", "--reps", "2", "--json", str(file)]) == code
    data = json.loads(file.read_text())
    assert data["met"] is (code == 0)
    assert data["identical"] is (output == "same")
    assert data["results"][0]["value"] == 1
    # A result says when, from which sources, and on how busy a machine it was measured.
    assert datetime.fromisoformat(data["date"].replace("Z", "+00:00")) <= datetime.now(timezone.utc)
    assert data["commit"] is None or re.fullmatch(r"[0-9a-f]{7,}(-dirty)?", data["commit"])
    assert data["machine"]["load"] >= 0
    assert data["variants"][1]["samples"] == [{"wall": 1, "window": 1, "further": {}}] * 2
