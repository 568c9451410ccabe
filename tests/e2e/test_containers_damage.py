"""Deaths while steps in containers stream: no reader gets a false end, and nothing of ours is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.container_sites import DEBIAN, Containers, contained
from lab.cwl import Document
from lab.forked import Driver
from lab.gates import pair, producer
from lab.node import wait_for
from lab.once import once
from lab.runs import Bench, Run, wait_for_note
from tests.e2e.test_containers import LONG, WRITE, stream_reader

#: Names as those of public images, so that one sees whose container it is.
PRODUCER, CONSUMER = "quay.io/sfio/producer:1.0", "quay.io/sfio/consumer:1.0"
MINUTE = "i=0; while [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done"
SECONDS = 20


@pytest.fixture
def docker(docker: Containers, common: Path) -> Containers:
    once(common / "names of images", lambda: [docker.docker("tag", DEBIAN, name) for name in (PRODUCER, CONSUMER)])
    return docker


def stream(**images: str | None) -> Document:
    """The writer has written half, and would go on for a minute.

    :param images: other ones by step; none: it runs on the driver's node
    """
    document = pair(producer(WRITE.replace("exec 3>&-", MINUTE), "on_close", mode="no_update"), stream_reader())
    return contained(document, **{"a": PRODUCER, "b": CONSUMER, **images})


def kill_container(image: str) -> Callable[[Containers], object]:
    return lambda bench: bench.docker("kill", bench.container(image))


def kill_inside(image: str, command: str) -> Callable[[Containers], object]:
    """The processes of a command of `sfio-node` in a container."""

    def kill(bench: Containers) -> None:
        # The run may end the container before the client has asked for the exit code. The run fails only if killed.
        with contextlib.suppress(subprocess.CalledProcessError):
            bench.docker("exec", bench.container(image), "pkill", "-KILL", "-f", f"/sfio-node-[0-9a-f]* {command} ")

    return kill


def interrupted(bench: Bench, document: Document, moment: str, act: Callable[[Driver], object]) -> Run:
    """A run to which something is done when something has been noted."""
    path = bench.write(document, {}, io=True)
    driver = bench.start(path)
    wait_for_note(path, f" {moment}\n")
    act(driver)
    return bench.finish(driver, path)


def check_failed(run: Run) -> None:
    assert not run.ok
    assert run.files == {}
    for what in ("end", "all", "done"):
        assert run.times(what) == []


def check_nothing_of_ours(bench: Containers) -> None:
    """In containers that StreamFlow has left there is nothing but what is always there."""
    end = time.monotonic() + SECONDS
    while (left := bench.left_by_us()) and time.monotonic() < end:
        time.sleep(0.1)
    assert left == []


def check_killed(docker: Containers, run: Run, image: str) -> None:
    """The container of a job was killed, and the last line says whose."""
    check_failed(run)
    (end,) = (line for line in run.log.splitlines() if "FAILED Workflow execution" in line)
    assert f"has failed (a container of {image} has ended, or sfio-node serve in it)" in end, run.errors
    assert "Traceback" not in run.log
    assert len(run.times("read")) == 1
    check_nothing_of_ours(docker)
    assert docker.containers() == {}


@pytest.mark.parametrize(
    ("image", "others"),
    [(PRODUCER, {"b": None}), pytest.param(PRODUCER, {}, marks=LONG), pytest.param(CONSUMER, {}, marks=LONG)],
    ids=["producer", "producer of a container", "consumer"],
)
@pytest.mark.parametrize("command", ["exec", "serve"])
def test_a_process_of_ours_is_killed_in_a_container(
    docker: Containers, image: str, others: dict[str, str | None], command: str
) -> None:
    run = interrupted(docker, stream(**others), "first", lambda _: kill_inside(image, command)(docker))
    check_failed(run)
    check_nothing_of_ours(docker)
    assert docker.containers() == {}


@pytest.mark.parametrize(
    "number", [*(pytest.param(number, marks=LONG) for number in (signal.SIGINT, signal.SIGTERM)), signal.SIGKILL]
)
def test_the_driver_ends(docker: Containers, number: signal.Signals) -> None:
    """Ctrl-C in a terminal is for all of its group: also for the clients of the engine."""
    kill = os.killpg if number is signal.SIGINT else os.kill
    run = interrupted(docker, stream(), "first", lambda driver: kill(driver.pid, number))
    ended = time.monotonic()
    check_failed(run)
    check_nothing_of_ours(docker)
    assert time.monotonic() - ended < SECONDS + 1
    if number is signal.SIGINT:
        assert docker.containers() == {}


def test_a_consumer_of_a_killed_container_ends_at_once(docker: Containers) -> None:
    """No end of file, and no wait for the driver to find out: it stands still meanwhile."""

    def act(driver: Driver) -> None:
        consumer = docker.container(CONSUMER)
        driver.send_signal(signal.SIGSTOP)
        kill_container(PRODUCER)(docker)
        wait_for(
            lambda: not any("note $line" in line for line in docker.processes(consumer)), "the end of the consumer"
        )
        driver.send_signal(signal.SIGCONT)

    run = interrupted(docker, stream(), "first", act)
    check_killed(docker, run, PRODUCER)
    assert run.times("all") == []
