"""`streamflow-io clean`: removes what runs have left in work directories."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import socket
import textwrap
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict
from rich.console import Console

from streamflow_io.files import stranger
from streamflow_io.hints.errors import HintErrors
from streamflow_io.records.leftovers import Leftover, RunLeftovers, leftovers
from streamflow_io.records.reader import list_runs, read_records
from streamflow_io.records.records import RunState
from streamflow_io.records.runs import SILENT_SECONDS, TELEMETRY_FILE, find_run, runs_directory
from streamflow_io.storage.intermediates.clearing import Cleared, ClearedState, clear_at, clear_here
from streamflow_io.wording import counted, size_text

from .console import say, table
from .doctor_location import NotDeployedError, deployed
from .streamflow_file import quiet_streamflow, read_streamflow_file

# Columns of a sentence below the name of a run, which is as a rule a UUID.
_MOST = 36
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
# Directories of these deployments are where they were when the deployment is deployed once more.
_LASTING = ("local", "ssh", "slurm", "pbs", "flux")
_TOLD: Mapping[ClearedState, str] = {
    "there": "would be removed",
    "removed": "removed",
    "stays": "cannot be removed: permission denied, or in use",
    "link": "left alone: a symbolic link is in the place of the directory",
    "mounted": "left alone: a file system is mounted in the directory",
    "others": "left alone: another user owns the directory, or could replace it",
}


class Part(Struct, frozen=True):
    """Directories of a run that have the same fate.

    :ivar where: this machine, or a location
    :ivar told: what was done, or why the directories stay
    :ivar ok: whether they are removed, or have to stay
    """

    run: str
    where: str
    directories: int
    bytes: int
    told: str
    ok: bool


class Cleaned(Struct, frozen=True):
    """The directories that were found and removed."""

    parts: Sequence[Part]
    removes: bool
    runs: int

    @property
    def ok(self) -> bool:
        return all(part.ok for part in self.parts)

    @property
    def bytes(self) -> int:
        told = _TOLD["removed" if self.removes else "there"]
        return sum(part.bytes for part in self.parts if part.told == told)

    def to_json(self) -> dict[str, Any]:
        return {
            "removes": self.removes,
            "bytes": self.bytes,
            "runs": self.runs,
            "parts": [asdict(part) for part in self.parts],
        }

    def show(self, console: Console) -> None:
        looked = counted(self.runs, "run")
        if not self.parts:
            say(console, f"Nothing is left of {looked}")
            return
        # The names of most runs leave no room for a column with a sentence, which then stands below the name.
        columns = ("RUN\n  what", "where", "directories", "size")
        rows = [
            (
                "\n  ".join((part.run, *textwrap.wrap(part.told, _MOST))),
                part.where,
                f"{part.directories:,}",
                size_text(part.bytes) if part.bytes else "",
            )
            for part in self.parts
        ]
        console.print(
            table(None, columns, rows, numbers=("directories", "size"), unfolded=("RUN\n  what", "directories", "size"))
        )
        verb = "removed" if self.removes else "would be removed: nothing was touched"
        what = size_text(self.bytes) if self.bytes else "Nothing"
        say(console, f"{what} of {looked} {verb}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="*", metavar="RUN", help="the name of a run, or last (default: all that are over)"
    )
    parser.add_argument(
        "--older-than",
        type=_seconds,
        metavar="TIME",
        help="leave runs that have ended less than this time ago, as 7d: m, h, d or w",
    )
    parser.add_argument("--dry-run", action="store_true", help="remove nothing, and show what would be removed")


def run(arguments: argparse.Namespace) -> Cleaned:
    """Remove what runs have left.

    :raises HintErrors: if there is no such run, or others could have changed the records of runs
    """
    directory = runs_directory()
    if directory.exists() and (why := stranger(directory)) is not None:
        raise HintErrors.one(directory, "runs", f"the records cannot be trusted: {why}", "a directory of your own")
    wanted = {_name(text) for text in arguments.runs}
    now, parts, clearable, looked = time.time(), list[Part](), dict[str, RunLeftovers](), 0
    for summary in list_runs():
        ended = summary.began + summary.seconds
        if (wanted and summary.name not in wanted) or now - ended < (arguments.older_than or 0):
            continue
        looked += 1
        try:
            found = leftovers(read_records(directory / summary.name / TELEMETRY_FILE))
        except HintErrors as errors:
            # Without the records, the directories of the run are not known.
            told = f"kept: its records cannot be used: {errors.errors[0].message}"
            parts.append(Part(summary.name, "", 0, 0, told, False))
            continue
        if found is None or not (found.removable or found.results or found.open):
            continue
        is_silent = now - ended >= SILENT_SECONDS
        if (why := why_all_stay(summary.state, found, is_silent)) is not None:
            count = len(found.removable) + len(found.results) + len(found.open)
            parts.append(Part(summary.name, "", count, 0, f"kept: {why}", summary.name not in wanted))
            continue
        # A job of a run that was killed may go on without its driver.
        keeps_open = summary.state == "killed" and not is_silent
        if keeps_open and found.open:
            told = "kept: these jobs may still run, because their driver was killed"
            parts.append(Part(summary.name, "", len(found.open), 0, told, True))
        open_too = () if keeps_open else found.open
        clearable[summary.name] = RunLeftovers(found.run, (*found.removable, *open_too), found.results)
        if found.results:
            told = "kept: results of the run need them"
            parts.append(Part(summary.name, "", len(found.results), 0, told, True))
    parts += _clear(clearable, not arguments.dry_run)
    return Cleaned(sorted(parts, key=lambda part: (part.run, part.where)), not arguments.dry_run, looked)


def why_all_stay(state: RunState, found: RunLeftovers, is_silent: bool) -> str | None:
    """Say why the directories of a run have to stay. None: the run is over, and its results are known.

    :param is_silent: whether nothing was recorded for a long time
    """
    if state == "running":
        return "the run goes on"
    if state in ("completed", "ended") and not found.knows_results:
        return "the records of the run do not say which directories its results need"
    if state != "killed" or is_silent:
        return None
    if found.run.host != socket.gethostname():
        return f"the run has no end, and may go on, on {found.run.host or 'another machine'}"
    if found.run.pid is not None and Path(f"/proc/{found.run.pid}").exists():
        return f"the run has no end, and process {found.run.pid} may be its driver"
    return None


def _clear(found: Mapping[str, RunLeftovers], removes: bool) -> list[Part]:
    parts: list[Part] = []
    elsewhere: dict[tuple[str, str], dict[str, list[Leftover]]] = defaultdict(lambda: defaultdict(list))
    for name, of_run in found.items():
        here = [left.path for left in of_run.removable if left.deployment is None]
        parts += _parts(name, "here", clear_here(here, removes=removes))
        if of_run.run.host != socket.gethostname() and (lost := [path for path in here if not os.path.lexists(path)]):
            told = f"not here; call `streamflow-io clean {name}` on {of_run.run.host} for what is only there"
            parts.append(Part(name, str(of_run.run.host), len(lost), 0, told, True))
        for left in of_run.removable:
            if left.deployment is not None:
                elsewhere[str(of_run.run.streamflow_file), left.deployment][name].append(left)
    for (file, deployment), of_runs in elsewhere.items():
        parts += _clear_deployment(Path(file), deployment, of_runs, removes)
    return parts


def _clear_deployment(
    file: Path, deployment: str, of_runs: Mapping[str, Sequence[Leftover]], removes: bool
) -> list[Part]:
    """Remove the directories of runs at the locations of a deployment."""

    def all_stay(why: str, *, is_well: bool = False) -> list[Part]:
        return [Part(name, deployment, len(left), 0, f"kept: {why}", is_well) for name, left in of_runs.items()]

    async def clear(config: dict[str, Any]) -> list[Part]:
        parts: list[Part] = []
        async with deployed(file, config, deployment) as (context, locations):
            there = {location.name: location for location in locations}
            for name, left in of_runs.items():
                by_location: dict[str, list[str]] = defaultdict(list)
                for each in left:
                    by_location[each.location].append(each.path)
                for location, paths in by_location.items():
                    where = f"{deployment}/{location}"
                    if location not in there:
                        told = f"kept: {deployment} has no such location now"
                        parts.append(Part(name, where, len(paths), 0, told, False))
                        continue
                    try:
                        cleared = await clear_at(context, there[location], paths, removes=removes)
                    except Exception as error:  # each connector has exceptions of its own
                        parts.append(Part(name, where, len(paths), 0, f"kept: {error}", False))
                    else:
                        parts += _parts(name, where, cleared)
        return parts

    with quiet_streamflow():
        try:
            if file.exists() and (why := stranger(file, trusts_groups=True)) is not None:
                return all_stay(f"{file} cannot be trusted: {why}")
            config = read_streamflow_file(file)
        except HintErrors as errors:
            return all_stay(f"{file} cannot be read: {errors.errors[0].message}")
        entry = config.get("deployments", {}).get(deployment)
        if entry is None:
            return all_stay(f"{file} has no deployment {deployment} any more")
        if entry["type"] not in _LASTING and not entry.get("external", False):
            return all_stay(f"{deployment} ({entry['type']}) has ended, unless you keep it", is_well=True)
        try:
            return asyncio.run(clear(config))
        except NotDeployedError as error:
            return all_stay(f"{deployment} cannot be reached: {error}")


def _parts(run: str, where: str, cleared: Iterable[Cleared]) -> list[Part]:
    by_state: dict[ClearedState, list[Cleared]] = defaultdict(list)
    for each in cleared:
        by_state[each.state].append(each)
    return [
        Part(run, where, len(found), sum(each.bytes for each in found), _TOLD[state], state in ("there", "removed"))
        for state, found in by_state.items()
        if state != "missing"
    ]


def _name(text: str) -> str:
    """The name of a run.

    :raises HintErrors: if there is no such run
    """
    path = find_run(text)
    if path.name != TELEMETRY_FILE or path.parent.parent != runs_directory():
        raise HintErrors.one(
            text, "RUN", "this is no run of yours", "the name of a run, as `streamflow-io runs` lists it"
        )
    return path.parent.name


def _seconds(text: str) -> float:
    if (found := re.fullmatch(r"(\d+)([mhdw])", text)) is None:
        allowed = "a whole number with m, h, d or w, as 7d"
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: {allowed}")
    return float(found[1]) * _UNITS[found[2]]
