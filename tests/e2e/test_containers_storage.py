"""Storage hints of steps in containers: what a node has is shared by all of its containers, and by its own jobs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab.container_sites import DEBIAN, Containers, contained
from lab.cwl import Document, found, tool, workflow
from lab.gates import pair, producer
from lab.machines.containers import ADDRESSES
from lab.sites import at_once
from tests.e2e.test_containers import WRITE, stream_reader
from tests.e2e.test_storage_bandwidth import IO_TASK, bandwidth

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# Until four jobs have started, or as long as a busy machine may need to start a container.
# With us three are at once, however long they take to start; half a second later a fourth would be there, too.
TOGETHER = """i=0
until [ -z "$SFIO_JOB" ] || [ $(grep -c start "$TRACE") -ge 3 ] || [ $i = 200 ]; do i=$((i+1)); sleep 0.1; done
sleep 0.5
"""
LITTLE = {"class": "ResourceRequirement", "coresMin": 0.1, "ramMin": 16}


@pytest.fixture
def docker(docker: Containers, tmp_path: Path) -> Containers:
    docker.workdir = tmp_path / "scratch"
    return docker


def writer(hints: list[Document], script: str, name: str) -> Document:
    """A tool that writes a small file, and notes when."""
    return tool(
        f"note start; {script} echo $part > {name}$part.txt; note end",
        {"part": "int"},
        {"out": found(f"{name}$(inputs.part).txt")},
        hints,
        requirements=[LITTLE],
    )


def scattered(*steps: str, hints: list[Document], script: str = "sleep 0.5;") -> Document:
    bodies = {name: {"run": writer(hints, script, name), "scatter": "part", "in": {"part": "parts"}} for name in steps}
    return workflow({"parts": "int[]"}, bodies, {name: f"{name}/out" for name in steps})


def box(work: Path) -> Document:
    """A container that has the working directory of the driver's node, too."""
    config = {"image": DEBIAN, "volume": [f"{work}:/shared"]}
    return {"box": {"type": "docker", "config": config, "workdir": "/shared"}}


def records(docker: Containers, event: str) -> list[Document]:
    return [record for record in docker.telemetry() if record["event"] == event]


def disk(docker: Containers, **fields: object) -> Document:
    """Where the working directories of the driver's node are; in a container they have another path."""
    assert docker.workdir is not None
    return {"name": "disk", "path": str(docker.workdir), "write": 100, **fields}


@pytest.mark.parametrize("what", ["storage", pytest.param("executors", marks=pytest.mark.long)])
def test_containers_of_a_node_share_what_it_has(docker: Containers, what: str) -> None:
    """Two steps have a container each, and one runs on the driver's node: three jobs at once, also on fewer cores."""
    hints, config = [IO_TASK], {"ioExecutors": 3}
    if what == "storage":
        hints, config = [IO_TASK, bandwidth(30)], {"storages": [disk(docker, deployment="here", scope="node")]}
    document = contained(scattered("a", "b", "c", hints=hints, script=TOGETHER), c=None)
    _, ours = docker.run_both(document, {"parts": [1, 2]}, config=config)
    assert at_once(ours) == 3
    check_admitted(docker, "disk" if what == "storage" else None, 6)
    assert "not applied" not in ours.log


@pytest.mark.long
def test_containers_of_an_ssh_host_share_what_it_has(containers_host: Containers) -> None:
    """A storage of the host, for the container of a step and for a step beside it."""
    storages = [disk(containers_host, deployment="here", scope="node")]
    document = contained(scattered("a", "b", hints=[IO_TASK, bandwidth(30)], script=TOGETHER), b=None)
    _, ours = containers_host.run_both(document, {"parts": [1, 2]}, config={"storages": storages})
    assert at_once(ours) == 3
    check_admitted(containers_host, "disk", 4, f"here/{ADDRESSES[0]}")
    assert "not applied" not in ours.log


def check_admitted(docker: Containers, storage: str | None, jobs: int, node: str = "the driver's node") -> None:
    """Check that this many jobs were admitted, all on one node."""
    admitted = records(docker, "admitted")
    assert [record.get("storage") for record in admitted] == [storage] * jobs
    assert {record["location"] for record in (*admitted, *records(docker, "started"))} == {node}


