"""One slow disk that several hosts read, each with a page cache of its own, as a shared file system; for root."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.loop_device import LimitedDisk
from lab.machines.laboratory import Laboratory

from .cluster_sites import on_host
from .processes import CommandError
from .tools import MEBIBYTE

_ROOM = 64 * MEBIBYTE
_SECONDS = 30.0


@dataclass(frozen=True)
class SharedStorage:
    """A file system in a file of a disk, which is attached as often as there are hosts. No job writes to it.

    :ivar disk: has it, and counts what is read of it
    :ivar devices: one for each host
    """

    disk: LimitedDisk
    devices: Sequence[str]

    def mount(self, laboratory: Laboratory, addresses: Sequence[str], directory: str) -> None:
        """Mount it on hosts, by the same path; it is unmounted when they end.

        :raises CommandError: if it cannot be mounted
        """
        for device, address in zip(self.devices, addresses, strict=True):
            script = f"mkdir -p {directory} && mount -o ro,noload {device} {directory}"
            _run(on_host(laboratory, address, ["sh", "-c", script]))


@contextmanager
def shared_storage(disk: LimitedDisk, source: Path, hosts: int) -> Iterator[SharedStorage]:
    """Put a copy of a directory on an empty disk, for a number of hosts, as long as the context lasts.

    A device reads past the page cache of the driver's node, so that what one host has read costs another as much again.

    :raises CommandError: if it cannot be made
    """
    image = disk.mount / "shared.image"
    size = sum(path.stat().st_size for path in source.rglob("*")) + _ROOM
    with image.open("wb") as file:
        file.truncate(size)
    _run(["mkfs.ext4", "-q", "-O", "^has_journal", "-E", "lazy_itable_init=0", "-d", str(source), str(image)])
    with ExitStack() as stack:
        devices = []
        for _ in range(hosts):
            device = _run(["losetup", "--read-only", "--direct-io=on", "--find", "--show", str(image)]).strip()
            stack.callback(_run, ["losetup", "--detach", device])
            devices.append(device)
        yield SharedStorage(disk, devices)


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise CommandError(str(error)) from None
    if done.returncode != 0:
        raise CommandError(f"{command[0]}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout
