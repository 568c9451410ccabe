"""The file system that a path is on, and its kind."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from msgspec import Struct

MOUNTINFO = Path("/proc/self/mountinfo")
MEMORY = frozenset({"devtmpfs", "ramfs", "rootfs", "tmpfs"})
# fmt: off
_NETWORK = frozenset({
    "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "fuse", "gfs", "gfs2", "glusterfs", "gpfs", "lustre", "nfs",
    "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "wekafs",
})
# fmt: on
# Most file systems in user space are clients of a server or an object store. These are layers over local directories.
_LOCAL_FUSE = frozenset({"fuse.bindfs", "fuse.encfs", "fuse.fuse-overlayfs", "fuse.gocryptfs", "fuse.mergerfs"})
_ESCAPED = re.compile(r"\\([0-7]{3})")


class MountPoint(Struct, frozen=True):
    """A mounted file system.

    :ivar point: the mount point
    :ivar file_system: the type, as the kernel calls it: `ext4`, `nfs4`, `fuse.sshfs`
    :ivar device: the device number, the same for each mount of it on a machine
    :ivar source: what is mounted: a device, or the export of a server
    """

    point: str
    file_system: str
    device: str = ""
    source: str = ""

    @property
    def in_memory(self) -> bool:
        return self.file_system in MEMORY

    @property
    def scope(self) -> Literal["shared", "node"]:
        """`shared` if the type is a file system for many nodes, otherwise `node`."""
        network = self.file_system in _NETWORK or self.file_system.startswith("fuse.")
        return "shared" if network and self.file_system not in _LOCAL_FUSE else "node"


def find_mount(path: str, mountinfo: Iterable[str]) -> MountPoint:
    """Return the mount that a path is on.

    :param path: an absolute path without symbolic links
    :param mountinfo: the lines of `/proc/self/mountinfo`, proc(5)
    """
    found = MountPoint("/", "unknown")
    for line in mountinfo:
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) < 5 or not rest:
            continue
        point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4])
        # Of two mounts on one point, the later one hides the earlier.
        if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(found.point):
            found = MountPoint(point, rest[0], fields[2], rest[1] if len(rest) > 1 else "")
    return found


def mount_of(path: str | os.PathLike[str], mountinfo: Path = MOUNTINFO) -> MountPoint:
    """Return the mount that holds a path, also if links lead to it.

    :raises OSError: if the mounts cannot be read
    """
    with mountinfo.open(encoding="utf-8", errors="surrogateescape") as mounts:
        return find_mount(os.path.realpath(path), mounts)
