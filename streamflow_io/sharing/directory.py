"""The directory that runs share for a storage: its files and locks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SharedDirectory:
    """Where the runs that use a storage say what they hold of it.

    :ivar path: absolute
    :ivar storage: what the storage is called, and where it is, for people
    :ivar mine: it is this user's alone, and made when it is needed; else one of `streamflow-io storage share`
    """

    path: Path
    storage: str
    mine: bool = True
