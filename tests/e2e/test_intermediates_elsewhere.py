"""Intermediate files on SSH hosts, on Slurm and in containers go when no job needs them any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.container_sites import BUSYBOX, DEBIAN, Containers, contained
from lab.cwl import Document, found, tool, workflow
from lab.machines.hosts import ADDRESSES
from lab.sites import Site, apart
from tests.e2e.test_laboratory import login

SMALL = [{"class": "ResourceRequirement", "coresMin": 0.1, "ramMin": 16}]
LIMITED = {"intermediates": "remove", "diskLimit": "1MB"}


def chain(work: str) -> Document:
    """/b has a copy or a link of the file of /a, and outputs a link to that file.

    - /c reads the link when something else in the directory of /a has gone.
    - The last step waits until all of /a and /b has gone.

    :param work: a pattern for the directories of jobs
    """
    make = tool("echo a > early.txt; echo scratch > early.tmp", {}, {"o": found("early.txt")}, requirements=SMALL)
    read = tool(
        "cat \"$i\" > b.txt; ln -s \"$i\" l.txt", {"i": "File"}, {"o": found("b.txt"), "l": found("l.txt")},
        requirements=SMALL,
    )  # fmt: skip
    gone = f"while find {work} -name '{{}}' | grep -q .; do sleep 0.1; done 2>&-; ".format
    both = tool(
        gone("early.tmp") + "cat $i $j > c.txt", {"i": "File", "j": "File"}, {"o": found("c.txt")}, requirements=SMALL
    )
    last = tool(gone("early.*") + "cat $i > d.txt", {"i": "File"}, {"o": found("d.txt")}, requirements=SMALL)
    steps: dict[str, Document] = {
        "a": {"run": make, "in": {}},
        "b": {"run": read, "in": {"i": "a/o"}},
        "c": {"run": both, "in": {"i": "b/o", "j": "b/l"}},
        "d": {"run": last, "in": {"i": "c/o"}},
    }
    return workflow({}, steps, {"o": "d/o"})


def listed(site: Site) -> dict[str, set[str]]:
    """The directories of jobs on the hosts."""
    return {address: set(login(site.laboratory, address, "ls /scratch").split()) for address in ADDRESSES}


def test_on_hosts(hosts: Site) -> None:
    place = apart(hosts)
    before = listed(place)
    run = place.run(chain("/scratch/*"), config=LIMITED)
    assert run.ok, run.errors
    assert run.files == {"d.txt": b"a\na\n"}
    assert "SFIO-B008" not in run.log
    after = listed(place)
    first, second = ADDRESSES
    assert after[second] == before[second]
    (result,) = after[first] - before[first]
    assert login(place.laboratory, first, f"ls /scratch/{result}").split() == ["d.txt"]


def test_clean_on_hosts(hosts: Site) -> None:
    """The directories of jobs on hosts go, too; results that were copied stay."""
    place = apart(hosts)
    before = listed(place)
    run = place.run(chain("/scratch/nothing"), config={"observe": True})
    assert run.ok, run.errors
    made = {address: found - before[address] for address, found in listed(place).items()}
    assert all(made.values())
    cleaned = place.streamflow_io("clean", "last")
    where = {part["where"] for part in cleaned["parts"] if part["told"] == "removed"}
    assert len(where) >= len(ADDRESSES)
    assert listed(place) == before
    assert run.files == {"d.txt": b"a\na\n"}


@pytest.mark.long
def test_on_slurm(slurm: Site) -> None:
    run = slurm.run(chain(f"{slurm.directory}/work/*"), config=LIMITED, seconds=200)
    assert run.ok, run.errors
    assert run.files == {"d.txt": b"a\na\n"}
    assert files(slurm.directory / "work") == ["d.txt"]


@pytest.mark.parametrize("read", [BUSYBOX, *(pytest.param(each, marks=pytest.mark.long) for each in (DEBIAN, None))])
def test_in_containers(docker: Containers, read: str | None) -> None:
    """Also where some steps run beside the containers, and see the same files at other paths."""
    document = contained(chain("/tmp/nothing"), b=read, d=None)
    path = docker.write(document, {}, True, LIMITED)
    run = docker.finish(docker.start(path), path, 120)
    assert run.ok, run.errors
    assert run.files == {"d.txt": b"a\na\n"}
    assert "SFIO-B008" not in run.log
    assert files(path.parent / "tmp" / "streamflow") == ["d.txt"]


def files(work: Path) -> list[str]:
    return sorted(path.name for path in work.glob("*/**/*") if path.is_symlink() or not path.is_dir())


@pytest.mark.long
def test_clean_on_slurm(slurm: Site) -> None:
    run = slurm.run(chain("/nothing"), config={"observe": True}, seconds=200)
    assert run.ok, run.errors
    assert "d.txt" in files(slurm.directory / "work")
    assert slurm.streamflow_io("clean", "last")["bytes"] > 0
    # The node runtime stays for the next run.
    (runtime,) = files(slurm.directory / "work")
    assert runtime.startswith("sfio-node-")
    assert run.files == {"d.txt": b"a\na\n"}
