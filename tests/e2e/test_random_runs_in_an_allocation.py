"""A small part of the random workflows in an allocation: see `tests/random_workflows/`. Many more are run by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.sites import Site
from tests.random_workflows.allocations import Allocation, places, run_in_allocation
from tests.random_workflows.generate import generate
from tests.random_workflows.hosts import spread

SEED = 2
STEPS = 3
NUMBERS = (1, 2, 3)


@pytest.mark.long
@pytest.mark.parametrize("number", NUMBERS)
def test_results_are_those_of_plain_streamflow(allocation: Site, tmp_path: Path, number: int) -> None:
    blueprint = spread(generate(SEED, number, STEPS))
    assert places(blueprint, SEED, number)
    held = Allocation(allocation.laboratory, allocation.environment)
    trial = run_in_allocation(held, SEED, number, tmp_path / "trial", blueprint)
    assert trial.outcome == "same", f"{trial.detail}\n{trial.log}"
