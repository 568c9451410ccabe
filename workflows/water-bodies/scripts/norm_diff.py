"""The normalized difference of two bands, from -1 (as 0) to 1 (as 65535). Arguments: GREEN NEAR-INFRARED."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from raster import MOST, InputError, read, run, write


def difference(green: Iterable[int], infrared: Iterable[int]) -> Iterator[int]:
    """Yield the values of a row. Where both bands are dark, nothing is known: 0 becomes the middle."""
    for one, other in zip(green, infrared, strict=True):
        total = one + other
        yield MOST * one // total if total else MOST // 2


def main(arguments: list[str]) -> None:
    if len(arguments) != 2:
        raise InputError(f"two bands are needed, green and near infrared, not {len(arguments)}")
    green, infrared = map(read, arguments)
    if (green.width, green.height) != (infrared.width, infrared.height):
        raise InputError(f"{arguments[0]} and {arguments[1]} must have the same size")
    write(green.width, green.height, map(difference, green.rows, infrared.rows))


if __name__ == "__main__":
    run(main)
