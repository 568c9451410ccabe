"""Containers of other engines than the local docker, and on SSH hosts."""

from __future__ import annotations

import json
import signal
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.container_sites import DEBIAN, Containers, contained
from lab.cwl import Document
from lab.gates import assert_early, pair, producer
from lab.machines.deployments import compose_environment
from lab.node import wait_for
from lab.runs import wait_for_note
from tests.e2e.test_containers import (
    LONG,
    WRITE,
    check_both_early,
    check_streamed,
    fallbacks,
    stream,
    stream_and_gate,
    stream_reader,
)


@pytest.fixture
def compose(docker: Containers) -> Containers:
    """A compose file whose services share the working directory, as a directory of the host."""
    return replace(docker, environment=docker.environment | compose_environment(docker.laboratory))


def services(work: Path, workdir: str, **more: Any) -> Document:
    """A deployment `all` of two services."""
    file = work.parent / "compose.yml"
    service = {"image": DEBIAN, "volumes": [f"{work}:/shared"], "stdin_open": True, **more}
    file.write_text(json.dumps({"services": {"one": service, "two": service}}))
    config = {"files": [str(file)], "projectName": f"sfio-{uuid.uuid4().hex[:8]}"}
    return {"all": {"type": "docker-compose", "config": config, "workdir": workdir}}


@pytest.mark.parametrize("b", [pytest.param("all/one", marks=LONG), "all/two"])
def test_services_that_share_a_directory(compose: Containers, b: str) -> None:
    compose.deployments, compose.bound = lambda work: services(work, "/shared"), {"/a": "all/one", "/b": b}
    ours = compose.run_ours(stream_and_gate())
    check_both_early(ours)


def boxes(work: Path, workdir: str = "/tmp/own", **options: Any) -> Document:
    """Two containers, by default on the network that docker has by default."""
    config = {"image": DEBIAN, "volume": [f"{work}:/shared"], **options}
    return {name: {"type": "docker", "config": config, "workdir": workdir} for name in ("one", "two")}


@pytest.mark.parametrize("tls", [True, pytest.param(False, marks=LONG)])
def test_containers_that_share_a_network_only(docker: Containers, tls: bool) -> None:
    docker.deployments, docker.bound = boxes, {"/a": "one", "/b": "two"}
    ours = docker.run_ours(stream(), {"trace": "/shared/trace"}, config={"tls": True} if tls else {})
    check_streamed(ours)


def test_containers_of_ssh_hosts(containers_host: Containers) -> None:
    """b is in another container of the host of a, c on that host itself, as another user; d is on another host."""
    document = read_by_more("c", "d")
    say(document, "a", "meet done", "meet done; meet first d")
    containers_host.bound = {"/d": "other"}
    ours = containers_host.run_ours(contained(document, c=None))
    for what in ("first b", "first c", "done", "first d"):
        assert_early(ours, what)
    assert ours.files["read.txt"] == b"first\nsecond\nlate\n"
    assert ours.files["readc.txt"] == ours.files["readd.txt"] == b"first\nsecond\n"
    told = fallbacks(ours)
    assert len(told) == 1, ours.errors
    assert "is delivered at commit: /a runs in a container of sfio-test:latest (docker, on here), /d in one" in told[0]
    assert "streams between containers need one host" in told[0]


def found_there(bench: Containers, wraps: Document, work: Path) -> Document:
    """Deployments of containers that run already, with the working directory at two places."""
    deployments: Document = {}
    for name, workdir in (("one", "/shared"), ("two", "/data")):
        container = bench.docker("run", "-d", "-i", "--rm", "-v", f"{work}:{workdir}", DEBIAN, "/bin/sh").strip()
        config = {"image": DEBIAN, "containerId": container}
        deployments[name] = {"type": "docker", "external": True, "config": config, "workdir": workdir, **wraps}
    return deployments


@LONG
@pytest.mark.parametrize("where", ["docker", "containers_host"])
def test_containers_that_are_there_already(request: pytest.FixtureRequest, where: str) -> None:
    """The plugin sees what the containers share when they run, and leaves them as they were."""
    bench: Containers = request.getfixturevalue(where)
    hosts, wraps = bench.deployments, {"wraps": "here"} if where == "containers_host" else {}
    bench.deployments = lambda work: {**hosts(work), **found_there(bench, wraps, work)}
    bench.bound = {"/a": "one", "/b": "two"}
    ours = bench.run(stream_and_gate())
    assert ours.ok, ours.errors
    check_both_early(ours)
    assert bench.left_by_us() == []
    assert len(bench.containers()) == 2


def read_by_more(*names: str) -> Document:
    """The stream is read by b, and by steps of these names; the writer waits for b and c."""
    document = stream_and_gate()
    readers = {name: {"run": stream_reader(name), "in": {"file": "a/out", "trace": "trace"}} for name in names}
    document["steps"] |= {name: {**step, "out": ["out"]} for name, step in readers.items()}
    document["outputs"] |= {name: {"type": "File", "outputSource": f"{name}/out"} for name in names}
    say(document, "a", "meet first", "meet first b; meet first c")
    say(document, "b", "note $line", "note $line b")
    return document


def say(document: Document, step: str, words: str, instead: str) -> None:
    """Change the script of a step."""
    command = document["steps"][step]["run"]["baseCommand"]
    command[2] = command[2].replace(words, instead)


def test_nothing_is_left_on_an_ssh_host_when_the_driver_is_killed(containers_host: Containers) -> None:
    check_driver_killed(containers_host)


def check_driver_killed(bench: Containers) -> None:
    script = WRITE.replace("exec 3>&-", "sleep 600")
    document = contained(pair(producer(script, "on_close", mode="no_update"), stream_reader()), b=None)
    path = bench.write(document, {}, io=True)
    driver = bench.start(path)
    wait_for_note(path, " first\n")
    (container,) = bench.containers()
    assert any("sfio-node" in command for command in bench.processes(container))
    driver.send_signal(signal.SIGKILL)
    bench.finish(driver, path)
    wait_for(lambda: bench.left_by_us() == [], "the end of what was ours")
    assert list(bench.containers()) == [container]
