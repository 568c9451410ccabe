"""Requests of jobs, and the room for them."""

from __future__ import annotations

import pytest

from streamflow_io.capacity import Room, too_large
from streamflow_io.graph.gangs import Gang, never_start, not_together
from streamflow_io.graph.io_graph import Step
from streamflow_io.graph.sites import Deployment, Site, SiteKind

HERE = Room(2, 8000)
ELSEWHERE = Site((Deployment("hpc", "slurm", SiteKind.QUEUE),))


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        (Room(2, 8000), True),
        (Room(3, 1), False),
        (Room(1, 8001), False),
        (Room(None, 8000), True),
        (Room(None, 9000), False),
        (Room(64, None), False),
        (Room(None, None), True),
    ],
)
def test_a_job_that_asks_for_more_than_there_is_can_never_start(asked: Room, fits: bool) -> None:
    assert (too_large(asked, {"node": HERE}) is None) == fits


def test_one_location_that_has_enough_suffices() -> None:
    there = {"small": HERE, "large": Room(64, 1000)}
    assert too_large(Room(64, 1000), there) is None
    # None has both.
    assert too_large(Room(64, 8000), there) == (
        "it asks for 64 cores and 8,000 MiB of memory, and there are 64 cores and 1,000 MiB of memory on large; "
        "2 cores and 8,000 MiB of memory on small"
    )
    assert too_large(Room(1, 1), {}) is None


def test_several_locations_need_each_as_much() -> None:
    there = {f"n{number}": Room(2 + number, 100) for number in range(5)}
    assert too_large(Room(5, 1), there, 2) is None
    assert too_large(Room(6, 1), there, 2) == (
        "it asks for 6 cores and 1 MiB of memory on each of 2 locations, and there are 6 cores and 100 MiB of memory "
        "on n4; 5 cores and 100 MiB of memory on n3; 4 cores and 100 MiB of memory on n2, "
        "and 2 locations with no more cores"
    )


def test_only_what_needs_cores_lacks_them() -> None:
    wide, large = {"cores": 64.0, "memory": 1.0}, {"cores": 1.0, "memory": 1e6}
    steps = {
        "/head": Step("/head", **wide),
        "/reader": Step("/reader", **wide),
        "/move": Step("/move", **wide),
        "/large": Step("/large", **large),
        "/open": Step("/open", None, memory=None),
        "/far": Step("/far", **wide, site=ELSEWHERE),
    }
    found = never_start(steps, ["/move"], [Gang(("/head", "/reader"), ("/head",), 64)], HERE)
    assert set(found) == {"/head", "/large"}
    assert found["/head"].startswith("it asks for 64 cores")


def test_a_gang_that_does_not_fit_into_memory_does_not_run_at_the_same_time() -> None:
    steps = {"/a": Step("/a", memory=5000), "/b": Step("/b", memory=3000), "/c": Step("/c", memory=1)}
    assert not_together(Gang(("/a", "/b"), ("/a",), 1), steps, HERE) is None
    assert not_together(Gang(("/a", "/b", "/c"), ("/a",), 1), steps, HERE) == (
        "not all at the same time: together they ask for 8,001 MiB of memory, and there are 8,000"
    )
    steps["/c"] = Step("/c", site=ELSEWHERE, memory=9000)
    assert not_together(Gang(("/a", "/b", "/c"), ("/a",), 1), steps, HERE) is None
