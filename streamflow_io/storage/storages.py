"""The storages of the StreamFlow file, and which of them holds the output of a job."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cache
from operator import itemgetter

from streamflow.core.deployment import Target

from streamflow_io.adapters.deployment_sites import Sites, deployment_name
from streamflow_io.graph.sites import LOCAL, SiteKind
from streamflow_io.hints.config import StorageConfig


class Storages:
    """The storages of the scheduler's config.

    A path in a container is a path of its host, as far as a bind says so. There, entries for the host, or for all
    deployments, hold for the container.
    """

    def __init__(self, storages: Sequence[StorageConfig], sites: Sites) -> None:
        self._storages = storages
        self._sites = sites

    def of(self, name: str | None, target: Target, directory: str) -> StorageConfig | None:
        """Return the storage that jobs use: the one named `name`, or without a name the one that holds `directory`.

        :param directory: the output directory, as the jobs see it
        :return: None: the target has no such storage
        """
        deployment, place = str(target.deployment.name), self._sites.deployment(target)
        if name is not None:
            there = self._on((deployment, *sorted(self.host_names(target))))
            return next((storage for storage in there if storage.name == name), None)
        if place.kind is not SiteKind.CONTAINERS:
            there = self._on((deployment, *sorted(self.host_names(target))))
            return _holding(there, directory, is_here=place.node == LOCAL)
        own = [storage for storage in self._storages if storage.deployment == deployment]
        if (found := _holding(own, directory)) is not None:
            return found
        if (outside := place.on_host(directory)) is not None:
            return _holding(self._on(sorted(self.host_names(target))), outside, is_here=place.node == LOCAL)
        return _holding(self._on(()), directory)

    def missing(self, name: str | None, target: Target, directory: str) -> tuple[str, str]:
        """Return the place without a storage for jobs, and the reason, for people."""
        place = self._sites.deployment(target)
        where = "the driver's node" if place.kind is SiteKind.LOCAL else deployment_name(target.deployment)
        if name is not None:
            return where, f"the scheduler's config has no storage {name!r} there"
        if place.kind is SiteKind.CONTAINERS and (outside := place.on_host(directory)) is not None:
            return str(place.host), _none_holds(outside)
        return where, _none_holds(directory)

    def host_names(self, target: Target) -> frozenset[str]:
        """Return the names of the deployments whose entries hold for a target's node. Empty: the node is not known."""
        node = self._sites.deployment(target).node
        return frozenset() if node is None else self._sites.named(node)

    def is_here(self, target: Target, directory: str) -> bool:
        """Whether a directory of a target is on the driver's node, also if it has another path in its containers."""
        place = self._sites.deployment(target)
        return place.node == LOCAL and place.on_host(directory) is not None

    def _on(self, deployments: Sequence[str]) -> list[StorageConfig]:
        """Return the entries for some deployments, in their order. Entries for all deployments come last."""
        order = [*deployments, None]
        there = (storage for storage in self._storages if storage.deployment in order)
        return sorted(there, key=lambda storage: order.index(storage.deployment))


def _none_holds(directory: str) -> str:
    return f"no storage of the scheduler's config holds {directory} there"


def _holding(storages: Iterable[StorageConfig], path: str, is_here: bool = False) -> StorageConfig | None:
    """Return the storage that holds a path. Of several, the one with the longest path, and the first of these.

    :param is_here: both are on the driver's node, where links can be followed
    """
    path = os.path.realpath(path) if is_here else os.path.normpath(path)
    root_of = _real_root if is_here else os.path.normpath
    roots = [(root_of(storage.path), storage) for storage in storages]
    found = [(len(root), storage) for root, storage in roots if path == root or path.startswith(root.rstrip("/") + "/")]
    return max(found, key=itemgetter(0))[1] if found else None


@cache
def _real_root(path: str) -> str:
    """Return the real path of a storage, looked up once: a mount that hangs later on stops no jobs elsewhere."""
    return os.path.realpath(path)
