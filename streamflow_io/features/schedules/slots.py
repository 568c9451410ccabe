"""The slots of a pattern: when each application may begin to transfer, at the earliest."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from .model import Instance, Pattern


class Slots(Struct, frozen=True):
    """The slots of one run, in seconds since the schedule began for the first time.

    :ivar starts: in a period, in order; at least one
    """

    period: float
    starts: tuple[float, ...]

    def at(self, number: int) -> float:
        """The slot of the burst with a number, from 0."""
        cycles, index = divmod(number, len(self.starts))
        return cycles * self.period + self.starts[index]


def slots_of(pattern: Pattern) -> list[Slots]:
    """The slots of each application."""
    return [Slots(pattern.period, tuple(_starts(pattern.period, own))) for own in pattern.instances]


def _starts(period: float, instances: Sequence[Instance]) -> list[float]:
    """When the transfers begin of those instances that begin to compute in the first period."""
    ordered = sorted((one.work[0] % period, one.work[0], one.transfers[0].start) for one in instances)
    return [first + start - work for first, work, start in ordered]
