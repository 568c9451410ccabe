"""The work of a run in an open shared directory, look by look."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from streamflow_io.hints.models import WAYS, Way
from streamflow_io.messages import Code, coded
from streamflow_io.storage.admission.demand import Amounts

from .allocation import Lease, Tenant, amount, positive
from .directory import News, OpenDirectory
from .entries import Entry, shortened
from .other_entries import Other, owner_of, user_name
from .participant import Participant

HOLDS_BACK_NOBODY = 10.0
HOLDS_NOTHING = 60.0
# At most this time is counted between two looks of an observer, which may have been stopped with all other runs.
_MOST_BETWEEN_LOOKS = 3.0


class Silence:
    """How long the beat of each run has not changed, by the observer's clock: clocks of other hosts differ."""

    def __init__(self) -> None:
        self._beats: dict[str, tuple[int, float]] = {}
        self._last = 0.0

    def look(self, beats: dict[str, int], now: float) -> dict[str, float]:
        """Look at all runs.

        :param beats: the beats of the runs that are there
        :param now: seconds of a clock that never goes back
        :return: for how many seconds each run has been silent
        """
        passed, self._last = min(now - self._last, _MOST_BETWEEN_LOOKS), now
        before, self._beats = self._beats, {}
        for run, beat in beats.items():
            last, seconds = before.get(run, (beat, -passed))
            self._beats[run] = beat, seconds + passed if beat == last else 0.0
        return {run: seconds for run, (_, seconds) in self._beats.items()}


class _Pace(Struct, frozen=True):
    """How often a run looks at what others do, in seconds.

    :ivar waiting: pause between looks at the counters of changes, while the run waits for something
    :ivar holding: the same, while the run holds something
    :ivar look: pause between full looks without a change, while the run waits
    :ivar beat: the same, while the run holds something
    """

    waiting: float
    holding: float
    look: float
    beat: float


_LOCAL = _Pace(waiting=0.02, holding=0.1, look=0.5, beat=2.0)
# Changes of the counters arrive late there, so that runs do full looks instead.
_NETWORK = _Pace(waiting=0.2, holding=1.0, look=0.2, beat=1.0)


class _Living(Struct, frozen=True):
    """Another living run.

    :ivar identifier: the name of its file
    :ivar owner: the owner of the file
    :ivar seconds: how long the run has been silent
    """

    identifier: str
    entry: Entry
    owner: int
    seconds: float


# Looks take at most this part of the time, whatever other runs report.
_LOOKS = 0.2


