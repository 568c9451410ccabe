"""Whether it pays that runs follow a schedule of their bursts. Pure.

Jobs are no fluid, profiles are not exact, and a shared ledger with due dates is nearly as good as the best schedule:
so a schedule is followed only where a simulation of the measured runs says that it makes the slowest run faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from .curve import StorageCurve
from .jobs import PeriodicRun, alone, play
from .slots import Slots

#: So much less dilation of the slowest run than with due dates alone.
GAIN = 0.03


@dataclass(frozen=True)
class Worth:
    """:ivar due: dilation of the slowest run with due dates alone, the mean of all draws
    :ivar slots: the same, if all follow the schedule
    """

    due: float
    slots: float

    @property
    def is_enough(self) -> bool:
        return self.slots <= self.due * (1 - GAIN)

    def __str__(self) -> str:
        return f"dilation of the slowest run {self.slots:.3f} with the schedule, {self.due:.3f} without"


def worth(
    runs: Sequence[PeriodicRun],
    slots: Sequence[Slots],
    bandwidth: float,
    curve: StorageCurve,
    draws: Sequence[Sequence[float]],
) -> Worth:
    """Play runs with and without a schedule, each time with other works within the errors of their profiles.

    :param slots: of each run
    :param draws: at least one; in each, what the works of each run are multiplied with
    """
    due, followed = [], []
    for factors in draws:
        noise = partial(_noise, factors)
        own = alone(runs, bandwidth, curve, noise)
        due.append(max(play(runs, bandwidth, curve, "due", noise).dilations(own)))
        followed.append(max(play(runs, bandwidth, curve, "due", noise, slots).dilations(own)))
    return Worth(sum(due) / len(draws), sum(followed) / len(draws))


def _noise(factors: Sequence[float], run: int, _: int) -> float:
    return factors[run]
