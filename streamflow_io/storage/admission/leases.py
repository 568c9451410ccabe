"""Leases: the part of each shared storage that a run holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct, field

from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.models import WAYS, Way

from .demand import Amounts, bandwidth_account, bytes_per_second
from .epochs import Epoch
from .ledger import Account, Ledger


class Need(Struct, frozen=True):
    """The need of a job for bandwidth of a leased storage, beyond the bandwidth that other jobs of the run have.

    :ivar amounts: bytes per second in each direction
    :ivar each: bytes per second that further jobs of the step would use. 0: no further job may start with this one
    """

    step: str
    amounts: Amounts
    each: int


class _Leased(Struct):
    """A leased storage.

    :ivar held: bandwidth that the run holds
    :ivar others: bandwidth that other runs hold
    :ivar bandwidth: the bandwidth of the storage, for all runs. Empty: not known yet
    :ivar needs: needs of the jobs that could not start, in order of arrival
    :ivar epoch: the last epoch that had the storage for itself
    """

    held: Amounts = field(default_factory=dict)
    others: Amounts = field(default_factory=dict)
    bandwidth: Amounts = field(default_factory=dict)
    needs: list[Need] = field(default_factory=list)
    epoch: Epoch | None = None


class Leases:
    """The storages that a run shares with others. The capacity of their accounts is the bandwidth that the run holds.

    Guarantee: a lease that shrinks leaves the bandwidth that jobs have.

    :ivar changed: called when the bandwidth of a storage has changed for all runs
    """

    def __init__(self, ledger: Ledger) -> None:
        self.changed: Callable[[], None] = lambda: None
        self._ledger = ledger
        self._leased: dict[str, _Leased] = {}

    def add(self, storage: StorageConfig) -> None:
        """Lease a shared storage. From now on the run has only the bandwidth that :meth:`give` sets."""
        self._leased.setdefault(storage.name, _Leased())
        self.limit(storage)

    def remove(self, storage: StorageConfig) -> None:
        """End the lease of a storage: the run has all of it again."""
        if self._leased.pop(storage.name, None) is not None:
            for way, account in _accounts(storage).items():
                self._ledger.limit(account, _bandwidth(storage, way))
            self.changed()

    def has(self, storage: StorageConfig) -> bool:
        """Whether a storage is leased."""
        return storage.name in self._leased

    def give(self, storage: StorageConfig, held: Amounts, others: Amounts) -> None:
        """Set what this run and other runs hold of a storage. The run holds at least what its jobs have."""
        leased = self._leased[storage.name]
        leased.held, leased.others = held, others
        self.limit(storage)

    def share(self, storage: StorageConfig, bandwidth: Amounts) -> None:
        """Set the bandwidth of a leased storage for all runs, which may differ from that in the StreamFlow file."""
        leased = self._leased[storage.name]
        if leased.bandwidth != bandwidth:
            leased.bandwidth = bandwidth
            self.changed()

    def bandwidth(self, storage: StorageConfig, way: Way) -> int:
        """Return the bandwidth of a leased storage for all runs."""
        return self._leased[storage.name].bandwidth.get(way, _bandwidth(storage, way))

    def limit(self, storage: StorageConfig) -> None:
        """Set the capacity of a leased storage to the bandwidth that the run holds. Ignores other storages."""
        if (leased := self._leased.get(storage.name)) is not None:
            for way, account in _accounts(storage).items():
                self._ledger.limit(account, leased.held.get(way, 0))

    def held(self, storage: StorageConfig) -> Amounts:
        """Return the bandwidth that the run holds, which is at least what its jobs have."""
        return {way: self._ledger.capacity(account) for way, account in _accounts(storage).items()}

    def allocated(self, storage: StorageConfig) -> dict[Way, int]:
        """Return the bandwidth that jobs have."""
        return {way: self._ledger.allocated(account) for way, account in _accounts(storage).items()}

    def used(self, storage: StorageConfig) -> Amounts:
        """Return the bandwidth that must not be taken away.

        That is the bandwidth of jobs, or all while an epoch has the storage for itself.
        """
        epoch = self._leased[storage.name].epoch
        return self.held(storage) if epoch is not None and epoch.is_on else self.allocated(storage)

    def unheld(self, storage: StorageConfig, way: Way) -> int:
        """Return the bandwidth that neither a job of this run nor another run has."""
        others = self._leased[storage.name].others.get(way, 0)
        return max(0, self.bandwidth(storage, way) - others - self.allocated(storage)[way])

    # Needs

    def whole(self, storage: StorageConfig, step: str, job: Amounts) -> Need:
        """Return the need of an epoch that has a storage for itself: all that jobs of this run do not have.

        :param job: what the next job of the epoch needs: more than all, if a run with a lower bandwidth has come since
        """
        allocated = self.allocated(storage)
        left = {way: self.bandwidth(storage, way) - allocated[way] for way in WAYS}
        return Need(step, {way: max(0, job.get(way, 0), much) for way, much in left.items()}, 0)

    def is_held(self, storage: StorageConfig, need: Need) -> bool:
        """Whether the run holds what is needed."""
        held, allocated = self.held(storage), self.allocated(storage)
        return all(amount <= held[way] - allocated[way] for way, amount in need.amounts.items())

    def keep(self, storage: StorageConfig | None, epoch: Epoch) -> None:
        """Keep all held bandwidth of a storage until an epoch is over that has the storage for itself."""
        if storage is not None and self.has(storage):
            self._leased[storage.name].epoch = epoch

    def forget_needs(self) -> None:
        """Clear the needs, before a new decision."""
        for leased in self._leased.values():
            leased.needs.clear()

    def lacks(self, storage: StorageConfig, need: Need) -> None:
        """Add the need of a job that cannot start, or has to be asked about. Call in order of arrival."""
        self._leased[storage.name].needs.append(need)

    def needs(self, storage: StorageConfig) -> Sequence[Need]:
        """Return the needs of waiting jobs in order, without those that share a direction with an earlier one."""
        found: list[Need] = []
        for need in self._leased[storage.name].needs:
            if not any(need.amounts.keys() & other.amounts.keys() for other in found):
                found.append(need)
        return found


def _accounts(storage: StorageConfig) -> dict[Way, Account]:
    """Return the accounts of a storage that all locations share."""
    return {way: bandwidth_account(storage, way, "") for way in WAYS}


def _bandwidth(storage: StorageConfig, way: Way) -> int:
    return bytes_per_second(storage.bandwidth(way))
