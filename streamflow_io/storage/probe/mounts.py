"""Which file system a path is on, and of which kind."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

MEMORY = frozenset({"devtmpfs", "ramfs", "rootfs", "tmpfs"})
# fmt: off
_NETWORK = frozenset({
    "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "fuse", "gfs", "gfs2", "glusterfs", "gpfs", "lustre", "nfs",
    "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "wekafs",
})
# fmt: on
# In user space, most file systems are clients of a server or an object store; these are layers over local directories.
_LOCAL_FUSE = frozenset({"fuse.bindfs", "fuse.encfs", "fuse.fuse-overlayfs", "fuse.gocryptfs", "fuse.mergerfs"})
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class MountPoint:
    """A mounted file system.

    :ivar point: its mount point
    :ivar file_system: its type, as the kernel calls it: `ext4`, `nfs4`, `fuse.sshfs`
    :ivar device: its number, the same wherever on a machine it is mounted
    :ivar source: what is mounted: a device, or what a server has
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
        """`shared` if the file system is one for many nodes, as its type tells."""
        network = self.file_system in _NETWORK or self.file_system.startswith("fuse.")
        return "shared" if network and self.file_system not in _LOCAL_FUSE else "node"


def find_mount(path: str, mountinfo: Iterable[str]) -> MountPoint:
    """The mount that a path is on.

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
