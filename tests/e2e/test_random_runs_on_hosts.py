"""A small part of the random workflows on SSH hosts: see `tests/random_workflows/`. Many more are run by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.machines.laboratory import Laboratory
from tests.random_workflows.generate import generate
from tests.random_workflows.hosts import places, run_on_hosts, spread
from tests.random_workflows.unhinted import unhinted

SEED = 1
STEPS = 3
NUMBERS = (1, 2, 3)


@pytest.mark.long
@pytest.mark.parametrize("number", NUMBERS)
def test_results_are_those_of_plain_streamflow(hosts_laboratory: Laboratory, tmp_path: Path, number: int) -> None:
    """Without hints, from the first run, which learns, to the third."""
    blueprint = spread(unhinted(generate(SEED, number, STEPS), rehearse="wait"))
    assert places(blueprint, SEED, number)
    trial = run_on_hosts(hosts_laboratory, SEED, number, tmp_path / "trial", blueprint)
    assert trial.outcome == "same", f"{trial.detail}\n{trial.log}"
