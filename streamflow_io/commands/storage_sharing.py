"""`streamflow-io storage share` and `storage status`: storages that several runs share."""

from __future__ import annotations

import argparse
import grp
import math
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from streamflow_io.admission.storages import BYTES_PER_MEGABYTE, Amounts, bytes_per_second
from streamflow_io.hints.bandwidth import HIGHEST
from streamflow_io.hints.errors import HintErrors
from streamflow_io.hints.models import WAYS
from streamflow_io.sharing.directory import SharedDirectory, SharingError
from streamflow_io.sharing.entries import LedgerFile
from streamflow_io.sharing.identity import own_directories
from streamflow_io.sharing.making import make_shared
from streamflow_io.sharing.status import SharedStatus, Sharer, known_directories, status_of

from .console import say, table

_SHARE = "make a directory by which the runs of several users share the bandwidth of a storage"
_STATUS = "show which runs share a storage now: what each holds and waits for"
# A clock that is off by more moves a run's turn by so much.
_SKEW_SECONDS = 1.0
# A run that uses something writes its entry more often than this.
_QUIET_SECONDS = 10.0


@dataclass(frozen=True)
class Shared:
    """A directory that was made."""

    path: Path
    ledger: LedgerFile
    group: str

    ok = True

    def to_json(self) -> dict[str, Any]:
        return {"directory": str(self.path), "group": self.group, "bandwidth": _megabytes(self.ledger.bandwidth or {})}

    def show(self, console: Console) -> None:
        say(console, f"Members of {self.group} share {self.ledger.path} by {self.path}.")
        say(console, "In the entry of each one's StreamFlow file:")
        say(console, f"\n  share: {self.path}")


