"""Options of `storage share` for runs that follow schedules."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from streamflow_io.commands.storage import ShareOptions
from streamflow_io.features.schedules.jobs import StorageCurve
from streamflow_io.features.schedules.policy import MOST_JOBS, MOST_POINTS, Points
from streamflow_io.hints.bandwidth import HIGHEST
from streamflow_io.hints.errors import HintErrors
from streamflow_io.hints.models import WAYS, Way
from streamflow_io.wording import counted

_CURVE_ALLOWED = (
    "JOBS:MB/s,... as in 1:110,4:400,16:250, or a file that `streamflow-io storage probe --json` has written"
)


class ScheduleOptions(ShareOptions):
    """`--holds` and `--curve`."""

    directories = ("plans",)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--holds",
            choices=("off", "auto"),
            default="off",
            help="auto: runs with periodic bursts follow a schedule if the schedule is faster (default: off)",
        )
        parser.add_argument(
            "--curve",
            metavar="CURVE",
            help=f"with --holds auto: the speed of the storage with several jobs: {_CURVE_ALLOWED}",
        )

    def fields(self, path: Path, arguments: argparse.Namespace) -> Mapping[str, object]:
        if arguments.curve is None:
            return {"holds": arguments.holds}
        if arguments.holds != "auto":
            raise HintErrors.one(path, "--curve", "it is for schedules that runs follow", "with --holds auto")
        return {"holds": arguments.holds, "curve": {way: _curve(arguments.curve, way) for way in WAYS}}


def _curve(text: str, way: Way) -> Points:
    points = _read_curve(text, way).points
    if len(points) > MOST_POINTS or points[-1][0] > MOST_JOBS or max(rate for _, rate in points) > HIGHEST:
        message = f"it is too large: {counted(len(points), 'point')}, up to {counted(points[-1][0], 'job')}"
        allowed = f"{MOST_POINTS} points, up to {MOST_JOBS} jobs and {HIGHEST:g} MB/s"
        raise HintErrors.one(text, "--curve", message, allowed)
    return points


def _read_curve(text: str, direction: Way) -> StorageCurve:
    """Read a curve.

    :param text: points, or the path of a file
    :raises HintErrors: if it is neither; says what is wrong
    """
    path = Path(text)
    try:
        points = list(_probed(path, direction)) if path.is_file() else list(_points(text))
        return StorageCurve.of(points)
    except ValueError as error:
        raise HintErrors.one(text, "--curve", str(error), _CURVE_ALLOWED) from None


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
