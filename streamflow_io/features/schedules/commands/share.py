"""Options of `storage share` for runs that follow schedules."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from streamflow_io.commands.storage_sharing import ShareOptions
from streamflow_io.features.schedules.policy import MOST_JOBS, MOST_POINTS, Points
from streamflow_io.hints.bandwidth import HIGHEST
from streamflow_io.hints.errors import HintErrors
from streamflow_io.hints.models import WAYS, Way

from .forecast import CURVE_ALLOWED, read_curve


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
            help=f"with --holds auto: the speed of the storage with several jobs: {CURVE_ALLOWED}",
        )

    def fields(self, path: Path, arguments: argparse.Namespace) -> Mapping[str, object]:
        if arguments.curve is None:
            return {"holds": arguments.holds}
        if arguments.holds != "auto":
            raise HintErrors.one(path, "--curve", "it is for schedules that runs follow", "with --holds auto")
        return {"holds": arguments.holds, "curve": {way: _curve(arguments.curve, way) for way in WAYS}}


def _curve(text: str, way: Way) -> Points:
    points = read_curve(text, way).points
    if len(points) > MOST_POINTS or points[-1][0] > MOST_JOBS or max(rate for _, rate in points) > HIGHEST:
        message = f"it is too large: {len(points)} points, up to {points[-1][0]} jobs"
        allowed = f"{MOST_POINTS} points, up to {MOST_JOBS} jobs and {HIGHEST:g} MB/s"
        raise HintErrors.one(text, "--curve", message, allowed)
    return points
