"""The limit of the next phase of a channel, from the phases before.

This is the adaptive strategy of TMIO (`BW_LIMIT_STRATEGY` 2), as in its code: an increase at once, a decrease by half
of the difference. The window is carried over, not the rate, because phases differ in size.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

# The length of a window that StreamFlow's own time has used up, in seconds.
SHORTEST = 0.05
# Rates that differ by a smaller fraction count as the same.
_SAME = 0.05


class Limited(Struct, frozen=True):
    """A channel whose phases are limited.

    :ivar tolerance: factor on the required bandwidth; at least 1
    :ivar limit: the limit of the previous phase, in bytes per second. None: no limit
    """

    tolerance: float = 1.1
    limit: float | None = None


def next_limit(channel: Limited, window: float, moved: float, overhead: float = 0.0) -> Limited:
    """Return the channel with the limit of its next phase.

    :param window: the window of the previous phase, in seconds
    :param moved: the bytes of the next phase, as far as they are known
    :param overhead: StreamFlow's own time around a job, in seconds, in which nothing can be moved
    """
    required = channel.tolerance * moved / max(window - overhead, SHORTEST)
    before = channel.limit
    return replace(channel, limit=required if before is None else max(required, (required + before) / 2))


def differs(rate: float | None, before: float | None) -> bool:
    """Whether a job has to be told of a rate, because the rate before differs much. None: no limit."""
    if rate is None or before is None:
        return rate is not before
    return abs(rate - before) > _SAME * before
