"""Facts of the system about all processes."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

_PIECE = 1 << 17


def of_processes(*files: str) -> Iterator[tuple[int, list[bytes]]]:
    """Read files in `/proc`, of each process that is there. A file that we may not read has no content.

    Many tests ask for it at their end, when many processes run for other tests: no more is done than must be.
    """
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            yield int(name), [_readable(f"/proc/{name}/{file}") for file in files]


def find_processes(file: str, pattern: re.Pattern[bytes]) -> list[int]:
    """List the processes with a file whose content matches a regular expression."""
    return [pid for pid, (content,) in of_processes(file) if pattern.search(content)]


def is_dead(pid: int) -> bool:
    """Whether a process has ended, though it may not have been waited for."""
    try:
        return _content(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return True


def _readable(path: str) -> bytes:
    try:
        return _content(path)
    except PermissionError:
        return b""


def _content(path: str) -> bytes:
    # A file object would ask the system for more than the bytes.
    file = os.open(path, os.O_RDONLY)
    try:
        content = b""
        while more := os.read(file, _PIECE):
            content += more
        return content
    finally:
        os.close(file)
