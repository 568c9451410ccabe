"""A mask of the pixels above the threshold that separates two groups best (Otsu 1979). Argument: FILE."""

from __future__ import annotations

from collections.abc import Sequence

from raster import read, run, write

LEVELS = 256


def threshold(counts: Sequence[int]) -> int:
    """The last level of the lower group: the variance between both groups is the greatest, first of equals."""
    pixels, total = sum(counts), sum(level * count for level, count in enumerate(counts))
    best, found = -1.0, 0
    lower = lower_total = 0
    for level, count in enumerate(counts):
        lower, lower_total = lower + count, lower_total + level * count
        upper = pixels - lower
        if lower and upper:
            variance = lower * upper * (lower_total / lower - (total - lower_total) / upper) ** 2
            if variance > best:
                best, found = variance, level
    return found


def main(arguments: list[str]) -> None:
    (path,) = arguments
    index = read(path)
    counts = [0] * LEVELS
    rows: list[bytes] = []
    for row in index.rows:
        levels = bytes(pixel >> 8 for pixel in row)
        for level in levels:
            counts[level] += 1
        rows.append(levels)
    cut = threshold(counts)
    mask = bytes(255 if level > cut else 0 for level in range(LEVELS))
    write(index.width, index.height, (levels.translate(mask) for levels in rows), most=255)


if __name__ == "__main__":
    run(main)
