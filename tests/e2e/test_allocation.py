"""Workflows in an allocation of a real Slurm: all that SSH hosts can do, on nodes that Slurm has given."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.node import wait_for
from lab.sites import Site
from tests.e2e.test_streaming import check_gone, check_nothing_fell_back

NODE = 'note "$SLURMD_NODENAME"; '


def cores(number: float) -> list[Document]:
    return [{"class": "ResourceRequirement", "coresMin": number, "ramMin": 16}]


def three_streams() -> Document:
    """A chain of four jobs with three byte streams. The first writes its second half when the last has read.

    The first job takes all cores of a node.
    """
    wait = 'i=0; until [ -e "$TRACE.read" ] || [ $i = 300 ]; do i=$((i+1)); sleep 0.1; done; '
    streams = [streaming({"port": "out", "mode": "no_update"})]
    first = tool(
        f"{NODE}exec > out.txt; seq 1 20000; {wait}seq 1 20000; note written",
        {},
        {"out": found("out.txt")},
        streams,
        requirements=cores(2),
    )
    middle = tool(
        f"{NODE}tee count.txt < $file > out.txt",
        {"file": streamable()},
        {"out": found("out.txt")},
        streams,
        requirements=cores(1),
    )
    last = tool(
        NODE + '{ read line; note begun; touch "$TRACE.read"; echo $line; cat; } < $file > out.txt; note all',
        {"file": streamable()},
        {"out": found("out.txt")},
        requirements=cores(0),
    )
    steps = {
        "a": {"run": first, "in": {}},
        "b": {"run": middle, "in": {"file": "a/out"}},
        "c": {"run": middle, "in": {"file": "b/out"}},
        "d": {"run": last, "in": {"file": "c/out"}},
    }
    return workflow({}, steps, {"out": "d/out"})


def test_three_streams_over_two_nodes(allocation: Site) -> None:
    ours = allocation.run(three_streams(), config={"oversubscribe": "never"})
    assert ours.ok, ours.errors
    assert ours.time("begun") < ours.time("written") < ours.time("all")
    assert {"n1", "n2"} <= {what for _, what in ours.trace}
    lines = "".join(f"{number}\n" for number in range(1, 20001))
    assert ours.files["out.txt"].decode() == lines * 2
    check_nothing_fell_back(ours.log)
    check_gone(allocation)
    assert allocation.control("squeue", "-h", "-s").split() == []


def test_files_are_delivered_at_their_commit(allocation: Site) -> None:
    """Six files go to jobs of both nodes, one by one. The results are those of plain StreamFlow."""
    first = tool(
        "mkdir d; for i in 1 2 3 4 5 6; do seq $i 1000 > d/$i.txt; sleep 0.1; done; echo done >&2",
        {},
        {"out": found("d/*.txt", "File[]")},
        [streaming({"port": "out", "committed": "on_close"})],
        requirements=cores(1),
    )
    each = tool(
        'wc < "$file"; sort "$file"', {"file": "File"}, {"out": "stdout"}, stdout="s.txt", requirements=cores(1)
    )
    steps = {
        "a": {"run": first, "in": {}},
        "b": {"run": each, "in": {"file": "a/out"}, "scatter": "file"},
    }
    _, ours = allocation.run_both(workflow({}, steps, {"out": "b/out"}), seconds=120)
    check_nothing_fell_back(ours.log)
    check_gone(allocation)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_run_that_is_ended(allocation: Site, how: signal.Signals) -> None:
    path = allocation.write(three_streams(), {}, io=True)
    process = allocation.start(path)
    trace = path.parent / "trace"
    wait_for(lambda: trace.exists() and trace.read_text().count(" n") == 4, "four jobs", 60)
    os.kill(process.pid, how)
    process.wait(60)
    check_gone(allocation)
    wait_for(lambda: not allocation.control("squeue", "-h", "-s").split(), "no step", 20)


@pytest.fixture
def submitting(slurm: Site) -> Iterator[Site]:
    """The login node: the run asks for an allocation of two nodes."""
    submit = {"manager": "slurm", "nodes": 2, "time": "10", "partition": "all", "options": ["--exclusive"]}
    deployment = {"type": "sfio.allocation", "config": {"submit": submit}, "workdir": slurm.deployment["workdir"]}
    yield replace(slurm, deployment=deployment)
    slurm.cancel_jobs()
    wait_for(lambda: not slurm.queue(), "empty queue")


def test_an_allocation_is_asked_for_and_given_back(submitting: Site) -> None:
    """The allocation waits until another job has ended."""
    told = submitting.control("sbatch", "--parsable", "-N4", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600")
    path = submitting.write(three_streams(), {}, io=True)
    process = submitting.start(path)
    waits = "waits in the queue of Slurm for allocation"
    wait_for(lambda: waits in (path.parent / "stderr").read_text(), "a run that waits", 30)
    submitting.control("scancel", told.strip())
    ours = submitting.finish(process, path)
    assert ours.ok, ours.errors
    assert ours.log.count(waits) == 1
    assert ours.files["out.txt"].count(b"\n") == 40000
    assert submitting.queue() == []
    check_gone(submitting)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("pending", [True, False], ids=["pending", "running"])
def test_an_allocation_is_given_back_when_the_run_is_ended(
    submitting: Site, how: signal.Signals, pending: bool
) -> None:
    if pending:
        submitting.control("sbatch", "-N4", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600")
    path = submitting.write(three_streams(), {}, io=True)
    process = submitting.start(path)
    said = "for allocation" if pending else "COMPLETED deployment"
    wait_for(lambda: said in (path.parent / "stderr").read_text(), said, 30)
    others = submitting.queue()[:-1]
    os.kill(process.pid, how)
    process.wait(60)
    wait_for(lambda: submitting.queue() == others, "the allocation is given back", 30)
    check_gone(submitting)
