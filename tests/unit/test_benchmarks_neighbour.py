"""Writers beside our checkpoints, and the phases that count."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from benchmarks import neighbour
from benchmarks.neighbour import Neighbour, begin_times, counted


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbour, "NEIGHBOUR_BYTES", 10**6)


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    (path := tmp_path / "begun").touch()
    return path


def wait_for(phases: int, found: Neighbour) -> None:
    deadline = time.monotonic() + 10
    while len(found.phases) < phases and time.monotonic() < deadline:
        time.sleep(0.01)


def test_in_step_it_begins_with_each_checkpoint(tmp_path: Path, begun: Path) -> None:
    found = Neighbour(tmp_path / "file", begun, None)
    with found.at_work():
        time.sleep(0.1)
        assert not found.phases
        for number in (1, 2):
            with begun.open("a") as stream:
                stream.write(f"{number}.5\n")
            wait_for(number, found)
        time.sleep(0.1)
    assert len(found.phases) == 2
    assert not (tmp_path / "file").exists()


def test_out_of_step_it_has_a_period(tmp_path: Path, begun: Path) -> None:
    found = Neighbour(tmp_path / "file", begun, 0.2)
    with found.at_work():
        wait_for(3, found)
    starts = [start for start, _ in found.phases]
    assert len(starts) >= 3
    assert all(later - earlier >= 0.19 for earlier, later in itertools.pairwise(starts))


def test_a_neighbour_that_cannot_write_is_a_failure(tmp_path: Path, begun: Path) -> None:
    with pytest.raises(FileNotFoundError), Neighbour(tmp_path / "none" / "file", begun, 1.0).at_work():
        pass


def test_phases_beside_the_first_and_the_last_checkpoint_do_not_count() -> None:
    phases = [(9.0, 1.0), (10.0, 2.0), (19.9, 3.0), (19.995, 4.0), (20.0, 5.0), (21.0, 6.0)]
    assert counted(phases, [0.0, 10.0, 20.0]) == [2.0, 3.0]


def test_a_line_counts_when_it_is_whole(begun: Path) -> None:
    begun.write_text("1.5\n2.25\n3.")
    assert begin_times(begun) == [1.5, 2.25]
