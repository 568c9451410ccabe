"""How the benchmarks judge what was measured."""

from __future__ import annotations

import pytest

from benchmarks.model import Comparison, Sample, VariantReport, evaluate


def variant(name: str, *walls: float) -> VariantReport:
    return VariantReport(name=name, samples=tuple(Sample(wall=wall, window=wall / 2) for wall in walls))


def test_ratio_is_the_median_of_the_ratios_of_each_repetition() -> None:
    # While the machine was slow, in the second repetition, it was slow for both.
    variants = [variant("plain", 10, 100, 10), variant("ours", 6, 50, 5)]
    result = evaluate(Comparison(name="c", variant="ours", baseline="plain", at_most=0.5), variants)
    assert result.value == 0.5
    assert result.met is True


@pytest.mark.parametrize(
    ("limits", "met"),
    [
        ({"at_most": 0.5}, True),
        ({"at_most": 0.49}, False),
        ({"at_least": 0.5}, True),
        ({"at_least": 0.51}, False),
        ({}, None),
    ],
)
def test_limits(limits: dict[str, float], met: bool | None) -> None:
    comparison = Comparison(name="c", variant="ours", baseline="plain", **limits)
    assert evaluate(comparison, [variant("plain", 2), variant("ours", 1)]).met is met


def test_of_several_variants_the_one_with_the_least_median_counts() -> None:
    # "two" has the least value of all, but not the least median.
    variants = [
        variant("ours", 6, 6, 9),
        variant("one", 5, 6, 6),
        variant("two", 1, 9, 9),
        variant("plain", 10, 12, 12),
    ]
    static = ("two", "one")
    ratio = evaluate(Comparison(name="c", variant="ours", baseline=static, at_most=1.2), variants)
    assert ratio.value == 1.2
    assert ratio.met is True
    assert evaluate(Comparison(name="c", variant=static, baseline="plain"), variants).value == 0.5
    assert evaluate(Comparison(name="c", variant=static), variants).value == 6


@pytest.mark.parametrize("missing", ["ours", "plain"])
def test_a_goal_is_not_met_if_a_variant_was_skipped(missing: str) -> None:
    variants = [
        VariantReport(name=name, skipped="not here") if name == missing else variant(name, 1)
        for name in ("ours", "plain")
    ]
    result = evaluate(Comparison(name="c", variant="ours", baseline="plain", at_most=2), variants)
    assert result.value is None
    assert result.met is False
    assert evaluate(Comparison(name="c", variant="ours", baseline="plain"), variants).met is None
