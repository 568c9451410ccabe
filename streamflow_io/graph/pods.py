"""Finds out what the containers of Kubernetes pods see of each other's files.

The data is as in the JSON of the API of Kubernetes, and in YAML manifests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from .volumes import VOLUME, Bind

_WITH_A_TEMPLATE = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job")
_DEFAULT_NAMESPACE = "default"


class PodContainer(Struct, frozen=True):
    """A container of pods that a manifest describes.

    :ivar pod: the one pod that it is in; None: several pods are possible
    :ivar binds: the volumes that it sees
    :ivar networked: whether others may reach it by its address
    :ivar image: None: the manifest names no image
    """

    pod: str | None
    binds: tuple[Bind, ...]
    networked: bool
    image: str | None = None


class _Pods(Struct, frozen=True):
    """Pods that are alike.

    :ivar owner: the object that describes the pods, unique in its namespace
    :ivar count: of the pods; None: unknown
    """

    owner: str
    namespace: str
    labels: Mapping[str, object]
    spec: Mapping[str, object]
    count: object


def container_of(documents: Iterable[object], name: str, namespace: str | None) -> PodContainer | None:
    """The container of this name in the pods of a manifest.

    :param namespace: for objects that name no namespace
    :return: None: no such container, or several of them, or volumes that cannot be understood
    """
    everything = [*_objects(documents)]
    fallback = namespace or _DEFAULT_NAMESPACE
    with_it = [pods for item in everything for pods in _pods(item, fallback) if name in _containers(pods.spec)]
    if len(with_it) != 1:
        return None
    (pods,) = with_it
    try:
        binds = binds_of_container(pods.spec, name, pods.namespace, pods.owner)
    except ValueError:
        return None
    is_closed = any(_closes(item, pods, fallback) for item in everything)
    one = f"{pods.namespace}/{pods.owner}" if pods.count == 1 else None
    image = _containers(pods.spec)[name].get("image")
    return PodContainer(one, binds, not is_closed, str(image) if image else None)


def container_names(documents: Iterable[object]) -> list[str]:
    """The names of all containers in the pods of a manifest."""
    pods = (pods for item in _objects(documents) for pods in _pods(item, _DEFAULT_NAMESPACE))
    return sorted({str(name) for each in pods for name in _containers(each.spec)})


def binds_of_container(spec: Mapping[str, object], name: str, namespace: str, owner: str) -> tuple[Bind, ...]:
    """The volumes that a container of a pod has mounted.

    A claim is one directory for all pods of its namespace on a node; a hostPath is one for all pods of a node. Each
    other volume is one for the containers of its pod.

    :param spec: of the pod
    :param owner: tells the pod from all others of the namespace
    :raises ValueError: if the pod has no such container, or the container mounts no known volume
    """
    if (container := _containers(spec).get(name)) is None:
        raise ValueError(f"there is no container {name}")
    sources = {each.get("name"): _source(each, namespace, owner) for each in _mappings(spec.get("volumes"))}
    binds = []
    for mount in _mappings(container.get("volumeMounts")):
        if (inside := mount.get("mountPath")) is None or mount.get("name") not in sources:
            raise ValueError(f"{mount} is no mount of a volume")
        # The value of an expression depends on variables of the container.
        part = None if mount.get("subPathExpr") else mount.get("subPath") or ""
        source = sources[mount.get("name")]
        outside = None if source is None or part is None else f"{source}/{part}"
        # A path that is not absolute is below the root.
        binds.append(Bind(f"/{inside}", outside))
    return tuple(binds)


def _source(volume: Mapping[str, object], namespace: str, owner: str) -> str | None:
    if isinstance(there := volume.get("hostPath"), Mapping):
        path = str(there.get("path"))
        return path if path.startswith("/") else None
    if isinstance(claim := volume.get("persistentVolumeClaim"), Mapping):
        return f"{VOLUME}claim:{namespace}:{claim.get('claimName')}"
    return f"{VOLUME}pod:{namespace}:{owner}:{volume.get('name')}"


def _objects(documents: Iterable[object]) -> Iterator[Mapping[str, object]]:
    for document in documents:
        if isinstance(document, Mapping):
            if document.get("kind") == "List":
                yield from _objects(_mappings(document.get("items")))
            else:
                yield document


def _pods(item: Mapping[str, object], fallback: str) -> Iterator[_Pods]:
    kind, spec, metadata = item.get("kind"), _mapping(item.get("spec")), _mapping(item.get("metadata"))
    owner, namespace = f"{kind}:{metadata.get('name')}", str(metadata.get("namespace") or fallback)
    if kind == "Pod":
        yield _Pods(owner, namespace, _mapping(metadata.get("labels")), spec, 1)
    elif kind in _WITH_A_TEMPLATE:
        template = _mapping(spec.get("template"))
        labels = _mapping(_mapping(template.get("metadata")).get("labels"))
        counted = {"DaemonSet": None, "Job": spec.get("parallelism", 1)}
        count = counted.get(str(kind), spec.get("replicas", 1))
        yield _Pods(owner, namespace, labels, _mapping(template.get("spec")), count)


def _closes(item: Mapping[str, object], pods: _Pods, fallback: str) -> bool:
    """Whether an object is a NetworkPolicy that closes these pods to all traffic, as StreamFlow writes it."""
    spec = _mapping(item.get("spec"))
    if item.get("kind") != "NetworkPolicy" or spec.get("ingress") or spec.get("egress"):
        return False
    selector = _mapping(spec.get("podSelector"))
    wanted = _mapping(selector.get("matchLabels"))
    is_there = str(_mapping(item.get("metadata")).get("namespace") or fallback) == pods.namespace
    return is_there and not selector.get("matchExpressions") and wanted.items() <= pods.labels.items()


def _containers(spec: Mapping[str, object]) -> dict[object, Mapping[str, object]]:
    return {container.get("name"): container for container in _mappings(spec.get("containers"))}


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: object) -> list[Mapping[str, object]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
