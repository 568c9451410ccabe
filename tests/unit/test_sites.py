"""Early deliveries by place, and the messages where there are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamflow.deployment.connector import connector_classes
from streamflow.deployment.connector.queue_manager import SlurmConnector

from lab.wording import uncoded
from streamflow_io.adapters.deployment_sites import deployment_kind
from streamflow_io.graph.edges import plan_edges
from streamflow_io.graph.io_graph import Delivery, Input, Output, OutputKind, Route, StreamEdge
from streamflow_io.graph.sites import DRIVERS_NODE, Deployment, Site, SiteKind
from streamflow_io.hints.models import StreamingRule

ONE = Deployment("one", "ssh", SiteKind.HOSTS)
OTHER = Deployment("other", "ssh", SiteKind.HOSTS)
HPC = Deployment("hpc", "slurm", SiteKind.QUEUE)
FARM = Deployment("farm", "pbs", SiteKind.QUEUE)
BOX = Deployment("box", "docker", SiteKind.OTHER)
HERE = Deployment("here", "local", SiteKind.LOCAL)

HOST, HOSTS, HOST2 = Site((ONE,)), Site((ONE, OTHER)), Site((OTHER,))
QUEUE, QUEUE2, BOTH_QUEUES = Site((HPC,)), Site((FARM,)), Site((HPC, FARM))
CONTAINER, MIXED, PARTLY = Site((BOX,)), Site((HERE, ONE)), Site((ONE, BOX))
WIDE = Site((ONE,), locations=2)

NOT_JOINED = (
    "a stream needs both on the driver's node, both on hosts (SSH or an allocation), or both on one queue manager"
)
NOT_AT_THE_GATE = "the gate needs both on the driver's node, or both on one queue manager"
NOT_WATCHED = (
    "only jobs of the driver's node, hosts (SSH or an allocation), queue managers, pods, and containers on the "
    "first two stream yet"
)

sites = st.builds(
    Site,
    st.lists(st.sampled_from([ONE, OTHER, HPC, FARM, BOX, HERE]), min_size=1, max_size=3).map(tuple),
    st.integers(1, 2),
)


def plan(
    producer: Site, consumer: Site, kind: OutputKind = OutputKind.FILE, mode: str = "no_update", **rule: object
) -> StreamEdge:
    """An edge that is to begin while its producer runs, and is committed by a close or, a Directory, by number."""
    number = {"nFiles": 1} if kind is OutputKind.DIRECTORY else {}
    committed = "on_n_files" if number else "on_close"
    rules = (
        StreamingRule.model_validate(
            {"port": "out", "committed": committed, "mode": mode, "start": "producer", **number, **rule}
        ),
    )
    output = Output("/a", "out", kind, rules, site=producer)
    (edge,) = plan_edges([Route(output, (), Input("/b", "in", streamable=True, site=consumer))])
    return edge


@pytest.mark.parametrize(
    ("producer", "consumer"),
    [(DRIVERS_NODE, Site((HERE,))), (HOST, HOST), (HOST, HOST2), (HOSTS, HOST2), (QUEUE, QUEUE)],
)
def test_bytes_stream_within_one_kind_of_site(producer: Site, consumer: Site) -> None:
    edge = plan(producer, consumer)
    assert (edge.delivery, edge.fallback) == (Delivery.STREAM, None)


@pytest.mark.parametrize(
    ("producer", "consumer", "why"),
    [
        (DRIVERS_NODE, HOST, f"/a runs on the driver's node, /b on one (ssh): {NOT_JOINED}"),
        (HOSTS, DRIVERS_NODE, f"/a runs on one (ssh) or other (ssh), /b on the driver's node: {NOT_JOINED}"),
        (QUEUE, QUEUE2, f"/a runs on hpc (slurm), /b on farm (pbs): {NOT_JOINED}"),
        (QUEUE, HOST, f"/a runs on hpc (slurm), /b on one (ssh): {NOT_JOINED}"),
        (DRIVERS_NODE, CONTAINER, f"/b runs on box (docker): {NOT_WATCHED}"),
        (HOST, PARTLY, f"/b runs on box (docker): {NOT_WATCHED}"),
        (
            MIXED,
            HOST,
            "/a runs on the driver's node or one (ssh): to stream, bind it to one kind of deployment, or to one queue "
            "manager",
        ),
        (
            QUEUE,
            BOTH_QUEUES,
            "/b runs on hpc (slurm) or farm (pbs): to stream, bind it to one kind of deployment, or to one queue "
            "manager",
        ),
        (
            HOST,
            WIDE,
            "/b takes 2 locations of one (ssh) for each job: only jobs on one location stream yet",
        ),
    ],
)
def test_elsewhere_the_file_is_delivered_at_its_commit(producer: Site, consumer: Site, why: str) -> None:
    edge = plan(producer, consumer)
    assert (edge.delivery, uncoded(edge.fallback)) == (Delivery.COMMIT, why)


@pytest.mark.parametrize(
    ("producer", "why"),
    [
        (CONTAINER, f"/a runs on box (docker): {NOT_WATCHED}"),
        (PARTLY, f"/a runs on box (docker): {NOT_WATCHED}"),
        (WIDE, "/a takes 2 locations of one (ssh) for each job: only jobs on one location stream yet"),
    ],
)
@pytest.mark.parametrize("mode", ["update", "no_update"])
def test_what_is_not_watched_is_delivered_at_termination(producer: Site, why: str, mode: str) -> None:
    edge = plan(producer, producer, mode=mode)
    assert (edge.delivery, uncoded(edge.fallback)) == (Delivery.TERMINATION, why)


@pytest.mark.parametrize("site", [MIXED, BOTH_QUEUES, HOSTS, QUEUE, DRIVERS_NODE])
@pytest.mark.parametrize("consumer", [CONTAINER, QUEUE2, HOST, DRIVERS_NODE, WIDE])
def test_commits_are_watched_where_a_job_runs_and_go_anywhere(site: Site, consumer: Site) -> None:
    edge = plan(site, consumer, start="commit")
    assert (edge.delivery, edge.fallback) == (Delivery.COMMIT, None)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [(OutputKind.FILE, "update"), (OutputKind.DIRECTORY, "update"), (OutputKind.DIRECTORY, "no_update")],
)
def test_the_gate_needs_one_file_system(kind: OutputKind, mode: str) -> None:
    for site in (DRIVERS_NODE, QUEUE):
        edge = plan(site, site, kind, mode)
        assert (edge.delivery, edge.fallback) == (Delivery.GATE, None)
    edge = plan(HOST, HOST2, kind, mode)
    assert edge.delivery is Delivery.COMMIT
    assert uncoded(edge.fallback) == f"/a runs on one (ssh), /b on other (ssh): {NOT_AT_THE_GATE}"


def test_nothing_is_said_where_nothing_was_asked() -> None:
    rule = StreamingRule(port="out")
    (edge,) = plan_edges([Route(Output("/a", "out", OutputKind.FILE, (rule,), site=CONTAINER), (), Input("/b", "in"))])
    assert (edge.delivery, edge.fallback) == (Delivery.TERMINATION, None)


@given(sites, sites, st.sampled_from(["update", "no_update"]))
def test_what_falls_back_says_why_and_what_streams_is_watched(producer: Site, consumer: Site, mode: str) -> None:
    edge = plan(producer, consumer, mode=mode)
    assert edge.delivery.joins == (edge.fallback is None)
    if edge.delivery.joins:
        assert producer.is_joined_with(consumer)
        assert consumer.is_joined_with(producer)
    watched = producer.unwatched is None
    assert (edge.delivery is Delivery.TERMINATION) is not watched


@given(sites, sites)
def test_being_joined_does_not_depend_on_who_asks(one: Site, other: Site) -> None:
    assert one.is_joined_with(other) == other.is_joined_with(one)
    assert one.is_joined_with(one) == (one.kind is not None and one.unwatched is None)


@pytest.mark.parametrize(
    ("deployment_type", "kind"),
    [
        ("local", SiteKind.LOCAL),
        ("ssh", SiteKind.HOSTS),
        *((name, SiteKind.QUEUE) for name in ("slurm", "pbs", "flux")),
        *((name, SiteKind.CONTAINERS) for name in ("docker", "docker-compose", "singularity")),
        *((name, SiteKind.PODS) for name in ("kubernetes", "helm", "helm3", "helm4")),
        ("?", SiteKind.OTHER),
    ],
)
def test_kinds_of_deployments(deployment_type: str, kind: SiteKind) -> None:
    assert deployment_kind(deployment_type) is kind


def test_a_queue_manager_of_a_plugin_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class LoadLeveler(SlurmConnector):  # type: ignore[misc]
        pass

    monkeypatch.setitem(connector_classes, "loadleveler", LoadLeveler)
    assert deployment_kind("loadleveler") is SiteKind.QUEUE
