"""The runs that share a storage now, from their entries, for people."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct, field

from streamflow_io.features import subclass_of
from streamflow_io.hints.models import Way

from .directory import NEWS_BYTES, OpenDirectory, SharedDirectory
from .entries import LedgerFile
from .other_entries import Other, SharingError, lock_holder, user_name
from .turns import TurnPolicy, TurnStatus

# Seconds.
_PATIENCE = 1.0


class Sharer(Struct, frozen=True):
    """A run that uses a storage, by its own entry.

    :ivar user: the owner of the entry
    :ivar held: what the run may use, in bytes per second
    :ivar wanted: what the run waits for
    :ivar started: when the run came, in seconds since the epoch, on its own host
    :ivar asked: when its burst began. 0: there is none
    :ivar due: when the burst should have its turn
    :ivar skew: seconds by which the run's clock is behind the clock of the file system
    :ivar age: seconds since the run was heard of, by the clock of the file system
    :ivar follows: since when the run takes turns, by its own clock. None: the run takes no turns
    """

    run: str
    user: str
    host: str
    pid: int
    started: float
    held: dict[Way, int] = field(default_factory=dict)
    wanted: dict[Way, int] = field(default_factory=dict)
    asked: float = 0.0
    due: float = 0.0
    skew: float = 0.0
    age: float = 0.0
    follows: float | None = None


class SharedStatus(Struct, frozen=True):
    """The shared bandwidth of a directory, and the runs that share it now.

    :ivar storage: the path of the storage
    :ivar mine: the directory is for the runs of this user
    :ivar bandwidth: bytes per second for all runs. For runs of one user, the lowest value that a run states. Empty: no
        run states one
    :ivar sharers: in the order in which they would be served; runs that want nothing come last
    :ivar unreadable: the users whose entries cannot be read: of another version, or damaged
    :ivar schedule: what the runs do about turns. None: the directory has no turns
    :ivar used: when a run last changed something there, in seconds since the epoch. None: no run has
    :ivar problem: why the directory cannot be looked at. None: no problem
    """

    directory: Path
    storage: str
    mine: bool
    bandwidth: dict[Way, int] = field(default_factory=dict)
    sharers: tuple[Sharer, ...] = ()
    unreadable: tuple[str, ...] = ()
    schedule: str | None = None
    used: float | None = None
    problem: str | None = None


def status_of(shared: SharedDirectory, now: float) -> SharedStatus:
    """Look at a directory. Makes nothing, and waits at most one second for a lock.

    :param now: seconds since the epoch
    """
    if shared.mine and not shared.path.exists():  # no run has used it yet
        return SharedStatus(shared.path, shared.storage_path, True)
    try:
        opened = OpenDirectory.open(shared, _PATIENCE)
    except (SharingError, OSError) as error:
        problem = str(error) if isinstance(error, SharingError) else str(error.strerror)
        if (holder := lock_holder(shared.path / "lock")) is not None:
            problem = f"{problem}: process {holder} has it"
        return SharedStatus(shared.path, shared.storage_path, shared.mine, problem=problem)
    try:
        with opened.locked(_PATIENCE):
            others = opened.others()
    except (SharingError, OSError) as error:
        return SharedStatus(shared.path, opened.ledger.path, shared.mine, problem=str(error))
    finally:
        opened.close()
    turns = _turns(opened, others)
    sharers = [_sharer(other, now, turns) for other in others if other.entry is not None]
    return SharedStatus(
        shared.path,
        opened.ledger.path,
        shared.mine,
        _bandwidth(opened.ledger, others),
        tuple(sorted(sharers, key=lambda each: (not each.wanted, each.due, each.started))),
        tuple(user_name(other.owner) for other in others if other.entry is None),
        None if turns is None else turns.text,
        _used(shared.path, others),
    )


def _used(directory: Path, others: list[Other]) -> float | None:
    """Return when a run last changed something, which runs count in the lock. None: no run has been there."""
    try:
        lock = directory / "lock"
        is_used, written = any(lock.read_bytes()[: 2 * NEWS_BYTES]), lock.stat().st_mtime
    except OSError:
        return None
    return max((written, *(other.written for other in others))) if is_used else None


def _turns(opened: OpenDirectory, others: list[Other]) -> TurnStatus | None:
    """Return what the runs do about turns. None: the directory has no turns."""
    if opened.ledger.holds == "off":
        return None
    entries = {other.identifier: other.entry for other in others if other.entry is not None}
    return subclass_of(TurnPolicy)().status(opened.path, entries)


def _bandwidth(ledger: LedgerFile, others: list[Other]) -> dict[Way, int]:
    if ledger.bandwidth is not None:
        return ledger.bandwidth
    least: dict[Way, int] = {}
    for entry in (other.entry for other in others if other.entry is not None):
        for way, said in entry.bandwidth.items():
            least[way] = min(said, least.get(way, said))
    return least


def _sharer(other: Other, now: float, turns: TurnStatus | None) -> Sharer:
    entry = other.entry
    assert entry is not None
    return Sharer(
        entry.run,
        user_name(other.owner),
        entry.host,
        entry.pid,
        entry.started,
        {way: much for way, much in entry.held.items() if much},
        {way: much for way, much in entry.wanted.items() if much},
        entry.asked,
        entry.due,
        other.written - entry.now,
        now - other.written,
        None if turns is None else turns.since.get(other.identifier),
    )


def known_directories(place: Path) -> list[SharedDirectory]:
    """Return the directories of this user's runs below a directory, which may not exist."""
    found = sorted(each for each in place.iterdir() if each.is_dir()) if place.is_dir() else []
    return [SharedDirectory(each, os.fspath(each.name), True) for each in found]
