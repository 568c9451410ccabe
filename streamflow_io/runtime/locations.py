"""Names locations and the nodes that they are on, and finds out which files two of them have in common."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from streamflow_io.graph.volumes import HOST, VOLUME, Bind, seen_from

if TYPE_CHECKING:
    from streamflow.core.deployment import ExecutionLocation
    from streamflow.core.scheduling import AvailableLocation

    Location = TypeVar("Location", ExecutionLocation, AvailableLocation)

#: The name of the node of the driver, whatever its deployments are called.
DRIVERS_NODE = "the driver's node"


def location_name(location: ExecutionLocation | AvailableLocation) -> str:
    """The name of a location in this run: `deployment/name`."""
    return f"{location.deployment}/{location.name}"


def innermost(location: Location) -> Location:
    """The host of a container, whose cores and memory the container uses; any other location is its own."""
    *_, host = stack_of(location)
    return host


def stack_of(location: Location) -> Iterator[Location]:
    """A location, and those below it: a container, then its host."""
    yield location
    while location.stacked and location.wraps is not None:
        location = location.wraps
        yield location


def node_name(location: ExecutionLocation | AvailableLocation) -> str:
    """The node whose cores, memory and storages a location has, for people: all containers of a host have one node.

    The driver's node has one name, whatever its deployments are called.
    """
    node = innermost(location)
    return DRIVERS_NODE if node.local else location_name(node)


def location_node(location: ExecutionLocation) -> str:
    """The name of the node that a location is on; empty: the driver's node, whatever its deployment is called."""
    return "" if location.local else location_name(location)


def path_on(location: ExecutionLocation, path: str) -> tuple[str, str]:
    """A path with its node. On the driver's node, where links can be followed, it is the real path."""
    return location_node(location), os.path.realpath(path) if location.local else os.path.normpath(path)


class Place(Struct, frozen=True):
    """The files of its host that a node runtime sees.

    :ivar host: the host whose kernel it runs on; empty: the driver's node
    :ivar binds: the paths of these files here
    """

    host: str = ""
    binds: tuple[Bind, ...] = HOST

    @property
    def volumes(self) -> tuple[str, ...]:
        """The mount points of the engine's volumes. Only containers to which the user gives a volume see it."""
        return tuple(bind.inside for bind in self.binds if (bind.outside or "").startswith(VOLUME))

    def path_of(self, other: Place, path: str | PurePosixPath) -> PurePosixPath | None:
        """The path here of a file with this path at another place; None: the file is not here."""
        if self.host != other.host:
            return None
        seen = seen_from(other.binds, str(path), self.binds)
        return None if seen is None else PurePosixPath(seen)
