"""The description of containers in the configuration of a deployment: their image, and for Kubernetes their pods."""

from __future__ import annotations

import uuid
from functools import lru_cache
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from streamflow.core.deployment import DeploymentConfig
from streamflow.deployment.connector import connector_classes
from streamflow.deployment.connector.kubernetes import KubernetesConnector

from streamflow_io.graph.pods import PodContainer, container_of
from streamflow_io.hints.yaml_text import check

_HERE = Path()


def made_image(config: DeploymentConfig) -> str | None:
    """The image of a deployment that StreamFlow made for a DockerRequirement; None: the user has named the deployment.

    The name of such a deployment is a UUID, which differs in every run.
    """
    try:
        uuid.UUID(str(config.name))
    except ValueError:
        return None
    return (image(config) or "a DockerRequirement").removeprefix("docker://")


def image(config: DeploymentConfig) -> str | None:
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
        return tuple(YAML(typ="safe").load_all(text))
    except (OSError, ValueError, YAMLError):
        return ()
