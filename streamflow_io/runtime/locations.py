"""What tells one location from all others."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamflow.core.deployment import ExecutionLocation
    from streamflow.core.scheduling import AvailableLocation


def location_name(location: ExecutionLocation | AvailableLocation) -> str:
    """A location by the name that it has in this run: `deployment/name`."""
    return f"{location.deployment}/{location.name}"


def location_node(location: ExecutionLocation) -> str:
    """The node that a location is on: its name; that of the driver's is empty, whatever its deployment is called."""
    return "" if location.local else location_name(location)


def path_on(location: ExecutionLocation, path: str) -> tuple[str, str]:
    """A path with its node; on the driver's, where links can be followed, the real path."""
    return location_node(location), os.path.realpath(path) if location.local else os.path.normpath(path)
