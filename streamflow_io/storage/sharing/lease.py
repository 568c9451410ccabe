"""Requests of a run for a storage that several runs share, and the leases that answer them.

Amounts are whole numbers of bytes per second.
"""

from __future__ import annotations

from msgspec import Struct, field

from streamflow_io.hints.models import WAYS, Way
from streamflow_io.storage.admission.storages import Amounts


def amount(amounts: Amounts, way: Way) -> int:
    """Return the amount in one direction, or 0 if there is no entry."""
    return amounts.get(way, 0)


def plus(one: Amounts, other: Amounts) -> dict[Way, int]:
    """Return the sum in each direction, without zeros."""
    return positive({way: amount(one, way) + amount(other, way) for way in WAYS})


def positive(amounts: Amounts) -> dict[Way, int]:
    """Return the entries with a positive amount."""
    return {way: much for way, much in amounts.items() if much > 0}


class LeaseRequest(Struct, frozen=True):
    """All that a run wants of a storage at one moment. Each request replaces the one before.

    :ivar kept: bandwidth that the run keeps of its leases, at least what its running jobs use. Kept bandwidth is never
        taken away. Other held bandwidth goes back, except what leases after `seen` gave
    :ivar lacks: what the first waiting job lacks beyond `kept`. The job gets all of it, or nothing. Empty: no job waits
    :ivar together: one job lacks both directions, and they are given at once. Otherwise the directions belong to two
        jobs, and one may be given first
    :ivar useful: what all waiting jobs could use beyond `kept`, at least `lacks`. Given only while no other run wants
        anything
    :ivar seconds: how long the jobs of this burst, ended ones included, take if they have the storage for themselves.
        0: not known
    :ivar seen: the number of the last lease that the run has received. 0: none
    :ivar began: when this burst began, on the wall clock. Only with `lacks`
    """

    kept: Amounts = field(default_factory=dict)
    lacks: Amounts = field(default_factory=dict)
    together: bool = False
    useful: Amounts = field(default_factory=dict)
    seconds: float = 0.0
    seen: int = 0
    began: float = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether the run uses nothing, and waits for nothing."""
        return not positive(self.kept) and not positive(self.lacks)


class Lease(Struct, frozen=True):
    """The bandwidth that a run may use of a storage from now on.

    :ivar number: from 1, one more with each lease
    :ivar given: what the run may use beyond what it kept. The run adds it to what it holds, which may be less by now
        than at its request. For a single job the amount may be above the bandwidth. Empty: only `others`, `bandwidth`
        or `contended` has changed
    :ivar others: what other runs hold
    :ivar bandwidth: the storage's bandwidth, for all runs
    :ivar contended: the directions in which another run wants something. There, what a job returns goes back first
    """

    number: int
    given: Amounts
    others: Amounts
    bandwidth: Amounts
    contended: frozenset[Way] = frozenset()
