"""The bandwidth ledger: who holds how much of what."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Account(NamedTuple):
    """Something of which there is so much and no more.

    :ivar resource: a storage in one direction, or the I/O executors
    :ivar location: where it is; none: one for all locations together
    """

    resource: str
    location: str | None = None


class Ledger:
    """Amounts of accounts that jobs hold.

    Guarantees: no account is ever allocated beyond its capacity; what a job holds is returned as a whole, once. Amounts
    are whole numbers (bytes per second, executors), so that nothing is lost in rounding.
    """

    def __init__(self) -> None:
        self._capacities: dict[Account, int] = {}
        self._allocated: dict[Account, int] = {}
        self._holders: dict[str, Mapping[Account, int]] = {}

    def open(self, account: Account, capacity: int) -> None:
        """Make an account known. One that is known keeps its capacity; :meth:`limit` changes it."""
        self._capacities.setdefault(account, capacity)
        self._allocated.setdefault(account, 0)

    def limit(self, account: Account, capacity: int) -> None:
        """Let an account have another capacity, but not less than is allocated of it."""
        self._capacities[account] = max(capacity, self._allocated.setdefault(account, 0))

    def allocated(self, account: Account) -> int:
        return self._allocated[account]

    def capacity(self, account: Account) -> int:
        return self._capacities[account]

    def free(self, account: Account) -> int:
        return self._capacities[account] - self._allocated[account]

    def fits(self, amounts: Mapping[Account, int]) -> bool:
        return all(amount <= self.free(account) for account, amount in amounts.items())

    def allocate(self, job: str, amounts: Mapping[Account, int]) -> None:
        """Give amounts to a job, all of them.

        :raises ValueError: if it holds some already, or if they do not fit; nothing is given then
        """
        if job in self._holders:
            raise ValueError(f"{job} holds something already")
        if not self.fits(amounts):
            raise ValueError(f"not enough is free for {job}")
        self._holders[job] = MappingProxyType(dict(amounts))
        for account, amount in amounts.items():
            self._allocated[account] += amount

    def holds(self, job: str) -> Mapping[Account, int] | None:
        """What a job holds."""
        return self._holders.get(job)

    def release(self, job: str) -> Mapping[Account, int]:
        """Take back what a job holds; nothing if it holds nothing.

        :return: what it held
        """
        held = self._holders.pop(job, {})
        for account, amount in held.items():
            self._allocated[account] -= amount
        return held
