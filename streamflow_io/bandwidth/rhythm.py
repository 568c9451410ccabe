"""The rhythm of some times, such as those at which a job began to write.

FTIO finds a period in the spectrum of the sum of all channels. No spectrum is needed where the channels are known.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from statistics import median

from msgspec import Struct

# Fewer times have no rhythm.
LEAST_TIMES = 4
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


def rhythm(starts: Iterable[float]) -> Rhythm | None:
    """Return the rhythm of some times. None: too few times for a rhythm."""
    times = sorted(starts)
    if len(times) < LEAST_TIMES:
        return None
    periods = [later - earlier for earlier, later in pairwise(times)]
    period = median(periods)
    return Rhythm(period, _NORMAL * median(abs(one - period) for one in periods))
