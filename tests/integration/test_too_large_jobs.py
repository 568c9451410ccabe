"""Jobs that ask for more than there is: the run and `plan` say so at once, instead of waiting for ever."""

from __future__ import annotations

import json
import os

import psutil
import pytest

from lab.cwl import Document, found, tool, workflow
from lab.runs import Bench
from streamflow_io.cli import main

CORES = len(os.sched_getaffinity(0))
MEMORY = int(psutil.virtual_memory().total / 2**20)
IO_TASK = {"class": "sfio:IOTask"}


def asking(hints: list[Document] | None = None, **resources: object) -> Document:
    """A step that asks for resources, after one that asks for nothing much."""
    large = tool(
        "echo large > out.txt",
        {"after": "File"},
        {"out": found("out.txt")},
        hints,
        requirements=[{"class": "ResourceRequirement", "coresMin": 0.1, "ramMin": 16, **resources}],
    )
    small = tool("note small; echo small > out.txt", {}, {"out": found("out.txt")})
    steps = {"small": {"run": small, "in": {}}, "large": {"run": large, "in": {"after": "small/out"}}}
    return workflow({}, steps, {"out": "large/out"})


def planned(capsys: pytest.CaptureFixture[str], bench: Bench, document: Document) -> Document:
    path = bench.write(document, {}, True, {})
    capsys.readouterr()
    code = main(["plan", str(path), "--json"])
    plan: Document = json.loads(capsys.readouterr().out)["workflows"]["main"]
    assert code == (1 if plan["impossible"] else 0)
    return plan


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"coresMin": CORES + 62}, f"it asks for {CORES + 62} cores and 16 MiB of memory, and there are {CORES} cores"),
        ({"ramMin": 10 * MEMORY, "coresMin": "$(1)"}, f"it asks for 1 core and {10 * MEMORY:,} MiB of memory"),
    ],
)
def test_a_job_that_can_never_start_ends_the_run(
    bench: Bench, capsys: pytest.CaptureFixture[str], resources: Document, message: str
) -> None:
    document = asking(**resources)
    ours = bench.run(document, config={})
    assert not ours.ok
    assert f"No job of /large can start: {message}" in ours.log
    assert "__LOCAL__" not in ours.log
    assert ours.time("small")
    told = planned(capsys, bench, document)["impossible"]
    assert set(told) == {"/large"}
    if "coresMin" in resources and isinstance(resources["coresMin"], int):
        assert told["/large"].startswith(message)


def test_an_io_task_needs_no_cores(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    document = asking([IO_TASK], coresMin=CORES + 62)
    assert planned(capsys, bench, document)["impossible"] == {}
    ours = bench.run(document, config={})
    assert ours.ok, ours.errors
    assert list(ours.files.values()) == [b"large\n"]


def test_a_gang_that_does_not_fit_into_memory(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    most = [{"class": "ResourceRequirement", "coresMin": 0.1, "ramMin": int(0.6 * MEMORY)}]
    producer = tool(
        "for i in 1 2 3 4; do echo $i; sleep 0.5; done; note written",
        {},
        {"out": {"type": "stdout", "streamable": True}},
        stdout="out.txt",
        requirements=most,
    )
    reader = tool(
        "note reads; cat $file",
        {"file": {"type": "File", "streamable": True}},
        {"out": "stdout"},
        stdout="read.txt",
        requirements=most,
    )
    steps = {"a": {"run": producer, "in": {}}, "b": {"run": reader, "in": {"file": "a/out"}}}
    document = workflow({}, steps, {"out": "b/out"})
    _, ours = bench.run_both(document)
    assert ours.time("written") < ours.time("reads")
    assert "Job /b/0 needs no free core, and waits for memory on the driver's node: " in ours.log
    (gang,) = planned(capsys, bench, document)["gangs"]
    assert gang["apart"].startswith("not all at the same time: together they ask for")
    assert main(["plan", str(bench.write(document, {}, True, {}))]) == 0
    assert "run at the same time, except where noted" in capsys.readouterr().out
