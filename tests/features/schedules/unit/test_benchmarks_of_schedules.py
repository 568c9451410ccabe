"""The workloads of the feature."""

from __future__ import annotations

from benchmarks.features.schedules import WORKLOADS


def test_goals_are_those_to_reach() -> None:
    goals = {each.name: [c.at_most or c.at_least for c in each.comparisons if c.is_goal] for each in WORKLOADS}
    assert goals == {"forecast": [0.10] * 6, "schedules": [1.0, 1.01] * 3}
