"""Steps in pods, of a stand-in for the API of Kubernetes: results are plain StreamFlow's, and nothing is left."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import forked
from lab.container_sites import contained
from lab.cwl import Document, found, streaming, tool, workflow
from lab.gates import MEET, assert_early, pair, producer
from lab.machines.laboratory import Laboratory
from lab.pod_sites import BUSYBOX, Pods, claim, claimed, container, pod, pods_bench, soon_nothing
from lab.wording import uncoded
from tests.e2e.test_containers import (
    LONG,
    WRITE,
    check_both_early,
    check_nothing_fell_back,
    check_streamed,
    gate,
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


@LONG
@pytest.mark.parametrize("document", [stream, gate])
def test_two_containers_of_a_pod(pods: Pods, document: Callable[[], Document]) -> None:
    pods.manifests, pods.bound = {"pods": [pod("pod", container("one"), container("two"))]}, BOTH
    _, ours = pods.run_both(document())
    assert_early(ours, "first" if document is stream else "done")
    check_nothing_fell_back(ours)


@pytest.mark.long
def test_both_in_one_container(pods: Pods) -> None:
    """StreamFlow lets one job at a time run in it; a reader starts beside what it reads from."""
    pods.manifests = {"pods": [pod("pod", container("one", volume=None))]}
    pods.bound = dict.fromkeys(BOTH, "pods/one")
    _, ours = pods.run_both(stream())
    check_streamed(ours)


def two_pods(volume: Document | None, **second: Any) -> list[Document]:
    """A container in each; they share a claim, or nothing.

    :param volume: of both
    :param second: more of the spec of the second
    """
    one, two = container("one", image=BUSYBOX), container("two")
    return [claim("work"), pod("first", one, volume=volume), pod("second", two, volume=volume, **second)]


def test_two_pods_that_share_a_claim(pods: Pods) -> None:
    pods.manifests, pods.bound = {"pods": two_pods(claimed("work"))}, BOTH
    _, ours = pods.run_both(stream_and_gate())
    check_both_early(ours)


@pytest.mark.parametrize("tls", [pytest.param(True, marks=LONG), False])
def test_two_pods_that_share_a_network_only(pods: Pods, tls: bool) -> None:
    pods.manifests, pods.bound = {"pods": two_pods(None)}, BOTH
    _, ours = pods.run_both(stream(), config={"tls": True} if tls else {})
    assert_early(ours, "first")
    check_nothing_fell_back(ours)


@LONG
def test_a_claim_on_two_nodes_is_no_volume_of_both(pods: Pods) -> None:
    """The other node may see writes late, and sees no FIFO: bytes go by the network."""
    pods.manifests, pods.bound = {"pods": two_pods(claimed("work"), nodeName="node-2")}, BOTH
    _, ours = pods.run_both(stream())
    check_streamed(ours)


@pytest.mark.long
def test_from_the_drivers_node_into_a_pod_and_back(pods: Pods) -> None:
    """At the commit: they have neither a file nor a link in common."""
    rule = streaming({"port": "out", "committed": "on_close", "start": "producer"})
    script = f"{MEET}note read; cat $file > out.txt; meet third; note second end"
    middle = tool(script, {"file": "File"}, {"out": found("out.txt")}, [rule])
    last = tool("note third; cat $file", {"file": "File"}, {"out": "stdout"}, stdout="read.txt")
    steps = {
        "a": {"run": producer("echo first > out.txt; meet read", "on_close"), "in": {}},
        "b": {"run": middle, "in": {"file": "a/out"}},
        "c": {"run": last, "in": {"file": "b/out"}},
    }
    pods.manifests, pods.bound = {"pods": [pod("pod", container("one"))]}, {"/b": "pods/one"}
    _, ours = pods.run_both(workflow({}, steps, {name: f"{name}/out" for name in "abc"}))
    assert ours.time("read") < ours.time("end")
    assert ours.time("third") <= ours.time("second end")
    told = [line for line in ours.log.splitlines() if "WARNING" in line and "is delivered at commit" in line]
    assert [uncoded(line.rpartition(": ")[2]) for line in told] == ["pods stream with pods only"] * 2, ours.errors


@pytest.mark.parametrize("user", [0, pytest.param(1234, marks=LONG)])
def test_containers_of_a_pod_that_may_write_to_its_volume_only(pods: Pods, user: int) -> None:
    """The user is Kubernetes' own default, or another; nothing is written to the image."""
    little = {"securityContext": {"readOnlyRootFilesystem": True, "runAsUser": user}}
    pods.manifests = {"pods": [pod("pod", container("one", **little), container("two", **little))]}
    pods.bound = BOTH
    _, ours = pods.run_both(stream())
    check_streamed(ours)


@pytest.mark.long
def test_where_others_may_write_nothing_streams(pods: Pods) -> None:
    """A directory of a node that is open for all is not a volume of the pod: all is as with plain StreamFlow."""
    (place := pods.directory / "open").mkdir()
    place.chmod(0o777)
    pods.manifests = {
        "pods": [pod("pod", container("one"), container("two"), volume={"hostPath": {"path": str(place)}})]
    }
    pods.bound = BOTH
    _, ours = pods.run_both(stream())
    assert ours.files["read.txt"] == b"first\nsecond\n"
    told = [line for line in ours.log.splitlines() if "WARNING" in line and "othing streams" in line]
    assert told, ours.errors
    assert all("others may write to /data, which is not sticky" in line for line in told)


def with_images(document: Document, *, network: bool) -> Document:
    """A pod of StreamFlow's own for each step, which has nothing but its own volume, and mostly no network."""
    document = contained(document, a=BUSYBOX)
    for step in document["steps"].values():
        step["run"]["requirements"] += [{"class": "NetworkAccess", "networkAccess": network}]
    return document


@pytest.mark.long
def test_tools_with_images(pods: Pods) -> None:
    """The pods of a gang start side by side."""
    _, ours = pods.run_both(with_images(stream(), network=True))
    check_streamed(ours)


@LONG
def test_tools_with_images_that_have_no_network(pods: Pods) -> None:
    document = pair(producer("echo first > out.txt; meet read", "on_close", mode="no_update"), stream_reader())
    _, ours = pods.run_both(with_images(document, network=False))
    assert_early(ours)
    told = [line for line in ours.log.splitlines() if "WARNING" in line and "they share no volume" in line]
    assert len(told) == 1, ours.errors


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


@pytest.mark.long
def test_doctor_looks_at_each_container_of_a_deployment(pods: Pods) -> None:
    pods.manifests = {"pods": [pod("pod", container("one"), container("two", image=BUSYBOX))]}
    found = doctor(pods, "--location", "pods")
    assert found["connection"]["detail"] == "pod:one, pod:two"
    names = ("delivery", "commit tokens", "byte streams", "gate", "link")
    assert set(found) == {"connection", *(f"{name}, pod:{which}" for name in names for which in ("one", "two"))}
    assert {name: finding for name, finding in found.items() if finding["works"] is not True} == {}


@LONG
def test_doctor_looks_at_pods_that_streamflow_makes(pods: Pods) -> None:
    found = doctor(pods, "--image", BUSYBOX)
    between = found.pop("byte streams between two")
    assert {name: finding for name, finding in found.items() if finding["works"] is not True} == {}
    # They have no NetworkAccess.
    assert between["works"] is None
    assert between["detail"].startswith(f"a container of {BUSYBOX} cannot reach a container of {BUSYBOX} at ")
