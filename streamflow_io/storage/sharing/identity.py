"""The directory by which runs share a storage: one of the same user, or the one in the StreamFlow file.

A storage is identified by what it is, not by its name: two StreamFlow files may give it different names.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from streamflow_io.hints.config import StorageConfig
from streamflow_io.records.runs import data_directory
from streamflow_io.storage.probe.mounts import MOUNTINFO, mount_of

from .directory import SharedDirectory

Deployments = Mapping[str, Mapping[str, Any]]
_MACHINE = Path("/etc/machine-id")
_MOUNTS = MOUNTINFO
# Fields in the `config` of a deployment that say which hosts it is.
_HOSTS = ("nodes", "hostname", "host", "url", "kubeconfig", "kubeContext", "namespace", "inCluster")

# Deployments on the machine of the driver, unless they wrap another deployment.
_BESIDE = ("docker", "docker-compose", "singularity")


def own_directories() -> Path:
    """Return the parent, which may not exist, of the directories that this user's runs share."""
    return data_directory() / "shared"


def shared_directories(storages: Iterable[StorageConfig], deployments: Deployments) -> dict[str, SharedDirectory]:
    """Return the directory of each shared storage, by the name of the storage.

    Entries of one StreamFlow file on the same file system are told apart by their paths. So a run that is alone gives
    each entry the bandwidth that the entry says.

    :param deployments: the deployments of the StreamFlow file
    :raises OSError: if the mounts of this node cannot be read
    """
    found, whole = {}, {}
    shared = [storage for storage in storages if storage.shared_with != "off"]
    for storage in shared:
        if storage.shared_with == "mine":
            whole[storage.name] = _identity(storage, deployments)
    several = [identity for identity in whole.values() if [*whole.values()].count(identity) > 1]
    for storage in shared:
        if storage.name not in whole:
            path, mine = Path(storage.shared_with), False
        else:
            identity = whole[storage.name]
            parts = (*identity, _path(storage)) if identity in several else identity
            name, mine = hashlib.sha256(json.dumps(parts).encode()).hexdigest(), True
            path = own_directories() / name
        found[storage.name] = SharedDirectory(path, storage.name, mine, storage.path)
    return found


def _identity(storage: StorageConfig, deployments: Deployments) -> tuple[str, ...]:
    """Return the identity of a storage, the same from everywhere."""
    path = _path(storage)
    names = [*deployments] if storage.deployment is None else [storage.deployment]
    elsewhere = sorted(_hosts(name, deployments) for name in names if not _is_here(name, deployments))
    # An entry may be for this node and others. A path that exists here is one storage for all, because it is shared.
    if not elsewhere or (storage.deployment is None and os.path.exists(path)):
        return _here(path)
    return ("elsewhere", path, *elsewhere)


def _path(storage: StorageConfig) -> str:
    return os.path.normpath(storage.path)


def _here(path: str) -> tuple[str, ...]:
    mount = mount_of(path, _MOUNTS)
    if mount.scope == "shared":  # the same from each node
        return "network", mount.file_system, mount.source
    return "local", _machine(), mount.file_system, mount.device


def _machine() -> str:
    try:
        return _MACHINE.read_text("utf-8").strip() or platform.node()
    except OSError:
        return platform.node()


def _is_here(name: str, deployments: Deployments) -> bool:
    return str(deployments.get(name, {}).get("type", "local")) == "local"


def _hosts(name: str, deployments: Deployments) -> str:
    """Return a text of the hosts of a deployment and of all that it wraps, without their names."""
    found: dict[str, Any] = {}
    kind: str | None = None
    while name not in found and not _is_here(name, deployments):
        deployment = deployments.get(name, {})
        config = deployment.get("config") or {}
        kind = str(deployment.get("type"))
        found[name] = kind, {key: config[key] for key in _HOSTS if key in config}
        wraps = deployment.get("wraps")
        name = str(wraps.get("deployment") if isinstance(wraps, Mapping) else wraps)
    machine = [_machine()] if kind in _BESIDE else []
    return json.dumps([*found.values(), *machine], sort_keys=True, default=str)
