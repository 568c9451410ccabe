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
        0, workload, fault, delay, early=False, pick=0.0, retries=retries, limit=2_000, relief=relief, jump=jump
    )


#: In the middle of the work of each workload, with the outcomes that are right then.
CASES = [
    (case("byte-streams", Fault("producer", "KILL")), "failed"),
    (case("byte-streams", Fault("producer", "size"), delay=0.2, retries=True, relief=0.0), "identical"),
    (case("byte-streams", Fault("producer", "files")), "failed"),
    (case("commits", Fault("producer", "STOP"), relief=1.0), "identical"),
    (case("mixture", Fault("consumer", "frozen"), relief=1.0), "identical"),
    (case("gate", Fault("disk", "stuck"), relief=1.0), "identical"),
    (case("elements", Fault("clock", "jump"), jump=-86_400), "identical"),
    (case("byte-streams", Fault("consumer", "TERM"), retries=True), "identical"),
    (case("byte-streams", Fault("exec", "KILL"), retries=True), "identical"),
    (case("elements", Fault("serve", "KILL")), "failed"),
    (case("elements", Fault("driver", "KILL")), "ended"),
    (case("mixture", Fault("driver", "TERM")), "ended"),
    (case("mixture", Fault("exec", "TERM")), "failed"),
    (case("elements", Fault("disk", "full")), "failed"),
    (case("required", Fault("serve", "KILL")), "failed"),
]


#: What `test_faults.py` and `test_failure_managers.py` do, too; and what stands still, which one case shows.
DONE_ELSEWHERE = (
    *("producer KILL", "exec KILL", "serve KILL", "driver KILL", "driver TERM", "exec TERM", "producer files"),
    *("consumer frozen", "disk stuck"),
)


@pytest.mark.parametrize(
    ("chosen", "outcome"),
    [
        pytest.param(
            chosen,
            outcome,
            id=f"{chosen.workload}-{chosen.fault.name}",
            marks=[pytest.mark.long] if chosen.fault.name in DONE_ELSEWHERE else [],
        )
        for chosen, outcome in CASES
    ],
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
