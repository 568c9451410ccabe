"""`streamflow-io schedule forecast`: what runs that use one storage cost each other."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, to_builtins
from rich.console import Console

from streamflow_io.commands.console import say, table
from streamflow_io.features.schedules.burst_profile import SeenRate
from streamflow_io.features.schedules.curve import StorageCurve
from streamflow_io.features.schedules.jobs import WAYS, Forecast, PeriodicRun, Way, forecast
from streamflow_io.hints.errors import HintErrors
from streamflow_io.wording import counted

from .runs import ProfiledRuns, add_run_arguments, periodic_run, profiled_runs, seen_curve

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


_RUNS = ("run", "bursts", "alone (s)", "together (s)", "dilation")
_SCENARIOS = ("without", "last end (s)", "slowest", "mean", "MB/s")


class ForecastResult(Struct, frozen=True):
    """:ivar measured: whether the storage was measured: else it is as fast as its bandwidth, with any number of jobs
    :ivar curve: of the storage, before what was seen in the runs has corrected it
    """

    found: ProfiledRuns
    runs: Sequence[PeriodicRun]
    forecast: Forecast
    way: Way
    measured: bool
    curve: StorageCurve
    ok = True

    def to_json(self) -> dict[str, Any]:
        found = self.forecast
        return {
            "storage": self.found.storage,
            "direction": self.found.direction,
            "bandwidth": self.found.bandwidth,
            "way": self.way,
            "curve": self.measured,
            "seen": [
                {"run": name, "jobs": seen.jobs, "rate": seen.rate, "curve": self.curve.total(seen.jobs), "used": used}
                for name, seen, used in self._seen()
            ],
            "runs": [{**to_builtins(one), "alone": own} for one, own in zip(self.runs, found.alone, strict=True)],
            "scenarios": [{**to_builtins(one), "slowest": one.slowest} for one in found.scenarios],
            "later": None if found.later is None else to_builtins(found.later),
        }

    def show(self, console: Console) -> None:
        title = f"If all start now on {self.found.storage}, {self.found.bandwidth:,.4g} MB/s:"
        say(console, title)
        console.print(table(None, _RUNS, self._runs(), numbers=_RUNS[1:], unfolded=_RUNS[1:]))
        say(console, "All of them, and each one fewer; dilation of the slowest, and in the mean:")
        console.print(table(None, _SCENARIOS, self._scenarios(), numbers=_SCENARIOS[1:], unfolded=_SCENARIOS[1:]))
        if (later := self.forecast.later) is not None:
            ends = f"it ends after {later.end:,.0f} s instead of {later.end_now:,.0f}, and no run later"
            slowest = f"dilation of the slowest {later.slowest:.2f} instead of {later.slowest_now:.2f}"
            say(console, f"Better for all: start {self.runs[-1].name} {later.delay:,.0f} s later: {ends}; {slowest}")
        elif len(self.runs) > 1:
            say(console, f"To start {self.runs[-1].name} later is not better for all")
        for name, seen, used in self._seen():
            what = f"{seen.rate:,.3g} MB/s with {counted(seen.jobs, 'job')} of {name} at once"
            instead = f"instead of {self.curve.total(seen.jobs):,.3g}"
            say(
                console,
                f"The storage is taken to be as it was seen: {what}, {instead}"
                if used
                else f"Not used, because it is too far off: {what}, {instead}",
            )
        if not self.measured:
            say(
                console,
                "Warning: without --curve the storage is taken to be as fast with many jobs as with few",
                "yellow",
            )

    def _seen(self) -> Iterator[tuple[str, SeenRate, bool]]:
        """How fast the storage was in which run, and whether that has corrected its curve."""
        known = set()
        for one in self.found.runs:
            for seen in one.profile.seen:
                if seen not in known:  # a run may be there twice
                    yield one.name, seen, self.curve.explains(seen)
                known.add(seen)

    def _runs(self) -> Iterator[list[str]]:
        together = self.forecast.scenarios[0]
        for one, own, dilation in zip(self.runs, self.forecast.alone, together.dilations, strict=True):
            yield [one.name, f"{one.bursts:,}", f"{own:,.1f}", f"{own * dilation:,.1f}", f"{dilation:.2f}"]

    def _scenarios(self) -> Iterator[list[str]]:
        for one in self.forecast.scenarios:
            mean = sum(one.dilations) / len(one.dilations)
            name = "nobody" if one.without is None else one.without
            yield [name, f"{one.makespan:,.1f}", f"{one.slowest:.2f}", f"{mean:.2f}", f"{one.rate:,.4g}"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_arguments(parser)
    parser.add_argument("--curve", metavar="CURVE", help=f"the speed of the storage with several jobs: {CURVE_ALLOWED}")
    parser.add_argument(
        "--way",
        choices=WAYS,
        default="due",
        metavar="WAY",
        help="how the runs share the storage: with one ledger (due, default; for comparison turns), or with a ledger "
        "for each (own)",
    )


def run(arguments: argparse.Namespace) -> ForecastResult:
    """:raises HintErrors: if a run is not periodic, or the curve has mistakes"""
    found = profiled_runs(arguments)
    # Of both directions it is the writing that slows down others most.
    direction: Literal["read", "write"] = "read" if found.direction == "read" else "write"
    measured = None if arguments.curve is None else read_curve(arguments.curve, direction)
    curve = measured or StorageCurve.unmeasured(found.bandwidth, max(one.profile.storage_bw for one in found.runs))
    runs = [periodic_run(one) for one in found.runs]
    foretold = forecast(runs, found.bandwidth, seen_curve(found.runs, curve), arguments.way)
    return ForecastResult(found, runs, foretold, arguments.way, measured is not None, curve)
