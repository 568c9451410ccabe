"""Whether the forecast of runs that share a disk is what happens: from profiles of each of them alone.

The runs are those of `shared-bursts`, with four large bursts instead of three: fewer are no profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.model import Comparison
from benchmarks.processes import CommandError
from benchmarks.shared_runs import CURVE, OWN, SHARED, SMALL, STORAGE_MB, TURNS, Bursts, Several, Way, several_bursts
from benchmarks.workload import Outcome, Variant, Workload
from streamflow_io.features.schedules import jobs
from streamflow_io.features.schedules.commands.runs import ProfiledRun, periodic_run, seen_curve
from streamflow_io.features.schedules.curve import StorageCurve
from streamflow_io.features.schedules.profile import NotPeriodic, profiles
from streamflow_io.records.history import read_history
from streamflow_io.records.reader import read_records
from streamflow_io.records.runs import TELEMETRY_FILE

GOAL = 0.10
LARGE = Bursts(4, 8.0, 16)
KINDS = {"small0": SMALL, "small1": SMALL, "large0": LARGE, "large1": LARGE}
_ALONE = {"small": "small0", "large": "large0"}
_WAYS: Mapping[jobs.Way, Way] = {"own": OWN, "turns": TURNS, "due": SHARED}
# The bandwidth of the disk for this number of writers is known here, and not measured.
_DISK = StorageCurve.of((count, CURVE.total(count) / 1e6) for count in range(1, 65))


def _prepare(directory: Path) -> Sequence[Variant]:
    several = several_bursts(directory, KINDS, CURVE, "forecast")
    found: dict[str, ProfiledRun] = {}
    seconds: dict[str, float] = {}
    return (
        *(_alone(several, kind, name, found, seconds) for kind, name in _ALONE.items()),
        *(_together(several, name, way, found, seconds) for name, way in _WAYS.items()),
    )


def _alone(several: Several, kind: str, name: str, found: dict[str, ProfiledRun], seconds: dict[str, float]) -> Variant:
    run_it = several.variant(f"{kind} alone", OWN, [name]).run

    def run(directory: Path) -> Outcome:
        outcome = run_it(directory)
        (file,) = directory.rglob(TELEMETRY_FILE)
        found[kind], seconds[kind] = profiled(file), outcome.sample.window
        return outcome

    return Variant(f"{kind} alone", run)


def profiled(file: Path) -> ProfiledRun:
    """The profile of a run.

    :raises CommandError: if it is not periodic
    """
    own = profiles(read_history(file.parent.name, read_records(file)))[0]
    if isinstance(own, NotPeriodic):
        raise CommandError(f"it is not periodic: {own.reason}")
    return ProfiledRun(file.parent.name, own)


def _together(
    several: Several, name: jobs.Way, way: Way, found: Mapping[str, ProfiledRun], seconds: Mapping[str, float]
) -> Variant:
    run_it = several.variant(name, way).run

    def run(directory: Path) -> Outcome:
        outcome = run_it(directory)
        kinds = [run.rstrip("01") for run in KINDS]
        runs = [periodic_run(found[kind]) for kind in kinds]
        curve = seen_curve(found.values(), _DISK)
        foretold = jobs.play(runs, STORAGE_MB, curve, name)
        slowest = max(foretold.dilations(jobs.alone(runs, STORAGE_MB, curve)))
        further = outcome.sample.further
        measured = max(further[f"{run}_s"] / seconds[kind] for run, kind in zip(KINDS, kinds, strict=True))
        added = {
            "slowest": measured,
            "slowest_foretold": slowest,
            "slowest_off": abs(slowest / measured - 1),
            "window_foretold": foretold.makespan,
            "window_off": abs(foretold.makespan / outcome.sample.window - 1),
        }
        sample = outcome.sample.model_copy(update={"further": {**further, **added}})
        return Outcome(sample, outcome.outputs, outcome.notes)

    return Variant(name, run)


def _comparisons() -> list[Comparison]:
    found = []
    for name in _WAYS:
        for measure, shown in (("slowest", "dilation of the slowest"), ("window", "makespan")):
            found.append(
                Comparison(
                    name=f"{name}: {shown}, forecast off by", measure=f"{measure}_off", variant=name, at_most=GOAL
                )
            )
            found.append(Comparison(name=f"{name}: {shown}", measure=measure, variant=name))
    return found


FORECAST = Workload(
    "forecast",
    "whether the runs of `shared-bursts` are as slow as their profiles foretell",
    _prepare,
    _comparisons(),
)
