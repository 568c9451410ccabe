"""Finds out what two containers, or a container and its host, see of each other's files, also in pods of Kubernetes.

Paths are POSIX strings. They may hold lone surrogates, as Python makes them for names that are no UTF-8.

The data is as in the JSON of the API of Kubernetes, and in YAML manifests.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import force_setattr

VOLUME = "volume:"  # before the name of a volume of the engine, which has no path

# StreamFlow puts each option in double quotes into a line for a shell.
_OF_THE_SHELL = re.compile(r'[$`"\\]')
_OTHER_THAN_THE_SOURCE = {"bind-nonrecursive", "bind-recursive", "image-src", "id"}
_VOLUME_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")


def _below(path: str, directory: str) -> str | None:
    """The rest of a path below a directory, empty for the directory itself; None: the path is elsewhere."""
    if path == directory:
        return ""
    prefix = "/" if directory == "/" else f"{directory}/"
    return path[len(prefix) :] if path.startswith(prefix) else None


def _join(directory: str, rest: str) -> str:
    return f"{'' if directory == '/' else directory}/{rest}" if rest else directory


def _resolved(path: str) -> str:
    """A path without `.`, `..` and repeated slashes, by its text alone.

    :raises ValueError: if the path is not absolute
    """
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is not an absolute path")
    return posixpath.normpath("/" + path.lstrip("/"))


class Bind(Struct, frozen=True):
    """A directory or file in a container that is one outside of it.

    Trailing slashes, `.` and `..` in both paths are resolved by their text, as by the engines.

    :ivar inside: the path in the container
    :ivar outside: the path on the host. For a volume of the engine: `volume:` and its name, and below that a path.
        None: a place that no other container sees, as tmpfs, or an unknown one
    :raises ValueError: if `inside` is not absolute, or `outside` is neither absolute nor a volume
    """

    inside: str
    outside: str | None

    def __post_init__(self) -> None:
        force_setattr(self, "inside", _resolved(self.inside))
        if self.outside is not None:
            is_volume = self.outside.startswith(VOLUME)
            name, _, rest = self.outside.partition("/") if is_volume else ("", "", self.outside)
            force_setattr(self, "outside", _join(name or "/", _resolved(f"/{rest}" if is_volume else rest)[1:]))


HOST = (Bind("/", "/"),)  # the host itself


def seen_from(binds_a: Sequence[Bind], path: str, binds_b: Sequence[Bind]) -> str | None:
    """The path in container B of a file with a path in container A. Both are of one engine on one host.

    The longest bind that holds a path counts; of different binds at the same path, none counts. Symbolic links and
    mounts of the host are not known here: whether the file is there must be tried. Binds below a directory are not
    looked at when the directory is.

    :param path: a path with `..` is not seen: a symbolic link may be before it
    :return: of several paths, the one by the longest source, and of these the one that is called as in A. None: B does
        not see the file, or `path` is not absolute
    """
    if not path.startswith("/") or ".." in path.split("/"):
        return None
    path = _resolved(path)
    if (place := _place(binds_a, path)) is None:
        return None
    seen: list[tuple[int, bool, str]] = []
    for bind in binds_b:
        if bind.outside is not None and (rest := _below(place, bind.outside)) is not None:
            inside = _join(bind.inside, rest)
            if _place(binds_b, inside) == place:  # otherwise another bind covers it
                seen.append((len(bind.outside), inside == path, inside))
    return max(seen, key=lambda each: each[:2])[2] if seen else None


def binds_of(engine: str, config: Mapping[str, object]) -> tuple[Bind, ...]:
    """The binds of a deployment's containers, from its StreamFlow configuration.

    A source that only the shell or the engine knows (`~`, `$HOME`, a relative path) counts as one that no other
    container sees.

    :param engine: the type of the deployment; only binds of `docker` and `singularity` are known
    :return: empty, if the configuration cannot be read with certainty: an unknown bind may cover others
    """
    try:
        if engine == "docker":
            return tuple(_binds_of_docker(config))
        if engine == "singularity":
            return tuple(_binds_of_singularity(config))
    except ValueError:
        pass
    return ()


def _binds_of_docker(config: Mapping[str, object]) -> Iterator[Bind]:
    if config.get("volumesFrom"):
        raise ValueError("volumes of another container")
    for volume in _texts(config, "volume"):
        source, target, _ = _parts(volume)
        # A volume without a target has its source as target, and no name.
        yield _bind(_source(source, named=True) if target else None, target or source)
    for mount in _texts(config, "mount"):
        yield _mount(mount, named=True)
    for tmpfs in _texts(config, "tmpfs"):
        yield _bind(None, tmpfs.partition(":")[0])


def _binds_of_singularity(config: Mapping[str, object]) -> Iterator[Bind]:
    for binds in _texts(config, "bind"):
        for bind in _split_binds(binds):
            source, target, options = _parts(bind)
            is_image = any(option.startswith(("image-src=", "id=")) for option in options)
            yield _bind(None if is_image else _source(source), target or source)
    for mount in _texts(config, "mount"):
        yield _mount(mount)
    for home in _texts(config, "home"):
        source, target, _ = _parts(home)
        yield _bind(_source(source), target or source)
    for scratch in _texts(config, "scratch"):
        yield from (_bind(None, each) for each in scratch.split(","))
    for fuse in _texts(config, "fusemount"):
        yield _bind(None, fuse.split()[-1] if fuse.split() else "")


def _texts(config: Mapping[str, object], name: str) -> list[str]:
    value = config.get(name) or []
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{name} is not a list of strings")
    return list(texts)


def _parts(bind: str) -> tuple[str, str, list[str]]:
    source, target, options, *more = *bind.split(":"), "", ""
    if len(more) > 2:
        raise ValueError("more than source, target and options")
    return source, target, options.split(",")


def _split_binds(binds: str) -> Iterator[str]:
    """Yield one or several binds of Singularity. Commas also separate the options of one bind."""
    bind = ""
    for part in binds.split(","):
        if bind.count(":") == 2 and ":" not in part and not part.startswith("/"):
            bind += f",{part}"
        else:
            yield from [bind] if bind else []
            bind = part
    yield bind


def _mount(mount: str, named: bool = False) -> Bind:
    """The bind of a `--mount` option.

    :param named: whether a volume of the engine can be mounted, and not only a directory
    """
    fields = {key.lower(): value for key, _, value in (field.partition("=") for field in mount.split(","))}
    source = next((fields[key] for key in ("source", "src") if key in fields), "")
    target = next((fields[key] for key in ("target", "destination", "dst", "dest") if key in fields), "")
    outside = None
    # Mounts of the host below the source may be left out; an image holds other files.
    if fields.get("type") == "bind" and not fields.keys() & _OTHER_THAN_THE_SOURCE:
        outside = _source(source)
    elif fields.get("type") == "volume" and named and source:
        volume = _source(source, named)
        outside = volume and _join(volume, _resolved("/" + fields.get("volume-subpath", ""))[1:])
    return _bind(outside, target)


def _source(source: str, named: bool = False) -> str | None:
    if _OF_THE_SHELL.search(source):
        return None
    if source.startswith("/"):
        return source
    return f"{VOLUME}{source}" if named and _VOLUME_NAME.fullmatch(source) else None


def _bind(outside: str | None, inside: str) -> Bind:
    if _OF_THE_SHELL.search(inside):
        raise ValueError("the shell would change where it is")
    return Bind(inside, outside)


def _place(binds: Sequence[Bind], path: str) -> str | None:
    """The path outside of a path in a container; None: no such path, or an unknown one."""
    holding = [bind for bind in binds if _below(path, bind.inside) is not None]
    longest = max((len(bind.inside) for bind in holding), default=0)
    nearest = {bind.outside: bind.inside for bind in holding if len(bind.inside) == longest}
    outside, inside = next(iter(nearest.items())) if len(nearest) == 1 else (None, "")
    return outside and _join(outside, _below(path, inside) or "")


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
    sources = {each.get("name"): _mount_source(each, namespace, owner) for each in _mappings(spec.get("volumes"))}
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


def _mount_source(volume: Mapping[str, object], namespace: str, owner: str) -> str | None:
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
