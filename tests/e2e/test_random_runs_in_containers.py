"""A small part of the random workflows in containers: see `tests/random_workflows/`. Many more are run by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.container_sites import docker_bench, make_user_image
from lab.machines.laboratory import Laboratory
from lab.once import once
from tests.random_workflows.containers import contain, run_contained
from tests.random_workflows.generate import generate

SEED = 1
STEPS = 3
#: Workflows that plain StreamFlow can run, each other containers: all inherited; of a deployment, and of another user.
NUMBERS = (pytest.param(0, marks=pytest.mark.long), 1)


@pytest.mark.parametrize("number", NUMBERS)
def test_results_are_those_of_plain_streamflow(
    containers_laboratory: Laboratory, common: Path, tmp_path: Path, number: int
) -> None:
    once(common / "image of a user", lambda: make_user_image(docker_bench(containers_laboratory, tmp_path)))
    trial = run_contained(
        containers_laboratory, tmp_path / "trial", contain(generate(SEED, number, STEPS), SEED, number)
    )
    assert trial.outcome == "same", f"{trial.detail}\n{trial.log}"
