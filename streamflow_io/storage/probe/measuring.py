"""Measurement of a storage by threads that write at the same time, and then read.

Nothing remains in any case. The files have no name when the first byte is written, so that the kernel frees them with
this process.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from functools import partial
from io import FileIO
from threading import Thread
from typing import Literal

from streamflow_io.hints.errors import HintErrors

from .evaluation import Access, LoadLevel, Measurement, ProbeTransfer, Sample
from .mounts import mount_of

LEVELS = (1, 2, 4, 8)
LEAST_BYTES = max(LEVELS) * 10**6
Task = Literal["write", "read"]
Announce = Callable[[int, Task], None]

# A writer ends after its given time, one block and a sync. A writer that takes this much longer hangs.
_PATIENCE_SECONDS = 60.0
_REMOVE_SECONDS = 5.0

# Direct I/O needs offsets, sizes and buffers that are multiples of the device's block. No block is larger than this.
ALIGNMENT = 64 * 1024
_BUFFER = 8 * 1024 * 1024
# A block is written and synced, and cannot be interrupted. On a slow storage, blocks get small enough to take no longer
# than this. Without the sync, bytes in memory would be written after the deadline. Direct I/O needs the sync, too: some
# file systems accept direct I/O and use memory nevertheless.
BLOCK_SECONDS = 0.5
_FIRST_BLOCK = ALIGNMENT
_GROWTH = 4
LARGEST_BLOCK = 64 * 1024 * 1024


def measure(path: str, limit: int, seconds: float, announce: Announce = lambda writers, task: None) -> Measurement:
    """Measure with 1, 2, 4 and 8 writers.

    Takes at most `limit` bytes of space, and `seconds` for each of 8 samples. A sample is longer by at most the last
    block of each writer (half a second as a rule).

    :param path: a directory
    :param limit: bytes to write in each level, all writers together; at least LEAST_BYTES
    :param announce: called before each sample
    :raises HintErrors: if the directory cannot be written to, has too little space, or its storage hangs
    """
    path = os.path.abspath(path)
    _check(path, limit)
    try:
        access = _find_access(path)
        mount = mount_of(path)
        levels = tuple(_measure_level(path, count, access, limit, seconds, announce) for count in LEVELS)
    except OSError as error:
        raise _explained(path, error) from error
    return Measurement(path, mount, access, limit, seconds, levels)


def _check(path: str, limit: int) -> None:
    try:
        path.encode()
        directory = stat.S_ISDIR(os.stat(path).st_mode)
        volume = os.statvfs(path)
    except UnicodeEncodeError:
        raise _refusal(path, f"{path!r} is not UTF-8", "a path that a YAML file can hold") from None
    except (FileNotFoundError, NotADirectoryError):
        raise _refusal(path, f"{path} does not exist", "an existing directory") from None
    except OSError as error:
        raise _explained(path, error) from error
    if not directory:
        raise _refusal(path, f"{path} is not a directory", "a directory on the storage")
    if volume.f_flag & os.ST_RDONLY:
        raise _explained(path, OSError(errno.EROFS, ""))
    free = volume.f_bavail * volume.f_frsize
    # Some file systems of object stores do not know their size, and report 0 blocks.
    if volume.f_blocks and free < 2 * limit:
        raise _refusal(
            path,
            f"{path} has {free / 1e6:.0f} MB of free space, too little to write {limit / 1e6:.0f} MB and leave as much",
            f"more free space, or a lower --bytes (at least {LEAST_BYTES // 10**6}MB)",
        )


def _refusal(path: str, message: str, allowed: str) -> HintErrors:
    return HintErrors.one(path, "PATH", message, allowed)


def _explained(path: str, error: OSError) -> HintErrors:
    if error.errno == errno.EROFS:
        return _refusal(path, f"{path} is read-only", "a directory that you can write to")
    if error.errno in (errno.EACCES, errno.EPERM):
        return _refusal(path, f"{path} is not writable for you", "a directory that you can write to")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _refusal(path, f"{path} became full, or your quota is used up", "more free space, or a lower --bytes")
    return _refusal(path, f"{path} cannot be measured: {error.strerror}", "a directory that you can write to")


def _find_access(path: str) -> Access:
    """Try direct I/O: some file systems refuse to open a file for it, some refuse the first write."""
    try:
        with _files_without_name(path, 1, os.O_DIRECT) as files:
            os.pwrite(files[0].fileno(), mmap.mmap(-1, ALIGNMENT), 0)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
        return "buffered"
    return "direct"


@contextmanager
def _files_without_name(path: str, count: int, flags: int) -> Iterator[list[FileIO]]:
    """Open new files for reading and writing, and remove their names at once.

    :return: the files. Those still in the list are closed at the end
    """
    directory = os.path.join(path, f".streamflow-io-probe-{uuid.uuid4().hex}")
    files: list[FileIO] = []
    try:
        os.mkdir(directory, 0o700)
        for number in range(count):
            file = os.path.join(directory, str(number))
            files.append(FileIO(file, "x+", opener=lambda name, usual: os.open(name, usual | flags, 0o600)))
            os.unlink(file)
        with suppress(OSError):  # NFS keeps a hidden name until the file is closed.
            os.rmdir(directory)
        yield files
    finally:
        for opened in files:
            opened.close()
        _remove(directory)


def _remove(directory: str) -> None:
    end = time.monotonic() + _REMOVE_SECONDS
    while os.path.lexists(directory):
        try:
            shutil.rmtree(directory)
        except OSError as error:
            if time.monotonic() > end:
                message = f"{directory} could not be removed: {error.strerror}"
                raise _refusal(directory, message, "a directory where files can be removed") from error
            time.sleep(0.1)


def _measure_level(path: str, count: int, access: Access, limit: int, seconds: float, announce: Announce) -> LoadLevel:
    share = limit // count // ALIGNMENT * ALIGNMENT
    flags = os.O_DIRECT if access == "direct" else 0
    with _files_without_name(path, count, flags) as files:
        writers = [ProbeFile(file) for file in files]
        # While a writer moves bytes, its file must stay open, whatever happens here. It is closed with the writer.
        closed_at_the_end, files[:] = [*files], []
        announce(count, "write")
        written = _sample(
            path, [partial(transfer, one.write, share, seconds, time.monotonic) for one in writers], seconds
        )
        for one in writers:
            one.forget()
        announce(count, "read")
        sizes = [transferred.bytes for transferred in written.transfers]
        reads = [
            partial(transfer, one.read, size, seconds, time.monotonic) for one, size in zip(writers, sizes, strict=True)
        ]
        read = _sample(path, reads, seconds)
        files[:] = closed_at_the_end
        return LoadLevel(written, read)


def _sample(path: str, transfers: Sequence[Callable[[], ProbeTransfer]], seconds: float) -> Sample:
    """Do transfers at the same time, each in a thread of its own, which does not keep this process from its end."""
    futures: list[Future[ProbeTransfer]] = [Future() for _ in transfers]
    for one, future in zip(transfers, futures, strict=True):
        Thread(target=_do, args=(one, future), daemon=True).start()
    if wait(futures, seconds + _PATIENCE_SECONDS).not_done:
        raise _refusal(path, f"{path} hangs: a writer did not answer in time", "a storage that answers")
    return Sample(tuple(future.result() for future in futures))


def _do(work: Callable[[], ProbeTransfer], future: Future[ProbeTransfer]) -> None:
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)


def next_block(size: int, seconds: float, remaining: float) -> int:
    """Return the bytes of the next block, after a block of `size` bytes took `seconds`.

    As many as fit in BLOCK_SECONDS and in the remaining time at that rate, but at most four times `size`. A multiple of
    ALIGNMENT, and not 0.
    """
    quick = size / max(seconds, 1e-9) * max(0.0, min(BLOCK_SECONDS, remaining))
    block = int(min(_GROWTH * size, quick, LARGEST_BLOCK))
    return max(ALIGNMENT, block // ALIGNMENT * ALIGNMENT)


def transfer(move: Callable[[int, int], int], limit: int, seconds: float, clock: Callable[[], float]) -> ProbeTransfer:
    """Move blocks until `limit` bytes are moved, nothing is left to move, or the time is over.

    No block begins after `seconds`, so the end is later by at most one block.

    :param move: moves a number of bytes at an offset, and returns how many were moved when they have arrived
    """
    start = now = clock()
    done, block = 0, _FIRST_BLOCK
    while done < limit and now - start < seconds:
        moved = move(done, min(block, limit - done))
        if moved == 0:
            break
        done += moved
        before, now = now, clock()
        block = next_block(moved, now - before, start + seconds - now)
    return ProbeTransfer(start, now, done)


class ProbeFile:
    """A file, and a buffer for its reads and writes."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self._buffer = mmap.mmap(-1, _BUFFER)  # aligned to a page
        self._buffer.write(os.urandom(_BUFFER))  # a file system cannot compress it

    def write(self, offset: int, size: int) -> int:
        done = 0
        while done < size:
            with memoryview(self._buffer)[: size - done] as view:
                written = os.pwrite(self._file.fileno(), view, offset + done)
            if written < ALIGNMENT:  # The storage is full.
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            done += written // ALIGNMENT * ALIGNMENT
        os.fdatasync(self._file.fileno())
        return done

    def forget(self) -> None:
        """Drop the file from the page cache, so that it is read from the storage."""
        os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def read(self, offset: int, size: int) -> int:
        done = 0
        while done < size:
            with memoryview(self._buffer)[: size - done] as view:
                count = os.preadv(self._file.fileno(), [view], offset + done)
            if count == 0:
                break
            done += count
        return done
