"""`streamflow-io storage status`: the runs that share storages now."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from rich.console import Console
from rich.table import Table

from streamflow_io.storage.admission.demand import BYTES_PER_MEGABYTE, Amounts
from streamflow_io.storage.sharing.directory import SharedDirectory
from streamflow_io.storage.sharing.identity import own_directories
from streamflow_io.storage.sharing.status import SharedStatus, Sharer, known_directories, status_of

from .console import say, table

_STATUS = "show the runs that share a storage now, with their bandwidth and waits"
# A clock that is wrong by more than this gets a warning: it shifts the turns of runs on its host.
_SKEW_SECONDS = 1.0
# A run that uses something writes its entry more often than this.
_QUIET_SECONDS = 10.0


class Statuses(Struct, frozen=True):
    """The shared storages of some directories.

    :ivar now: when the directories were looked at, in seconds since the epoch
    """

    found: Sequence[SharedStatus]
    now: float

    @property
    def ok(self) -> bool:
        return all(each.problem is None for each in self.found)

    def to_json(self) -> dict[str, Any]:
        return {"directories": [status_to_json(each) for each in self.found]}

    def show(self, console: Console) -> None:
        if not self.found:
            say(console, "No run of yours has shared a storage.")
        for each in self.found:
            self._show(console, each)

    def _show(self, console: Console, one: SharedStatus) -> None:
        if one.problem is not None:
            say(console, f"{printable(one.storage or str(one.directory))}: {one.problem}", "red")
            return
        if not one.sharers:
            last = "" if one.used is None else f"; the last run was there {_time(one.used, self.now)}"
            say(console, f"{printable(one.storage)}: no run uses it{last} ({one.directory})")
        else:
            who = "your runs share it" if one.mine else f"shared by {one.directory}"
            say(console, f"{printable(one.storage)}: {shown(one.bandwidth)} MB/s; {who}", "bold")
            console.print(self._table(one))
        if one.schedule is not None and one.sharers:
            say(console, self._schedule(one))
        for user in one.unreadable:
            say(console, f"A run of {user} is of another version, or its entry is damaged.", "yellow")
        for run in one.sharers:
            for warning in _warnings(run):
                say(console, warning, "yellow")

    def _table(self, status: SharedStatus) -> Table:
        users = {run.user for run in status.sharers}
        has_users = not status.mine or len(users) > 1
        rows = [
            (
                printable(run.run),
                *((run.user,) if has_users else ()),
                f"{printable(run.host)} {run.pid}",
                _time(run.started, self.now),
                shown(run.held),
                self._waits(run),
            )
            for run in status.sharers
        ]
        columns = ("run", *(("user",) if has_users else ()), "process", "began", "holds", "waits for")
        return table(None, columns, rows, unfolded=("user", "began"))

    def _waits(self, run: Sharer) -> str:
        if not run.wanted:
            return ""
        due = run.due - self.now
        when = f"in {_seconds(due)}" if due > 0 else f"{_seconds(-due)} ago"
        return f"{shown(run.wanted)} for {_seconds(self.now - run.asked)}, due {when}"

    def _schedule(self, status: SharedStatus) -> str:
        since = [run.follows for run in status.sharers if run.follows is not None]
        text = f"Bursts: {printable(status.schedule or '')}"
        return f"{text} (since {_time(max(since), self.now)})." if since else f"{text}."


def add_status(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the arguments of `storage status`."""
    status = commands.add_parser("status", help=_STATUS, description=_STATUS)
    status.add_argument(
        "directory",
        metavar="DIR",
        nargs="?",
        type=Path,
        help="a directory of `storage share` (default: the storages of your runs)",
    )
    status.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON for programs")


def status(arguments: argparse.Namespace) -> Statuses:
    """Look at the shared directories."""
    now = time.time()
    if arguments.directory is not None:
        path = Path(os.path.abspath(arguments.directory))
        is_own = path.parent == own_directories()
        return Statuses([status_of(SharedDirectory(path, path.name, is_own, str(path)), now)], now)
    found = [status_of(each, now) for each in known_directories(own_directories())]
    return Statuses(sorted(found, key=lambda each: not each.sharers), now)


def status_to_json(status: SharedStatus) -> dict[str, Any]:
    """Return a status for programs; amounts in MB/s."""
    return {
        "directory": str(status.directory),
        "storage": status.storage,
        "mine": status.mine,
        "bandwidth": megabytes(status.bandwidth),
        "runs": [
            {**to_builtins(run), "held": megabytes(run.held), "wanted": megabytes(run.wanted)} for run in status.sharers
        ],
        "unreadable": list(status.unreadable),
        "schedule": status.schedule,
        "used": status.used,
        "problem": status.problem,
    }


def sharers(status: SharedStatus) -> str:
    """Name the runs that share a storage, in a sentence."""
    who = "all your runs" if status.mine else f"all runs that name {status.directory}"
    if status.problem is not None:
        return f"{who}; the runs that use it now are not known: {status.problem}"
    runs = [f"{printable(run.run)} of {run.user} on {printable(run.host)}{_held(run)}" for run in status.sharers]
    return f"{who}; now with {', '.join(runs)}" if runs else f"{who}; no run uses it now"


def _held(run: Sharer) -> str:
    return f" (holds {shown(run.held)} MB/s)" if run.held else ""


def shown(amounts: Amounts) -> str:
    """Return amounts in MB/s, for people. Empty: no amounts."""
    return ", ".join(f"{amounts[way] / BYTES_PER_MEGABYTE:g} {way}" for way in ("write", "read") if way in amounts)


def megabytes(amounts: Amounts) -> dict[str, float]:
    return {way: much / BYTES_PER_MEGABYTE for way, much in amounts.items()}


def _warnings(run: Sharer) -> list[str]:
    found = []
    if (run.held or run.wanted) and run.age >= _QUIET_SECONDS:
        found.append(f"{printable(run.run)} was last heard of {run.age:.0f} s ago.")
    if abs(run.skew) > _SKEW_SECONDS:
        text = f"The clock of {printable(run.host)} is {abs(run.skew):.0f} s {'behind' if run.skew > 0 else 'ahead'}"
        found.append(f"{text}: the turn of {printable(run.run)} is as much too early or late.")
    return found


def _seconds(seconds: float) -> str:
    """Return a duration as text. Durations come from entries of others, so very large values are cut."""
    whole = round(max(0.0, min(seconds, 1e12)))
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7_200 else f"{whole // 3_600} h"


def _time(seconds: float, now: float) -> str:
    """Return a time as text; a time of today without its day."""
    try:
        found, today = (datetime.fromtimestamp(each).astimezone() for each in (seconds, now))
        if abs(found - today) < timedelta(hours=12) or found.date() == today.date():
            return found.strftime("%H:%M:%S")
        return found.strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):  # entries of others may hold any number
        return f"{seconds:g}"


def printable(text: str) -> str:
    """Return a text of others without characters that control a terminal."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
