"""Requests, the phases of a channel, and how fast each phase had to move and has moved.

A **request** is a set of bytes that a job moves and that no other job needs at once. A **channel** issues requests one
after the other, as a process does in the paper. Requests of a channel that are ready at the same time are one **phase**
of it.

The bandwidth of all phases together over time is the paper's equation 3. Between two neighbours of all starts and ends,
the sum of all rates is constant. Spans are half open: a span that ends and a span that starts at the same time do not
count together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from msgspec import Struct

from streamflow_io.bandwidth.windows import SHORTEST_WINDOW
from streamflow_io.grouping import grouped
from streamflow_io.hints.models import Way
from streamflow_io.records.records import RequestRecord
from streamflow_io.series import covered, sums


def direction_of(request: RequestRecord) -> Way:
    """Return the direction in which a request counts. A request in both directions counts as written."""
    return "read" if request.direction == "read" else "write"


class Phase(Struct, frozen=True, dict=True):
    """Requests of a channel that were ready at the same time, none of them exposed; at least one."""

    requests: Sequence[RequestRecord]

    @property
    def first(self) -> RequestRecord:
        return self.requests[0]

    @property
    def bytes(self) -> int:
        return sum(request.bytes for request in self.requests)

    @cached_property
    def ready(self) -> float:
        return min(request.ready for request in self.requests)

    @cached_property
    def required(self) -> float:
        """When a job first waits for one of the requests."""
        return min(request.required for request in self.requests)

    @property
    def is_limited(self) -> bool:
        """Whether one of the requests had a limit when it started."""
        return any(request.limit is not None for request in self.requests)

    @property
    def started(self) -> float:
        return min(request.started for request in self.requests)

    @property
    def ended(self) -> float:
        return max(request.ended for request in self.requests)

    @property
    def window(self) -> float:
        return self.required - self.ready

    @cached_property
    def needed(self) -> float:
        """The required bandwidth B, bytes per second: the least without a waiting job (the paper's equation 1)."""
        return sum(request.bytes / max(self.required - request.ready, SHORTEST_WINDOW) for request in self.requests)

    @cached_property
    def moving(self) -> float:
        """For how many seconds at least one of the requests moved."""
        return covered((request.started, request.ended) for request in self.requests)

    @property
    def throughput(self) -> float | None:
        """The throughput T, bytes per second (the paper's equation 2). None: no measurable time."""
        return self.bytes / self.moving if self.moving > 0 else None

    @property
    def wait(self) -> float:
        """How many seconds after the required end all bytes were moved."""
        return max(0.0, self.ended - self.required)


def phases(requests: Iterable[RequestRecord]) -> list[Phase]:
    """Return the phases of all channels, ordered by the time when they were ready. Exposed requests are left out."""
    counted = sorted((one for one in requests if one.rule != "exposed"), key=lambda one: one.ready)
    return [Phase(of_phase) for of_phase in grouped(counted, lambda one: (one.channel, one.phase)).values()]


# Start, end, rate.
Span = tuple[float, float, float]


def required_spans(phases: Iterable[Phase]) -> list[Span]:
    """Return the required bandwidth of each phase, from when the phase is ready to its required end."""
    return [(phase.ready, phase.required, phase.needed) for phase in phases]


def throughput_spans(phases: Iterable[Phase]) -> list[Span]:
    """Return the throughput of each phase, over the time in which it moved."""
    return [(phase.started, phase.ended, phase.throughput) for phase in phases if phase.throughput is not None]


def regions(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """Return the sum of the rates from each time until the next."""
    return sums(change for start, end, rate in spans if start < end for change in ((start, rate), (end, -rate)))


def most(spans: Iterable[Span]) -> float:
    """Return the largest sum of the rates at any time.

    For required bandwidths: the least bandwidth with which no job would have waited, all else being the same.
    """
    return max((rate for _, rate in regions(spans)), default=0.0)


Interval = tuple[float, float]


def overlap(of: Sequence[Interval], other: Sequence[Interval]) -> float | None:
    """Return the share of some intervals in which one of the other intervals was, too. None: the total time is 0.

    With jobs that compute and requests that move: how much of computing had I/O at the same time.
    """
    time = covered(of)
    if time <= 0:
        return None
    # |A and B| = |A| + |B| - |A or B|
    return max(0.0, time + covered(other) - covered((*of, *other))) / time
