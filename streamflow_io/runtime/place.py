"""Finds out which files two node runtimes have in common."""

from __future__ import annotations

from pathlib import PurePosixPath

from msgspec import Struct

from streamflow_io.graph.volumes import HOST, VOLUME, Bind, seen_from


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
