"""Containers of other engines than the local docker, and on SSH hosts."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from laboratories.laboratory import Laboratory
from tests.cwl import Document
from tests.e2e.container_support import Containers, contained, ssh_bench
from tests.e2e.test_containers import WRITE, check_nothing_fell_back, gate, stream, stream_reader
from tests.e2e.test_streaming import until
from tests.gate_support import assert_early, pair, producer
from tests.node_support import wait_for


@pytest.fixture
def remote(containers_laboratory: Laboratory, tmp_path: Path) -> Iterator[Containers]:
    bench = ssh_bench(containers_laboratory, tmp_path)
    yield bench
    bench.remove_containers()


@pytest.mark.parametrize("document", [stream, gate])
def test_containers_of_one_ssh_host(remote: Containers, document: Callable[[], Document]) -> None:
    _, ours = remote.run_both(contained(document()))
    assert_early(ours, "first" if document is stream else "done")
    check_nothing_fell_back(ours)


def test_containers_of_two_ssh_hosts(remote: Containers) -> None:
    """They read what is complete."""
    remote.bound = {"/b": "other"}
    script = "echo first > out.txt; echo second >> out.txt; meet first"
    _, ours = remote.run_both(contained(pair(producer(script, "on_close", mode="no_update"), stream_reader())))
    assert_early(ours, "first")
    told = [line for line in ours.log.splitlines() if "WARNING" in line and "streams between containers need" in line]
    assert len(told) == 1, ours.errors
    assert "is delivered at commit: /a runs in a container of sfio-test:latest (docker, on here), /b in one" in told[0]


def test_nothing_is_left_on_an_ssh_host_when_the_driver_is_killed(remote: Containers) -> None:
    script = WRITE.replace("exec 3>&-", "sleep 60")
    document = contained(pair(producer(script, "on_close", mode="no_update"), stream_reader()))
    path = remote.write(document, {}, io=True)
    driver = remote.start(path)
    until(lambda: " first\n" in (path.parent / "trace").read_text(), path)
    driver.send_signal(signal.SIGKILL)
    remote.finish(driver, path)
    assert len(remote.containers()) == 2
    wait_for(lambda: remote.left_by_us() == [], "the end of what was ours", 10)
