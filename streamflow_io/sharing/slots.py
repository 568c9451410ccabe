"""When a run may begin its bursts, at the earliest. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Slots:
    """The slots of one run, in seconds since the schedule began for the first time.

    :ivar starts: in a period, in order; at least one
    """

    period: float
    starts: tuple[float, ...]

    def at(self, number: int) -> float:
        """Of the burst with a number, from 0."""
        cycles, index = divmod(number, len(self.starts))
        return cycles * self.period + self.starts[index]
