"""Allocations that the run asks for one after the other, or side by side, and gives back when no job needs them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from lab.cwl import found, tool, workflow
from lab.node import wait_for
from lab.runs import RETRY, wait_for_note
from lab.sites import Site
from tests.e2e.test_allocation import NODE, cores
from tests.e2e.test_streaming import check_gone


def asking(site: Site, **submit: Any) -> Site:
    fields = {"nodes": 1, "time": "10", "partition": "all", "options": ["--exclusive"], **submit}
    deployment = {
        "type": "sfio.allocation",
        "config": {"submit": fields},
        "workdir": site.deployment["workdir"],
    }
    return replace(site, deployment=deployment)


@pytest.fixture
def login_node(slurm: Site) -> Iterator[Site]:
    yield slurm
    slurm.cancel_jobs()
    wait_until_gone(slurm)


def wait_until_gone(site: Site) -> None:
    """Wait until no allocation and nothing else is left. Slurm takes 36 s for a step that is killed while it starts."""
    wait_for(lambda: not site.queue(), "empty queue", 60)
    check_gone(site)


def allocations(site: Site) -> list[str]:
    return site.control("squeue", "-h", "-t", "RUNNING", "-o", "%i").split()


def test_a_job_runs_again_on_the_next_allocation(login_node: Site) -> None:
    """A file of the first allocation is not computed again."""
    site = asking(login_node, max=2)
    first = tool(f"{NODE}note first; seq 10000 > a.txt", {}, {"out": found("a.txt")}, requirements=cores(1))
    script = 'note begun; until [ $(grep -c begun "$TRACE") = 2 ]; do sleep 0.1; done; wc -l < $file > b.txt'
    second = tool(script, {"file": "File"}, {"out": found("b.txt")}, requirements=cores(1))
    steps = {"a": {"run": first, "in": {}}, "b": {"run": second, "in": {"file": "a/out"}}}
    path = site.write(workflow({}, steps, {"out": "b/out"}), {}, io=True, **RETRY)
    process = site.start(path)
    wait_for_note(path, "begun")
    (before,) = allocations(site)
    site.control("scancel", before)
    ours = site.finish(process, path)
    assert ours.ok, ours.errors
    assert ours.files["b.txt"].split() == [b"10000"]
    assert len(ours.times("first")) == 1
    assert f"allocation {before} of Slurm has ended: " in ours.log
    assert "number 2 of at most 2" in ours.log
    wait_until_gone(site)


def test_an_allocation_without_jobs_is_given_back(login_node: Site) -> None:
    """A job that comes later gets another allocation, and reads what the first one has written."""
    site = replace(asking(login_node, max=2, idle=1), steps=("/a", "/c"))
    first = tool(
        f"{NODE}seq 10000 > a.txt; seq 3 > c.txt", {}, {"out": found("*.txt", "File[]")}, requirements=cores(1)
    )
    wait = tool('note waits; until grep -q go "$TRACE"; do sleep 0.1; done; echo 1', {}, {"out": "stdout"}, stdout="w")
    last = tool(
        f"{NODE}note last; cat $later > d.txt; cat *.txt > all; cat all",
        {"files": "File[]", "later": "File"},
        {"out": "stdout"},
        stdout="d",
        requirements=cores(1),
    )
    steps = {
        "a": {"run": first, "in": {}},
        "wait": {"run": wait, "in": {}},
        "c": {"run": last, "in": {"files": "a/out", "later": "wait/out"}},
    }
    path = site.write(workflow({}, steps, {"out": "c/out"}), {}, io=True)
    process = site.start(path)
    trace = path.parent / "trace"
    wait_for_note(trace, "waits")
    log = path.parent / "stderr"
    # The waiting job may start before Slurm has granted the allocation, and last longer than the allocation.
    given_back = re.compile(r"allocation \d+ of Slurm was given back")
    wait_for(lambda: given_back.search(log.read_text()), "the allocation is given back", 60)
    wait_for(lambda: site.queue() == [], "the allocation has ended", 60)
    with trace.open("a") as file:
        file.write("0 go\n")
    ours = site.finish(process, path)
    assert ours.ok, ours.errors
    assert "number 2 of at most 2" in ours.log
    wait_until_gone(site)
