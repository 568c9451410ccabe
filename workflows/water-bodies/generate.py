#!/usr/bin/env python3
"""Input of any size for this workflow: two bands of a landscape with lakes, and the job file.

    python3 generate.py [NAME] [--size 4800] [--lakes 40] [--seed 1]    writes generated/NAME

The same arguments give the same bytes. Values are like those of Sentinel-2: reflectance times 10,000.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: Mean reflectance of land and of water, by band.
MEANS = {"green": (900, 650), "nir": (2600, 250)}
NOISE = 250
#: Prepared noise; each row begins at a place of its own.
NOISES = 2**16


def lakes(size: int, count: int, source: random.Random) -> list[tuple[int, int, int]]:
    """Centre and radius of each."""
    return [
        (source.randrange(size), source.randrange(size), source.randint(size // 100 + 2, size // 16 + 3))
        for _ in range(count)
    ]


def water(size: int, row: int, found: list[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Where the lakes are in a row: from a column, up to another."""
    for across, down, radius in found:
        left = radius**2 - (row - down) ** 2
        if left > 0:
            half = int(left**0.5)
            yield max(0, across - half), min(size, across + half + 1)


def write_band(path: Path, size: int, found: list[tuple[int, int, int]], means: tuple[int, int], seed: str) -> None:
    source = random.Random(seed)
    land, wet = ([max(1, int(source.gauss(mean, NOISE))) for _ in range(NOISES)] for mean in means)
    with path.open("wb") as file:
        file.write(b"P5\n%d %d\n65535\n" % (size, size))
        for number in range(size):
            start = source.randrange(NOISES - size)
            row = array("H", land[start : start + size])
            for left, right in water(size, number, found):
                row[left:right] = array("H", wet[start + left : start + right])
            if sys.byteorder == "little":
                row.byteswap()
            file.write(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", default="demo", help="written into generated/NAME")
    parser.add_argument("--size", type=int, default=4800, help="pixels of a side, 20 to 60000 (4800)")
    parser.add_argument("--lakes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not re.fullmatch(r"[\w-]+", options.name):
        parser.error(f"{options.name!r}: a name has letters, digits, - and _ only")
    if not 20 <= options.size <= 60_000 or options.lakes < 0:
        parser.error("--size must be 20 to 60000, and --lakes 0 or more")
    directory = HERE / "generated" / options.name
    marker = f"# generated with size={options.size} lakes={options.lakes} seed={options.seed}\n"
    job = directory / "job.yml"
    if job.exists() and job.read_text().startswith(marker):
        return
    directory.mkdir(parents=True, exist_ok=True)
    found = lakes(options.size, options.lakes, random.Random(options.seed))
    for name, means in MEANS.items():
        write_band(directory / f"{name}.pgm", options.size, found, means, f"{options.seed}:{name}")
    margin = options.size // 20
    side = options.size - 2 * margin
    # Last, so that an input that is there is complete.
    job.write_text(
        f"{marker}bands:\n  - {{class: File, location: green.pgm}}\n  - {{class: File, location: nir.pgm}}\n"
        f"area: [{margin}, {margin}, {side}, {side}]\n"
    )


if __name__ == "__main__":
    main()
