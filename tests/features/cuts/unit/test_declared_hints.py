"""Mistakes in rules that declare cuts, and what is said of such a rule without the feature."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamflow_io.installed_features import Feature
from tests.unit.test_hints_mistakes import DECLARED, SESSION, TOOL, WORKFLOW, _check, _errors, _put


@pytest.mark.parametrize(
    ("rule", "field", "message", "allowed"),
    [
        (f"{DECLARED}, records: vcf, parts: n", "parts", "unknown input 'n'", "inputs of type value: level"),
        (
            f"{DECLARED}, records: vcf, every: 3, count: n",
            "count",
            "unknown output 'n'",
            "outputs of type value: count",
        ),
    ],
)
def test_names_that_a_tool_does_not_have(tmp_path: Path, rule: str, field: str, message: str, allowed: str) -> None:
    (error,) = _errors(tmp_path, WORKFLOW, _put(TOOL, SESSION.format(rule)))
    _check(error, tmp_path / "tool.cwl", f"sfio:ReadSession.rules[0].{field}", message, allowed)


def test_declared_cuts_without_the_feature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamflow_io.installed_features.features", lambda: (Feature(),))
    rule = SESSION.format(f"{DECLARED}, records: vcf, every: 3, count: n")
    (error,) = _errors(tmp_path, WORKFLOW, _put(TOOL, rule))
    message = "the feature 'cuts' is not in this installation: streamflow_io/features/cuts is missing"
    allowed = "no records: the program of the step says the parts"
    _check(error, tmp_path / "tool.cwl", "sfio:ReadSession.rules[0].records", message, allowed)
