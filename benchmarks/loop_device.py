"""A file system on a loop device whose write bandwidth the kernel limits (cgroup v1, `blkio.throttle`); for root."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

_THROTTLE = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
_PROGRAMS = ("losetup", "mkfs.ext4", "mount", "umount")
_UNMOUNT_SECONDS = 5.0

SetBandwidth = Callable[[float], None]


class LoopDeviceError(Exception):
    """It cannot be made here; the message says why."""


@contextmanager
def limited_disk(mount: Path, size: int) -> Iterator[SetBandwidth]:
    """Mount a new, empty file system on a directory, for as long as the context lasts.

    Guarantee: afterwards mount, loop device, limit and image are gone. The image has no name while it is used, so
    that nothing of it is left even if the machine stops.

    :param size: bytes; of them, what is written is taken from the disk that holds the directory
    :return: sets the bytes per second that all writers have together
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
        status = mount.stat()
        number = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"

        def set_bandwidth(bytes_per_second: float) -> None:
            _THROTTLE.write_text(f"{number} {int(bytes_per_second)}")

        stack.callback(set_bandwidth, 0)  # none
        yield set_bandwidth


def _missing() -> str | None:
    if os.geteuid() != 0:
        return "not root"
    if not _THROTTLE.exists():
        return f"no {_THROTTLE}"
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
    """Unmount as soon as nobody uses it, or, if somebody goes on, hide it: it ends with its last user."""
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
