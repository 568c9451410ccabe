"""Raster files, row by row: PGM (P5) with 8 or 16 bits a pixel, from the first row to the last."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

MOST = 65_535


class InputError(Exception):
    """The input is wrong; the message is for users."""


@dataclass(frozen=True)
class Raster:
    """A file that is read.

    :ivar rows: each as an array of its pixels; can be gone through once
    """

    width: int
    height: int
    rows: Iterator[array[int]]


def read(path: str) -> Raster:
    """Open a file, and read its header.

    :raises InputError: if the file is no PGM; going through the rows raises the same if the file is incomplete
    """
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed when the last row was read
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    words: list[bytes] = []
    while len(words) < 4:
        line = file.readline()
        if not line or (not words and not line.startswith(b"P5")):
            raise InputError(f"{path}: not a binary PGM file (P5)")
        words += line.partition(b"#")[0].split()
    try:
        width, height, most = map(int, words[1:])
    except ValueError:
        raise InputError(f"{path}: width, height and maximum in the header must be whole numbers") from None

    def rows() -> Iterator[array[int]]:
        kind = "H" if most > 255 else "B"
        size = width * array(kind).itemsize
        with file:
            for number in range(height):
                content = file.read(size)
                if len(content) < size:
                    raise InputError(f"{path}: incomplete, {number} of {height} rows")
                row = array(kind, content)
                if sys.byteorder == "little" and kind == "H":
                    row.byteswap()
                yield row

    return Raster(width, height, rows())


def write(width: int, height: int, rows: Iterable[Iterable[int]], most: int = MOST) -> None:
    """Write a file to standard output, a row as soon as it is there."""
    sys.stdout.buffer.write(b"P5\n%d %d\n%d\n" % (width, height, most))
    for row in rows:
        content = array("H" if most > 255 else "B", row)
        if sys.byteorder == "little" and most > 255:
            content.byteswap()
        sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def run(main: Callable[[list[str]], None]) -> None:
    """Call a tool with its arguments; what is wrong with the input is one line, and exit code 1."""
    try:
        main(sys.argv[1:])
    except InputError as error:
        sys.exit(str(error))
