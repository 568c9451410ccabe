"""The file system of a path."""

import pytest

from streamflow_io.storage.probe.mounts import MountPoint, find_mount

MOUNTINFO = r"""
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 22 0:20 / /proc rw shared:3 - proc proc rw
24 22 0:21 / /home rw shared:1 master:2 - autofs home rw,fd=5
25 24 0:22 / /home rw - nfs4 server:/home rw,vers=4.2
26 22 8:1 / /mnt/fast\040ssd rw - xfs /dev/sda1 rw
27 22 0:30 / /mnt/fast\040ssd/tmp rw - tmpfs tmpfs rw
28 22 0:31 / /scratch rw - lustre mgs@tcp:/scratch rw
not a line of this file
""".strip().splitlines()


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/", MountPoint("/", "ext4", "254:0", "/dev/vda")),
        ("/srv/data", MountPoint("/", "ext4", "254:0", "/dev/vda")),
        ("/home/me", MountPoint("/home", "nfs4", "0:22", "server:/home")),
        ("/homes", MountPoint("/", "ext4", "254:0", "/dev/vda")),
        ("/mnt/fast ssd", MountPoint("/mnt/fast ssd", "xfs", "8:1", "/dev/sda1")),
        ("/mnt/fast ssd/a", MountPoint("/mnt/fast ssd", "xfs", "8:1", "/dev/sda1")),
        ("/mnt/fast ssd/tmp/a", MountPoint("/mnt/fast ssd/tmp", "tmpfs", "0:30", "tmpfs")),
        ("/scratch", MountPoint("/scratch", "lustre", "0:31", "mgs@tcp:/scratch")),
    ],
)
def test_mount_of_a_path(path: str, mount: MountPoint) -> None:
    assert find_mount(path, MOUNTINFO) == mount


def test_no_mounts() -> None:
    assert find_mount("/x", []) == MountPoint("/", "unknown")


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "fuse.sshfs", "fuse.glusterfs"]
)
def test_network_file_systems_are_shared(kind: str) -> None:
    assert MountPoint("/x", kind).scope == "shared"


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk", "fuse.fuse-overlayfs"])
def test_other_file_systems_are_of_a_node(kind: str) -> None:
    assert MountPoint("/x", kind).scope == "node"


def test_memory() -> None:
    assert [kind for kind in ("tmpfs", "ramfs", "ext4") if MountPoint("/x", kind).in_memory] == ["tmpfs", "ramfs"]
