"""Requests, the phases of a channel, and how fast each had to move, and did.

A **request** is what a job moves and nobody waits for at once. A **channel** issues requests one after the other, as a
process does in the paper. Requests of a channel that are ready at the same time are one **phase** of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from streamflow_io.grouping import grouped
from streamflow_io.hints.models import Direction, Way
from streamflow_io.hints.reasons import EndRule, RequestKind
from streamflow_io.series import covered

SHORTEST_WINDOW = 0.05
LEAST_BYTES = 1_000_000


@dataclass(frozen=True)
class Request:
    """What was moved at once.

    :ivar channel: what issues such requests one after the other
    :ivar phase: of its channel, from 0
    :ivar ready: when it could start
    :ivar started: when it began to move
    :ivar ended: when all was moved
    :ivar required: its required end: when somebody first waits for it; not before `ready`
    :ivar rule: why then
    :ivar is_estimate: the required end is not known for certain
    :ivar storage: the storage that it uses, if it is known
    :ivar limit: how fast it was allowed to move at its start, bytes/s; None: as fast as it can
    """

    job: str
    step: str
    channel: str
    phase: int
    direction: Direction
    bytes: int
    ready: float
    started: float
    ended: float
    required: float
    rule: EndRule
    is_estimate: bool = False
    storage: str | None = None
    limit: float | None = None
    kind: RequestKind = "task"

    @property
    def window(self) -> float:
        """The time that it may take without that anybody waits for it."""
        return self.required - self.ready


def is_exposed(window: float, moved: int) -> bool:
    """Whether a request counts as synchronous: somebody waits for it at once, or it is small."""
    return window < SHORTEST_WINDOW or moved < LEAST_BYTES


def direction_of(request: Request) -> Way:
    """Where a request counts; one in both directions as written."""
    return "read" if request.direction == "read" else "write"


@dataclass(frozen=True)
class Phase:
    """Requests of a channel that were ready at the same time, none of them exposed; at least one."""

    requests: Sequence[Request]

    @property
    def first(self) -> Request:
        return self.requests[0]

    @property
    def bytes(self) -> int:
        return sum(request.bytes for request in self.requests)

    @cached_property
    def ready(self) -> float:
        return min(request.ready for request in self.requests)

    @cached_property
    def required(self) -> float:
        """When somebody first waits for one of them."""
        return min(request.required for request in self.requests)

    @property
    def is_limited(self) -> bool:
        """Whether one of them had a limit when it started."""
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
        """The required bandwidth B, bytes/s: the least with which nobody would have waited (the paper's equation 1)."""
        return sum(request.bytes / max(self.required - request.ready, SHORTEST_WINDOW) for request in self.requests)

    @cached_property
    def moving(self) -> float:
        """For how many seconds at least one of them moved."""
        return covered((request.started, request.ended) for request in self.requests)

    @property
    def throughput(self) -> float | None:
        """T, bytes/s: how fast they did move (the paper's equation 2). None: in no time that could be measured."""
        return self.bytes / self.moving if self.moving > 0 else None

    @cached_property
    def hidden(self) -> float:
        """For how many seconds at least one of them moved while nobody waited for any."""
        return covered(
            (request.started, min(request.ended, self.required))
            for request in self.requests
            if request.started < self.required
        )

    @property
    def wait(self) -> float:
        """How long after its required end all was moved."""
        return max(0.0, self.ended - self.required)


def phases(requests: Iterable[Request]) -> list[Phase]:
    """The phases of all channels, by the time when they were ready; without what is exposed."""
    counted = sorted((one for one in requests if one.rule != "exposed"), key=lambda one: one.ready)
    return [Phase(of_phase) for of_phase in grouped(counted, lambda one: (one.channel, one.phase)).values()]
