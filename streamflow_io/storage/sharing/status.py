"""The runs that share a storage now, from their entries: for people, and for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct

from streamflow_io.installed_features import subclass_of
from streamflow_io.storage.admission.demand import BYTES_PER_MEGABYTE, Amounts

from .allocation import positive
from .directory import OpenDirectory, SharedDirectory
from .entries import Entry
from .other_entries import SharingError, lock_holder, user_name
from .turns import TurnPolicy

# Seconds.
_PATIENCE = 1.0


class SharedStatus(Struct, frozen=True):
    """The runs that share a storage by a directory now.

    :ivar mine: the directory is for the runs of this user
    :ivar sharers: the users with the entries of their runs, in the order in which they would be served. Runs that want
        nothing come last
    :ivar unreadable: the users whose entries cannot be read: of another version, or damaged
    :ivar schedule: what the runs do about turns. None: the directory has no turns
    :ivar problem: why the directory cannot be looked at. None: no problem
    """

    directory: Path
    mine: bool
    sharers: tuple[tuple[str, Entry], ...] = ()
    unreadable: tuple[str, ...] = ()
    schedule: str | None = None
    problem: str | None = None


def status_of(shared: SharedDirectory) -> SharedStatus:
    """Look at a directory. Makes nothing, and waits at most one second for a lock."""
    if shared.mine and not shared.path.exists():  # no run has used it yet
        return SharedStatus(shared.path, True)
    try:
        opened = OpenDirectory.open(shared, _PATIENCE)
    except (SharingError, OSError) as error:
        problem = str(error) if isinstance(error, SharingError) else str(error.strerror)
        if (holder := lock_holder(shared.path / "lock")) is not None:
            problem = f"{problem}: process {holder} has it"
        return SharedStatus(shared.path, shared.mine, problem=problem)
    try:
        with opened.locked(_PATIENCE):
            others = opened.others()
    except (SharingError, OSError) as error:
        return SharedStatus(shared.path, shared.mine, problem=str(error))
    finally:
        opened.close()
    found = [(user_name(other.owner), other.entry) for other in others if other.entry is not None]
    found.sort(key=lambda one: (not any(one[1].wanted.values()), one[1].due, one[1].started))
    entries = {other.identifier: other.entry for other in others if other.entry is not None}
    return SharedStatus(
        shared.path,
        shared.mine,
        tuple(found),
        tuple(user_name(other.owner) for other in others if other.entry is None),
        None if opened.ledger.holds == "off" else subclass_of(TurnPolicy)().status(opened.path, entries),
    )


def status_to_json(status: SharedStatus) -> dict[str, Any]:
    """Return a status for programs; amounts in MB/s."""
    return {
        "directory": str(status.directory),
        "mine": status.mine,
        "runs": [
            {"run": entry.run, "user": user, "host": entry.host}
            | {"held": megabytes(positive(entry.held)), "wanted": megabytes(positive(entry.wanted))}
            for user, entry in status.sharers
        ],
        "unreadable": list(status.unreadable),
        "schedule": status.schedule,
        "problem": status.problem,
    }


def sharers(status: SharedStatus) -> str:
    """Name the runs that share a storage, in a sentence."""
    who = "all your runs" if status.mine else f"all runs that name {status.directory}"
    if status.problem is not None:
        return f"{who}; the runs that use it now are not known: {status.problem}"
    runs = [f"{printable(one.run)} of {user} on {printable(one.host)}{_amounts(one)}" for user, one in status.sharers]
    runs += [f"a run of {user}, which is of another version, or whose entry is damaged" for user in status.unreadable]
    turns = "" if status.schedule is None or not runs else f"; bursts: {printable(status.schedule)}"
    return f"{who}; now with {', '.join(runs)}{turns}" if runs else f"{who}; no run uses it now"


def _amounts(entry: Entry) -> str:
    amounts = {"holds": positive(entry.held), "waits for": positive(entry.wanted)}
    told = [f"{verb} {_shown(much)} MB/s" for verb, much in amounts.items() if much]
    return f" ({', '.join(told)})" if told else ""


def _shown(amounts: Amounts) -> str:
    rates = megabytes(amounts)
    return ", ".join(f"{rates[way]:g} {way}" for way in ("write", "read") if way in rates)


def megabytes(amounts: Amounts) -> dict[str, float]:
    return {way: much / BYTES_PER_MEGABYTE for way, much in amounts.items()}


def printable(text: str) -> str:
    """Return a text of others without characters that control a terminal."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
