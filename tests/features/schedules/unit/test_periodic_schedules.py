"""PerSched, the check of schedules, and schedule files."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from streamflow_io.features.schedules.check import check
from streamflow_io.features.schedules.files import ScheduleFile, paper_set, published, schedule_text, schedule_to_json
from streamflow_io.features.schedules.model import (
    Application,
    ApplicationSet,
    Platform,
    Schedule,
)
from streamflow_io.features.schedules.persched import Sweep, pattern, persched
from tests.features.schedules.periodic_sets import application_sets

SMALL = ApplicationSet(
    Platform(8, 10, 25),
    (Application("a", 3, 2, 60), Application("b", 2, 1, 20), Application("c", 2, 5, 35, rate=10)),
)


def read(text: str) -> Schedule:
    return ScheduleFile.model_validate_json(text).to_schedule()


@cache
def small() -> Schedule:
    found = persched(SMALL, Sweep(max(SMALL.durations)))
    assert found is not None
    return Schedule(SMALL, found)


_LONG = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.mark.parametrize("number", [1, *(pytest.param(number, marks=_LONG) for number in (*range(2, 9), 10)), 9])
def test_table_4_of_the_paper(number: int) -> None:
    applications, expected = paper_set(number), published(number)
    found = persched(applications, Sweep(expected.least_period))
    assert found is not None
    assert applications.efficiency(found.rates) == pytest.approx(expected.efficiency, abs=1e-4)
    assert applications.dilation(found.rates) == pytest.approx(expected.dilation, abs=5e-4)
    assert check(Schedule(applications, found)) == []


@given(application_sets(), st.floats(1, 12))
def test_every_pattern_can_be_kept(applications: ApplicationSet, factor: float) -> None:
    found = pattern(applications, max(applications.durations) * factor)
    if found is not None:
        assert check(Schedule(applications, found)) == []
        assert found.period >= applications.least_period(found.counts) * (1 - 1e-9)


@settings(max_examples=15)
@given(application_sets(most=3))
def test_no_pattern_is_better_than_the_bounds(applications: ApplicationSet) -> None:
    for goal in ("efficiency", "dilation"):
        found = persched(applications, Sweep(max(applications.durations), largest_factor=3, step=0.1), goal)
        if found is not None:
            assert applications.efficiency(found.rates) <= applications.bounds.efficiency * (1 + 1e-9)
            assert applications.dilation(found.rates) >= applications.bounds.dilation * (1 - 1e-9)


def test_goals() -> None:
    sweep = Sweep(max(SMALL.durations))
    efficient, fair = persched(SMALL, sweep), persched(SMALL, sweep, "dilation")
    assert efficient is not None
    assert fair is not None
    assert SMALL.efficiency(efficient.rates) > SMALL.efficiency(fair.rates)
    assert SMALL.dilation(efficient.rates) > SMALL.dilation(fair.rates)


def test_a_sweep_ends_when_it_is_told() -> None:
    asked = iter([True] * 60)
    assert persched(SMALL, Sweep(8.0), go_on=lambda: next(asked, False)) is not None
    assert persched(SMALL, Sweep(8.0), go_on=lambda: False) is None


def _scaled(transfers: list[list[float]], part: float) -> None:
    begin, end, _ = transfers[-1]
    transfers[-1][1] = begin + (end - begin) * part


def _lack_volume(file: dict[str, Any]) -> None:
    _scaled(file["applications"][0]["instances"][1]["transfers"], 0.99)


def _have_too_much(file: dict[str, Any]) -> None:
    _scaled(file["applications"][2]["instances"][0]["transfers"], 1.001)


def _be_too_fast(file: dict[str, Any]) -> None:
    one = file["applications"][2]["instances"][0]["transfers"][0]
    one[1], one[2] = one[0] + (one[1] - one[0]) / 2, one[2] * 2


def _use_too_much(file: dict[str, Any]) -> None:
    file["set"]["platform"]["bandwidth"] = 24


def _transfer_too_soon(file: dict[str, Any]) -> None:
    for each in file["applications"][1]["instances"][2]["transfers"]:
        each[0], each[1] = each[0] - 0.1, each[1] - 0.1


def _compute_too_soon(file: dict[str, Any]) -> None:
    before, one = file["applications"][1]["instances"][:2]
    shift = one["work"][0] - before["transfers"][-1][1] + 0.5
    one["work"] = [each - shift for each in one["work"]]
    one["transfers"] = [[begin - shift, end - shift, rate] for begin, end, rate in one["transfers"]]


def _overlap(file: dict[str, Any]) -> None:
    transfers = file["applications"][2]["instances"][0]["transfers"]
    begin, end, rate = transfers[0]
    transfers[:1] = [[begin, begin + 0.75 * (end - begin), rate], [begin + 0.5 * (end - begin), end, rate / 2]]


def _compute_too_little(file: dict[str, Any]) -> None:
    file["applications"][2]["instances"][0]["work"][0] += 0.5


def _have_no_instance(file: dict[str, Any]) -> None:
    file["applications"][1]["instances"] = []


def _be_too_short(file: dict[str, Any]) -> None:
    file["period"] *= 0.98


def _end_before_it_begins(file: dict[str, Any]) -> None:
    one = file["applications"][2]["instances"][0]["transfers"]
    one.append([one[0][0] + 1, one[0][0], 10])


def _begin_late(file: dict[str, Any]) -> None:
    one = file["applications"][0]["instances"][-1]
    one["work"] = [each + file["period"] for each in one["work"]]
    one["transfers"] = [[begin + file["period"], end + file["period"], rate] for begin, end, rate in one["transfers"]]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_lack_volume, "a has 60 MB"),
        (_have_too_much, "c has 35 MB"),
        (_be_too_fast, "c can 10 MB/s"),
        (_use_too_much, "the storage can 24 MB/s"),
        (_transfer_too_soon, "begin before the end of the compute"),
        (_compute_too_soon, "before instances[0] ends"),
        (_overlap, "overlap"),
        (_compute_too_little, "computes for 4.5 s, but c needs 5 s"),
        (_have_no_instance, "b has no instance"),
        (_be_too_short, "begins at"),
        (_end_before_it_begins, "before it begins"),
        (_begin_late, "not within the period"),
    ],
)
def test_damage_is_found(damage: Callable[[dict[str, Any]], None], message: str) -> None:
    text = schedule_text(schedule_to_json(small()))
    assert check(read(text)) == []
    raw = json.loads(text)
    damage(raw)
    found = check(read(json.dumps(raw)))
    assert message in "\n".join(each.message for each in found)


def test_a_file_has_all_of_a_schedule() -> None:
    one = small()
    text = schedule_text(schedule_to_json(one))
    assert read(text) == one
    assert len(text.splitlines()) < 60 + sum(one.pattern.counts)


@pytest.mark.parametrize(
    ("old", "new"),
    [('"version": 1', '"version": 3'), ('"name": "a", "eff', '"name": "", "eff'), ('"nodes": 8', '"nodes": NaN')],
)
def test_a_file_with_a_mistake_is_no_schedule(old: str, new: str) -> None:
    text = schedule_text(schedule_to_json(small()))
    assert old in text
    with pytest.raises(ValidationError):
        read(text.replace(old, new))
