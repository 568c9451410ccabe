"""A run's side of a shared storage: a thread that asks for what the run wishes, and tells what it has."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from streamflow_io.hints.models import Way

from .directory import News, OpenDirectory, Other, SharedDirectory, SharingError
from .entries import Entry, shortened
from .making import make_own
from .silence import HOLDS_BACK_NOBODY, HOLDS_NOTHING, Silence
from .standing import Standing
from .table import Claim
from .wish import WAYS, Amounts, Lease, Wish, amount, positive

# How long a run that has ended waits for a file system that does not answer.
_CLOSE_SECONDS = 2.0


@dataclass(frozen=True)
class _Pace:
    """How often a run looks at what others do, in seconds.

    :ivar waiting: whether there are news, while it waits for something
    :ivar holding: the same, while it holds something
    :ivar look: looks without news, while it waits
    :ivar beat: the same, while it holds something
    """

    waiting: float
    holding: float
    look: float
    beat: float


_LOCAL = _Pace(waiting=0.02, holding=0.1, look=0.5, beat=2.0)
# There nobody is told news in time: a look instead.
_NETWORK = _Pace(waiting=0.2, holding=1.0, look=0.2, beat=1.0)


class Member:
    """A run among those that use a storage.

    All that touches files happens in a thread of its own, so that a slow file system never stops the run. Nothing is
    opened before the first wish that is not empty.

    :param run: what the run is called, for people
    :param bandwidth: of the storage, as the run's StreamFlow file has it
    :param tell: is told each lease, in the thread
    :param failed: is told once, in the thread, that sharing is over for this run, and why; nothing comes after it.
        What the run held stays its own
    :param warn: is told what the user should know, in the thread
    """

    def __init__(
        self,
        directory: SharedDirectory,
        run: str,
        bandwidth: Amounts,
        tell: Callable[[Lease], None],
        failed: Callable[[str], None],
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._directory = directory
        self._run = run
        self._bandwidth = {way: amount(bandwidth, way) for way in WAYS}
        self._tell, self._failed, self._warn = tell, failed, warn
        self._others: tuple[Entry, ...] = ()
        self._changed = threading.Condition()
        # The last one, and since when the run wishes something; before it one that is empty, if there was one: there a
        # burst has ended.
        self._wishes: list[tuple[Wish, float]] = []
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"sharing {directory.storage}", daemon=True)
        self._thread.start()

    @property
    def holders(self) -> tuple[str, ...]:
        """Those that hold something, else those that wait for something; as of the last look, for people."""
        others = self._others
        return _who(others, "holds", lambda entry: entry.held) or _who(others, "waits for", lambda entry: entry.wanted)

    def wish(self, wish: Wish) -> None:
        """Say what the run wants from now on; never blocks."""
        with self._changed:
            if wish.is_empty:
                self._wishes = [(wish, time.time())]
            elif self._wishes and not self._wishes[-1][0].is_empty:
                self._wishes[-1] = wish, self._wishes[-1][1]
            else:
                self._wishes.append((wish, time.time()))
            self._changed.notify()

    def close(self) -> None:
        """End it: what the run held is free, and its entry is gone; may be called twice. Nothing is told after it."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_SECONDS)

    def _work(self) -> None:
        try:
            first = self._wait(None)
            while first and all(wish.is_empty for wish, _ in first):
                first = self._wait(None)
            if first:
                self._take_part(first)
        except Exception as error:  # whatever it is, the run has to know that it is alone
            if not self._closed:
                with suppress(Exception):
                    self._failed(_reason(error))

    def _wait(self, seconds: float | None) -> list[tuple[Wish, float]]:
        """The wishes since the last call; waits for one, or for the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._wishes, seconds)
            wishes, self._wishes = self._wishes, []
            return [] if self._closed else wishes

    def _take_part(self, wishes: list[tuple[Wish, float]]) -> None:
        if self._directory.mine:
            make_own(self._directory)
        directory = OpenDirectory.open(self._directory)
        try:
            seat = _Seat(directory, self._run, self._bandwidth, self._warn)
            while not self._closed:
                for wish, now in wishes:
                    seat.standing.wish(wish, now)
                lease = seat.look()
                self._others = seat.others
                if lease is not None and not self._closed:
                    self._tell(lease)
                wishes = self._until_a_look(seat)
        finally:
            directory.close()

    def _until_a_look(self, seat: _Seat) -> list[tuple[Wish, float]]:
        """Wait until there is a reason to look."""
        since = time.monotonic()
        while True:
            wishes = self._wait(seat.pause)
            if wishes or self._closed or seat.should_look(time.monotonic() - since):
                return wishes


class _Seat:
    """What a run does in a directory that is open."""

    def __init__(self, directory: OpenDirectory, run: str, bandwidth: Amounts, warn: Callable[[str], None]) -> None:
        self.standing = Standing(directory.identifier)
        self._directory = directory
        self._pace = _NETWORK if directory.is_network else _LOCAL
        self._bandwidth = bandwidth
        self._warn = warn
        self._warned: set[str] = set()
        self.others: tuple[Entry, ...] = ()
        self._silence = Silence()
        self._last_known: dict[str, Entry] = {}
        self._claims: dict[str, tuple[tuple[Entry, dict[Way, int], bool], Claim]] = {}
        self._news = News(b"", b"")
        self._written: tuple[float, Claim | None] = 0.0, None
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
    def pause(self) -> float | None:
        """For how long nothing is looked at; None: until the run wishes something."""
        claim = self.standing.claim
        if claim.wanted:
            return self._pace.waiting
        return self._pace.holding if claim.held else None

    def should_look(self, passed: float) -> bool:
        """Whether it is time for a look.

        :param passed: seconds since the last one
        """
        claim = self.standing.claim
        if not claim.wanted and not claim.held:
            return False
        if passed >= (self._pace.look if claim.wanted else self._pace.beat):
            return True
        news = self._directory.news()
        return news.returned != self._news.returned if claim.wanted else news.asked != self._news.asked

    def look(self) -> Lease | None:
        """See what others hold and want, take what there is, and write it down."""
        with self._directory.locked():
            others = self._living(self._directory.others(), time.monotonic())
            self.others = tuple(entry for _, entry, _ in others)
            bandwidth = self._shared_bandwidth(others)
            claims = self._claims_of(others, bandwidth)
            before = self.standing.claim
            lease = self.standing.look(claims, bandwidth)
            self._write()
            after = self.standing.claim
            self._directory.tell(
                returned=any(amount(after.held, way) < amount(before.held, way) for way in WAYS)
                or bool(before.wanted and after.wanted != before.wanted),
                asked=bool(after.wanted and after.wanted != before.wanted)
                or not before.held.keys() >= after.held.keys(),
            )
            self._news = self._directory.news()
        return lease

    def _claims_of(self, others: list[tuple[str, Entry, float]], bandwidth: dict[Way, int]) -> list[Claim]:
        """The claims of others; of an entry that is the same as at the last look it is made once."""
        before, self._claims = self._claims, {}
        for identifier, entry, seconds in others:
            made = entry, bandwidth, seconds >= HOLDS_BACK_NOBODY
            known = before.get(identifier)
            if known is None or known[0][0] is not entry or known[0] != made:
                known = made, entry.claim(identifier, bandwidth, made[2])
            self._claims[identifier] = known
        return [claim for _, claim in self._claims.values()]

    def _write(self) -> None:
        claim, now = self.standing.claim, time.monotonic()
        written, last = self._written
        if claim == last and now - written < min(self._pace.beat, HOLDS_BACK_NOBODY / 4):
            return
        standing = self.standing
        self._entry = self._entry.model_copy(
            update={
                "now": time.time(),
                "beat": self._entry.beat + 1,
                "held": dict(claim.held),
                "wanted": dict(claim.wanted),
                "useful": dict(standing.useful),
                "ticket": claim.ticket,
                "asked": standing.asked,
                "due": claim.due,
            }
        )
        self._directory.write(self._entry)
        self._written = now, claim

    def _living(self, found: list[Other], now: float) -> list[tuple[str, Entry, float]]:
        """Those of whom something was heard, and for how long nothing was."""
        entries = {}
        for other in found:
            # One that is torn, or of a newer version: its run holds what it last held.
            if (entry := other.entry or self._last_known.get(other.identifier)) is not None:
                entries[other.identifier] = entry
        self._last_known = entries
        silent = self._silence.look({identifier: entry.beat for identifier, entry in entries.items()}, now)
        living = []
        for identifier, entry in entries.items():
            # Who uses nothing, and waits for nothing, has nothing to say.
            seconds = silent[identifier] if entry.held or entry.wanted else 0.0
            if seconds < HOLDS_NOTHING:
                living.append((identifier, entry, seconds))
            elif entry.held:
                self._warn_once(
                    f"run {entry.run!r} on {entry.host!r} (process {entry.pid}) has not been heard of for "
                    f"{HOLDS_NOTHING:g} s: what it holds is given to others"
                )
        return living

    def _shared_bandwidth(self, others: list[tuple[str, Entry, float]]) -> dict[Way, int]:
        if (given := self._directory.ledger.bandwidth) is not None:
            if given != self._bandwidth:
                self._warn_once(f"its bandwidth is {_shown(given)}, not {_shown(self._bandwidth)}: it is shared so")
            return given
        bandwidth = dict(self._bandwidth)
        for _, entry, _ in others:
            for way in WAYS:
                if 0 < (said := entry.bandwidth.get(way, 0)) < bandwidth[way]:
                    bandwidth[way] = said
                    self._warn_once(
                        f"run {entry.run!r} on {entry.host!r} says that it has {_shown(entry.bandwidth)}, not "
                        f"{_shown(self._bandwidth)}: the least holds"
                    )
        return bandwidth

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)


def _who(entries: Iterable[Entry], verb: str, of: Callable[[Entry], Amounts]) -> tuple[str, ...]:
    return tuple(
        f"run {entry.run!r} on {entry.host!r} (process {entry.pid}) {verb} "
        + " and ".join(f"{much / 1e6:g} MB/s ({way})" for way, much in sorted(positive(of(entry)).items()))
        for entry in entries
        if positive(of(entry))
    )


def _shown(bandwidth: Amounts) -> str:
    return " and ".join(f"{amount(bandwidth, way) / 1e6:g} MB/s ({way})" for way in ("write", "read"))


def _reason(error: Exception) -> str:
    if isinstance(error, SharingError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    return repr(error)
