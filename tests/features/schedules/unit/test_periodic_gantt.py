"""Drawings of schedules."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.cli import main
from streamflow_io.features.schedules.files import schedule_text
from streamflow_io.features.schedules.gantt import MOST_ROWS, gantt
from streamflow_io.features.schedules.model import (
    Algorithm,
    Application,
    ApplicationSet,
    Instance,
    Pattern,
    Platform,
    Schedule,
    Transfer,
    figures,
)
from streamflow_io.features.schedules.persched import pattern
from tests.features.schedules.periodic_sets import application_sets


def schedule(applications: ApplicationSet, found: Pattern) -> Schedule:
    return Schedule(applications, "efficiency", found, figures(applications, found), Algorithm("none", {}, 0))


def regular(applications: int, instances: int) -> Schedule:
    """All compute for 3 s and transfer for 1 s, `instances` times."""
    each = tuple(Application(f"<a{index}>", 1, 3, 10) for index in range(applications))
    own = tuple(Instance((4 * at, 4 * at + 3), (Transfer(4 * at + 3, 4 * at + 4, 10),)) for at in range(instances))
    return schedule(
        ApplicationSet(Platform(applications, 10, 10 * applications), each),
        Pattern(4 * instances, (own,) * applications),
    )


def test_a_line_says_who_computes_and_who_transfers() -> None:
    drawn = gantt(regular(2, 2), 16)
    assert [row.line() for row in drawn.rows] == ["░░░░░░██░░░░░░██"] * 2
    assert drawn.storage_line() == "      ██      ██"
    assert drawn.note is None


def test_the_height_is_the_rate_and_idle_is_empty() -> None:
    applications = ApplicationSet(Platform(2, 10, 10), (Application("a", 1, 2, 10), Application("b", 1, 2, 20)))
    instances = (
        (Instance((0, 2), (Transfer(4, 6, 5),)),),
        # Beyond the end of the period: its transfer is at the beginning.
        (Instance((6, 8), (Transfer(8, 10, 10),)),),
    )
    drawn = gantt(schedule(applications, Pattern(8, instances)), 8)
    assert [row.line() for row in drawn.rows] == ["░░  ▄▄  ", "██    ░░"]
    assert drawn.storage_line() == "██  ▄▄  "


def test_of_many_applications_some_are_drawn_and_the_drawing_says_so() -> None:
    drawn = gantt(regular(100, 2), 50)
    assert [row.name for row in drawn.rows] == [f"<a{number * 100 // 40}>" for number in range(MOST_ROWS)]
    assert drawn.note == "40 of 100 applications are shown, evenly chosen; the storage bears all of them."
    assert max(drawn.storage) == pytest.approx(1)


@given(application_sets(), st.floats(1, 4), st.integers(10, 200))
def test_what_is_drawn_is_all_that_happens(applications: ApplicationSet, factor: float, columns: int) -> None:
    found = pattern(applications, max(applications.durations) * factor)
    if found is None:
        return
    drawn = gantt(schedule(applications, found), columns)
    for index, row in enumerate(drawn.rows):
        one, count = applications.applications[index], found.counts[index]
        width = found.period / columns
        assert sum(row.work) * width == pytest.approx(count * one.work, rel=1e-6, abs=1e-9)
        assert sum(row.transfers) * width * applications.peaks[index] == pytest.approx(count * one.volume, rel=1e-6)
        assert len(row.line()) == columns
    assert max(drawn.storage) <= 1 + 1e-6


def test_10000_instances_are_drawn_soon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "large.json"
    file.write_text(schedule_text(regular(100, 100)))
    begin = time.process_time()
    assert main(["schedule", "show", str(file)]) == 0
    assert time.process_time() - begin < 2
    assert "40 of 100 applications are shown" in capsys.readouterr().out
