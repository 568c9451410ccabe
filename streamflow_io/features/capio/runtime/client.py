"""A program that runs with CAPIO's library loaded, because no other process sees the files.

It uses system calls, and nothing of Python that might look at files by itself. Every wait has an end: :data:`PATIENCE`.
It runs as the application that writes the files: any other would be made to wait for what does not exist.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence

# Seconds without progress after which this program ends itself: what CAPIO does not answer has no other end.
PATIENCE = 20
_INTERVAL = 0.01
_CHUNK = 1 << 18


def make(directory: str) -> None:
    """Make a directory: CAPIO knows only those that were made with its library."""
    os.mkdir(directory)


def wait(path: str) -> None:
    """Wait until a file has bytes: before that, CAPIO gives a reader an end of file."""
    signal.alarm(0)
    while not _size(path):
        time.sleep(_INTERVAL)


def collect(closes: int, pairs: Sequence[str]) -> None:
    """Commit files, and copy them into the file system.

    :param closes: after how many closes a file is committed
    :param pairs: of each file its path, and that of its copy; one that does not exist is left out
    """
    for source, target in zip(pairs[::2], pairs[1::2], strict=True):
        # Opening would wait for it for ever.
        if _size(source) is not None:
            for _ in range(closes):
                signal.alarm(PATIENCE)
                os.close(os.open(source, os.O_RDONLY))
            signal.alarm(PATIENCE)
            _copy(source, target)


def feed(path: str) -> None:
    """Write what a file holds to the standard output, for a program that may wait, or end before the file does."""
    signal.alarm(0)
    source = os.open(path, os.O_RDONLY)
    try:
        while data := os.read(source, _CHUNK):
            while data:
                data = data[os.write(1, data) :]
    except BrokenPipeError:
        pass
    os.close(source)


def _size(path: str) -> int | None:
    """The size of a file. None: the file does not exist; `access` would say that it does."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None


def _copy(source: str, target: str) -> None:
    read = os.open(source, os.O_RDONLY)
    written = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    while data := os.read(read, _CHUNK):
        signal.alarm(PATIENCE)
        while data:
            data = data[os.write(written, data) :]
    os.close(read)
    os.close(written)


def main(arguments: Sequence[str]) -> None:
    """:param arguments: what to do, and its arguments"""
    signal.alarm(PATIENCE)
    match arguments:
        case ["make", directory]:
            make(directory)
        case ["wait", path]:
            wait(path)
        case ["collect", closes, *pairs]:
            collect(int(closes), pairs)
        case ["feed", path]:
            feed(path)
        case _:
            sys.exit(f"bad arguments: {arguments}")


if __name__ == "__main__":
    main(sys.argv[1:])
