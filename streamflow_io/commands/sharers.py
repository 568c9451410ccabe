"""The runs that share a storage now, in words and for programs."""

from __future__ import annotations

from typing import Any

from streamflow_io.storage.admission.demand import BYTES_PER_MEGABYTE, Amounts
from streamflow_io.storage.sharing.allocation import positive
from streamflow_io.storage.sharing.entries import Entry
from streamflow_io.storage.sharing.status import SharedStatus


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
