"""The sizes of files for which a proof holds.

A program can treat a stream in one way up to the size of one of its buffers, and in another way beyond that. For
instance, `split -n` reads a pipe into memory, and fails where the buffer is full. So a proof holds only for files up to
the size of the tried file. A proof also holds only for as many bytes of a stream as the program has read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

#: A proof with this many bytes holds for any file, because it is beyond every buffer that decides anything. The largest
#: buffers of common programs have 8 MiB (the window of zstd), 16 MiB (brotli) and 24 MiB (a block of xz). A pipe of
#: Linux has 1 MiB at most.
ENOUGH = 2**26


class Extent(NamedTuple):
    """The part of one file for which a proof holds.

    :ivar read: bytes of the stream that the program has read
    :ivar size: bytes of the file
    """

    read: int
    size: int

    @property
    def most(self) -> int | None:
        """The most bytes that may be fed as a stream. None: no limit."""
        return None if self.read >= ENOUGH else self.read

    def holds_for(self, size: int) -> bool:
        """Whether a file of `size` bytes may be a stream."""
        return self.size >= ENOUGH or size <= self.size


#: The extents of the files of an input, in order. One entry stands for all files if their number is unknown.
Extents = tuple[Extent, ...]

#: The extents of a proof that holds for any file.
UNBOUNDED: Extents = (Extent(ENOUGH, ENOUGH),)


def extents_of(extents: Extents, files: int) -> Extents:
    """Return the extent of each file of a job.

    A job may have another number of files than the rehearsed job. Then it is unknown which file is which, and the least
    extent holds for all.
    """
    if len(extents) == files or not extents:
        return extents
    least = Extent(min(each.read for each in extents), min(each.size for each in extents))
    return (least,) * files


def hold_for(extents: Extents, sizes: Sequence[int]) -> bool:
    """Whether a proof holds for files of these sizes."""
    if not extents:
        return not sizes
    return all(each.holds_for(size) for each, size in zip(extents_of(extents, len(sizes)), sizes, strict=True))


def raised(known: Extents, found: Extents) -> Extents:
    """Return the extents after another rehearsal with the same outcome: no less than before."""
    if len(known) != len(found):
        return found
    pairs = zip(known, found, strict=True)
    return tuple(Extent(max(one.read, other.read), max(one.size, other.size)) for one, other in pairs)


def bound_of(extents: Extents) -> int | None:
    """Return the largest size in bytes up to which a proof holds for every file. None: for any size."""
    return min((each.size for each in extents if each.size < ENOUGH), default=None)
