"""Pixels and centre of each water body, the largest first. Arguments: MASK SMALLEST."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from raster import read, run

WATER = re.compile(rb"[^\0]+")


@dataclass
class Body:
    """Sums over the pixels of a water body."""

    pixels: int = 0
    across: int = 0
    down: int = 0
    into: Body | None = None

    def whole(self) -> Body:
        """The body that this one has become a part of."""
        body = self
        while body.into is not None:
            body = body.into
        return body

    def take(self, other: Body) -> None:
        """Make another body a part of this one."""
        self.pixels, self.across, self.down = (
            self.pixels + other.pixels, self.across + other.across, self.down + other.down
        )  # fmt: skip
        other.into = self


def bodies(rows: Iterable[bytes]) -> Iterator[Body]:
    """All water bodies. Only the row above is held, as runs of water."""
    found: list[Body] = []
    above: list[tuple[int, int, Body]] = []
    for number, row in enumerate(rows):
        here = []
        for match in WATER.finditer(row):
            start, end = match.span()
            body = Body(end - start, (start + end - 1) * (end - start) // 2, number * (end - start))
            found.append(body)
            for other_start, other_end, other in above:
                if other_start < end and start < other_end and (whole := other.whole()) is not body:
                    whole.take(body)
                    body = whole
            here.append((start, end, body))
        above = here
    return (body for body in found if body.into is None)


def main(arguments: list[str]) -> None:
    path, smallest = arguments
    large = [body for body in bodies(map(bytes, read(path).rows)) if body.pixels >= int(smallest)]
    print("pixels", "x", "y", sep="\t")
    for body in sorted(large, key=lambda body: (-body.pixels, body.down, body.across)):
        print(body.pixels, f"{body.across / body.pixels:.1f}", f"{body.down / body.pixels:.1f}", sep="\t")


if __name__ == "__main__":
    run(main)
