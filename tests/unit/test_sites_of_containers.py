"""Early deliveries between containers, and between a container and its host."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamflow.core.config import BindingConfig
from streamflow.core.deployment import DeploymentConfig, LocalTarget, Target, WrapsConfig
from streamflow.cwl.requirement.docker import cwl_docker_translator_classes

from lab.wording import shown, uncoded
from streamflow_io.adapters.deployment_sites import Sites, are_fixed, deployment_name
from streamflow_io.capacity import Room
from streamflow_io.commands.sites import site_to_json, sites_table
from streamflow_io.engine.plan import GraphPlan
from streamflow_io.graph.gangs import Gang, never_start, not_together
from streamflow_io.graph.io_graph import Delivery, OutputKind, Step
from streamflow_io.graph.sites import Site, SiteKind, not_joined
from tests.unit.test_sites import plan

DEPLOYMENTS = {
    "one": {"type": "ssh", "config": {}},
    "other": {"type": "ssh", "config": {}},
    "hpc": {"type": "slurm", "config": {}},
    "here": {"type": "local", "config": {}},
    "pods": {"type": "kubernetes", "config": {"files": []}},
    "inner": {"type": "docker", "config": {"image": "debian"}},
}
ON_ONE = Target(DeploymentConfig("one", "ssh", {}))
ON_OTHER = Target(DeploymentConfig("other", "ssh", {}))
ON_HPC = Target(DeploymentConfig("hpc", "slurm", {}))
HERE = LocalTarget(workdir="/scratch/me")


def site(*targets: Target, contained: bool = True) -> Site:
    return Sites(DEPLOYMENTS, contained).site_of(BindingConfig(list(targets)))


def required(
    image: str, target: Target = HERE, kind: str = "docker", wrapper: bool = True, **options: object
) -> Target:
    """Return the deployment that StreamFlow makes of a DockerRequirement."""
    wrapper = wrapper and target.deployment.type != "local"
    translator = cwl_docker_translator_classes[kind](config_dir="/", wrapper=wrapper, **options)
    made: Target = translator.get_target(image, None, False, target)
    return made


def explicit(name: str, wraps: str | None = None, kind: str = "docker", **config: object) -> Target:
    external = bool(config.pop("external", False))
    workdir = config.pop("workdir", None)
    service = config.pop("service", None)
    inner = None if wraps is None else WrapsConfig(wraps)
    return Target(DeploymentConfig(name, kind, {"image": name, **config}, external, wraps=inner), 1, service, workdir)


A, B = site(required("a:1")), site(required("b:2"))
SHARED = site(explicit("box", volume=["/scratch/me:/data"], workdir="/data"))
ALONE, BESIDE = site(explicit("alone")), site(explicit("beside"))
OFFLINE = site(explicit("offline", network=["none"]))
EXTERNAL = site(explicit("box", volume=["/scratch/me:/data"], workdir="/data", external=True))
REMOTE, REMOTE2 = site(required("a:1", ON_ONE)), site(required("b:2", ON_OTHER))
COMPOSE = [site(explicit("all", kind="docker-compose", service=service)) for service in ("db", "web", "web")]


@pytest.mark.parametrize(
    ("producer", "consumer"),
    [
        (A, A),
        (A, B),
        (A, SHARED),
        (ALONE, ALONE),
        (A, site(HERE)),
        (site(HERE), SHARED),
        (A, site(required("b:2", kind="singularity"))),
        (REMOTE, site(required("b:2", ON_ONE))),
        (REMOTE, site(ON_ONE)),
        (REMOTE, site(explicit("on-one", wraps="one", volume=["/tmp/streamflow:/w"], workdir="/w/sub"))),
        (COMPOSE[1], COMPOSE[2]),
    ],
)
def test_containers_of_one_host_that_see_the_directories_of_each_other_are_joined(
    producer: Site, consumer: Site
) -> None:
    for one, other in ((producer, consumer), (consumer, producer)):
        edge = plan(one, other)
        assert (edge.delivery, edge.fallback) == (Delivery.STREAM, None)
        for mode in ("update", "no_update"):
            held = plan(one, other, OutputKind.DIRECTORY, mode)
            assert (held.delivery, held.fallback) == (Delivery.GATE, None)


NO_DIRECTORY = "they share no directory of their host; give both a volume at their workdir"
ONE_HOST = "streams between containers need one host"


@pytest.mark.parametrize(
    ("producer", "consumer", "why"),
    [
        (A, ALONE, f"/a runs in a container of a:1 (docker), /b on alone (docker): {NO_DIRECTORY}"),
        (ALONE, OFFLINE, f"/a runs on alone (docker), /b on offline (docker): {NO_DIRECTORY}"),
        (
            A,
            site(required("b:2", LocalTarget(workdir="/other"))),
            f"/a runs in a container of a:1 (docker), /b in one of b:2 (docker): {NO_DIRECTORY}",
        ),
        (
            A,
            site(required("b:2", tmpfs=["/tmp/streamflow"])),
            f"/a runs in a container of a:1 (docker), /b in one of b:2 (docker): {NO_DIRECTORY}",
        ),
        (
            A,
            site(LocalTarget(workdir="/other")),
            "/a runs in a container of a:1 (docker), /b on the driver's node: they share no directory; give the "
            "container the workdir of its host, as a volume at its own",
        ),
        (
            REMOTE,
            REMOTE2,
            f"/a runs in a container of a:1 (docker, on one), /b in one of b:2 (docker, on other): {ONE_HOST}",
        ),
        (A, REMOTE2, f"/a runs in a container of a:1 (docker), /b in one of b:2 (docker, on other): {ONE_HOST}"),
        (
            REMOTE,
            site(ON_OTHER),
            "/a runs in a container of a:1 (docker, on one), /b on other (ssh): a container streams with others of its "
            "host, and with steps on that host",
        ),
        (
            site(ON_HPC),
            A,
            "/a runs on hpc (slurm), /b in a container of a:1 (docker): a container streams with others of its host, "
            "and with steps on that host",
        ),
        (
            A,
            site(required("b:2"), required("b:2", ON_ONE)),
            "/b runs in a container of b:2 (docker) or a container of b:2 (docker, on one): to stream, bind it to one "
            "kind of deployment, or to containers of one host",
        ),
    ],
)
def test_what_is_said_of_containers_that_are_not_joined(producer: Site, consumer: Site, why: str) -> None:
    edge = plan(producer, consumer)
    assert (edge.delivery, uncoded(edge.fallback)) == (Delivery.COMMIT, why)
    assert not producer.is_joined_with(consumer)
    assert not consumer.is_joined_with(producer)
    held = plan(producer, consumer, mode="update")
    assert (held.delivery, uncoded(held.fallback)) == (Delivery.COMMIT, why)


FILES, LINK = "they see the files of each other", "one reaches the other by its network"


@pytest.mark.parametrize(
    ("producer", "consumer", "of_bytes", "at_gate"),
    [
        (A, B, None, None),
        (COMPOSE[1], COMPOSE[2], None, None),
        (ALONE, ALONE, None, None),
        (ALONE, BESIDE, LINK, "/a runs on alone (docker), /b on beside (docker): " + NO_DIRECTORY),
        (COMPOSE[0], COMPOSE[1], f"{FILES}, or {LINK}", FILES),
        (COMPOSE[0], ALONE, f"{FILES}, or {LINK}", FILES),
        (COMPOSE[0], A, FILES, FILES),
        (COMPOSE[0], site(HERE), FILES, FILES),
        (EXTERNAL, A, FILES, FILES),
    ],
)
def test_what_is_tried_between_containers(
    producer: Site, consumer: Site, of_bytes: str | None, at_gate: str | None
) -> None:
    for mode, told in (("no_update", of_bytes), ("update", at_gate)):
        edge = plan(producer, consumer, mode=mode)
        if edge.delivery is Delivery.COMMIT:
            assert (edge.condition, uncoded(edge.fallback)) == (None, told)
        else:
            assert (edge.condition, edge.fallback) == (told, None)


@pytest.mark.parametrize(
    ("target", "networked"),
    [
        (explicit("box"), True),
        (explicit("box", network="mine"), True),
        *((explicit("box", network=[name]), False) for name in ("none", "host", "container:other")),
        (explicit("box", kind="docker-compose"), True),
        (explicit("box", kind="singularity"), False),
        (explicit("box", kind="singularity", net=True, network="bridge"), True),
        (explicit("box", kind="singularity", net=True, network="none"), False),
        (required("a:1"), False),
        (required("a:1", kind="singularity"), False),
    ],
)
def test_which_containers_may_have_an_address(target: Target, networked: bool) -> None:
    (deployment,) = site(target).deployments
    assert deployment.networked is networked


@pytest.mark.parametrize(
    ("target", "where"),
    [
        (required("a:1", ON_HPC), "in a container of a:1 (docker)"),
        (explicit("box", wraps="hpc"), "on box (docker)"),
        (explicit("box", wraps="inner"), "on box (docker)"),
        (explicit("box", wraps="missing"), "on box (docker)"),
        (explicit("box", wraps="pods"), "on box (docker)"),
    ],
)
def test_other_containers_are_not_watched(target: Target, where: str) -> None:
    edge = plan(site(target), A)
    assert edge.delivery is Delivery.TERMINATION
    assert uncoded(edge.fallback) == (
        f"/a runs {where}: only jobs of the driver's node, hosts (SSH or an allocation), queue managers, pods, "
        "and containers on the first two stream yet"
    )


@pytest.mark.parametrize("bound", ["inner", "pods"])
def test_a_container_in_a_container_is_said_to_be_one(bound: str) -> None:
    """A user that has bound a tool with a DockerRequirement to a container has meant that one, mostly."""
    kind = DEPLOYMENTS[bound]["type"]
    edge = plan(site(required("a:1", Target(DeploymentConfig(bound, str(kind), {})))), A)
    assert edge.delivery is Delivery.TERMINATION
    assert uncoded(edge.fallback) == (
        f"/a runs in a container of a:1 (docker): its DockerRequirement makes that inside {bound} ({kind}), to which "
        "it is bound; with `docker: [{step: /, deployment: {type: none, config: {}}}]` in the `config` of the workflow "
        f"it runs in {bound} itself"
    )


def test_containers_can_be_left_to_streamflow() -> None:
    off = site(required("a:1"), contained=False)
    edge = plan(off, A)
    assert edge.delivery is Delivery.TERMINATION
    assert uncoded(edge.fallback) == "/a runs in a container of a:1 (docker): `containers: off`"
    assert not off.is_joined_with(off)
    assert site(HERE, contained=False).unwatched is None


def test_a_container_is_no_location_of_its_own_deployment_only() -> None:
    """A wrapper that is off runs the engine on the driver's node, whatever the step is bound to."""
    (deployment,) = site(required("a:1", ON_ONE, wrapper=False)).deployments
    assert deployment.host is not None
    assert str(deployment.host) == "the driver's node"


