"""Small file systems that can be filled up."""

from __future__ import annotations

import contextlib
import errno
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.node import wait_for

# As much as jobs may ask for: by default 2 GB each. Only what is written takes space.
_REAL_SIZE = 16 * 2**30
_BLOCK = bytes(2**16)
# Jobs that tests leave running sleep for much longer.
_END_SECONDS = 5.0


def can_loop(directory: Path) -> bool:
    """Whether this user may have a disk that is a file."""
    if any(shutil.which(name) is None for name in ("mount", "mkfs.ext4", "fsfreeze")):
        return False
    try:
        with real_disk(directory, []):
            return True
    except subprocess.CalledProcessError:
        return False


def can_mount(directory: Path) -> bool:
    """Whether this user may have a small disk to fill."""
    if shutil.which("mount") is None:
        return False
    mounted = subprocess.run(["mount", "-t", "tmpfs", "none", directory], capture_output=True, check=False)
    if mounted.returncode == 0:
        subprocess.run(["umount", directory], check=True)
    return mounted.returncode == 0


@contextlib.contextmanager
def small_disk(directory: Path, left: list[str], size: int) -> Iterator[None]:
    """A file system of its own at a directory, in memory.

    :param size: bytes
    :param left: is told when something still uses it in the end
    """
    with _mounted(directory, left, "-t", "tmpfs", "-o", f"size={size}", "none"):
        yield


@contextlib.contextmanager
def real_disk(directory: Path, left: list[str], size: int = _REAL_SIZE) -> Iterator[None]:
    """Do as :func:`small_disk` with a file beside the directory; such a file system can get stuck."""
    image = directory.with_name(f"{directory.name}.image")
    with image.open("wb") as file:
        file.truncate(size)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m0", image], check=True)
    with _mounted(directory, left, "-o", "loop", str(image)):
        (directory / "lost+found").rmdir()
        yield
    image.unlink()


@contextlib.contextmanager
def disk_of_a_test(directory: Path, size: int, *, is_real: bool = False) -> Iterator[None]:
    """A file system of its own at a directory. The test is skipped where none can be mounted.

    :param size: bytes
    :param is_real: ext4 in a file, instead of a file system in memory
    :raises AssertionError: if something still uses the disk in the end
    """
    directory.mkdir(exist_ok=True)
    if not (can_loop if is_real else can_mount)(directory):
        pytest.skip("no disk of its own can be mounted")
    left = list[str]()
    with (real_disk if is_real else small_disk)(directory, left, size):
        yield
    assert left == []


@contextlib.contextmanager
def _mounted(directory: Path, left: list[str], *what: str) -> Iterator[None]:
    subprocess.run(["mount", *what, directory], check=True)
    try:
        yield
    finally:
        try:
            # A wrapper ends a moment after the event that tells the exit of its job.
            wait_for(lambda: _unmounted(directory), "the end of what uses a disk", _END_SECONDS)
        except AssertionError:
            left.append(f"something uses {directory}")
            subprocess.run(["umount", "--lazy", directory], check=True)


def _unmounted(directory: Path) -> bool:
    return subprocess.run(["umount", directory], capture_output=True, check=False).returncode == 0


def fill(file: Path) -> None:
    """Leave no byte free on the file system of a file, by making the file large."""
    with file.open("wb", buffering=0) as filler:
        for block in (_BLOCK, b"x"):
            try:
                while True:
                    filler.write(block)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def mounts() -> Iterator[Path]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        # Spaces and the like are escaped as in C.
        yield Path(line.split()[4].encode().decode("unicode_escape"))
