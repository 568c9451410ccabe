"""Shared storages of which a run has only as much as it was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.models import WAYS, Way

from .epochs import Epoch
from .ledger import Account, Ledger
from .storages import Amounts, bandwidth_account, bytes_per_second


@dataclass(frozen=True)
class Need:
    """What a job needs of a leased storage, beyond what other jobs of the run have.

    :ivar each: bytes per second that further jobs of the step would use; 0: none may start with it
    """

    step: str
    amounts: Amounts
    each: int


@dataclass
class _Leased:
    """
    :ivar held: by the run
    :ivar others: what other runs hold
    :ivar needs: of those jobs that could not start, in the order of arrival
    :ivar epoch: the last one that nobody was to disturb
    """

    storage: StorageConfig
    held: Amounts = field(default_factory=dict)
    others: Amounts = field(default_factory=dict)
    needs: list[Need] = field(default_factory=list)
    epoch: Epoch | None = None


class Leases:
    """The storages that a run shares with others: their accounts have the capacity that the run holds.

    Guarantee: a lease that is taken back leaves what jobs have.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._leased: dict[str, _Leased] = {}

    def add(self, storage: StorageConfig) -> None:
        """From now on there is nothing of a shared storage but what :meth:`give` gives."""
        self._leased.setdefault(storage.name, _Leased(storage))
        self.limit(storage)

    def remove(self, storage: StorageConfig) -> None:
        """A storage is the run's own again."""
        if self._leased.pop(storage.name, None) is not None:
            for way, account in _accounts(storage).items():
                self._ledger.limit(account, _bandwidth(storage, way))

    def has(self, storage: StorageConfig) -> bool:
        """Whether a storage is leased."""
        return storage.name in self._leased

    def give(self, storage: StorageConfig, held: Amounts, others: Amounts) -> None:
        """The run holds so much of a storage, or what its jobs have if that is more; other runs hold `others`."""
        leased = self._leased[storage.name]
        leased.held, leased.others = held, others
        self.limit(storage)

    def limit(self, storage: StorageConfig) -> None:
        """Let the accounts of a storage, if it is leased, have the capacity that is held."""
        if (leased := self._leased.get(storage.name)) is not None:
            for way, account in _accounts(storage).items():
                self._ledger.limit(account, leased.held.get(way, 0))

    def held(self, storage: StorageConfig) -> Amounts:
        """What the run holds: what jobs have, at least."""
        return {way: self._ledger.capacity(account) for way, account in _accounts(storage).items()}

    def allocated(self, storage: StorageConfig) -> dict[Way, int]:
        """What jobs have."""
        return {way: self._ledger.allocated(account) for way, account in _accounts(storage).items()}

    def used(self, storage: StorageConfig) -> Amounts:
        """What must not be taken away: what jobs have; all of it while an epoch has the storage for itself."""
        epoch = self._leased[storage.name].epoch
        return self.held(storage) if epoch is not None and epoch.is_on else self.allocated(storage)

    def unheld(self, storage: StorageConfig, way: Way) -> int:
        """What neither a job of this run nor another run has."""
        others = self._leased[storage.name].others.get(way, 0)
        return max(0, _bandwidth(storage, way) - others - self.allocated(storage)[way])

    # What is needed

    def whole(self, storage: StorageConfig, step: str) -> Need:
        """All of a storage, for an epoch that nobody is to disturb."""
        allocated = self.allocated(storage)
        return Need(step, {way: _bandwidth(storage, way) - much for way, much in allocated.items()}, 0)

    def is_held(self, storage: StorageConfig, need: Need) -> bool:
        """Whether the run holds what is needed."""
        held, allocated = self.held(storage), self.allocated(storage)
        return all(amount <= held[way] - allocated[way] for way, amount in need.amounts.items())

    def keep(self, storage: StorageConfig | None, epoch: Epoch) -> None:
        """An epoch has begun that has a storage for itself: what is held is kept until it is over."""
        if storage is not None and self.has(storage):
            self._leased[storage.name].epoch = epoch

    def forget_needs(self) -> None:
        """Who can start is decided anew."""
        for leased in self._leased.values():
            leased.needs.clear()

    def lacks(self, storage: StorageConfig, need: Need) -> None:
        """A job cannot start, or has to be asked about, that needs something; told in the order of arrival."""
        self._leased[storage.name].needs.append(need)

    def needs(self, storage: StorageConfig) -> Sequence[Need]:
        """What jobs that wait need: the first of them, and of the others the first that needs nothing of the same."""
        found: list[Need] = []
        for need in self._leased[storage.name].needs:
            if not any(need.amounts.keys() & other.amounts.keys() for other in found):
                found.append(need)
        return found


def _accounts(storage: StorageConfig) -> dict[Way, Account]:
    """Those of a storage that all locations share."""
    return {way: bandwidth_account(storage, way, "") for way in WAYS}


def _bandwidth(storage: StorageConfig, way: Way) -> int:
    return bytes_per_second(storage.bandwidth(way))
