"""The file systems that are mounted on this node."""

from __future__ import annotations

import os
from pathlib import Path

from .mounts import MountPoint, find_mount

MOUNTINFO = Path("/proc/self/mountinfo")


def mount_of(path: str | os.PathLike[str], mountinfo: Path = MOUNTINFO) -> MountPoint:
    """Return the mount that holds a path, also if links lead to it.

    :raises OSError: if the mounts cannot be read
    """
    with mountinfo.open(encoding="utf-8", errors="surrogateescape") as mounts:
        return find_mount(os.path.realpath(path), mounts)
