"""One writer of a measurement: a script that `measuring` runs in a process of its own.

    python -I -S writer.py FILE_DESCRIPTOR BYTES SECONDS PARENT

Prints `ready`. Then, for each line `write` or `read` on its standard input, does so and prints `START END BYTES`, or
`error ERRNO`. The times are of the monotonic clock, which all processes share. Ends when its standard input or its
parent ends, even if the parent is killed.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable

# Direct I/O needs offsets, sizes and buffers that are multiples of the device's block. No block is larger than this.
ALIGNMENT = 64 * 1024
BUFFER = 8 * 1024 * 1024
# A block is written and synced, and cannot be interrupted. On a slow storage, blocks get small enough to take no longer
# than this. Without the sync, bytes in memory would be written after the deadline. Direct I/O needs the sync, too: some
# file systems accept direct I/O and use memory nevertheless.
BLOCK_SECONDS = 0.5
FIRST_BLOCK = ALIGNMENT
GROWTH = 4
LARGEST_BLOCK = 64 * 1024 * 1024

Move = Callable[[int, int], int]


def next_block(size: int, seconds: float, remaining: float) -> int:
    """Return the bytes of the next block, after a block of `size` bytes took `seconds`.

    As many as fit in BLOCK_SECONDS and in the remaining time at that rate, but at most GROWTH times `size`. A multiple
    of ALIGNMENT, and not 0.
    """
    quick = size / max(seconds, 1e-9) * max(0.0, min(BLOCK_SECONDS, remaining))
    block = int(min(GROWTH * size, quick, LARGEST_BLOCK))
    return max(ALIGNMENT, block // ALIGNMENT * ALIGNMENT)


def transfer(move: Move, limit: int, seconds: float, clock: Callable[[], float]) -> tuple[float, float, int]:
    """Move blocks until `limit` bytes are moved, nothing is left to move, or the time is over.

    :param move: moves a number of bytes at an offset, and returns how many were moved when they have arrived
    :return: start, end, bytes. No block begins after `seconds`, so the end is later by at most one block
    """
    start = now = clock()
    done, block = 0, FIRST_BLOCK
    while done < limit and now - start < seconds:
        moved = move(done, min(block, limit - done))
        if moved == 0:
            break
        done += moved
        before, now = now, clock()
        block = next_block(moved, now - before, start + seconds - now)
    return start, now, done


class ProbeFile:
    """The file of this writer, and a buffer for its reads and writes."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.buffer = mmap.mmap(-1, BUFFER)  # aligned to a page
        self.buffer.write(os.urandom(BUFFER))  # a file system cannot compress it

    def write(self, offset: int, size: int) -> int:
        done = 0
        while done < size:
            with memoryview(self.buffer)[: size - done] as view:
                written = os.pwrite(self.descriptor, view, offset + done)
            if written < ALIGNMENT:  # The storage is full.
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            done += written // ALIGNMENT * ALIGNMENT
        os.fdatasync(self.descriptor)
        return done

    def forget(self) -> None:
        """Drop the file from the page cache, so that it is read from the storage."""
        os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def read(self, offset: int, size: int) -> int:
        done = 0
        while done < size:
            with memoryview(self.buffer)[: size - done] as view:
                count = os.preadv(self.descriptor, [view], offset + done)
            if count == 0:
                break
            done += count
        return done


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, even during a write."""
    death_signal = 1  # PR_SET_PDEATHSIG of linux/prctl.h
    ctypes.CDLL(None, use_errno=True).prctl(death_signal, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before the call
        sys.exit(1)


def main(descriptor: int, limit: int, seconds: float, parent: int) -> None:
    end_with_parent(parent)
    file = ProbeFile(descriptor)
    print("ready", flush=True)
    written = 0
    for line in sys.stdin:
        try:
            if line.strip() == "write":
                done = transfer(file.write, limit, seconds, time.monotonic)
                written = done[2]
            else:
                file.forget()
                done = transfer(file.read, written, seconds, time.monotonic)
        except OSError as error:
            print("error", error.errno, flush=True)
        else:
            print(*done, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
