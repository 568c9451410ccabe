"""The storage that a job uses, and the accounts of its bandwidth."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from msgspec import Struct

from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.errors import HintError
from streamflow_io.hints.models import WAYS, Direction, Way

from .ledger import Account

#: Bytes per second in each direction.
Amounts = Mapping[Way, int]

ONE_WAY: dict[Direction, tuple[Way, ...]] = {
    "read": ("read",),
    "write": ("write",),
    "both": WAYS,
}
BYTES_PER_MEGABYTE = 1_000_000


class StepStorage(Struct, frozen=True):
    """The storage hints of a step, and the storage that they lead to on one deployment.

    :ivar storage_bw: the storageBW as written. None: no limit
    :ivar storage: the name of the storage. None: no storage is found
    """

    step: str
    io_task: bool
    storage_bw: str | None
    direction: str | None
    deployment: str
    storage: str | None


class StepStorages(Struct, frozen=True):
    """The findings about storages before a run.

    :ivar errors: constraints above their storage
    :ivar warnings: constraints without a storage, storages without a location
    """

    steps: tuple[StepStorage, ...]
    errors: tuple[HintError, ...]
    warnings: tuple[str, ...]


def bytes_per_second(megabytes: float) -> int:
    """Convert MB/s to a whole number of bytes per second, at least 1."""
    return max(1, round(megabytes * BYTES_PER_MEGABYTE))


def holds_path(storage: StorageConfig, deployment: str, path: str) -> bool:
    """Whether a path of a deployment is on a storage."""
    if storage.deployment not in (None, deployment):
        return False
    root = posixpath.normpath(storage.path)
    return path == root or path.startswith(root.rstrip("/") + "/")


def storage_of(storages: Iterable[StorageConfig], deployment: str, path: str) -> StorageConfig | None:
    """Return the storage that holds a path. Of several, prefer the longest path, then one that names the deployment."""
    path = posixpath.normpath(path)
    return max(
        (storage for storage in storages if holds_path(storage, deployment, path)),
        key=lambda storage: (len(posixpath.normpath(storage.path)), storage.deployment is not None),
        default=None,
    )


def bandwidth_account(storage: StorageConfig, direction: Way, location: str) -> Account:
    """Return the account of a storage's bandwidth for jobs on a location."""
    return Account(f"{storage.name} {direction}", location if storage.scope == "node" else None)