class LeaseSession:
    """The work of a run in an open directory."""

    def __init__(self, directory: OpenDirectory, run: str, bandwidth: Amounts, warn: Callable[[str], None]) -> None:
        self.participant = Participant(directory.identifier, owner_of(os.geteuid()))
        self._is_held_back = False
        self._directory = directory
        self._pace = _NETWORK if directory.is_network else _LOCAL
        self._bandwidth = bandwidth
        self._warn = warn
        self._warned: set[str] = set()
        self.others: tuple[Entry, ...] = ()
        self._silence = Silence()
        self._last_known: dict[str, Entry] = {}
        self._overstayed: set[int] = set()
        # Seconds that the last look took.
        self._took = 0.0
        self._news = News(b"", b"")
        self._written: tuple[float, Tenant | None] = 0.0, None
        self._fields: Mapping[str, object] = {}
        self._entry = Entry(
            run=shortened(run),
            host=shortened(socket.gethostname()),
            pid=os.getpid(),
            started=time.time(),
            now=time.time(),
            beat=0,
            bandwidth=dict(bandwidth),
        )

    @property
    def name(self) -> str:
        """The name of the run, for turns."""
        return _name(self._directory.identifier)

    @property
    def pause(self) -> float | None:
        """Seconds until something has to be looked at. None: look only when the run requests something."""
        if self._is_held_back:
            hold = self.participant.hold
            return 0.0 if hold is None else min(self._pace.beat, max(0.0, hold.until - time.time()))
        tenant = self.participant.tenant
        if tenant.wanted:
            return self._pace.waiting
        return self._pace.holding if tenant.held or self.participant.watches else None

    def should_look(self, passed: float) -> bool:
        """Whether it is time for a look.

        :param passed: seconds since the last look
        """
        tenant = self.participant.tenant
        if passed < self._took * (1 / _LOOKS - 1):
            return False
        if self._is_held_back:
            hold = self.participant.hold
            return hold is None or passed >= self._pace.beat or time.time() >= hold.until
        if not tenant.wanted and not tenant.held and not self.participant.watches:
            return False
        if passed >= (self._pace.look if tenant.wanted else self._pace.beat):
            return True
        news = self._directory.news()
        if self.participant.watches:
            return news != self._news
        return news.returned != self._news.returned if tenant.wanted else news.asked != self._news.asked

    def look(self) -> Lease | None:
        """Read what others hold and want, take what is available, and write this run's entry."""
        turns = self.participant.turns
        now, hold, before = time.time(), self.participant.hold, self.participant.tenant
        with self._directory.locked():
            began = time.monotonic()
            if turns is None and self.participant.leave():
                lease = None
            else:
                found = self._directory.others()
                others = self._living(found, time.monotonic())
                self.others = tuple(one.entry for one in others)
                bandwidth = self._shared_bandwidth(others)
                lease = self.participant.look(self._tenants_of(others, bandwidth), bandwidth, now, time.monotonic())
                self._say_overstayed(others)
            self._write()
            self._tell(before, self.participant.tenant)
            self._took = time.monotonic() - began
        if turns is not None:
            entries = {_name(one.identifier): one.entry for one in others}
            megabytes = {way: much / 1e6 for way, much in bandwidth.items()}
            turns.look(entries, megabytes, self._apart(found), time.monotonic(), now)
        # Holds even if turns have ended since: a request that was held back has not been made.
        self._is_held_back = hold is not None and now < hold.until
        return lease

    def _tell(self, before: Tenant, after: Tenant) -> None:
        """Count the changes that other runs have to know. The lock must be held."""
        self._directory.tell(
            returned=any(amount(after.held, way) < amount(before.held, way) for way in WAYS)
            or bool(before.wanted and after.wanted != before.wanted),
            asked=bool(after.wanted and after.wanted != before.wanted) or not before.held.keys() >= after.held.keys(),
        )
        self._news = self._directory.news()

    def _apart(self, found: Sequence[Other]) -> float:
        """Return by how many seconds the clocks of the runs differ.

        Compares the time in each entry with the time of its file, for this run and the others.
        """
        own = self._directory.written() - self._entry.now
        return max((abs(one.written - one.entry.now - own) for one in found if one.entry is not None), default=0.0)

    @staticmethod
    def _tenants_of(others: list[_Living], bandwidth: dict[Way, int]) -> list[Tenant]:
        """Return the tenants of other runs. A run without amounts holds back no other run, and is none."""
        return [
            one.entry.tenant(one.identifier, bandwidth, one.seconds >= HOLDS_BACK_NOBODY, owner_of(one.owner))
            for one in others
            if one.entry.held or one.entry.wanted
        ]

    def _say_overstayed(self, others: list[_Living]) -> None:
        """Warn once about each owner that does not count beyond its share any more, with its largest entry."""
        for owner in self.participant.overstayed - self._overstayed:
            self._overstayed.add(owner)
            of_owner = [one for one in others if owner_of(one.owner) == owner]
            most = max(of_owner, key=lambda one: sum(one.entry.held.values()), default=None)
            if most is not None:
                self._warn(overstays(most, len(of_owner), self._directory.path))

    def _write(self) -> None:
        tenant, now = self.participant.tenant, time.monotonic()
        written, last = self._written
        turns = self.participant.turns
        fields = {} if turns is None else turns.fields()
        if (tenant, fields) == (last, self._fields) and now - written < min(self._pace.beat, HOLDS_BACK_NOBODY / 4):
            return
        self._entry = self._entry.model_copy(
            update={
                "now": time.time(),
                "beat": self._entry.beat + 1,
                "held": dict(tenant.held),
                "wanted": dict(tenant.wanted),
                "ticket": tenant.ticket,
                "asked": self.participant.asked,
                "due": tenant.due,
                **fields,
            }
        )
        self._directory.write(self._entry)
        self._written, self._fields = (now, tenant), fields

    def _living(self, found: list[Other], now: float) -> list[_Living]:
        """Return the runs that have been heard of lately, each with the time since then."""
        entries = {}
        for other in found:
            # An entry is torn, or of a newer version: its run holds what it last held.
            if (entry := other.entry or self._last_known.get(other.identifier)) is not None:
                entries[other.identifier] = entry
        self._last_known = entries
        silent = self._silence.look({identifier: entry.beat for identifier, entry in entries.items()}, now)
        living = []
        for other in found:
            if (known := entries.get(other.identifier)) is None:
                continue
            # A run that uses nothing and waits for nothing writes no beats.
            seconds = silent[other.identifier] if known.held or known.wanted else 0.0
            if seconds < HOLDS_NOTHING:
                living.append(_Living(other.identifier, known, other.owner, seconds))
            elif known.held:
                self._warn_once(
                    f"run {known.run!r} on {known.host!r} (process {known.pid}) has not been heard of for "
                    f"{HOLDS_NOTHING:g} s: its bandwidth is given to other runs"
                )
        return living

    def _shared_bandwidth(self, others: list[_Living]) -> dict[Way, int]:
        if (given := self._directory.ledger.bandwidth) is not None:
            if given != self._bandwidth:
                self._warn_once(
                    f"its bandwidth is {_shown(given)}, not {_shown(self._bandwidth)}: the runs share the first"
                )
            return given
        bandwidth = dict(self._bandwidth)
        for entry in (one.entry for one in others):
            for way in WAYS:
                if 0 < (said := entry.bandwidth.get(way, 0)) < bandwidth[way]:
                    bandwidth[way] = said
                    self._warn_once(
                        f"run {entry.run!r} on {entry.host!r} declares {_shown(entry.bandwidth)}, not "
                        f"{_shown(self._bandwidth)}: the lowest one counts"
                    )
        return bandwidth

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)


def _name(identifier: str) -> str:
    return identifier.removesuffix(".json")


def overstays(one: _Living, entries: int, directory: Path) -> str:
    """Return a message: the runs of an owner keep others from their fair share.

    :param one: the owner's entry that holds most
    :param entries: how many entries the owner has
    """
    more = f", one of {entries} of this user" if entries > 1 else ""
    return coded(
        f"run {one.entry.run!r} on {one.entry.host!r} (process {one.entry.pid}) of user {user_name(one.owner)} has "
        "kept this run from its fair share for too long: it counts only with its own fair share from now on "
        f"({directory / 'runs' / one.identifier}{more})",
        Code.OVERSTAYS,
    )


def who(entries: Iterable[Entry], verb: str, of: Callable[[Entry], Amounts]) -> tuple[str, ...]:
    """Describe the entries with positive amounts, for people."""
    return tuple(
        f"run {entry.run!r} on {entry.host!r} (process {entry.pid}) {verb} "
        + " and ".join(f"{much / 1e6:g} MB/s ({way})" for way, much in sorted(positive(of(entry)).items()))
        for entry in entries
        if positive(of(entry))
    )


def _shown(bandwidth: Amounts) -> str:
    return " and ".join(f"{amount(bandwidth, way) / 1e6:g} MB/s ({way})" for way in ("write", "read"))
