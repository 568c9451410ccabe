"""Recognises failures caused by a full disk, no memory or too many open files."""

from __future__ import annotations

import re

# The words of the C library, and of the runtimes of languages.
_WANT = re.compile(
    r"cannot allocate memory|not enough memory|out ?of ?memory|memory (?:exhausted|error\b)|\bMemoryError\b|bad_alloc"
    r"|no space left on device|disk quota exceeded|too many open files",
    re.IGNORECASE,
)


def is_want(said: str) -> bool:
    """Whether the message of a failed program tells of a lack of memory, space or open files.

    Another run may have enough, so such a failure proves nothing about the program.
    """
    return _WANT.search(said) is not None
