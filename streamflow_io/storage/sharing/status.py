"""The runs that share a storage now, from their entries, for people."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from streamflow_io.installed_features import subclass_of

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
