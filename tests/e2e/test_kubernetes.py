"""Steps in pods, of a stand-in for the API of Kubernetes: results are plain StreamFlow's, and nothing is left."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import forked
from lab.cwl import Document
from lab.gates import pair, producer
from lab.machines.laboratory import Laboratory
from lab.pod_sites import BUSYBOX, Pods, claim, claimed, container, pod, pods_bench, soon_nothing
from tests.e2e.test_containers import (
    LONG,
    WRITE,
    check_both_early,
    check_streamed,
    stream,
    stream_and_gate,
    stream_reader,
)
from tests.e2e.test_containers_damage import MINUTE, check_failed, interrupted

BOTH = {"/a": "pods/one", "/b": "pods/two"}


@pytest.fixture
def pods(pods_laboratory: Laboratory, tmp_path: Path) -> Iterator[Pods]:
    bench = pods_bench(pods_laboratory, tmp_path)
    yield bench
    bench.remove_pods()


def two_pods(volume: Document | None, **second: Any) -> list[Document]:
    """A container in each; they share a claim, or nothing.

    :param volume: of both
    :param second: more of the spec of the second
    """
    one, two = container("one", image=BUSYBOX), container("two")
    return [claim("work"), pod("first", one, volume=volume), pod("second", two, volume=volume, **second)]


def test_two_pods_that_share_a_claim(pods: Pods) -> None:
    pods.manifests, pods.bound = {"pods": two_pods(claimed("work"))}, BOTH
    ours = pods.run_ours(stream_and_gate())
    check_both_early(ours)


@pytest.mark.parametrize("tls", [pytest.param(True, marks=LONG), False])
def test_two_pods_that_share_a_network_only(pods: Pods, tls: bool) -> None:
    pods.manifests, pods.bound = {"pods": two_pods(None)}, BOTH
    ours = pods.run_ours(stream(), config={"tls": True} if tls else {})
    check_streamed(ours)


@pytest.mark.parametrize("user", [0, pytest.param(1234, marks=LONG)])
def test_containers_of_a_pod_that_may_write_to_its_volume_only(pods: Pods, user: int) -> None:
    """The user is Kubernetes' own default, or another; nothing is written to the image."""
    little = {"securityContext": {"readOnlyRootFilesystem": True, "runAsUser": user}}
    pods.manifests = {"pods": [pod("pod", container("one", **little), container("two", **little))]}
    pods.bound = BOTH
    ours = pods.run_ours(stream())
    check_streamed(ours)


def endless(end: str = MINUTE) -> Document:
    """The writer has written half, and would go on for a minute."""
    return pair(producer(WRITE.replace("exec 3>&-", end), "on_close", mode="no_update"), stream_reader())


@pytest.mark.parametrize(
    ("volume", "killed"),
    [
        (None, "first"),
        *(pytest.param(*others, marks=LONG) for others in ((None, "second"), (claimed("work"), "first"))),
        pytest.param(claimed("work"), "second", marks=LONG),
    ],
    ids=["network-first", "network-second", "volume-first", "volume-second"],
)
def test_a_pod_is_killed(pods: Pods, volume: Document | None, killed: str) -> None:
    """The reader gets no end of its file, and nothing of ours is left in the other pod."""
    pods.manifests, pods.bound = {"pods": two_pods(volume)}, BOTH
    run = interrupted(pods, endless(), "first", lambda _: pods.kill(killed))
    check_failed(run)
    assert len(run.times("read")) == 1
    soon_nothing(pods.left_by_us)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=LONG), signal.SIGKILL])
def test_the_driver_ends(pods: Pods, number: signal.Signals) -> None:
    pods.manifests, pods.bound = {"pods": two_pods(claimed("work"))}, BOTH
    run = interrupted(pods, endless(), "first", lambda driver: driver.send_signal(number))
    check_failed(run)
    soon_nothing(pods.left_by_us)
    assert (pods.pods() == []) is (number is signal.SIGINT)


def doctor(pods: Pods, *words: str) -> dict[str, Document]:
    """Run `doctor`, and return its findings by name; no pod of it is left."""
    path = pods.write(stream(), {}, io=True)
    said = forked.run(
        "streamflow-io", "doctor", "--json", *words, str(path), cwd=path.parent, namespaces=pods.namespaces, seconds=100
    )
    assert said.stdout, said.stderr
    assert pods.leftovers() == []
    return {finding["name"]: finding for finding in json.loads(said.stdout)["findings"]}


@LONG
def test_doctor_looks_at_pods_that_streamflow_makes(pods: Pods) -> None:
    found = doctor(pods, "--image", BUSYBOX)
    between = found.pop("byte streams between two")
    assert {name: finding for name, finding in found.items() if finding["works"] is not True} == {}
    # The containers have no NetworkAccess.
    assert between["works"] is None
    assert between["detail"].startswith(f"a container of {BUSYBOX} cannot reach a container of {BUSYBOX} at ")
