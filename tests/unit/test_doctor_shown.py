"""The findings of `doctor` about space, about many locations, and about many nodes."""

from __future__ import annotations

from collections import Counter

from streamflow_io.commands.doctor import shown_findings
from streamflow_io.commands.doctor_space import Space, memory_finding, space_findings
from streamflow_io.runtime.protocol import Memory
from streamflow_io.runtime.self_test import LocationFinding

GB = 10**9


def spaces(**free: float) -> dict[str, Space]:
    return {f"/{name}": Space(f"/{name}", "xfs", round(size * GB)) for name, size in free.items()}


def said(*of: dict[str, Space], sees: tuple[str, ...]) -> list[str]:
    """The details of the findings for a work directory `/work`, if the other locations see some directories."""
    there = {f"n{number}": each for number, each in enumerate(of)}
    seen = {name: {directory: directory in sees for directory in of[0]} for name in list(there)[1:]}
    return [finding.detail for finding in space_findings("/work", there, seen)]


def test_the_space_of_each_location_is_the_least() -> None:
    one, other = spaces(work=9, tmp=3, nvme=800, only=9), spaces(work=9, tmp=2, nvme=900)
    assert said(one, other, sees=("/work",)) == [
        "/work: shared by all 2 locations (xfs), 9.0 GB free",
        "/nvme, at least 800 GB free; /tmp, at least 2.0 GB free",
    ]
    assert said(one, other, sees=("/work", "/nvme", "/tmp"))[1].startswith("no writable directory of 1 GiB")
    assert said(one, other, sees=())[0] == "/work: all 2 locations have one each (xfs), with at least 9.0 GB free"
    assert said(one, sees=()) == ["/work (xfs): 9.0 GB free"]
    assert said(one, spaces(tmp=2), sees=()) == []


def test_a_directory_that_only_some_share() -> None:
    there = {"n0": spaces(work=9), "n1": spaces(work=8), "n2": spaces(work=7)}
    found = space_findings("/work", there, {"n1": {"/work": True}, "n2": {"/work": False}})
    assert found[0].detail == "/work: shared by some of all 3 locations; the least has 7.0 GB free"
    # Where nothing could be made, nothing is known.
    assert "/work" not in space_findings("/work", there, {"n1": {}, "n2": {}})[1].detail


def test_what_works_at_many_locations_is_one_row() -> None:
    found = [LocationFinding(f"{name}, n{node}", node != 7, "x") for node in range(200) for name in ("gate", "limits")]
    shown = shown_findings(found)
    assert Counter((finding.name, finding.works) for finding in shown) == Counter(
        {
            ("gate, 199 locations", True): 1,
            ("limits, 199 locations", True): 1,
            ("gate, n7", False): 1,
            ("limits, n7", False): 1,
        }
    )
    assert shown_findings(found[:6]) == found[:6:2] + found[1:6:2]


def test_memory() -> None:
    one, other, none = Memory(free=4 * GB), Memory(free=2 * GB), Memory(why="/dev/shm is no tmpfs")
    assert memory_finding("memory", {"": one}).detail == "files of jobs can take up to 4.0 GB in /dev/shm"
    found = memory_finding("memory", {"n1": one, "n2": other})
    assert (found.works, found.detail) == (True, "files of jobs can take up to 4.0 GB (n1), 2.0 GB (n2) in /dev/shm")
    found = memory_finding("memory", {"n1": one, "n2": none})
    assert found.works is None
    assert found.detail == "files of jobs can take up to 4.0 GB (n1) in /dev/shm; n2: /dev/shm is no tmpfs"
    assert memory_finding("memory", {"": none}).detail == "/dev/shm is no tmpfs"
