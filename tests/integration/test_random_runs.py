"""A small part of the random workflows: see `tests/random_workflows/`. Many more are run by hand."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from lab.runs import Bench
from tests.random_workflows.generate import generate
from tests.random_workflows.trial import LARGER, run_trial
from tests.random_workflows.unhinted import believed, unhinted
from tests.random_workflows.windows import windowed

SEED = 60
STEPS = 5
QUICK = 2
#: A chain of steps, with byte streams between them.
CHAIN = 2


@pytest.mark.parametrize(
    "number", [*range(QUICK), *(pytest.param(number, marks=pytest.mark.long) for number in range(QUICK, 20))]
)
def test_results_are_those_of_plain_streamflow(tmp_path: Path, number: int) -> None:
    trial = run_trial(tmp_path / "trial", generate(SEED, number, STEPS))
    assert trial.outcome == "same", f"{trial.detail}\n{trial.log}"


@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=pytest.mark.long) for number in range(1, 10))])
def test_results_are_the_same_with_windows(tmp_path: Path, number: int) -> None:
    trial = run_trial(tmp_path / "trial", windowed(generate(SEED, number, STEPS), SEED, number))
    assert trial.outcome == "same", f"{trial.detail}\n{trial.log}"


@pytest.mark.parametrize("later", [pytest.param("", marks=pytest.mark.long), " later"])
@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=[] if number == CHAIN else [pytest.mark.long]) for number in range(10)]
)
def test_results_are_the_same_where_all_is_taken_for_proven(tmp_path: Path, number: int, later: str) -> None:
    """From the beginning, or while the run goes on."""
    make = functools.partial(Bench, program=f"streamflow believing{later}")
    blueprint = believed(unhinted(generate(SEED, number, STEPS)))
    trial = run_trial(tmp_path / "trial", blueprint, make=make, larger=LARGER[:1])
    assert trial.outcome == "same", f"{trial.detail}\n{trial.log}"
