"""Whether a program has failed for want of something that its node has too little of, as far as it says so."""

from __future__ import annotations

import re

# As the C library, and the runtimes of languages, say it.
_WANT = re.compile(
    r"cannot allocate memory|not enough memory|out ?of ?memory|memory (?:exhausted|error\b)|\bMemoryError\b|bad_alloc"
    r"|no space left on device|disk quota exceeded|too many open files",
    re.IGNORECASE,
)


def is_want(said: str) -> bool:
    """Whether what a program has said when it failed tells of want: of memory, space, or open files.

    Another run may have enough, so that says nothing of the program.
    """
    return _WANT.search(said) is not None