def test_containers_on_the_drivers_node_use_its_cores_and_memory() -> None:
    steps = {
        "/here": Step("/here", 64.0, A, 9000.0),
        "/there": Step("/there", 64.0, REMOTE, 9000.0),
        "/small": Step("/small", 1.0, site(HERE), 10.0),
    }
    here = Room(2, 8000)
    assert set(never_start(steps, [], [], here)) == {"/here"}
    assert not_together(Gang(("/small", "/here"), ("/small",), 1), steps, here) is not None
    assert not_together(Gang(("/small", "/there"), ("/small",), 1), steps, here) is None


def test_the_container_of_docker_and_singularity_is_the_same_as_long_as_the_run_lasts() -> None:
    assert are_fixed(["local", "ssh", "docker", "singularity"])
    for kind in ("docker-compose", "kubernetes", "slurm"):
        assert not are_fixed(["docker", kind])


def test_the_plan_shows_images() -> None:
    sites = {"a": A, "b": B, "c": site(required("a:1")), "d": REMOTE, "e": ALONE, "f": site(HERE)}
    text = shown(sites_table({f"/{name}": Step(f"/{name}", site=site) for name, site in sites.items()}, {}), 200)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if "│" in line]
    assert rows == [
        ["containers of a:1, b:2 (docker, on the driver's node)", "/a", "streams, gate, commits"],
        ["", "/b", ""],
        ["", "/c", ""],
        ["containers of a:1 (docker, on one (ssh))", "/d", "streams, gate, commits"],
        ["alone (docker)", "/e", "streams, gate, commits"],
        ["the driver's node", "/f", "streams, gate, commits"],
    ]


