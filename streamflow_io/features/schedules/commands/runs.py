"""Runs that use one storage in periodic bursts: what `schedule profile` and `schedule forecast` begin with."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from streamflow_io.features.schedules.curve import StorageCurve
from streamflow_io.features.schedules.jobs import PeriodicRun
from streamflow_io.features.schedules.profile import NotPeriodic, Profile, profiles
from streamflow_io.hints.errors import HintError, HintErrors
from streamflow_io.hints.models import Direction
from streamflow_io.records.history import read_history
from streamflow_io.records.reader import read_records
from streamflow_io.records.runs import find_run, run_label


class ProfiledRun(Struct, frozen=True):
    """:ivar name: of the run; with a number, if it is there several times"""

    name: str
    profile: Profile


class ProfiledRuns(Struct, frozen=True):
    """Runs that use one storage in one direction.

    :ivar bandwidth: of the storage: the least that one of them says
    """

    storage: str
    direction: Direction
    bandwidth: float
    runs: Sequence[ProfiledRun]


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """RUN... and --storage."""
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="+",
        help="the name of a run, `last`, or the path of telemetry; a run that is given twice counts as two runs",
    )
    parser.add_argument(
        "--storage", metavar="NAME", help="the storage (default: the one with the most data of the first run)"
    )


def profiled_runs(arguments: argparse.Namespace) -> ProfiledRuns:
    """The profiles of runs on one storage.

    :raises HintErrors: if there is no such run, or one is not periodic: says all, and why
    """
    names = list(_different(run_label(find_run(text)) for text in arguments.run))
    found = [_profiles(find_run(text), arguments.storage) for text in arguments.run]
    errors: list[HintError] = []
    runs: list[ProfiledRun] = []
    for name, text, of in zip(names, arguments.run, found, strict=True):
        profile = _chosen(of, runs[0].profile if runs else None)
        if isinstance(profile, Profile):
            runs.append(ProfiledRun(name, profile))
        else:
            where = "" if profile.storage is None else f" on storage {profile.storage!r}"
            message = f"run {name!r} is not periodic{where}: {profile.reason}"
            errors.append(HintError(text, None, "RUN", message, "a run with bursts of I/O at regular times"))
    if errors:
        raise HintErrors(errors)
    first = runs[0].profile
    bandwidth = min(one.profile.bandwidth or one.profile.rate for one in runs)
    return ProfiledRuns(first.storage, first.direction, bandwidth, runs)


def periodic_run(one: ProfiledRun) -> PeriodicRun:
    """A run as the simulation has it."""
    own = one.profile
    return PeriodicRun(
        one.name,
        own.bursts,
        own.jobs,
        own.volume / own.jobs,
        own.storage_bw,
        own.work,
        period=0.0 if own.compact else own.work + own.io_seconds,
        latency=own.latency,
        first=own.first,
        after=own.after,
    )


def seen_curve(runs: Iterable[ProfiledRun], curve: StorageCurve) -> StorageCurve:
    """The curve through what was seen in the runs."""
    return curve.corrected(seen for one in runs for seen in one.profile.seen)


def _profiles(file: Path, storage: str | None) -> list[Profile | NotPeriodic]:
    """The profiles of a run, on one storage or on all.

    :raises HintErrors: if the run has no such storage
    """
    history = read_history(run_label(file), read_records(file))
    found = profiles(history)
    if storage is None:
        return found
    known = sorted({one.storage for one in found if one.storage is not None})
    if storage not in known:
        message = f"no job of this run needed bandwidth of {storage!r}"
        raise HintErrors.one(file, "--storage", message, ", ".join(known) or "a run with `storageBW`")
    return [one for one in found if one.storage == storage]


def _chosen(found: Sequence[Profile | NotPeriodic], first: Profile | None) -> Profile | NotPeriodic:
    """The profile on the storage of the first run; of the first run itself the one with most bytes that there is."""
    if first is None:
        return next((one for one in found if isinstance(one, Profile)), found[0])
    for one in found:
        if (one.storage, one.direction) == (first.storage, first.direction):
            return one
    reason = f"no job of it needed bandwidth of {first.storage!r} to {first.direction}, as those of the first run"
    return NotPeriodic(storage=None, direction=first.direction, reason=reason)


def _different(names: Iterator[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        number, other = 1, name
        while other in seen:
            number += 1
            other = f"{name} ({number})"
        seen.add(other)
        yield other
