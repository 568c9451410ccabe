"""What the first bytes of a file prove, of how a program reads a stream, before all of it is tried. Pure.

A job runs twice with an *excerpt*, which has the first bytes of a file, at the same paths: with the excerpt as a file,
and with it as a stream under the net. What it learns of the file is what it would learn of the whole one: `fstat` says
what it says of that, and who asks for more than bytes in another way is noticed. So up to the end of the excerpt both
runs are, step by step, those with the whole file, and of what comes after it the net sees all that it sees in a real
stream.

Who waits for the whole file gets the excerpt as a plain pipe. What is proven so is a pipe to the end of the excerpt
only: in a real stream the net sees what the program does after that, and a call that a pipe cannot serve waits for the
file.

An excerpt proves, and never refuses: where anything is odd, all of the file decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamflow_io.records.learned import extents

from .rehearsal_rules import Finding, Manner, Ran, is_dear, waits_for_more

# That a program has to start under the net, which does not grow with its file.
_SECONDS_TO_START = 0.1


def excerpts_of(sizes: Sequence[int]) -> tuple[int, ...] | None:
    """How many bytes of each file are tried first; None: all of them are tried at once.

    With fewer bytes nothing is proven of a larger file, so only files that are much larger have excerpts.

    :param sizes: of the files of an input, in bytes
    """
    # An excerpt ends where a line ends.
    most = extents.ENOUGH + extents.ENOUGH // 64
    excerpts = tuple(min(size, most) for size in sizes)
    return excerpts if 0 < 2 * sum(excerpts) <= sum(sizes) else None


def next_with_excerpt(
    so_far: Sequence[tuple[Manner, Ran]], bytes_: int, sizes: Sequence[int]
) -> Manner | Finding | None:
    """How a job is to be run next with an excerpt, or what it has proven; None: nothing, all of the file decides.

    :param so_far: how it has gone, in order: with the excerpt as a file, and as a stream. Of the second run
        `difference` says what is not as in the first one, which is compared with the whole file afterwards
    :param bytes_: of the excerpt; of all files, if there are several
    :param sizes: of the files of which it is an excerpt
    """
    if not so_far:
        return "file"
    manner, ran = so_far[-1]
    if ran.asked:
        return None
    if manner == "net" and len(sizes) == 1 and waits_for_more(ran, bytes_):
        return "pipe"
    if not ran.is_equal:
        return None
    if manner == "file":
        return "net"
    has_read_all = ran.fed == bytes_ and ran.held_at in (None, bytes_)
    is_enough = all(read >= min(size, extents.ENOUGH) for read, size in zip(ran.read, sizes, strict=True))
    if not (has_read_all and is_enough) or _would_be_dear(ran.cpu, so_far[0][1].cpu, sum(sizes) / bytes_):
        return None
    return Finding("pipe" if manner == "pipe" else "net", excerpt=bytes_, read=ran.read)


def _would_be_dear(cpu: float, plain: float, times: float) -> bool:
    """Whether it might be :func:`is_dear` with so many times as many bytes."""
    return is_dear(max(0.0, cpu - _SECONDS_TO_START) * times, plain * times)