@pytest.mark.long
def test_jobs_in_containers_are_not_paused(docker: Containers) -> None:
    """The run says so once.

    The jobs are measured, and run as without a limit, each in less time than a limit would allow.
    """
    make = tool("seq 3000000 > made$part", {"part": "int"}, {"out": found("made$(inputs.part)")})
    save = tool(
        'cat "$file" > "$(basename "$file").saved"',
        {"file": "File"},
        {"out": found("*.saved")},
        [IO_TASK, {**bandwidth("required"), "within": 120}],
        requirements=[LITTLE],
    )
    steps = {
        "make": {"run": make, "scatter": "part", "in": {"part": "parts"}},
        "save": {"run": save, "scatter": "file", "in": {"file": "make/out"}},
        # Or no job would compute beside them.
        "wait": {
            "run": tool("sleep 4; echo > waited", {"file": "File"}, {"out": found("waited")}, requirements=[LITTLE])
        },
    }
    steps["wait"] |= {"scatter": "file", "in": {"file": "make/out"}}
    document = workflow({"parts": "int[]"}, steps, {"out": "save/out", "waited": "wait/out"})
    _, ours = docker.run_both(
        contained(document, make=None, wait=None), {"parts": [1, 2]}, config={"storages": [disk(docker)]}
    )
    [said] = [line for line in ours.log.splitlines() if "is not held to its storageBW" in line]
    assert "jobs in containers are not paused" in said
    requests = records(docker, "request")
    assert [("limit" in request, request["bytes"] > 20e6) for request in requests] == [(False, True)] * 2
    assert max(request["ended"] - request["started"] for request in requests) < 60
    assert all("pauses" not in record.get("usage", {}) for record in records(docker, "ended"))


@pytest.mark.long
def test_files_are_observed_in_containers(docker: Containers) -> None:
    """From one container to another and to the driver's node, and from there into a container."""
    write = tool("seq 20000 > made.txt", {}, {"out": found("made.txt")})
    steps = {"a": {"run": write, "in": {}}}
    for name, source in zip("bcd", "abc", strict=True):
        read = tool(f"cat $file > {name}.txt", {"file": "File"}, {"out": found(f"{name}.txt")})
        steps[name] = {"run": read, "in": {"file": f"{source}/out"}}
    document = workflow({}, steps, {name: f"{name}/out" for name in "abcd"})
    docker.deployments, docker.bound = box, {"/a": "box", "/d": "box"}
    docker.run_both(contained(document, a=None, c=None, d=None), config={"observe": True})
    sources = {record["step"]: (record["source"], record["path"]) for record in records(docker, "input")}
    assert sources == {
        "/b": ("/a/0", "made.txt"),
        "/c": ("/b/0", "b.txt"),
        "/d": ("/c/0", "c.txt"),
    }
    assert all(record["sequential"] and record["opens"] == 1 for record in records(docker, "input"))
    assert {record["path"] for record in records(docker, "output")} == {"made.txt", "b.txt", "c.txt", "d.txt"}


def test_jobs_that_stream_are_measured_in_containers(docker: Containers) -> None:
    document = pair(producer(WRITE, "on_close", mode="no_update"), stream_reader())
    _, ours = docker.run_both(contained(document, b=None), config={"observe": True})
    assert ours.time("first") < ours.time("end")
    assert {record["step"]: record["path"] for record in records(docker, "output")} == {
        "/a": "out.txt",
        "/b": "read.txt",
    }
    usages = {record["step"]: record["usage"] for record in records(docker, "ended")}
    assert usages.keys() == {"/a", "/b"}
    assert all(usage["ioSeconds"] is not None for usage in usages.values())


@pytest.mark.long
def test_a_deployment_of_containers_may_have_a_storage_of_its_own(docker: Containers) -> None:
    """The path of the storage is in the container, and counts before that of the host."""
    docker.deployments, docker.bound = box, {"/a": "box"}
    inside = {"name": "inside", "deployment": "box", "path": "/shared", "write": 100}
    steps = {
        name: {"run": tool("echo done > out.txt", {}, {"out": found("out.txt")}, [IO_TASK, bandwidth(60)]), "in": {}}
        for name in "ab"
    }
    document = workflow({}, steps, {name: f"{name}/out" for name in steps})
    ours = docker.run(document, config={"storages": [disk(docker), inside]})
    assert ours.ok, ours.errors
    used = {record["step"]: record["storage"] for record in records(docker, "admitted")}
    assert used == {"/a": "inside", "/b": "disk"}
