"""The rhythm of the phases of a channel, and the expected time of the next phase.

The rhythm is computed from the times when phases were ready. Limited phases take longer, so their throughput over time
has no rhythm any more. FTIO finds a period in the spectrum of the sum of all channels. No spectrum is needed where the
channels are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

from msgspec import Struct

from .phases import Phase

# Fewer phases have no rhythm.
LEAST_PHASES = 4
# The most deviation, in periods, that counts as regular.
MOST_DEVIATION = 0.15
# The standard deviation of a normal distribution is this many times its median absolute deviation.
_NORMAL = 1.48


class Rhythm(Struct, frozen=True):
    """The rhythm of some times.

    :ivar period: seconds
    :ivar deviation: the standard deviation of the period, robustly estimated; seconds
    """

    period: float
    deviation: float

    @property
    def is_regular(self) -> bool:
        return self.period > 0 and self.deviation <= MOST_DEVIATION * self.period


class ForetoldPhase(Struct, frozen=True):
    """A prediction of the next phase of a channel.

    :ivar time: when the phase is ready, +- `tolerance`
    :ivar seconds: how long it moves
    """

    time: float
    tolerance: float
    bytes: int
    seconds: float


def rhythm(starts: Iterable[float]) -> Rhythm | None:
    """Return the rhythm of some times. None: too few times for a rhythm."""
    times = sorted(starts)
    if len(times) < LEAST_PHASES:
        return None
    periods = [later - earlier for earlier, later in pairwise(times)]
    period = median(periods)
    return Rhythm(period, _NORMAL * median(abs(one - period) for one in periods))


def next_burst(phases: Sequence[Phase]) -> ForetoldPhase | None:
    """Return the predicted phase after the phases of one channel. None: no rhythm."""
    found = rhythm(phase.ready for phase in phases)
    if found is None or not found.is_regular:
        return None
    return ForetoldPhase(
        max(phase.ready for phase in phases) + found.period,
        2 * found.deviation,
        round(median(phase.bytes for phase in phases)),
        median(phase.moving for phase in phases),
    )