@pytest.mark.parametrize(("kind", "image"), [("docker", "a:1"), ("singularity", "a:1"), ("kubernetes", "a:1")])
def test_nobody_sees_a_random_name(kind: str, image: str) -> None:
    target = required("a:1", kind=kind)
    assert deployment_name(target.deployment) == image
    assert site_to_json(site(target))["deployments"] == [image]
    assert target.deployment.name not in f"{site(target)}{site(target).unwatched}"


sites = st.lists(
    st.sampled_from(
        [
            HERE,
            LocalTarget(workdir="/other"),
            ON_ONE,
            ON_HPC,
            *(required(image, target) for image, target in product(("a:1", "b:2"), (HERE, ON_ONE, ON_HPC))),
            explicit("alone"),
            explicit("beside"),
            explicit("box", volume=["/scratch/me:/data"], workdir="/data"),
            explicit("out", volume=["/scratch/me:/data"], workdir="/data", external=True),
        ]
    ),
    min_size=1,
    max_size=2,
).map(lambda targets: site(*targets))


@given(sites, sites, st.booleans())
def test_what_is_not_joined_says_why(one: Site, other: Site, gate: bool) -> None:
    is_joined = one.is_joined_with(other, gate=gate)
    assert is_joined == other.is_joined_with(one, gate=gate)
    assert one.condition(other, gate=gate) == other.condition(one, gate=gate)
    reason = not_joined(("/a", one), ("/b", other), gate=gate)
    if reason is None:
        assert is_joined
    else:
        assert not is_joined or (gate and one.kind is other.kind is SiteKind.HOSTS)
        assert reason.startswith(("/a ", "/b "))
    joined = [a.is_joined_with(b, gate=gate) for a, b in product(one.deployments, other.deployments)]
    assert not is_joined or all(joined)


def test_hosts_are_mixed_where_a_container_has_something_of_a_job_beside_it_early() -> None:
    where = {"/a": site(HERE), "/b": A, "/c": REMOTE, "/d": site(ON_ONE), "/e": site(ON_OTHER)}
    steps = {path: Step(path, site=place) for path, place in where.items()}

    def mixed(*paths: str) -> set[str]:
        return set(GraphPlan(steps, gangs=(Gang(paths, paths[:1], 1.0),)).mixed_hosts)

    assert mixed("/a", "/b") == {""}
    assert mixed("/c", "/d") == {"one"}
    assert mixed("/a", "/b", "/c", "/d", "/e") == {"", "one"}
    apart = [("/a",), ("/b",), ("/c",), ("/d",), ("/a", "/c"), ("/b", "/d"), ("/c", "/e"), ("/d", "/e")]
    assert [mixed(*paths) for paths in apart] == [set()] * len(apart)
