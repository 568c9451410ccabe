"""The mean of the nine pixels around each pixel. At the edge the nearest pixels are repeated. Argument: FILE."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from raster import read, run, write


def smoothed(rows: Iterable[array[int]]) -> Iterator[list[int]]:
    """Three rows are held at a time."""
    above: array[int] | None = None
    here: array[int] | None = None
    for below in rows:
        if here is not None:
            yield means(here if above is None else above, here, below)
        above, here = here, below
    if here is not None:
        yield means(here if above is None else above, here, here)


def means(above: array[int], here: array[int], below: array[int]) -> list[int]:
    """Return one row."""
    columns = list(map(sum, zip(above, here, below, strict=True)))
    padded = [columns[0], *columns, columns[-1]]
    return [total // 9 for total in map(sum, zip(padded, columns, padded[2:], strict=False))]


def main(arguments: list[str]) -> None:
    (path,) = arguments
    index = read(path)
    write(index.width, index.height, smoothed(index.rows))


if __name__ == "__main__":
    run(main)
