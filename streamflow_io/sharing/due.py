"""When a burst should have had its turn.

A burst is all that a run does with a storage until it neither uses it nor waits for it. Small bursts are due soon, so
that a run with little I/O is not slowed down by one with much; each is due at some time, so that none starves.
"""

from __future__ import annotations

import math

# As long as it would take alone, so many times. From 3 to 10 there is no difference in simulations; 1 is first come,
# first served.
FACTOR = 3.0
#: Of a burst, or a job, of which nobody knows how long it takes: not 0, or it would be due before all others.
UNKNOWN_SECONDS = 1.0


def due(asked: float, seconds: float) -> float:
    """When a burst is due.

    :param asked: when it began
    :param seconds: how long it takes if the storage is its alone; 0: not known
    """
    return asked + FACTOR * (seconds if math.isfinite(seconds) and seconds > 0 else UNKNOWN_SECONDS)


def takes(asked: float, due: float) -> float:
    """How long a burst takes alone, by when it is due; 0: not known."""
    return max(0.0, (due - asked) / FACTOR)
