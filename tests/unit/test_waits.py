"""What a job has waited for adds up to the time in which it was known to lack something."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.run.waits import Waits
from streamflow_io.telemetry.records import WaitCause

CAUSES = st.sampled_from([None, "storage", "cores", "memory", "disk", "place"])


def test_one_cause_after_the_other() -> None:
    waits = Waits()
    causes: list[tuple[float, WaitCause | None]] = [
        (0, "storage"),
        (2, None),
        (3, "cores"),
        (4, "cores"),
        (7, "memory"),
    ]
    for now, cause in causes:
        waits.lacks("/a/0", cause, now)
    waits.lacks("/a/1", "disk", 1.0)
    assert waits.end("/a/0", 7.5) == {"storage": 2.0, "cores": 4.0, "memory": 0.5}
    assert waits.end("/a/0", 9.0) == {}
    assert waits.end("/a/1", 1.0) == {}


@given(st.lists(st.tuples(st.floats(0.01, 10), CAUSES)))
def test_the_sum(looks: list[tuple[float, WaitCause | None]]) -> None:
    waits, now, expected = Waits(), 0.0, 0.0
    for seconds, cause in looks:
        waits.lacks("/a/0", cause, now)
        now += seconds
        expected += seconds if cause is not None else 0.0
    assert sum(waits.end("/a/0", now).values()) == pytest.approx(expected)
