"""How the open requests of a storage share its bandwidth: flat earliest deadline first. Pure.

In the order of their required ends, each gets what it needs to be in time, as far as there is so much; then, in the
same order, up to its limit. What is spared stays spared.

Guarantees: the sum never exceeds the bandwidth; of requests that are all open, none is late if any schedule can serve
them all, as long as the shares are found anew when one has ended. For up to the first request that gets less than it
needs all move at constant rates whose sum is at most the bandwidth, and from that one on all of it is used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class OpenRequest:
    """A request that moves, or waits for an I/O executor.

    :ivar remaining: bytes that are to be moved yet
    :ivar required: its required end; past it, it gets all there is
    :ivar limit: bytes/s; none: it is not limited
    """

    job: str
    remaining: float
    required: float
    limit: float | None = None

    def need(self, now: float) -> float:
        """The rate with which it is in time."""
        if self.remaining <= 0:
            return 0.0
        return self.remaining / (self.required - now) if self.required > now else inf

    def most(self, now: float) -> float:
        """The rate that it is not to exceed while others are in time."""
        return inf if self.limit is None or self.required <= now else self.limit


def shares(requests: Iterable[OpenRequest], bandwidth: float, now: float) -> dict[str, float]:
    """The rate of each request, by job; bytes/s.

    :param bandwidth: of the storage, without what others hold; bytes/s
    """
    ordered = sorted(requests, key=lambda one: (one.required, one.job))
    rates: dict[str, float] = {}
    left = max(0.0, bandwidth)
    for one in ordered:
        rates[one.job] = min(one.need(now), left)
        left -= rates[one.job]
    for one in ordered:
        more = min(max(0.0, one.most(now) - rates[one.job]), left) if one.remaining > 0 else 0.0
        rates[one.job] += more
        left -= more
    return rates
