"""From the targets of a step to its site: what its deployments are for StreamFlow."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable

from streamflow.core.config import BindingConfig
from streamflow.core.deployment import DeploymentConfig
from streamflow.deployment.connector import connector_classes
from streamflow.deployment.connector.local import LocalConnector
from streamflow.deployment.connector.queue_manager import QueueManagerConnector
from streamflow.deployment.connector.ssh import SSHConnector

from streamflow_io.capacity import Room
from streamflow_io.graph.sites import Deployment, Site, SiteKind


def site_of(binding: BindingConfig) -> Site:
    """Where the jobs of a step run that is bound so; known before anything is deployed."""
    deployments = dict.fromkeys(_deployment(target.deployment) for target in binding.targets)
    return Site(tuple(deployments), max(target.locations for target in binding.targets))


def _deployment(config: DeploymentConfig) -> Deployment:
    return Deployment(deployment_name(config), str(config.type), deployment_kind(str(config.type)))


def deployment_name(config: DeploymentConfig) -> str:
    """The name of a deployment, for people: that of its image, if StreamFlow made it for a DockerRequirement.

    Such a deployment has a UUID for a name, another one in every run.
    """
    try:
        uuid.UUID(str(config.name))
    except ValueError:
        return str(config.name)
    return str(config.config.get("image") or "DockerRequirement")


def deployment_kind(deployment_type: str) -> SiteKind:
    """What the locations of a deployment of this type are.

    A queue manager is one wherever it is reached, also on the login node behind an SSH host; a container on an SSH host
    is not that host.

    :param deployment_type: as in the StreamFlow file; plugins of StreamFlow may have added it
    """
    connector = connector_classes.get(deployment_type, object)
    if issubclass(connector, LocalConnector):
        return SiteKind.LOCAL
    if issubclass(connector, SSHConnector):
        return SiteKind.HOSTS
    if issubclass(connector, QueueManagerConnector):
        return SiteKind.QUEUE
    return SiteKind.OTHER


def are_fixed(deployment_types: Iterable[str]) -> bool:
    """Whether the locations of deployments of these types stay what they are as long as the run lasts."""
    return all(deployment_kind(kind) in (SiteKind.LOCAL, SiteKind.HOSTS) for kind in deployment_types)


def room_here() -> Room:
    """What the driver's node has, as StreamFlow counts it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Room(cores, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**20)
