"""A run's side of a shared storage: a thread that asks for what the run requests, and tells what it has."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

from streamflow_io.hints.models import WAYS
from streamflow_io.storage.admission.storages import Amounts

from .directory import OpenDirectory, SharedDirectory, make_own
from .entries import Entry, LedgerFile
from .lease import Lease, LeaseRequest, amount
from .locking import SharingError
from .participant import Participant
from .session import LeaseSession, who
from .turns import NO_TURNS, BurstDelay, Turns

# How long a run that has ended waits for a file system that does not answer.
_CLOSE_SECONDS = 2.0


class LeaseClient:
    """A run among those that use a storage.

    All that touches files happens in a thread of its own, so that a slow file system never stops the run. Nothing is
    opened before the first request that is not empty, or :meth:`watch`.

    :param run: what the run is called, for people
    :param bandwidth: of the storage, as the run's StreamFlow file has it
    :param tell: is told each lease, in the thread
    :param failed: is told once, in the thread, that sharing is over for this run, and why; nothing comes after it.
        What the run held stays its own
    :param warn: is told what the user should know, in the thread
    :param join: gives turns to the run, in a directory with `holds: auto`; is called in the thread with the ledger and
        the name of the run's entry
    :param held: is told when a burst is held back until its turn, in the thread
    """

    def __init__(
        self,
        directory: SharedDirectory,
        run: str,
        bandwidth: Amounts,
        tell: Callable[[Lease], None],
        failed: Callable[[str], None],
        warn: Callable[[str], None] = lambda _: None,
        join: Callable[[LedgerFile, str], Turns | None] = lambda *_: None,
        held: Callable[[BurstDelay], None] = lambda _: None,
    ) -> None:
        #: None: there are no turns in the directory, or the directory is not open yet.
        self.turns: Turns | None = None
        self._join = join
        self._hold_told = held
        self._directory = directory
        self._run = run
        self._bandwidth = {way: amount(bandwidth, way) for way in WAYS}
        self._tell, self._failed, self._warn = tell, failed, warn
        self._others: tuple[Entry, ...] = ()
        self._changed = threading.Condition()
        # That nobody has looked at yet.
        self._request: LeaseRequest | None = None
        self._watches = False
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"sharing {directory.storage}", daemon=True)
        self._thread.start()

    @property
    def holders(self) -> tuple[str, ...]:
        """Those that hold something, else those that wait for something; as of the last look, for people."""
        others = self._others
        return who(others, "holds", lambda entry: entry.held) or who(others, "waits for", lambda entry: entry.wanted)

    def request(self, request: LeaseRequest) -> None:
        """Say what the run wants from now on; never blocks."""
        with self._changed:
            self._request = request
            self._changed.notify()

    def watch(self) -> None:
        """From now on be told what others hold, also while the run requests nothing; never blocks."""
        with self._changed:
            if not self._watches:
                self._watches = True
                self._request = self._request or LeaseRequest()
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
            while first is not None and first.is_empty and not self._watches:
                first = self._wait(None)
            if first is not None:
                self._take_part(first)
        except Exception as error:  # whatever it is, the run has to know that it is alone
            if not self._closed:
                with suppress(Exception):
                    self._failed(_reason(error))

    def _wait(self, seconds: float | None) -> LeaseRequest | None:
        """The last request since the last call; waits for one, or for the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._request is not None, seconds)
            request, self._request = self._request, None
            return None if self._closed else request

    def _take_part(self, request: LeaseRequest | None) -> None:
        if self._directory.mine:
            make_own(self._directory)
        with ExitStack() as closing:
            directory = OpenDirectory.open(self._directory)
            closing.callback(directory.close)
            session = LeaseSession(directory, self._run, self._bandwidth, self._warn)
            if directory.ledger.holds == "auto":
                self._take_turns(session, directory.ledger, closing)
            while not self._closed:
                if request is not None:
                    self._requested(session.participant, request)
                session.participant.watches = self._watches
                lease = session.look()
                self._others = session.others
                if lease is not None and not self._closed:
                    self._tell(lease)
                request = self._until_a_look(session)

    def _take_turns(self, session: LeaseSession, ledger: LedgerFile, closing: ExitStack) -> None:
        self.turns = session.participant.turns = self._join(ledger, session.name)
        if self.turns is None:
            self._warn(f"the bursts of this run take no turns in {self._directory.path}: {NO_TURNS}")
        else:
            closing.callback(self.turns.close)

    def _requested(self, participant: Participant, request: LeaseRequest) -> None:
        before = participant.hold
        participant.request(request)
        hold = participant.hold
        if hold is not None and hold is not before and hold.until > request.began:
            self._hold_told(hold)

    def _until_a_look(self, session: LeaseSession) -> LeaseRequest | None:
        """Wait until there is a reason to look."""
        since = time.monotonic()
        while True:
            request = self._wait(session.pause)
            if request is not None or self._closed or session.should_look(time.monotonic() - since):
                return request


def _reason(error: Exception) -> str:
    if isinstance(error, SharingError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    return repr(error)
