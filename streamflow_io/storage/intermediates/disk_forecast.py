"""Forecasts the disk space of a run from the last runs of its workflow, and says before a run that it will not fit."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct
from streamflow.core.deployment import LocalTarget
from streamflow.log_handler import logger

from streamflow_io.messages import Code, coded
from streamflow_io.records.reader import last_disk_records
from streamflow_io.records.records import DiskRecord
from streamflow_io.wording import size_text

# The number of runs whose forecasts tell how wrong the next one may be.
_RUNS = 5


class DiskForecast(Struct, frozen=True):
    """The disk space that a run will need on a location.

    :ivar peak: the most bytes at a time, as in the last run
    :ivar written: bytes that jobs will write, as in the last run
    :ivar peak_error: the median error of earlier forecasts of the peak, as a part of the peak;
        none: no earlier run was foretold
    :ivar written_error: that of the bytes written
    """

    peak: int
    written: int
    peak_error: float | None = None
    written_error: float | None = None


def disk_forecasts(workflow: str) -> dict[str, DiskForecast]:
    """Forecast the disk space of a run, by location. Without an earlier run, there is no forecast.

    :param workflow: the CWL file, as records have it
    """
    with contextlib.suppress(OSError):
        return forecasts([*islice(last_disk_records(workflow), _RUNS)])
    return {}


def forecasts(runs: list[list[DiskRecord]]) -> dict[str, DiskForecast]:
    """Forecast from the records of runs, the last run first."""
    found = dict[str, DiskForecast]()
    for last in runs[0] if runs else ():
        told = [record for run in runs for record in run if record.location == last.location]
        found[last.location] = DiskForecast(
            last.peak,
            last.written,
            _error((record.expected_peak, record.peak) for record in told),
            _error((record.expected_written, record.written) for record in told),
        )
    return found


def _error(pairs: Iterable[tuple[int | None, int]]) -> float | None:
    errors = [abs(expected - came) / max(came, 1) for expected, came in pairs if expected is not None]
    return median(errors) if errors else None


def warn_of_little_space(foretold: Mapping[str, DiskForecast], config: Mapping[str, Any]) -> None:
    """Warn if a run needs more space than is free. Raises nothing.

    Only runs on the driver's node are judged: where other locations keep their files is not known before the run.

    :param foretold: by location
    :param config: the StreamFlow file
    """
    deployments = config.get("deployments", {}).values()
    if any(each["type"] != "local" or each.get("workdir") for each in deployments):
        return
    try:
        place = _existing(Path(LocalTarget().workdir))
    except (OSError, ValueError):
        return
    peak = max((each.peak for each in foretold.values()), default=0)
    if (text := too_little(peak, free_bytes(place), str(place))) is not None:
        logger.warning(coded(text, Code.LITTLE_SPACE))


def free_bytes(directory: str | Path) -> float:
    """The bytes that are free on the disk of a directory; infinite: that is not known."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return math.inf
    return found.f_bavail * found.f_frsize


def too_little(peak: int, free: float, place: str) -> str | None:
    """Say that bytes may not fit. None: nothing is said, because there is room.

    :param peak: bytes that the directories of jobs held at most
    """
    if peak <= free:
        return None
    return (
        f"The directories of jobs held at most {size_text(peak)} in the last run of this workflow, and "
        f"{size_text(int(free))} are free at {place}: this run may not fit"
    )


def _existing(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if each.exists())
