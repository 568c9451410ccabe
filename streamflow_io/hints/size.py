"""Sizes that users write: of a `window`, the most bytes that a reader may be behind; of others, as `diskLimit`."""

from __future__ import annotations

import re

_UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12}
# A reader has up to 2 MB that it has not acknowledged yet.
LEAST = 16 * 10**6
MOST = 10**15
PATTERN = r"^[1-9][0-9]{0,8}(?:MB|GB)$"
ALLOWED = "a whole number of MB or GB, from 16MB, as in `256MB`"
ALLOWED_LIMIT = "a whole number of MB, GB or TB, from 1MB, as in `500GB`"


def parse_size(value: object) -> int:
    """Read a `window`.

    :return: bytes
    :raises ValueError: with one sentence that says what is wrong
    """
    if not isinstance(value, str) or re.fullmatch(PATTERN, value) is None:
        raise ValueError(f"{value!r} is no size")
    size = int(value[:-2]) * _UNITS[value[-2:]]
    if size < LEAST:
        raise ValueError(f"a window of {value} is smaller than what readers have in their pipes")
    if size > MOST:
        raise ValueError(f"a window of {value} is larger than any file")
    return size


def parse_limit(value: object) -> int:
    """Read a size on disk or in memory.

    :return: bytes
    :raises ValueError: with one sentence that says what is wrong
    """
    if not isinstance(value, str) or re.fullmatch(r"[1-9][0-9]{0,8}(?:MB|GB|TB)", value) is None:
        raise ValueError(f"{value!r} is no size")
    return int(value[:-2]) * _UNITS[value[-2:]]


def as_written(size: int) -> str:
    """Return a size as a rule has it; `parse_size(as_written(n)) == n` for whole MB."""
    unit = "GB" if size % _UNITS["GB"] == 0 else "MB"
    return f"{size // _UNITS[unit]}{unit}"
