"""A run's side of a shared storage: a thread that requests bandwidth for the run, and tells the run what it has."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

from streamflow_io.hints.models import WAYS
from streamflow_io.storage.admission.demand import Amounts

from .allocation import Lease, LeaseRequest, amount
from .directory import OpenDirectory, SharedDirectory, make_own
from .entries import Entry, LedgerFile
from .other_entries import SharingError
from .participant import Participant
from .session import LeaseSession, who
from .turns import NO_TURNS, BurstDelay, Turns

# How long a run that has ended waits for a file system that does not answer.
_CLOSE_SECONDS = 2.0


class LeaseClient:
    """A run among the runs that use a storage.

    A thread of the client does all work on files, so that a slow file system never stops the run. Nothing is opened
    before the first request that is not empty, or :meth:`watch`.

    The thread calls all callbacks below.

    :param run: the name of the run, for people
    :param bandwidth: the storage's bandwidth in the run's StreamFlow file
    :param tell: receives each lease
    :param failed: receives the reason, once, when sharing is over for this run. No further callback follows. The run
        keeps what it held
    :param warn: receives warnings for the user
    :param join: returns the turns of the run, in a directory with `holds: auto`. The arguments are the ledger and the
        name of the run's entry
    :param held: called when a burst is held back until its turn
    :ivar turns: the turns of the run. None: the directory has no turns, or is not open yet
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
        self.turns: Turns | None = None
        self._join = join
        self._hold_told = held
        self._directory = directory
        self._run = run
        self._bandwidth = {way: amount(bandwidth, way) for way in WAYS}
        self._tell, self._failed, self._warn = tell, failed, warn
        self._others: tuple[Entry, ...] = ()
        self._changed = threading.Condition()
        # The latest request, until the thread takes it.
        self._request: LeaseRequest | None = None
        self._watches = False
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"sharing {directory.storage}", daemon=True)
        self._thread.start()

    @property
    def holders(self) -> tuple[str, ...]:
        """Other runs that hold something, or else those that wait for something; as of the last look, for people."""
        others = self._others
        return who(others, "holds", lambda entry: entry.held) or who(others, "waits for", lambda entry: entry.wanted)

    def request(self, request: LeaseRequest) -> None:
        """Set what the run wants from now on. Never blocks."""
        with self._changed:
            self._request = request
            self._changed.notify()

    def watch(self) -> None:
        """Report from now on what others hold, also while the run requests nothing. Never blocks."""
        with self._changed:
            if not self._watches:
                self._watches = True
                self._request = self._request or LeaseRequest()
                self._changed.notify()

    def close(self) -> None:
        """Leave: free what the run held, and remove its entry. May be called twice. No callback follows."""
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
        except Exception as error:  # the run has to know that it is alone, whatever the error is
            if not self._closed:
                with suppress(Exception):
                    self._failed(_reason(error))

    def _wait(self, seconds: float | None) -> LeaseRequest | None:
        """Return the last request since the last call, or wait for one. None: no request in time, or closed."""
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
        """Wait until there is a reason to look. Returns a new request, if there is one."""
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
