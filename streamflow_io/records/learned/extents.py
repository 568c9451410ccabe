"""How large a file a proof holds for.

A program can do one thing with a stream up to one of its buffers, and another thing beyond that: `split -n` reads a
pipe into memory, and gives up where that is full. So a proof holds for files that are no larger than the one with which
it was made, and for no more bytes than the program has read then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

#: A proof with so many bytes holds for any file: this is beyond every buffer that decides anything. The largest ones of
#: common programs have 8 MiB (the window of zstd), 16 MiB (that of brotli) and 24 MiB (a block of xz); a pipe of Linux
#: has 1 MiB at most.
ENOUGH = 2**26


class Extent(NamedTuple):
    """How far a proof holds for one file.

    :ivar read: bytes of the stream that the program has read
    :ivar size: bytes of the file
    """

    read: int
    size: int

    @property
    def most(self) -> int | None:
        """So many bytes may be fed as a stream; None: all."""
        return None if self.read >= ENOUGH else self.read

    def holds_for(self, size: int) -> bool:
        """Whether a file of so many bytes may be a stream."""
        return self.size >= ENOUGH or size <= self.size


#: Of the files of an input, in order; of one entry for all of them, where it is not known how many there are.
Extents = tuple[Extent, ...]

#: For any file.
UNBOUNDED: Extents = (Extent(ENOUGH, ENOUGH),)


def extents_of(extents: Extents, files: int) -> Extents:
    """What holds for each of the files of a job.

    Where a job has another number of files than the one that was rehearsed, nobody knows which of them is which: the
    least of all holds.
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
    """What holds after another rehearsal that has proven the same: no less than before."""
    if len(known) != len(found):
        return found
    pairs = zip(known, found, strict=True)
    return tuple(Extent(max(one.read, other.read), max(one.size, other.size)) for one, other in pairs)


def bound_of(extents: Extents) -> int | None:
    """Up to how many bytes of a file a proof holds in any case; None: for any file."""
    return min((each.size for each in extents if each.size < ENOUGH), default=None)
