"""Which files two node runtimes have in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from streamflow_io.graph.volumes import HOST, VOLUME, Bind, seen_from


@dataclass(frozen=True)
class Place:
    """What a node runtime sees of the files of its host.

    :ivar host: whose kernel it runs on; that of the driver's node is empty
    :ivar binds: where they are here
    """

    host: str = ""
    binds: tuple[Bind, ...] = HOST

    @property
    def volumes(self) -> tuple[str, ...]:
        """Where volumes of the engine are mounted: nobody has one but those to whom its user gives it."""
        return tuple(bind.inside for bind in self.binds if (bind.outside or "").startswith(VOLUME))

    def path_of(self, other: Place, path: str | PurePosixPath) -> PurePosixPath | None:
        """Where a file that has this path at another place is here; None: it is not."""
        if self.host != other.host:
            return None
        seen = seen_from(other.binds, str(path), self.binds)
        return None if seen is None else PurePosixPath(seen)
