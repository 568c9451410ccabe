"""A small part of the fault campaign: see `tests/campaign/`. All of it is run by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.once import once
from tests.campaign.__main__ import possible_faults
from tests.campaign.cases import Case, Fault
from tests.campaign.trial import run_case, run_plain


def case(
    workload: str, fault: Fault, delay: float = 1.0, retries: bool = False, relief: float | None = None, jump: float = 0
) -> Case:
    return Case(
        0, workload, fault, delay, early=False, pick=0.0, retries=retries, limit=2_000, relief=relief, jump=jump,
        held=True,
    )  # fmt: skip


#: In the middle of the work of a workload, with the outcome that is right then: what other tests do not do.
CASES = [
    (case("byte-streams", Fault("producer", "size"), delay=0.2, retries=True, relief=0.0), "identical"),
    (case("commits", Fault("producer", "STOP"), relief=1.0), "identical"),
    (case("elements", Fault("clock", "jump"), jump=-86_400), "identical"),
    (case("byte-streams", Fault("consumer", "TERM"), retries=True), "identical"),
    (case("elements", Fault("disk", "full")), "failed"),
]


@pytest.mark.parametrize(
    ("chosen", "outcome"), [pytest.param(*each, id=f"{each[0].workload}-{each[0].fault.name}") for each in CASES]
)
def test_trial(tmp_path: Path, common: Path, chosen: Case, outcome: str) -> None:
    if chosen.fault not in possible_faults(tmp_path, [chosen.fault], None):
        pytest.skip("cannot be brought about here")
    name = chosen.workload
    plain = once(common / f"campaign-{name}", lambda: run_plain(tmp_path / "plain", name))
    trial = run_case(tmp_path / "trial", chosen, plain)
    assert trial.struck is not None
    assert trial.verdict.violations == ()
    assert trial.verdict.outcome == outcome
