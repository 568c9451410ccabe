"""Pods of Kubernetes: the volumes that their containers share, by a manifest or the API."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes_asyncio.client.exceptions import ApiException
from streamflow.core.config import BindingConfig
from streamflow.core.deployment import DeploymentConfig, ExecutionLocation, Target
from streamflow.deployment.connector.kubernetes import KubernetesConnector

from lab.wording import uncoded
from streamflow_io._streamflow import PodLocation
from streamflow_io.adapters.deployment_sites import Sites
from streamflow_io.commands.sites import sites_table
from streamflow_io.graph.io_graph import Delivery, OutputKind, Step
from streamflow_io.graph.sites import Site
from streamflow_io.graph.volumes import Bind, PodContainer, binds_of_container, container_names, container_of, seen_from
from streamflow_io.runtime import deployments
from streamflow_io.runtime.locations import Place
from streamflow_io.runtime.node_commands import NodeRuntimeError
from tests.unit.test_sites import plan
from tests.unit.test_sites_of_containers import FILES, HERE, LINK, ON_ONE, required, site

Document = dict[str, Any]
CLAIM = {"persistentVolumeClaim": {"claimName": "work"}}
DISK = {"hostPath": {"path": "/scratch/"}}
NO_VOLUME = "they share no volume; give both a PersistentVolumeClaim, or a hostPath, at their workdir"
CLOSED = {"kind": "NetworkPolicy", "metadata": {"name": "no"}, "spec": {"podSelector": {"matchLabels": {"app": "x"}}}}


def container(name: str = "box", *mounts: Document) -> Document:
    return {"name": name, "volumeMounts": [{"name": "v", "mountPath": "/data"}, *mounts]}


def spec(volume: Document, *containers: Document) -> Document:
    return {"containers": list(containers or [container()]), "volumes": [{"name": "v", **volume}]}


def pod(name: str, volume: Document, *containers: Document) -> Document:
    return {"kind": "Pod", "metadata": {"name": name, "labels": {"app": "x"}}, "spec": spec(volume, *containers)}


def replicas(volume: Document, count: int | None = None, kind: str = "Deployment") -> Document:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": spec(volume)}
    counted = {} if count is None else {"replicas": count}
    return {"kind": kind, "metadata": {"name": "many", "namespace": "far"}, "spec": {"template": template, **counted}}


@pytest.mark.parametrize(
    ("volume", "outside"),
    [
        (CLAIM, "volume:claim:ns:work"),
        (DISK, "/scratch"),
        ({"hostPath": {}}, None),
        ({"emptyDir": {}}, "volume:pod:ns:uid:v"),
        ({"emptyDir": {"medium": "Memory"}}, "volume:pod:ns:uid:v"),
        ({"ephemeral": {}}, "volume:pod:ns:uid:v"),
        ({"nfs": {"server": "s", "path": "/"}}, "volume:pod:ns:uid:v"),
    ],
)
def test_what_a_volume_is(volume: Document, outside: str | None) -> None:
    assert binds_of_container(spec(volume), "box", "ns", "uid") == (Bind("/data", outside),)


def test_a_part_of_a_volume() -> None:
    parts = [
        {"name": "v", "mountPath": "a/", "subPath": "deep/er"},
        {"name": "v", "mountPath": "/b", "subPathExpr": "$(NAME)"},
    ]
    binds = binds_of_container(spec(CLAIM, container("box", *parts)), "box", "ns", "uid")
    assert binds[1:] == (Bind("/a", "volume:claim:ns:work/deep/er"), Bind("/b", None))
    assert seen_from(binds, "/a/x", binds[:1]) == "/data/deep/er/x"
    assert seen_from(binds[:1], "/data/deep/er/x", binds) == "/a/x"


def test_the_volumes_of_a_place() -> None:
    """A directory of the node is none: others of the node see it, too."""
    two = [{"name": "w", "mountPath": "/disk"}]
    both = spec(CLAIM, container("box", *two))
    both["volumes"].append({"name": "w", **DISK})
    assert Place("node", binds_of_container(both, "box", "ns", "uid")).volumes == ("/data",)


@pytest.mark.parametrize(
    "wrong", [{}, {"containers": [{"name": "box", "volumeMounts": [{"name": "v"}]}]}, spec({}, {})]
)
def test_what_is_no_pod(wrong: Document) -> None:
    with pytest.raises(ValueError, match=r"box|mount"):
        binds_of_container(wrong, "box", "ns", "uid")


OWN = (Bind("/data", "volume:pod:default:Pod:one:v"),)
FAR = (Bind("/data", "volume:claim:far:work"),)


@pytest.mark.parametrize(
    ("documents", "found"),
    [
        ([pod("one", {"emptyDir": {}})], PodContainer("default/Pod:one", OWN, True)),
        ([pod("one", {}), {"kind": "PersistentVolumeClaim", "metadata": {"name": "work"}}],
         PodContainer("default/Pod:one", OWN, True)),
        ([{"kind": "List", "items": [pod("one", {}), CLOSED]}], PodContainer("default/Pod:one", OWN, False)),
        ([pod("one", {}), {**CLOSED, "spec": {**CLOSED["spec"], "ingress": [{}]}}],
         PodContainer("default/Pod:one", OWN, True)),
        ([pod("one", {}), {**CLOSED, "metadata": {"namespace": "far"}}], PodContainer("default/Pod:one", OWN, True)),
        ([replicas(CLAIM)], PodContainer("far/Deployment:many", FAR, True)),
        ([replicas(CLAIM, 2)], PodContainer(None, FAR, True)),
        ([replicas(CLAIM, kind="DaemonSet")], PodContainer(None, FAR, True)),
        ([pod("one", {}), pod("two", {})], None),
        ([pod("one", {}, container("other"))], None),
        ([None, "text", {"kind": "Pod"}, {"kind": "Pod", "spec": {"containers": "box"}}], None),
    ],
)  # fmt: skip
def test_what_a_manifest_says(documents: list[object], found: PodContainer | None) -> None:
    assert container_of(documents, "box", None) == found


def test_the_names_of_containers() -> None:
    assert container_names([pod("one", {}, container("b"), container("a")), replicas({}), None]) == ["a", "b", "box"]


WORDS = st.sampled_from(
    ["kind", "spec", "template", "containers", "volumes", "volumeMounts", "name", "mountPath", "hostPath", "items"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
)


@given(st.lists(values, max_size=3))
def test_whatever_a_manifest_is_it_is_read(documents: list[object]) -> None:
    container_of(documents, "box", None)
    container_names(documents)


def target(directory: Path, name: str, *documents: object, service: str = "box", **config: Any) -> Target:
    (directory / f"{name}.yml").write_text("\n---\n".join(map(json.dumps, documents)))
    files = DeploymentConfig(name, "kubernetes", {"files": [f"{name}.yml"], **config})
    return Target(files, 1, service, "/data")


def site_in(directory: Path, *targets: Target) -> Site:
    return Sites({}, directory=directory).site_of(BindingConfig(list(targets)))


def test_what_streams_between_pods(tmp_path: Path) -> None:
    two = pod("two", {"emptyDir": {}}, container("box"), container("side"))

    def at(name: str, *documents: object, **options: Any) -> Site:
        return site_in(tmp_path, target(tmp_path, name, *documents, **options))

    empty, claims, closed = at("one", pod("one", {})), at("c", pod("c", CLAIM)), at("d", pod("d", CLAIM), CLOSED)
    box, side = at("two", two), at("two", two, service="side")
    many, unread = at("many", replicas({}, 3)), at("unread", "{}")
    expected = [
        (box, box, None, None),
        (box, side, None, None),
        (box, empty, LINK, f"{NO_VOLUME}"),
        (claims, closed, FILES, FILES),
        (claims, box, LINK, NO_VOLUME),
        (claims, claims, None, None),
        (many, many, f"{FILES}, or {LINK}", FILES),
        (unread, claims, f"{FILES}, or {LINK}", FILES),
    ]
    for one, other, of_bytes, at_gate in expected:
        for producer, consumer in ((one, other), (other, one)):
            edge = plan(producer, consumer)
            assert (edge.delivery, edge.condition) == (Delivery.STREAM, of_bytes)
            held = plan(producer, consumer, OutputKind.DIRECTORY, "update")
            if at_gate == NO_VOLUME:
                assert held.delivery is Delivery.COMMIT
                assert str(uncoded(held.fallback)).endswith(NO_VOLUME)
            else:
                assert (held.delivery, held.condition) == (Delivery.GATE, at_gate)
    edge = plan(closed, empty)
    assert edge.delivery is Delivery.COMMIT
    assert uncoded(edge.fallback) == f"/a runs on d/box (kubernetes), /b on one/box (kubernetes): {NO_VOLUME}"


def test_pods_stream_with_pods_only(tmp_path: Path) -> None:
    where = site_in(tmp_path, target(tmp_path, "one", pod("one", CLAIM)))
    for other in (site(HERE), site(ON_ONE), site(required("a:1"))):
        for edge in (plan(where, other), plan(other, where), plan(other, where, mode="update")):
            assert edge.delivery is Delivery.COMMIT
            assert str(uncoded(edge.fallback)).endswith(": pods stream with pods only")


@pytest.mark.parametrize("network", [True, False])
def test_pods_that_streamflow_makes(network: bool) -> None:
    """The pods have no volume in common; the jobs of one step are one pod."""
    from streamflow.cwl.requirement.docker import cwl_docker_translator_classes

    translator = cwl_docker_translator_classes["kubernetes"](config_dir="/", wrapper=False)
    one, other = (site(translator.get_target(image, None, network, HERE)) for image in ("a:1", "b:2"))
    assert plan(one, one).condition is None
    edge = plan(one, other)
    if network:
        assert (edge.delivery, edge.condition) == (Delivery.STREAM, LINK)
    else:
        assert edge.delivery is Delivery.COMMIT
        where = "/a runs in a container of a:1 (kubernetes), /b in one of b:2 (kubernetes)"
        assert uncoded(edge.fallback) == f"{where}: {NO_VOLUME}"
    table = sites_table({"/a": Step("/a", site=one), "/b": Step("/b", site=other)}, {})
    assert [[str(cell) for cell in column.cells] for column in table.columns] == [
        ["containers of a:1, b:2 (kubernetes)"],
        ["/a\n/b"],
        ["streams, commits" if network else "commits"],
    ]


def test_pods_can_be_left_to_streamflow(tmp_path: Path) -> None:
    config = BindingConfig([target(tmp_path, "one", pod("one", CLAIM))])
    off = Sites({}, contained=False, directory=tmp_path).site_of(config)
    edge = plan(off, off)
    assert edge.delivery is Delivery.TERMINATION
    assert uncoded(edge.fallback) == "/a runs on one/box (kubernetes): `containers: off`"


async def place_of(monkeypatch: pytest.MonkeyPatch, said: PodLocation | Exception) -> Place:
    """Return the place of a location that Kubernetes describes."""

    async def ask(*_: object) -> PodLocation:
        if isinstance(said, Exception):
            raise said
        return said

    monkeypatch.setattr(deployments, "pod_location", ask)
    connector = KubernetesConnector("pods", "/", files=[])
    context: Any = SimpleNamespace(deployment_manager=SimpleNamespace(get_connector=lambda _: connector))
    place = await deployments.Deployments(context).place(ExecutionLocation("pod:box", "pods", service="box"))
    assert place is not None
    return place


async def test_a_place_is_of_one_node_of_one_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def at(server: str, namespace: str, node: str) -> PodLocation:
        return PodLocation(server, namespace, "uid", "box", {**spec(CLAIM), "nodeName": node})

    here = await place_of(monkeypatch, at("https://one", "ns", "n1"))
    for other, sees in (
        (at("https://one", "ns", "n1"), True),
        (at("https://one", "other", "n1"), False),
        (at("https://one", "ns", "n2"), False),
        (at("https://two", "ns", "n1"), False),
    ):
        there = await place_of(monkeypatch, other)
        assert (here.path_of(there, "/data/x") is not None) is sees
        assert Place().path_of(there, "/data/x") is None


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ApiException(403, "Forbidden"), "Forbidden"),
        (OSError("gone"), "gone"),
        (PodLocation("https://one", "ns", "uid", "other", spec(CLAIM)), "there is no container other"),
    ],
)
async def test_what_is_mounted_cannot_be_read(monkeypatch: pytest.MonkeyPatch, error: Any, why: str) -> None:
    with pytest.raises(NodeRuntimeError, match=f"what pods/box/pod:box has mounted cannot be read: {why}$"):
        await place_of(monkeypatch, error)
