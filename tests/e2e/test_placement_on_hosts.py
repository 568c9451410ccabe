"""On which of two SSH hosts the jobs of gangs run, and I/O tasks with them."""

from __future__ import annotations

import os

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.sites import Site

# A host has the cores of this machine: two such jobs fill it.
HALF = len(os.sched_getaffinity(0)) / 2
STREAMED = {"port": "out", "mode": "no_update"}


def cores(number: float) -> list[Document]:
    return [{"class": "ResourceRequirement", "coresMin": number, "ramMin": 16}]


def writer(rule: Document, awaited: str, number: int, needed: float = HALF) -> Document:
    """Runs until something has been noted so often, or for half a minute."""
    waiting = f'until [ $(grep -c {awaited} "$TRACE") -ge {number} ] || [ $i = 300 ]; do i=$((i+1)); sleep 0.1; done'
    return tool(
        f"note write; echo $part; i=0; {waiting}; note end; echo $part",
        {"part": "int"},
        {"out": "stdout"},
        [streaming(rule)],
        stdout="out.txt",
        requirements=cores(needed),
    )


def reader(*hints: Document, needed: float = HALF) -> Document:
    return tool(
        "note read; cat $file > copy.txt",
        {"file": streamable()},
        {"out": found("copy.txt")},
        list(hints),
        requirements=cores(needed),
    )


def places(site: Site) -> dict[str, str]:
    """The host of each job of the last run."""
    return {record["job"]: record["location"].rpartition("/")[2] for record in site.records("started")}


def test_a_gang_that_is_too_large_for_a_host_has_the_neighbour(hosts: Site) -> None:
    steps = {
        "a": {"run": writer(STREAMED, "read", 2), "in": {"part": "part"}},
        "b": {"run": reader(), "in": {"file": "a/out"}},
        "c": {"run": reader(), "in": {"file": "a/out"}},
    }
    ours = hosts.run(workflow({"part": "int"}, steps, {"one": "b/out", "other": "c/out"}), {"part": 1})
    assert ours.ok, ours.errors
    assert set(ours.files.values()) == {b"1\n1\n"}
    assert max(ours.times("read")) < min(ours.times("end"))
    where = places(hosts)
    assert where["/a/0"] in (where["/b/0"], where["/c/0"])
    assert where["/b/0"] != where["/c/0"]
    assert hosts.leftovers() == []
