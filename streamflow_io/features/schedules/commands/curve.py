"""`--curve`: how fast a storage is, by the number of jobs, from the command line or from `storage probe --json`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from streamflow_io.features.schedules.curve import StorageCurve
from streamflow_io.hints.errors import HintErrors

CURVE_ALLOWED = (
    "JOBS:MB/s,... as in 1:110,4:400,16:250, or a file that `streamflow-io storage probe --json` has written"
)


def read_curve(text: str, direction: Literal["read", "write"]) -> StorageCurve:
    """Read a curve.

    :param text: points, or the path of a file
    :raises HintErrors: if it is neither; says what is wrong
    """
    path = Path(text)
    try:
        points = list(_probed(path, direction)) if path.is_file() else list(_points(text))
        return StorageCurve.of(points)
    except ValueError as error:
        raise HintErrors.one(text, "--curve", str(error), CURVE_ALLOWED) from None


def _points(text: str) -> Iterator[tuple[int, float]]:
    """:raises ValueError: if it has another form"""
    for point in text.split(","):
        count, colon, rate = point.strip().partition(":")
        try:
            yield int(count), float(rate)
        except ValueError:
            what = "is no point" if colon else "is no file, and no point"
            raise ValueError(f"{point.strip()!r} {what}") from None


def _probed(path: Path, direction: str) -> Iterator[tuple[int, float]]:
    """:raises ValueError: if the file is not what `storage probe` writes"""
    try:
        levels = json.loads(path.read_bytes())["levels"]
        for level in levels:
            count, rate = level["writers"], level[direction]["bandwidth"]
            yield int(count), float(rate) if math.isfinite(rate) else math.nan
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError("this is no result of `storage probe --json`") from None
