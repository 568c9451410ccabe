"""Storage hints of steps in containers: what a node has is shared by all of its containers, and by its own jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.container_sites import DEBIAN, Containers, contained
from lab.cwl import Document, found, tool, workflow
from lab.gates import pair, producer
from lab.sites import at_once
from tests.e2e.test_containers import WRITE, stream_reader
from tests.e2e.test_storage_bandwidth import IO_TASK, bandwidth

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
    ours = docker.run_ours(document, {"parts": [1, 2]}, config=config)
    assert ours.files == {f"{name}{part}.txt": f"{part}\n".encode() for name in "abc" for part in (1, 2)}
    assert at_once(ours) == 3
    check_admitted(docker, "disk" if what == "storage" else None, 6)
    assert "not applied" not in ours.log


def check_admitted(docker: Containers, storage: str | None, jobs: int) -> None:
    """Check that this many jobs were admitted, all on one node."""
    admitted = records(docker, "admitted")
    assert [record.get("storage") for record in admitted] == [storage] * jobs
    assert {record["location"] for record in (*admitted, *records(docker, "started"))} == {"the driver's node"}


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
    ours = docker.run_ours(contained(document, b=None), config={"observe": True})
    assert ours.files["read.txt"] == b"first\nsecond\n"
    assert ours.time("first") < ours.time("end")
    assert {record["step"]: record["path"] for record in records(docker, "output")} == {
        "/a": "out.txt",
        "/b": "read.txt",
    }
    usages = {record["step"]: record["usage"] for record in records(docker, "ended")}
    assert usages.keys() == {"/a", "/b"}
    assert all(usage["ioSeconds"] is not None for usage in usages.values())
