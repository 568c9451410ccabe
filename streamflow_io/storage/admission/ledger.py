"""The bandwidth ledger: which job holds how much of each resource."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import NamedTuple


class Account(NamedTuple):
    """A resource with a limited amount.

    :ivar resource: a storage in one direction, or the I/O executors
    :ivar location: where the resource is. None: all locations share one account
    """

    resource: str
    location: str | None = None


class Ledger:
    """The amounts of accounts that jobs hold. Any hashable object stands for a job.

    Guarantees: no account is ever allocated beyond its capacity. All that a job holds is returned at once, and once.
    Amounts are whole numbers (bytes per second, executors), so that nothing is lost in rounding.
    """

    def __init__(self) -> None:
        self._capacities: dict[Account, int] = {}
        self._allocated: dict[Account, int] = {}
        self._holders: dict[Hashable, Mapping[Account, int]] = {}

    def open(self, account: Account, capacity: int) -> None:
        """Add an account. A known account keeps its capacity; :meth:`limit` changes it."""
        self._capacities.setdefault(account, capacity)
        self._allocated.setdefault(account, 0)

    def limit(self, account: Account, capacity: int) -> None:
        """Set the capacity of an account, but not below the allocated amount."""
        self._capacities[account] = max(capacity, self._allocated.setdefault(account, 0))

    def allocated(self, account: Account) -> int:
        return self._allocated[account]

    def capacity(self, account: Account) -> int:
        return self._capacities[account]

    def free(self, account: Account) -> int:
        return self._capacities[account] - self._allocated[account]

    def fits(self, amounts: Mapping[Account, int]) -> bool:
        return all(amount <= self.free(account) for account, amount in amounts.items())

    def allocate(self, job: Hashable, amounts: Mapping[Account, int]) -> None:
        """Give a job all of some amounts.

        :raises ValueError: if the job holds some already, or if the amounts do not fit; then nothing is given
        """
        if job in self._holders:
            raise ValueError(f"{job} holds something already")
        if not self.fits(amounts):
            raise ValueError(f"not enough is free for {job}")
        self._holders[job] = MappingProxyType(dict(amounts))
        for account, amount in amounts.items():
            self._allocated[account] += amount

    def holds(self, job: Hashable) -> Mapping[Account, int] | None:
        """Return the amounts that a job holds. None: the job holds nothing."""
        return self._holders.get(job)

    def release(self, job: Hashable) -> Mapping[Account, int]:
        """Take back all that a job holds.

        :return: the amounts, empty if the job held nothing
        """
        held = self._holders.pop(job, {})
        for account, amount in held.items():
            self._allocated[account] -= amount
        return held
