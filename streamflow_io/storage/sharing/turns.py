"""Turns: when the bursts of a run begin on a shared storage. At once, unless a feature gives them turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.models import Way

if TYPE_CHECKING:
    from streamflow_io.adapters.jobs import Listener
    from streamflow_io.records.records import LeaseRecord

    from .entries import Entry, LedgerFile

#: Message about a directory whose runs take turns, if no feature gives turns.
NO_TURNS = "its ledger says `holds: auto`, which needs the feature `schedules` of streamflow-io"


class BurstDelay(Struct, frozen=True):
    """The turn of a burst that begins.

    :ivar until: the burst asks for nothing before this time, by the wall clock
    :ivar due: when the burst should have its turn
    """

    until: float
    due: float


class Turns(Protocol):
    """The turns of one run in one directory. The thread of the directory calls all methods but :meth:`over`."""

    @property
    def hold(self) -> BurstDelay | None:
        """The turn of the burst that has begun. None: the burst asks for bandwidth at once."""

    def fields(self) -> Mapping[str, object]:
        """Return fields for the entry of the run, for the turns of other runs."""

    def begin(self, now: float) -> None:
        """Begin a burst."""

    def end(self) -> None:
        """Note that the run uses nothing and waits for nothing."""

    def look(
        self, others: Mapping[str, Entry], bandwidth: Mapping[Way, float], apart: float, monotonic: float, now: float
    ) -> None:
        """Look at the runs that are there.

        :param others: the entries of the other runs, by their names
        :param bandwidth: the storage's bandwidth, in MB/s
        :param apart: by how many seconds the clocks of the runs differ
        :param monotonic: seconds of a clock that never goes back
        :param now: seconds on the wall clock
        """

    def over(self) -> None:
        """End a burst that had jobs. The event loop calls this method."""

    def close(self) -> None:
        """End the turns of the run."""


class TurnPolicy:
    """Gives turns to the bursts of a run, in directories with `holds: auto`. A feature extends this class."""

    def listeners(self) -> Sequence[Listener]:
        """Return what is to hear of the jobs of this run, before they are admitted."""
        return ()

    def leased(self, lease: LeaseRecord) -> None:
        """Note that this run has another share of a storage."""

    def join(
        self, storage: StorageConfig, directory: PurePath, mine: bool, ledger: LedgerFile, own: str
    ) -> Turns | None:
        """Return the turns of this run in a directory. None: each burst asks for bandwidth at once.

        :param mine: only the runs of this user share the directory
        :param own: the name of the entry of this run
        """
        return None

    def status(self, directory: PurePath, entries: Mapping[str, Entry]) -> str:
        """Say what the runs in a directory do about turns, for people."""
        return f"no turns: {NO_TURNS}"
