"""One writer of a measurement: a script, run in a process of its own by `measuring`.

    python -I -S writer.py FILE_DESCRIPTOR BYTES SECONDS PARENT

Prints `ready`, then, for each line `write` or `read` on its standard input, does it and prints
`START END BYTES`, with times of the monotonic clock, which all processes share; or `error ERRNO`.
Ends with its standard input, and with its parent, however that ends.
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

# Direct I/O wants offsets, sizes and buffers that are multiples of the device's block; none is larger than this.
ALIGNMENT = 64 * 1024
BUFFER = 8 * 1024 * 1024
# A block is written and synced, and cannot be interrupted: on a slow storage, blocks get small enough to take no longer
# than this. Without the sync, what is in memory would be written after the deadline; also with direct I/O, because some
# file systems accept it and use memory nevertheless.
BLOCK_SECONDS = 0.5
FIRST_BLOCK = ALIGNMENT
GROWTH = 4
LARGEST_BLOCK = 64 * 1024 * 1024

Move = Callable[[int, int], int]


def next_block(size: int, seconds: float, remaining: float) -> int:
    """Bytes of the next block, after one of `size` bytes took `seconds`: what can be done in BLOCK_SECONDS and in the
    remaining time at that rate, but not more than GROWTH times as many. A multiple of ALIGNMENT, and not 0."""
    quick = size / max(seconds, 1e-9) * max(0.0, min(BLOCK_SECONDS, remaining))
    block = int(min(GROWTH * size, quick, LARGEST_BLOCK))
    return max(ALIGNMENT, block // ALIGNMENT * ALIGNMENT)


def transfer(move: Move, limit: int, seconds: float, clock: Callable[[], float]) -> tuple[float, float, int]:
    """Move blocks until `limit` bytes are moved, nothing is left to move, or the time is over.

    :param move: moves so many bytes at an offset, and returns how many were moved when they have arrived
    :return: start, end, bytes. No block is begun after `seconds`: the end is later by one block at most
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


class File:
    """The file of this writer, and a buffer for what is written to it and read from it."""

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
    """Let the kernel kill this process when its parent ends, also while it writes."""
    death_signal = 1  # PR_SET_PDEATHSIG of linux/prctl.h
    ctypes.CDLL(None, use_errno=True).prctl(death_signal, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # It ended before that.
        sys.exit(1)


def main(descriptor: int, limit: int, seconds: float, parent: int) -> None:
    end_with_parent(parent)
    file = File(descriptor)
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
