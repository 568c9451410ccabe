"""Whether the phases of a channel come in a rhythm, and when the next one is to be expected.

From the times when they were ready: how long they take, and so the throughput over time, has no rhythm any more when it
is limited. The spectrum of the sum of all channels, with which FTIO finds a period, is not needed where they are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from .phases import Phase

# Of fewer phases nothing is said.
LEAST_PHASES = 4
# The most deviation, in periods, of what is called regular.
MOST_DEVIATION = 0.15
# The standard deviation of a normal distribution is this many times its median absolute deviation.
_NORMAL = 1.48


@dataclass(frozen=True)
class Rhythm:
    """:ivar deviation: the standard deviation of the period, robustly estimated; seconds"""

    period: float
    deviation: float

    @property
    def is_regular(self) -> bool:
        return self.period > 0 and self.deviation <= MOST_DEVIATION * self.period


@dataclass(frozen=True)
class ForetoldPhase:
    """The next phase of a channel, as far as can be foretold.

    :ivar time: when it is ready, +- `tolerance`
    :ivar seconds: how long it moves
    """

    time: float
    tolerance: float
    bytes: int
    seconds: float


def rhythm(starts: Iterable[float]) -> Rhythm | None:
    """The rhythm of some times; None: there are too few."""
    times = sorted(starts)
    if len(times) < LEAST_PHASES:
        return None
    periods = [later - earlier for earlier, later in pairwise(times)]
    period = median(periods)
    return Rhythm(period, _NORMAL * median(abs(one - period) for one in periods))


def next_burst(phases: Sequence[Phase]) -> ForetoldPhase | None:
    """The next phase after those of one channel; None: they have no rhythm."""
    found = rhythm(phase.ready for phase in phases)
    if found is None or not found.is_regular:
        return None
    return ForetoldPhase(
        max(phase.ready for phase in phases) + found.period,
        2 * found.deviation,
        round(median(phase.bytes for phase in phases)),
        median(phase.moving for phase in phases),
    )