@dataclass(frozen=True)
class Statuses:
    """What is shared in some directories."""

    found: Sequence[SharedStatus]

    @property
    def ok(self) -> bool:
        return all(each.problem is None for each in self.found)

    def to_json(self) -> dict[str, Any]:
        return {"directories": [status_to_json(each) for each in self.found]}

    def show(self, console: Console) -> None:
        if not self.found:
            say(console, "No run of yours has shared a storage.")
        for each in self.found:
            if each.problem is not None:
                say(console, f"{_printable(each.storage or str(each.directory))}: {each.problem}", "red")
                continue
            if each.sharers:
                console.print(_table(each))
            else:
                say(console, f"{_printable(each.storage)}: no run uses it ({each.directory})")
            for user in each.unreadable:
                say(console, f"A run of {user} is of another version, or its entry is damaged.", "yellow")
            for run in each.sharers:
                if abs(run.skew) > _SKEW_SECONDS:
                    text = f"The clock of {_printable(run.host)} is {abs(run.skew):.0f} s "
                    text += "behind" if run.skew > 0 else "ahead"
                    say(console, f"{text}: the turn of {_printable(run.run)} is as much too early or late.", "yellow")


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The arguments of both."""
    share = commands.add_parser("share", help=_SHARE, description=_SHARE)
    share.add_argument("directory", metavar="DIR", type=Path, help="which is made; on a file system that all see")
    share.add_argument("--path", metavar="PATH", help="where the storage is, for people (default: where DIR is)")
    share.add_argument("--write", type=_bandwidth, metavar="MB/S", help="its write bandwidth, for all runs together")
    share.add_argument("--read", type=_bandwidth, metavar="MB/S", help="its read bandwidth (one alone holds for both)")
    share.add_argument("--group", metavar="GROUP", help="whose members may share it (default: your group)")
    share.add_argument(
        "--holds",
        choices=("off", "auto"),
        default="off",
        help="auto: runs with periodic bursts follow a schedule where that pays (default: off)",
    )
    status = commands.add_parser("status", help=_STATUS, description=_STATUS)
    status.add_argument(
        "directory", metavar="DIR", nargs="?", type=Path, help="one of `storage share` (default: all of your runs)"
    )
    for parser in (share, status):
        parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON for programs")


def share(arguments: argparse.Namespace) -> Shared:
    """`storage share`.

    :raises HintErrors: if it cannot be made
    """
    path = Path(os.path.abspath(arguments.directory))
    if arguments.write is None and arguments.read is None:
        raise HintErrors.one(path, "--write, --read", "no bandwidth is given", "one of them or both, in MB/s")
    amounts = {
        way: None if getattr(arguments, way) is None else bytes_per_second(getattr(arguments, way)) for way in WAYS
    }
    ledger = LedgerFile(
        path=arguments.path or str(path.parent), write=amounts["write"], read=amounts["read"], holds=arguments.holds
    )
    try:
        group = grp.getgrgid(os.getegid()) if arguments.group is None else grp.getgrnam(arguments.group)
    except KeyError:
        name = os.getegid() if arguments.group is None else repr(arguments.group)
        raise HintErrors.one(path, "--group", f"there is no group {name}", "a group that you are in") from None
    try:
        make_shared(path, ledger, group.gr_gid)
    except SharingError as error:
        raise HintErrors.one(path, "DIR", str(error), "a directory that is not there yet") from None
    except OSError as error:
        message = f"{error.filename or path}: {error.strerror}"
        raise HintErrors.one(
            path, "DIR", message, "a directory that you can make, and a group that you are in"
        ) from None
    return Shared(path, ledger, group.gr_name)


def status(arguments: argparse.Namespace) -> Statuses:
    """`storage status`."""
    if arguments.directory is None:
        found = known_directories(own_directories())
    else:
        path = Path(os.path.abspath(arguments.directory))
        is_own = path.parent == own_directories()
        found = [SharedDirectory(path, path.name, is_own, str(path))]
    return Statuses([status_of(each, time.time()) for each in found])


def status_to_json(status: SharedStatus) -> dict[str, Any]:
    """For programs; amounts in MB/s."""
    return {
        "directory": str(status.directory),
        "storage": status.storage,
        "mine": status.mine,
        "bandwidth": _megabytes(status.bandwidth),
        "runs": [
            {**asdict(run), "held": _megabytes(run.held), "wanted": _megabytes(run.wanted)} for run in status.sharers
        ],
        "unreadable": list(status.unreadable),
        "problem": status.problem,
    }


def sharers(status: SharedStatus) -> str:
    """Who shares a storage, in a sentence."""
    who = "all runs of yours" if status.mine else f"all runs that name {status.directory}"
    if status.problem is not None:
        return f"{who}; who uses it now is not known: {status.problem}"
    runs = [f"{_printable(run.run)} of {run.user} on {_printable(run.host)}{_held(run)}" for run in status.sharers]
    return f"{who}; now with {', '.join(runs)}" if runs else f"{who}; now nobody uses it"


def _held(run: Sharer) -> str:
    return f" (holds {shown(run.held)} MB/s)" if run.held else ""


def shown(amounts: Amounts) -> str:
    """Amounts in MB/s, for people; empty: none."""
    return ", ".join(f"{amounts[way] / BYTES_PER_MEGABYTE:g} {way}" for way in ("write", "read") if way in amounts)


def _table(status: SharedStatus) -> Table:
    rows = [
        (
            escape(_printable(run.run)),
            run.user,
            escape(f"{_printable(run.host)} {run.pid}"),
            _time(run.started),
            shown(run.held),
            shown(run.wanted),
            _time(run.asked) if run.wanted else "",
            _time(run.due) if run.wanted else "",
            _heard(run),
        )
        for run in status.sharers
    ]
    title = f"{_printable(status.storage)}: {shown(status.bandwidth)} MB/s, shared by {status.directory}"
    columns = ("run", "user", "host, process", "since", "holds", "waits for", "since", "due", "heard of")
    return table(escape(title), columns, rows)


def _heard(run: Sharer) -> str:
    if not (run.held or run.wanted) or run.age < _QUIET_SECONDS:
        return "now"
    return f"[yellow]{run.age:.0f} s ago[/yellow]"


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).astimezone().strftime("%H:%M:%S")
    except (ValueError, OverflowError, OSError):  # somebody wrote what he liked
        return f"{seconds:g}"


def _printable(text: str) -> str:
    """A text of others, without what a terminal would obey."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _megabytes(amounts: Amounts) -> dict[str, float]:
    return {way: much / BYTES_PER_MEGABYTE for way, much in amounts.items()}


def _bandwidth(text: str) -> float:
    try:
        bandwidth = float(text)
    except ValueError:
        bandwidth = math.nan
    if not 0 < bandwidth <= HIGHEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: a number of MB/s above 0, up to 10^12")
    return bandwidth
