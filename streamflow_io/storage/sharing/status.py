"""Who shares a storage now: what their entries say, for people."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from streamflow_io.features import subclass_of
from streamflow_io.hints.models import Way

from .directory import NEWS_BYTES, OpenDirectory, SharedDirectory
from .entries import LedgerFile
from .locking import SharingError, lock_holder
from .other_entries import Other, user_name
from .turns import TurnPolicy, TurnStatus


@dataclass(frozen=True)
class Sharer:
    """A run that uses a storage, as it says itself.

    :ivar user: who owns its entry
    :ivar held: what it may use, bytes per second
    :ivar wanted: what it waits for
    :ivar started: when it came, in seconds since the epoch, on its own host
    :ivar asked: when its burst began; 0: it has none
    :ivar due: when it should have had its turn
    :ivar skew: seconds by which its clock is behind that of the file system
    :ivar age: seconds since it was heard of, by the clock of the file system
    :ivar follows: since when it takes turns, by its own clock; none: it does not
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


@dataclass(frozen=True)
class SharedStatus:
    """What is shared in a directory, and by whom now.

    :ivar storage: where the storage is
    :ivar mine: it is for the runs of this user
    :ivar bandwidth: bytes per second for all; for runs of one user the least of what they say; empty: nobody says one
    :ivar sharers: in the order in which they would be served; those that want nothing last
    :ivar unreadable: the users whose entries cannot be read: of another version, or damaged
    :ivar schedule: what the runs do about turns; none: there are none in this directory
    :ivar used: when a run last had to do with it, in seconds since the epoch; none: no run has
    :ivar problem: why it cannot be looked at
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


def status_of(shared: SharedDirectory, now: float, seconds: float = 1.0) -> SharedStatus:
    """Look at a directory; nothing is made or waited for longer than so many seconds.

    :param now: seconds since the epoch
    """
    if shared.mine and not shared.path.exists():  # no run has used it yet
        return SharedStatus(shared.path, shared.storage_path, True)
    try:
        opened = OpenDirectory.open(shared, seconds)
    except (SharingError, OSError) as error:
        problem = str(error) if isinstance(error, SharingError) else str(error.strerror)
        if (holder := lock_holder(shared.path / "lock")) is not None:
            problem = f"{problem}: process {holder} has it"
        return SharedStatus(shared.path, shared.storage_path, shared.mine, problem=problem)
    try:
        with opened.locked(seconds):
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
    """Each run that comes, or gives something back, counts in the lock; None: no run has been there."""
    try:
        lock = directory / "lock"
        is_used, written = any(lock.read_bytes()[: 2 * NEWS_BYTES]), lock.stat().st_mtime
    except OSError:
        return None
    return max((written, *(other.written for other in others))) if is_used else None


def _turns(opened: OpenDirectory, others: list[Other]) -> TurnStatus | None:
    """What the runs do about turns; None: there are none in the directory."""
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
    """Those of this user's runs, in a directory that may not exist."""
    found = sorted(each for each in place.iterdir() if each.is_dir()) if place.is_dir() else []
    return [SharedDirectory(each, os.fspath(each.name), True) for each in found]
