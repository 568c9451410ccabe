"""StreamFlow's deployments, as the node runtimes use them."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from msgspec import Struct
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import Connector, DeploymentConfig, DeploymentManager, ExecutionLocation, Target
from streamflow.deployment.connector import connector_classes
from streamflow.deployment.connector.base import BatchConnector
from streamflow.deployment.connector.container import ContainerConnector
from streamflow.deployment.connector.kubernetes import KubernetesBaseConnector, KubernetesConnector
from streamflow.deployment.connector.queue_manager import QueueManagerConnector
from streamflow.deployment.future import FutureConnector

from streamflow_io._streamflow import HOSTS, CopyByLink, OwnHosts, own_hosts, pod_location, remove_jobs
from streamflow_io.graph.volumes import Bind, PodContainer, binds_of, binds_of_container, container_of
from streamflow_io.hints.yaml_text import check

from .access import Access
from .locations import Place, innermost, location_node
from .node_commands import NodeRuntimeError

logger = logging.getLogger("streamflow")

_CONTAINED = (ContainerConnector, KubernetesBaseConnector)
_HOLDER = "streamflow-io"
_REMOVE_SECONDS = 20.0
# Containers and pods may take long to stop. The end of a connection needs nothing of its host, which may be lost.
_UNDEPLOY_SECONDS, _DISCONNECT_SECONDS = 300.0, 20.0
_LEAST_SESSIONS = 3  # StreamFlow's shell, what `serve` prints, and a job or a file
_HERE = Path()


def made_image(config: DeploymentConfig) -> str | None:
    """The image of a deployment that StreamFlow made for a DockerRequirement; None: the user has named the deployment.

    The name of such a deployment is a UUID, which differs in every run.
    """
    try:
        uuid.UUID(str(config.name))
    except ValueError:
        return None
    return (image_of(config) or "a DockerRequirement").removeprefix("docker://")


def image_of(config: DeploymentConfig) -> str | None:
    """The image of its containers; None: unknown. For Kubernetes, StreamFlow has written it into a manifest."""
    if written := config.config.get("image"):
        return str(written)
    made = container_of(manifests(config), str(config.name), None)
    return None if made is None else made.image


def pods(config: DeploymentConfig, container: str, directory: Path) -> PodContainer | None:
    """The description of a container in the manifests of a deployment; None: no such one, or not understood.

    :param directory: relative paths of manifests begin there
    """
    if config.external:
        return None
    return container_of(manifests(config, directory), container, config.config.get("namespace"))


def manifests(config: DeploymentConfig, directory: Path = _HERE) -> list[object]:
    """The documents in the files of a deployment of Kubernetes, as far as they can be read."""
    if not issubclass(connector_classes.get(str(config.type), object), KubernetesConnector):
        return []
    return [document for file in config.config.get("files") or () for document in _documents(directory / file)]


@lru_cache(maxsize=1024)  # many jobs have one deployment
def _documents(path: Path) -> tuple[object, ...]:
    try:
        text = path.read_text("utf-8")
        check(text)
        return tuple(YAML(typ="safe", pure=True).load_all(text))
    except (OSError, ValueError, YAMLError):
        return ()


class Manner(Struct, frozen=True):
    """The way in which a node runtime is to run at a location.

    :ivar shared: jobs run on other nodes than `serve`, and these share the work directory with it
    :ivar listen: whether streams go between this location and others by network
    :ivar address: the address to listen at; empty: the one by which SSH has reached the host
    :ivar starts_commands: whether `serve` starts the commands of jobs; else the connector does
    """

    shared: bool = False
    listen: bool = False
    address: str = ""
    starts_commands: bool = False


class Deployments:
    """The deployments of a run. Keeps those that are still needed when StreamFlow ends the run.

    :param contained: whether there are node runtimes in containers
    """

    def __init__(self, context: StreamFlowContext, contained: bool = True) -> None:
        self._contained = contained
        self._manager: DeploymentManager = context.deployment_manager
        self._held: set[str] = set()
        self._ahead: list[asyncio.Task[None]] = []

    def access(self, location: ExecutionLocation) -> Access:
        """Return the access to a location.

        :raises NodeRuntimeError: if its deployment is not deployed
        """
        connector = self._connector(location)
        name = self._container(location)
        return Access(connector, location, isinstance(connector, KubernetesBaseConnector), name)

    def where(self, location: ExecutionLocation) -> str:
        """The place where jobs of a location run, for people, with its preposition."""
        if location.local:
            return "on the driver's node"
        name = self._container(location)
        return f"on {location}" if name is None else f"in {name}"

    def _container(self, location: ExecutionLocation) -> str | None:
        """The name of a container in messages; None: the location is no container.

        The name has the image, because StreamFlow has made up the container's own name.
        """
        connector = self._manager.get_connector(location.deployment)
        if connector is None or not isinstance(connector, _CONTAINED):
            return None
        config = self._config(location)
        image = config.config.get("image") or made_image(config)
        return f"a container of {image.removeprefix('docker://')}" if image else f"the container {location}"

    def has_queue(self, location: ExecutionLocation) -> bool:
        """Whether a location is that of a queue manager, where a job may wait."""
        return isinstance(self._manager.get_connector(location.deployment), QueueManagerConnector)

    async def place(self, location: ExecutionLocation) -> Place | None:
        """Return which files a container shares with others and with its host; None: the location is no container.

        :raises NodeRuntimeError: if that cannot be found out
        """
        connector = self._connector(location)
        if isinstance(connector, KubernetesBaseConnector):
            return await _place_of_pod(connector, location)
        if not isinstance(connector, ContainerConnector):
            return None
        config = self._config(location)
        # A container that StreamFlow has not started may have other binds than configured. Mounts that StreamFlow finds
        # lack tmpfs.
        binds = () if config.external else binds_of(config.type, config.config)
        seen = tuple(Bind(inside, outside) for inside, outside in location.mounts.items())
        return Place(location_node(innermost(location)), binds or seen)

    def manner(self, location: ExecutionLocation) -> Manner:
        """Return the way in which a node runtime is to run at a location.

        :raises NodeRuntimeError: if no node runtime can run there
        """
        connector = self._connector(location)
        is_queue_manager, is_host = (isinstance(connector, kind) for kind in (QueueManagerConnector, HOSTS))
        is_contained = isinstance(connector, _CONTAINED)
        if is_contained and not self._contained:
            raise NodeRuntimeError("`containers: off`")
        if isinstance(connector, BatchConnector) and not is_queue_manager:
            raise NodeRuntimeError(f"it is not known how {location.deployment} runs jobs")
        if is_host and self._config(location).config.get("dataTransferConnection") is not None:
            raise NodeRuntimeError(f"{location.deployment} has a dataTransferConnection, which may lead elsewhere")
        for inner in _chain(location):
            config = {} if inner.local else self._config(inner).config
            sessions = config.get("maxConcurrentSessions", _LEAST_SESSIONS) * config.get("maxConnections", 1)
            if sessions < _LEAST_SESSIONS:
                raise NodeRuntimeError(f"maxConcurrentSessions of {inner.deployment} is less than {_LEAST_SESSIONS}")
        # A container has an address of its own; without a network it has none.
        is_own = isinstance(connector, OwnHosts)
        address = location.hostname or "" if is_contained or is_own else ""
        return Manner(is_queue_manager, is_host or bool(address), address, is_own)

    def starts_commands(self, location: ExecutionLocation) -> bool:
        """Whether the node runtime of a location starts commands much faster than its connector."""
        return isinstance(self._manager.get_connector(location.deployment), OwnHosts)

    def offer_links(self, location: ExecutionLocation, copy: CopyByLink) -> None:
        """Let the connector of a host of the plugin copy files between its hosts by links."""
        if (hosts := own_hosts(self._connector(location))) is not None:
            hosts.copy_by_link = copy

    async def owner(self, location: ExecutionLocation) -> int:
        """Return the user that containers of a location run for. The user may own directories above volumes, as root.

        This is the driver's user, or the user of the login on the SSH host; otherwise root.

        :raises NodeRuntimeError: if the user cannot be found out
        """
        if (host := location.wraps) is None or not isinstance(self._connector(location), ContainerConnector):
            return 0
        if host.local:
            return os.getuid()
        said, code = await self.access(host).run("id -u")
        if code != 0 or not said.strip().isdecimal():
            raise NodeRuntimeError(f"{host} does not name the user that is logged in: {said.strip()}")
        return int(said)

    def workdir(self, location: ExecutionLocation) -> str:
        """The work directory of its deployment.

        :raises NodeRuntimeError: if this run has no such deployment
        """
        return str(Target(self._config(location)).workdir)

    def hold(self, location: ExecutionLocation) -> None:
        """Keep its deployment, and those below it, until :meth:`release`.

        StreamFlow ends all parts of a run at once. A hold acts like a deployment that wraps them.
        """
        for inner in _chain(location):
            self._hold(inner.deployment)

    def deploy_ahead(self, deployment: str) -> None:
        """Begin a deployment of containers, which StreamFlow would begin when the first job is scheduled to it."""
        connector = self._manager.get_connector(deployment)
        if isinstance(connector, FutureConnector) and isinstance(connector, _CONTAINED):
            # A half finished deployment must not be left at the end of the run.
            self._hold(deployment)
            if not connector.deploying:
                connector.deploying = True
                self._ahead.append(asyncio.create_task(self._deploy(connector)))

    async def release(self) -> None:
        """End the hold, and the deployments that StreamFlow has wanted to end meanwhile. Their jobs leave the queues.

        :raises Exception: any, if a deployment cannot be ended, as a container that was killed; all others have ended
            then
        """
        if self._ahead:
            await asyncio.wait(self._ahead, timeout=_REMOVE_SECONDS)
        for deployment in self._held:
            await self._remove_jobs(deployment)
        # Containers take long to stop, so all stop at once. They stop before the deployments that they need for that.
        graph, failed = self._manager.dependency_graph, list[BaseException]()
        while outermost := self._held - set(map(self._wrapped_by, self._held)):
            self._held -= outermost
            for deployment in outermost & graph.keys():
                graph[deployment].discard(_HOLDER)
            ends = [deployment for deployment in outermost if deployment in graph and not graph[deployment]]
            ended = await asyncio.gather(*map(self._undeploy, ends), return_exceptions=True)
            failed += (error for error in ended if isinstance(error, BaseException))
        if failed:
            raise failed[0]

    async def _undeploy(self, deployment: str) -> None:
        config = self._manager.config_map.get(deployment)
        seconds = _DISCONNECT_SECONDS if config is not None and config.type == "ssh" else _UNDEPLOY_SECONDS
        try:
            await asyncio.wait_for(self._manager.undeploy(deployment), seconds)
        except asyncio.TimeoutError:
            logger.warning(
                f"The deployment {deployment} has not ended within {seconds:.0f} s. Its containers, its jobs "
                "or its connections may be left there"
            )

    def _wrapped_by(self, deployment: str) -> str | None:
        config = self._manager.config_map.get(deployment)
        return None if config is None or config.wraps is None else str(config.wraps.deployment)

    def _hold(self, deployment: str) -> None:
        if deployment in self._manager.dependency_graph:
            self._manager.dependency_graph[deployment].add(_HOLDER)
            self._held.add(deployment)

    async def _deploy(self, connector: FutureConnector) -> None:
        try:
            await connector.deploy(connector.external)
        except Exception as error:  # each connector raises errors of its own; StreamFlow shows none of them
            config = self._manager.config_map[connector.deployment_name]
            what = config.config.get("image") or made_image(config) or connector.deployment_name
            logger.error(f"The container of {what} cannot be deployed: {str(error) or type(error).__name__}")

    async def _remove_jobs(self, deployment: str) -> None:
        if (connector := self._manager.get_connector(deployment)) is not None:
            try:
                await asyncio.wait_for(remove_jobs(connector), _REMOVE_SECONDS)
            except Exception as error:  # each connector raises errors of its own
                logger.warning(f"Jobs may be left in the queue of {deployment}: {str(error) or type(error).__name__}")

    def _connector(self, location: ExecutionLocation) -> Connector:
        if (connector := self._manager.get_connector(location.deployment)) is None:
            raise NodeRuntimeError(f"{location.deployment} is not deployed")
        return connector

    def _config(self, location: ExecutionLocation) -> DeploymentConfig:
        configs: Mapping[str, DeploymentConfig] = self._manager.config_map
        if (config := configs.get(location.deployment)) is None:
            raise NodeRuntimeError(f"{location.deployment} is not deployed")
        return config


async def _place_of_pod(connector: Connector, location: ExecutionLocation) -> Place:
    """Return the place of a pod: a node of a cluster. Pods of different nodes do not share files by a volume."""
    try:
        pod = await pod_location(connector, location)
        binds = binds_of_container(pod.spec, pod.container, pod.namespace, pod.uid)
    except Exception as error:  # each client of a cluster raises errors of its own
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise NodeRuntimeError(f"what {location} has mounted cannot be read: {reason}") from error
    return Place(f"{pod.spec.get('nodeName')} of {pod.server}", binds)


def _chain(location: ExecutionLocation) -> Iterator[ExecutionLocation]:
    """Yield a location, and those that it is in."""
    inner: ExecutionLocation | None = location
    while inner is not None:
        yield inner
        inner = inner.wraps
