"""Disks that the kernel keeps slow, with a file on them that is not in the page cache; for root."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from lab.loop_device import LimitedDisk, Limits, LoopDeviceError, limited_disk

from .tools import MEBIBYTE
from .workload import Outcome

WRITTEN, READ = "written / file", "read / file"
_DISK_BYTES = 2048 * MEBIBYTE
_LINE_BYTES = 128
_UNLIMITED = Limits()


@dataclass(frozen=True)
class Disk:
    """A kind of disk.

    :ivar megabytes: MB/s that it reads
    :ivar read_ahead: KiB that the kernel reads at a time for programs that read front to back
    """

    name: str
    megabytes: int
    limits: Limits = _UNLIMITED
    read_ahead: int = 2560


BANDWIDTH = Disk("100 MB/s", 100, Limits(read=100e6, write=100e6))
REQUESTS = Disk("200 MB/s, 400 requests/s", 200, Limits(read=200e6, write=200e6, requests=400), 128)
FAST = Disk("fast disk", 1000)


def obstacle() -> str | None:
    """Why such disks cannot be made here, if so."""
    with tempfile.TemporaryDirectory() as directory:
        (mount := Path(directory, "disk")).mkdir()
        try:
            with limited_disk(mount, 32 * MEBIBYTE):
                return None
        except LoopDeviceError as error:
            return str(error)


@contextmanager
def cold_on(
    kind: Disk, mount: Path, source: Path, names: Sequence[str], size: int = _DISK_BYTES
) -> Iterator[LimitedDisk]:
    """Make a disk with copies of files, without any page of them in the page cache, for as long as the context lasts.

    :param names: of files and directories, relative to `source`, as they then are to the disk
    :param size: bytes of the disk
    """
    mount.mkdir(exist_ok=True)
    with limited_disk(mount, size) as disk:
        for name in names:
            (mount / name).parent.mkdir(parents=True, exist_ok=True)
            if (path := source / name).is_dir():
                shutil.copytree(path, mount / name)
            else:
                shutil.copyfile(path, mount / name)
        for path in mount.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    forget(file.fileno())
        disk.read_ahead(kind.read_ahead)
        disk.limit(kind.limits)
        yield disk


def counted(disk: LimitedDisk, size: int, run: Callable[[], Outcome]) -> Outcome:
    """Return the bytes that a run has read from a disk, and written to it until all is written, as further measures.

    :param size: bytes of the file that it reads
    """
    before = disk.moved()
    outcome = run()
    # What is still in memory would be written some time.
    os.sync()
    read, written = (after - since for after, since in zip(disk.moved(), before, strict=True))
    further = {**outcome.sample.further, READ: read / size, WRITTEN: written / size}
    return replace(outcome, sample=outcome.sample.model_copy(update={"further": further}))


def write_lines(path: Path, size: int) -> Path:
    """Write a file of numbered lines."""
    with path.open("wb") as file:
        for first in range(0, size // _LINE_BYTES, MEBIBYTE // _LINE_BYTES):
            numbers = range(first, first + MEBIBYTE // _LINE_BYTES)
            file.write(b"".join(f"{number:0{_LINE_BYTES - 1}}\n".encode() for number in numbers))
    return path


def forget(descriptor: int) -> None:
    """Have nothing of a file in the page cache."""
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
