"""From the targets of a step to its site: the kind and the host of each deployment of StreamFlow."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from streamflow.core.config import BindingConfig
from streamflow.core.deployment import DeploymentConfig, Target, WrapsConfig
from streamflow.core.scheduling import AvailableLocation
from streamflow.deployment.connector import connector_classes
from streamflow.deployment.connector.container import (
    ContainerConnector,
    DockerConnector,
    SingularityConnector,
)
from streamflow.deployment.connector.kubernetes import KubernetesBaseConnector
from streamflow.deployment.connector.local import LocalConnector
from streamflow.deployment.connector.queue_manager import QueueManagerConnector

from streamflow_io._streamflow import HOSTS
from streamflow_io.capacity import Room
from streamflow_io.graph.sites import LOCAL, Deployment, Site, SiteKind
from streamflow_io.graph.volumes import Bind, binds_of
from streamflow_io.runtime.deployments import image_of, made_image, pods

_HERE = Path()


class Sites:
    """The sites of steps, known before anything is deployed.

    :param deployments: those of the StreamFlow file, by name
    :param contained: whether there are node runtimes in containers
    :param directory: of the StreamFlow file; relative paths in the file begin there
    """

    def __init__(
        self, deployments: Mapping[str, Mapping[str, Any]], contained: bool = True, directory: Path = _HERE
    ) -> None:
        self._deployments = deployments
        self._contained = contained
        self._directory = directory

    def site_of(self, binding: BindingConfig) -> Site:
        """The site of a step with this binding."""
        deployments = dict.fromkeys(map(self.deployment, binding.targets))
        return Site(tuple(deployments), max(target.locations for target in binding.targets))

    def named(self, host: Deployment) -> frozenset[str]:
        """The names of a host. All local deployments are names of the driver's node; any other host has one name.

        The driver's node is also called `local`, as in messages, unless another deployment has that name.
        """
        if host.kind is not SiteKind.LOCAL:
            return frozenset((host.name,))
        local = {
            name for name, config in self._deployments.items() if deployment_kind(str(config["type"])) is SiteKind.LOCAL
        }
        return frozenset(local | ({host.name} - self._deployments.keys()))

    def deployment(self, target: Target) -> Deployment:
        """The deployment of a target."""
        config, workdir = target.deployment, str(target.workdir)
        name, kind = str(config.name), deployment_kind(str(config.type))
        image = made_image(config)
        if kind is SiteKind.PODS:
            return self._pods(target, image)
        if kind is not SiteKind.CONTAINERS:
            return Deployment(name, str(config.type), kind, image, workdir=workdir)
        if (host := self._host(config.wraps)) is None:
            obstacle = None if image is None else self._in_another(config.wraps)
            return Deployment(name, str(config.type), SiteKind.OTHER, image, workdir=workdir, obstacle=obstacle)
        name, binds = _with_service(target, image), _binds(config)
        return Deployment(name, str(config.type), kind, image, host, binds, workdir, self._off, _is_networked(config))

    @property
    def _off(self) -> str | None:
        """The reason why containers have no node runtime, if the user wants none; None: containers may have one."""
        return None if self._contained else "`containers: off`"

    def _in_another(self, wraps: WrapsConfig) -> str | None:
        """The reason why nothing streams in a DockerRequirement's container that is inside a deployment's container.

        None: the wrapped deployment is unknown, or has neither containers nor pods.
        """
        if (config := self._deployments.get(wraps.deployment)) is None:
            return None
        if deployment_kind(str(config["type"])) not in (SiteKind.CONTAINERS, SiteKind.PODS):
            return None
        return (
            f"its DockerRequirement makes that inside {wraps.deployment} ({config['type']}), to which it is bound; "
            "with `docker: [{step: /, deployment: {type: none, config: {}}}]` in the `config` of the workflow it "
            f"runs in {wraps.deployment} itself"
        )

    def _pods(self, target: Target, image: str | None) -> Deployment:
        config, name = target.deployment, _with_service(target, image)
        found = pods(config, str(target.service), self._directory)
        binds, networked, pod = (None, True, None) if found is None else (found.binds, found.networked, found.pod)
        return Deployment(
            name, str(config.type), SiteKind.PODS, image, None, binds, str(target.workdir), self._off, networked, pod
        )

    def _host(self, wraps: WrapsConfig | None) -> Deployment | None:
        """The host of containers; None: several hosts, or an unknown one."""
        if wraps is None:
            return LOCAL
        name, kind = wraps.deployment, SiteKind.OTHER
        if (config := self._deployments.get(name)) is not None:
            kind = deployment_kind(str(config["type"]))
        if kind is SiteKind.LOCAL:
            return LOCAL
        return Deployment(name, str(config["type"]), kind) if config and kind is SiteKind.HOSTS else None


def deployment_name(config: DeploymentConfig) -> str:
    """The name of a deployment in messages: its image, if StreamFlow has made the deployment for one."""
    return made_image(config) or str(config.name)


def location_shown(location: AvailableLocation, target: Target) -> str:
    """The name of a location in messages.

    StreamFlow's own name of a container is an identifier that no StreamFlow file has.
    """
    config = target.deployment
    image = image_of(config) if _engine(str(config.type)) is not None else made_image(config)
    if image is None or location.deployment != config.name:
        return str(location.name)
    return f"a container of {image.removeprefix('docker://')}"


def host_of(config: DeploymentConfig) -> str:
    """The name of the host of a deployment.

    A deployment is its own host, and containers have the deployment that they are on. The driver's node has an empty
    name.
    """
    kind = deployment_kind(str(config.type))
    if kind is not SiteKind.CONTAINERS:
        return "" if kind is SiteKind.LOCAL else str(config.name)
    return "" if config.wraps is None else str(config.wraps.deployment)


def deployment_kind(deployment_type: str) -> SiteKind:
    """The kind of the locations of a deployment of this type.

    A queue manager is one wherever it is reached, even on a login node behind an SSH host. A container on an SSH host
    is not that host.

    :param deployment_type: as in the StreamFlow file; plugins of StreamFlow may have added it
    """
    connector = connector_classes.get(deployment_type, object)
    for kind, classes in _CONNECTORS.items():
        if issubclass(connector, classes):
            return kind
    return SiteKind.OTHER


_CONNECTORS = {
    SiteKind.LOCAL: LocalConnector,
    SiteKind.HOSTS: HOSTS,
    SiteKind.QUEUE: QueueManagerConnector,
    SiteKind.CONTAINERS: ContainerConnector,
    SiteKind.PODS: KubernetesBaseConnector,
}
_ENGINES = {"docker": DockerConnector, "singularity": SingularityConnector}


def are_fixed(deployment_types: Iterable[str]) -> bool:
    """Whether the locations of deployments of these types stay the same as long as the run lasts.

    A deployment of docker or singularity is one container, which is never deployed again.
    """
    return all(
        deployment_kind(kind) in (SiteKind.LOCAL, SiteKind.HOSTS) or _engine(kind) is not None
        for kind in deployment_types
    )


def room_here() -> Room:
    """The cores and the memory (MiB) of the driver's node, as StreamFlow counts them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Room(cores, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**20)


def _binds(config: DeploymentConfig) -> tuple[Bind, ...] | None:
    """The directories of the host that its containers see; None: unknown before the containers run."""
    engine = _engine(str(config.type))
    return None if engine is None or config.external else binds_of(engine, config.config)


def _with_service(target: Target, image: str | None) -> str:
    """The name of a deployment; each of its services counts as a deployment of its own."""
    name = str(target.deployment.name)
    return f"{name}/{target.service}" if image is None and target.service else name


def _is_networked(config: DeploymentConfig) -> bool:
    """Whether containers may have an address of their own: by default docker's have one, Singularity's do not."""
    networks = config.config.get("network") or []
    names = [networks] if isinstance(networks, str) else networks
    has_own = not any(str(name) in ("none", "host") or str(name).startswith("container:") for name in names)
    return has_own and (_engine(str(config.type)) != "singularity" or bool(config.config.get("net")))


def _engine(deployment_type: str) -> str | None:
    connector = connector_classes.get(deployment_type, object)
    return next((name for name, cls in _ENGINES.items() if issubclass(connector, cls)), None)
