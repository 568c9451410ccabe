"""The area of interest of a band. Arguments: FILE LEFT TOP WIDTH HEIGHT."""

from __future__ import annotations

from itertools import islice

from raster import InputError, read, run, write


def main(arguments: list[str]) -> None:
    path, *numbers = arguments
    left, top, width, height = map(int, numbers)
    band = read(path)
    if min(left, top) < 0 or min(width, height) < 1 or left + width > band.width or top + height > band.height:
        raise InputError(f"{path}: the area must be within {band.width} x {band.height} pixels")
    write(width, height, (row[left : left + width] for row in islice(band.rows, top, top + height)))
    for _ in band.rows:  # a writer that is not read to its end would fail
        pass


if __name__ == "__main__":
    run(main)
