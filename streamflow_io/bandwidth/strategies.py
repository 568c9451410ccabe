"""The limit of the next phase of a channel, from those before.

The three strategies of TMIO (`BW_LIMIT_STRATEGY` 0, 1 and 2), as in its code. What is carried over is the window, not
the rate: phases differ in size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from streamflow_io.hints.bandwidth import Strategy

# A window that StreamFlow's own time has used up is taken for this long.
SHORTEST = 0.05


@dataclass(frozen=True)
class Limited:
    """A channel whose phases are limited.

    :ivar tolerance: times what was required; at least 1
    :ivar limit: of the phase before, bytes/s; none: it had none
    """

    strategy: Strategy = "adaptive"
    tolerance: float = 1.1
    limit: float | None = None


def next_limit(channel: Limited, window: float, moved: float, overhead: float = 0.0) -> Limited:
    """The channel with the limit of its next phase.

    :param window: of the phase before
    :param moved: the bytes of the next phase, as far as they are known
    :param overhead: StreamFlow's own time around a job, which nothing can be moved in, s
    """
    required = channel.tolerance * moved / max(window - overhead, SHORTEST)
    before = channel.limit
    if before is None or channel.strategy == "direct" or required >= before:
        return replace(channel, limit=required)
    return channel if channel.strategy == "up-only" else replace(channel, limit=(required + before) / 2)
