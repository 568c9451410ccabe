"""A file system on a loop device whose bandwidth and requests the kernel limits (cgroup v1, `blkio`); for root."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

_CONTROLLER = Path("/sys/fs/cgroup/blkio")
_PROGRAMS = ("losetup", "mkfs.ext4", "mount", "umount")
_UNMOUNT_SECONDS = 5.0


@dataclass(frozen=True)
class Limits:
    """Limits that all readers, or all writers, of a disk share, per second; 0 means no limit.

    :ivar read: bytes
    :ivar write: bytes
    :ivar requests: of readers, and as many of writers
    """

    read: float = 0
    write: float = 0
    requests: float = 0


class LoopDeviceError(Exception):
    """The device cannot be made here; the message says why."""


class LimitedDisk:
    """A file system that is mounted.

    :ivar mount: where
    """

    def __init__(self, mount: Path) -> None:
        self.mount = mount
        status = mount.stat()
        self._number = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"

    def limit(self, limits: Limits) -> None:
        """From now on the kernel keeps all to it."""
        for name, value in (
            ("read_bps", limits.read),
            ("write_bps", limits.write),
            ("read_iops", limits.requests),
            ("write_iops", limits.requests),
        ):
            _throttle(name).write_text(f"{self._number} {int(value)}")

    def read_ahead(self, kibibytes: int) -> None:
        """Set how much the kernel reads at a time for programs that read front to back."""
        Path(f"/sys/dev/block/{self._number}/queue/read_ahead_kb").write_text(str(kibibytes))

    def moved(self) -> tuple[int, int]:
        """The bytes that have been read from the device, and written to it."""
        fields = Path(f"/sys/dev/block/{self._number}/stat").read_text().split()
        return 512 * int(fields[2]), 512 * int(fields[6])


@contextmanager
def limited_disk(mount: Path, size: int) -> Iterator[LimitedDisk]:
    """Mount a new, empty file system on a directory, for as long as the context lasts; at first without limits.

    Guarantee: afterwards mount, loop device, limits and image are gone. The image has no name while it is used, so
    that nothing of it is left even if the machine stops.

    :param size: bytes; of them, what is written is taken from the disk that holds the directory
    :raises LoopDeviceError: if this machine, or this user, cannot do it
    """
    if (reason := _missing()) is not None:
        raise LoopDeviceError(reason)
    with ExitStack() as stack:
        device = _attach(mount.with_name(f"{mount.name}.image"), size, stack)
        # Without journal and barriers a sync writes the data of its own file, at the speed of this disk alone.
        _run(["mkfs.ext4", "-q", "-O", "^has_journal", "-E", "lazy_itable_init=0", device])
        _run(["mount", "-o", "barrier=0,noatime", device, str(mount)])
        stack.callback(_unmount, mount)
        disk = LimitedDisk(mount)
        stack.callback(disk.limit, Limits())
        yield disk


def _throttle(name: str) -> Path:
    return _CONTROLLER / f"blkio.throttle.{name}_device"


def _missing() -> str | None:
    if os.geteuid() != 0:
        return "not root"
    if not (throttle := _throttle("write_bps")).exists():
        return f"no {throttle}"
    # The limit of a cgroup holds for its own processes alone.
    if not any(line.split(":", 1)[1] == "blkio:/" for line in Path("/proc/self/cgroup").read_text().splitlines()):
        return "not in the root cgroup of blkio"
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    return f"missing: {', '.join(missing)}" if missing else None


def _attach(image: Path, size: int, stack: ExitStack) -> str:
    with image.open("wb") as file:
        file.truncate(size)
    try:
        device = _run(["losetup", "--find", "--show", str(image)]).strip()
    finally:
        image.unlink()
    stack.callback(_run, ["losetup", "--detach", device])
    return device


def _unmount(mount: Path) -> None:
    """Unmount as soon as no process uses the mount.

    A mount that is still used is hidden, and ends with its last user.
    """
    deadline = time.monotonic() + _UNMOUNT_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(LoopDeviceError):
            _run(["umount", str(mount)])
            return
        time.sleep(0.1)
    _run(["umount", "--lazy", str(mount)])


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LoopDeviceError(f"{command[0]}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout
