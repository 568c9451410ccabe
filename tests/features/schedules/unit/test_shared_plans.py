"""Schedules that runs follow: made by one of them for all, checked by each."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamflow_io.features.schedules import plans as plans_module
from streamflow_io.features.schedules.burst_profile import BurstProfile
from streamflow_io.features.schedules.followed import FollowedPlan, digest
from streamflow_io.features.schedules.plans import SharedPlans

PROFILES = {
    name: BurstProfile(
        direction="write", bursts=8, jobs=jobs, storage_bw=4, volume=4.0 * jobs, rate=min(16.0, 4.0 * jobs), work=work,
        error=0.01,
    )
    for name, jobs, work in (("a", 1, 2.0), ("b", 8, 6.0))
}  # fmt: skip
NAME = digest(PROFILES)
#: The program that makes schedules, for whatever `-m MODULE` it is asked. It gets its share of a busy machine.
_PROGRAM = f"""#!{sys.executable}
import sys
from streamflow_io.features.schedules import plan_program
sys.argv = sys.argv[2:]
plan_program._NICE = 0
sys.exit(plan_program.main())
"""


@pytest.fixture(autouse=True, scope="module")
def _soon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    program = tmp_path_factory.mktemp("program") / "python"
    program.write_text(_PROGRAM)
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans_module, "_SECONDS", 0.5)
        patch.setattr(plans_module, "sys", SimpleNamespace(executable=str(program)))
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a schedule that two runs have asked for."""
    directory = tmp_path_factory.mktemp("shared")
    one, other = SharedPlans(directory, mine=True), SharedPlans(directory, mine=True)
    assert one.of(NAME, PROFILES, "a") is None
    one.make(NAME, PROFILES, 16.0)
    other.make(NAME, PROFILES, 16.0)
    first, second = wait(one, "a"), wait(other, "b")
    assert first.start == second.start
    assert "dilation of the slowest run" in first.reason
    assert (first.slots is None) == (second.slots is None)
    one.close()
    other.close()
    return directory


@pytest.fixture
def directory(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "shared"))


def wait(plans: SharedPlans, own: str, seconds: float = 100) -> FollowedPlan:
    deadline = time.monotonic() + seconds
    while (plan := plans.of(NAME, PROFILES, own)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return plan


def test_one_makes_a_schedule_for_all(directory: Path) -> None:
    assert sorted(path.name for path in (directory / "plans").iterdir()) == [f"{NAME}.json", "lock"]
    assert SharedPlans(directory, mine=True).of(NAME, PROFILES, "b") is not None


def test_what_cannot_be_made_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans_module, "_SECONDS", 1e-9)
    plans = SharedPlans(tmp_path, mine=True)
    plans.make(NAME, PROFILES, 16.0)
    deadline = time.monotonic() + 40
    while len([*(tmp_path / "plans").iterdir()]) > 1 and time.monotonic() < deadline:
        assert plans.of(NAME, PROFILES, "a") is None
        time.sleep(0.05)
    plans.make(NAME, PROFILES, 16.0)
    assert [path.name for path in (tmp_path / "plans").iterdir()] == ["lock"]


@pytest.mark.parametrize("stops", [False, True])
def test_what_is_not_finished_leaves_nothing(tmp_path: Path, stops: bool) -> None:
    plans = SharedPlans(tmp_path, mine=True)
    plans.make(NAME, PROFILES, 16.0)
    if stops:
        assert plans._making is not None
        plans._making._process.send_signal(signal.SIGSTOP)
    plans.close()
    assert [path.name for path in (tmp_path / "plans").iterdir()] == ["lock"]


@pytest.mark.parametrize(("mine", "modes"), [(False, {0o660, 0o640}), (True, {0o600})])
def test_the_group_can_use_what_a_member_has_made(tmp_path: Path, mine: bool, modes: set[int]) -> None:
    """Whatever the umask of the member is."""
    (tmp_path / "plans").mkdir()
    plans, umask = SharedPlans(tmp_path, mine), os.umask(0o077)
    try:
        plans.make(NAME, PROFILES, 16.0)
    finally:
        os.umask(umask)
    made = [path.stat().st_mode & 0o777 for path in (tmp_path / "plans").iterdir()]
    plans.close()
    assert len(made) == 2
    assert {*made} == modes


@pytest.mark.parametrize(
    "damage",
    [
        {"period": 1.0},
        {"start": None},
        {"start": -1e308},
        {"start": time.time() + 1e6},
        {"period": "long"},
        {"applications": []},
    ],
)
def test_a_schedule_that_is_damaged_is_not_followed(directory: Path, damage: dict[str, object]) -> None:
    file = directory / "plans" / f"{NAME}.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **damage}))
    assert SharedPlans(directory, mine=True).of(NAME, PROFILES, "a") is None


def test_a_schedule_of_others_is_not_followed(directory: Path) -> None:
    longer = {**PROFILES, "a": PROFILES["a"].model_copy(update={"work": 9.0})}
    assert SharedPlans(directory, mine=True).of(NAME, longer, "a") is None
    assert SharedPlans(directory, mine=True).of(NAME, {**PROFILES, "c": PROFILES["a"]}, "a") is None


def test_a_link_is_not_followed(directory: Path) -> None:
    file = directory / "plans" / f"{NAME}.json"
    file.rename(directory / "elsewhere.json")
    file.symlink_to(directory / "elsewhere.json")
    assert SharedPlans(directory, mine=True).of(NAME, PROFILES, "a") is None
