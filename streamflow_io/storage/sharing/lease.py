"""What a run asks of a storage that several runs share, and what it has of it.

Amounts are whole numbers of bytes per second.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from streamflow_io.hints.models import WAYS, Way
from streamflow_io.storage.admission.storages import Amounts


def amount(amounts: Amounts, way: Way) -> int:
    """So much in one direction; 0 if nothing is said of it."""
    return amounts.get(way, 0)


def plus(one: Amounts, other: Amounts) -> dict[Way, int]:
    """The sum in each direction, without those where it is 0."""
    return positive({way: amount(one, way) + amount(other, way) for way in WAYS})


def positive(amounts: Amounts) -> dict[Way, int]:
    """Only the directions of which there is something."""
    return {way: much for way, much in amounts.items() if much > 0}


@dataclass(frozen=True)
class LeaseRequest:
    """All that a run wants of a storage at one moment; it replaces the request before.

    :ivar kept: what it keeps of what it was told that it holds, at least what its running jobs use. It is never taken
        away. What it held beyond goes back; what it was given by leases after `seen` is still held, too
    :ivar lacks: what its first waiting job lacks beyond `kept`: it gets all of it, or nothing; empty: no job waits
    :ivar together: what it lacks in the two directions is for one job, and given at once. Else they are of two jobs,
        and one may be given before the other
    :ivar useful: what all its waiting jobs could use beyond `kept`, at least `lacks`: given only while no other run
        wants anything
    :ivar seconds: how long the jobs of this burst, also those that have ended, take if the storage is theirs alone;
        0: not known
    :ivar seen: the number of the last lease that the run had been told, 0 for none
    :ivar began: when this burst began, on the wall clock; said of a run that lacks something
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


@dataclass(frozen=True)
class Lease:
    """What a run may use of a storage from now on.

    :ivar number: from 1, one more with each
    :ivar given: what the run may use beyond what it kept. The run adds it to what it thinks that it holds, which may be
        less by now than at its request. For a single job it may be above the bandwidth; empty: only what others do has
        changed
    :ivar others: what other runs hold
    :ivar bandwidth: of the storage, for all runs
    :ivar contended: where another run wants something: there, what a job returns goes back first
    """

    number: int
    given: Amounts
    others: Amounts
    bandwidth: Amounts
    contended: frozenset[Way] = frozenset()
