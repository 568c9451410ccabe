"""The model of periodic applications: equations, bounds, set files."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given

from streamflow_io.features.schedules.files import paper_set, published, read_set
from streamflow_io.features.schedules.model import Application, ApplicationSet, Instance, Pattern, Platform, Transfer
from streamflow_io.hints.errors import HintErrors
from tests.features.schedules.periodic_sets import application_sets

# Efficiency and dilation that the bandwidth allows, of the paper's sets.
PAPER_BOUNDS = [
    (0.09771, 1.7653),
    (0.29261, 1.4213),
    (0.48752, 1.0772),
    (0.65635, 1),
    (0.81601, 1),
    (0.81763, 1),
    (0.82694, 1),
    (0.97730, 1),
    (0.97892, 1),
    (0.98822, 1),
]


def test_a_pattern_has_the_efficiency_and_dilation_of_the_paper() -> None:
    one = ApplicationSet(
        Platform(10, 5, 20), (Application("a", 4, 6, 40), Application("b", 2, 1, 10), Application("c", 4, 1, 10, 5))
    )
    assert one.peaks == (20, 10, 5)
    assert one.io_times == (2, 1, 2)
    assert one.durations == (8, 2, 3)
    pattern = Pattern(10, ((Instance((0, 6), (Transfer(6, 8, 20),)),), (Instance((0, 1), ()),) * 3, ()))
    assert one.efficiency(pattern.rates) == pytest.approx((4 * 6 + 2 * 3) / 10 / 10)
    assert one.dilations(pattern.rates) == [10 / 8, pytest.approx(10 / 6), float("inf")]
    assert one.least_period((1, 3, 0)) == 8
    assert one.least_period((1, 12, 0)) == 24


@pytest.mark.parametrize("number", range(1, 11))
def test_bounds_of_the_papers_sets(number: int) -> None:
    efficiency, dilation = PAPER_BOUNDS[number - 1]
    found = paper_set(number)
    assert sum(one.nodes for one in found.applications) == found.platform.nodes == 640
    assert found.bounds.efficiency == pytest.approx(efficiency, abs=1e-5)
    assert found.bounds.dilation == pytest.approx(dilation, abs=1e-4)
    assert published(number).efficiency <= found.bounds.efficiency
    assert published(number).dilation >= found.bounds.dilation


@given(application_sets(most=3))
def test_no_rates_on_a_grid_are_better_than_the_bounds(one: ApplicationSet) -> None:
    best = one.best_rates()
    assert one.load(best) <= one.platform.bandwidth * (1 + 1e-9)
    steps = 8
    for parts in product(range(steps + 1), repeat=len(best)):
        rates = [part / steps / own for part, own in zip(parts, one.durations, strict=True)]
        if one.load(rates) > one.platform.bandwidth:
            continue
        assert one.dilation(rates) >= one.bounds.dilation * (1 - 1e-9)
        assert one.efficiency(rates) <= one.efficiency(best) * (1 + 1e-9) + 1e-12


SET = """\
platform: {nodes: 4, nodeBandwidth: 10, bandwidth: 30}
applications:
  - {name: a, copies: 2, nodes: 1, work: 4, volume: 8}
  - {name: b, nodes: 2, work: 1, volume: 5, rate: 7}
"""


def test_a_set_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "set.yml"
    file.write_text(SET)
    found = read_set(file)
    assert [one.name for one in found.applications] == ["a-1", "a-2", "b"]
    assert found.peaks == (10, 10, 7)


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "message"),
    [
        ("work: 4", "work: 4, wrok: 4", 3, "applications[0].wrok", "unknown field"),
        ("work: 4, ", "", 3, "applications[0].work", "missing"),
        ("work: 4", "work: -1", 3, "applications[0].work", "-1 is not allowed"),
        ("work: 4", "work: .nan", 3, "applications[0].work", "nan is not allowed"),
        ("work: 4", "work: '4'", 3, "applications[0].work", "'4' is not allowed"),
        ("volume: 8", "volume: 0", 3, "applications[0].volume", "0 is not allowed"),
        ("volume: 8", "volume: .inf", 3, "applications[0].volume", "inf is not allowed"),
        ("nodes: 1", "nodes: 0", 3, "applications[0].nodes", "0 is not allowed"),
        ("nodes: 1", "nodes: 2", 1, "platform.nodes", "the applications have 6 nodes, the platform 4"),
        ("name: b", "name: a-2", 4, "applications[1].name", "'a-2' is also the name of applications[0]"),
        ("bandwidth: 30", "bandwidth: 0", 1, "platform.bandwidth", "0 is not allowed"),
        ("platform: ", "version: 2\nplatform: ", 1, "version", "2 is not allowed"),
    ],
)
def test_mistakes_in_a_set_file_are_named(
    tmp_path: Path, old: str, new: str, line: int, field: str, message: str
) -> None:
    file = tmp_path / "set.yml"
    file.write_text(SET.replace(old, new))
    with pytest.raises(HintErrors) as caught:
        read_set(file)
    (error,) = caught.value.errors
    assert (error.file, error.line, error.field, error.message) == (str(file), line, field, message)
    assert error.allowed


@pytest.mark.parametrize("text", ["", "- 1", "3"])
def test_what_is_no_mapping_is_no_set(tmp_path: Path, text: str) -> None:
    file = tmp_path / "set.yml"
    file.write_text(text)
    with pytest.raises(HintErrors, match="not a mapping; allowed: platform, applications"):
        read_set(file)


@pytest.mark.parametrize("name", ["paper:0", "paper:11", "paper:", "paper:01"])
def test_there_are_ten_sets_of_the_paper(name: str) -> None:
    with pytest.raises(HintErrors, match="paper:1 to paper:10"):
        read_set(name)


def test_an_application_that_only_transfers_has_a_dilation() -> None:
    one = ApplicationSet(Platform(1, 10, 10), (Application("a", 1, 0, 10),))
    assert one.dilation([0.5]) == 2
    assert one.efficiency([0.5]) == 0
