"""Required ends of requests: when jobs wait for the bytes that a job moves, found while a run goes on.

A request is ready when the input of its job is there. Its required end is the earliest of these:

1. `need`: a job that is no I/O task reads its files, and lacks nothing else. Other input of that job counts from when
   it was there; input that another request moves counts from when that request was ready.
2. `next`: the next request of its channel is ready. No job waits, but more is to be moved at once from then on.
3. `within`: the user has said after how long a job waits.
4. `end`: otherwise, when no job computes any more.

A request may move files that another I/O task reads. The two share the required end of the other: the time until then
is divided in proportion to their bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from streamflow_io.hints.models import Direction
from streamflow_io.hints.reasons import EndRule
from streamflow_io.records.records import RequestRecord

SHORTEST_WINDOW = 0.05
LEAST_BYTES = 1_000_000


def is_exposed(window: float, moved: int) -> bool:
    """Whether a request counts as synchronous: a job waits for it at once, or it is small."""
    return window < SHORTEST_WINDOW or moved < LEAST_BYTES


# In seconds. A required end may turn out to be earlier while StreamFlow has not reached another job that reads the
# files.
SETTLED_AFTER = 2.0


class Moved(Struct, frozen=True):
    """Bytes, times and limit of the job of a request, as in a :class:`RequestRecord`."""

    bytes: int
    started: float
    ended: float
    storage: str | None = None
    limit: float | None = None


class _RequiredEnd(Struct, frozen=True):
    time: float
    rule: EndRule


class _OpenPhase(Struct):
    """A phase of a channel.

    :ivar before: the window of the previous phase, in seconds. None: the phase is the first
    :ivar needed: when a job first waits for one of its requests. inf: not known
    :ivar following: when the next phase is ready. None: unknown
    :ivar changed: when `following` was set
    """

    number: int
    ready: float
    before: float | None = None
    needed: float = float("inf")
    following: float | None = None
    changed: float = float("-inf")


class UnreportedRequest(Struct, eq=False):
    """A request that is not reported yet.

    :ivar job: the name of the job
    :ivar end: the earliest known end, except the one by `next`
    :ivar sources: the requests that moved the input of this one
    :ivar readers: the requests that read the output of this one
    :ivar changed: when the facts about the request last changed
    """

    job: str
    step: str
    channel: str
    phase: _OpenPhase
    direction: Direction
    ready: float
    changed: float
    sources: list[UnreportedRequest]
    end: _RequiredEnd | None = None
    moved: Moved | None = None
    readers: list[UnreportedRequest] = field(default_factory=list)
    is_told: bool = False

    @property
    def required(self) -> _RequiredEnd | None:
        """The required end, as far as it is known before the last job has computed."""
        following = self.phase.following
        if following is None or (self.end is not None and self.end.time <= following):
            return self.end
        return _RequiredEnd(following, "next")

    @property
    def required_end(self) -> float | None:
        """When a job first waits for the request. None: unknown so far."""
        end = self.required
        return None if end is None else end.time

    def move(self, moved: Moved, now: float) -> None:
        """Note that the job has succeeded."""
        self.moved, self.changed = moved, now

    def needed(self, end: _RequiredEnd, now: float) -> None:
        if self.end is None or end.time < self.end.time:
            self.end, self.changed = end, now
            self.phase.needed = min(self.phase.needed, end.time)


class Windows:
    """Finds the required ends of the requests of a run.

    The caller gives all times. `now` is the time of the report, and goes back no more than the clock does.
    """

    def __init__(self) -> None:
        # The requests by job; of a repeated job, the last one.
        self._requests: dict[str, UnreportedRequest] = {}
        self._untold: list[UnreportedRequest] = []
        self._looked = float("-inf")
        # The last phase of each channel.
        self._phases: dict[str, _OpenPhase] = {}
        self._last_computed: float | None = None

    def is_request(self, job: str) -> bool:
        """Whether a job has a request."""
        return job in self._requests

    def ready(
        self,
        job: str,
        step: str,
        channel: str,
        direction: Direction,
        at: float,
        now: float,
        reads: Iterable[str] = (),
        within: float | None = None,
    ) -> UnreportedRequest:
        """Return a new request of an I/O task that could start at a time, or the open request that has not moved.

        :param at: when the task could start
        :param reads: the jobs whose files it reads
        :param within: seconds after which a job waits for it, as the user has said. None: derived from other jobs
        """
        before = self._requests.get(job)
        if before is not None and before.moved is None:
            return before
        phase = self._phase_at(channel, at, now)
        sources = [self._requests[one] for one in dict.fromkeys(reads) if one in self._requests and one != job]
        opened = UnreportedRequest(job, step, channel, phase, direction, at, now, sources)
        if within is not None:
            opened.needed(_RequiredEnd(at + within, "within"), now)
        for source in sources:
            source.readers.append(opened)
        self._requests[job] = opened
        self._untold.append(opened)
        return opened

    def needed(self, reads: Iterable[str], others: float, now: float) -> None:
        """Note that a job that is no I/O task has all its input, or is about to read files while they are written.

        :param reads: the jobs whose files it reads
        :param others: when the last input from jobs without a request was there. -inf: no such input
        """
        requests = [self._requests[one] for one in reads if one in self._requests]
        if requests:
            time = max(others, *(request.ready for request in requests))
            for request in requests:
                request.needed(_RequiredEnd(time, "need"), now)

    def computed(self, at: float) -> None:
        """Note that a job that is no I/O task has ended."""
        self._last_computed = at if self._last_computed is None else max(self._last_computed, at)

    def settled(self, now: float) -> list[RequestRecord]:
        """Return the requests whose facts have not changed for :data:`SETTLED_AFTER`; each once."""
        found: list[RequestRecord] = []
        # There may be thousands of requests, and events come all the time.
        if abs(now - self._looked) < SETTLED_AFTER:
            return found
        self._looked = now
        for request in self._untold:
            is_known = request.required is not None and all(one.is_told for one in request.readers)
            if is_known and now >= max(request.changed, request.phase.changed) + SETTLED_AFTER:
                found += self._tell(request, now)
        self._untold = [request for request in self._untold if not request.is_told]
        return found

    def close(self, now: float) -> list[RequestRecord]:
        """Return all other requests that have moved bytes. No job may compute any more."""
        found: list[RequestRecord] = []
        # Requests come before the requests whose output they read.
        for request in sorted(self._untold, key=lambda one: -one.ready):
            found += self._tell(request, now)
        self._untold = []
        return sorted(found, key=lambda one: one.ready)

    def _phase_at(self, channel: str, at: float, now: float) -> _OpenPhase:
        """Return the phase of a request that is ready at a time."""
        last = self._phases.get(channel)
        if last is not None and at < last.ready + SHORTEST_WINDOW:
            return last
        if last is not None:
            last.following, last.changed = at, now
            phase = _OpenPhase(last.number + 1, at, max(0.0, min(at, last.needed) - last.ready))
        else:
            phase = _OpenPhase(0, at)
        self._phases[channel] = phase
        return phase

    def _tell(self, request: UnreportedRequest, now: float) -> Iterator[RequestRecord]:
        if request.moved is None or request.is_told:
            return
        request.is_told = True
        last = request.ready if self._last_computed is None else self._last_computed
        end = request.required or _RequiredEnd(last, "end")
        required = max(request.ready, end.time)
        moved = request.moved
        for source in request.sources:
            _share(source, moved.bytes, _RequiredEnd(required, end.rule))
        exposed = is_exposed(required - request.ready, moved.bytes)
        yield RequestRecord(
            time=now,
            job=request.job,
            step=request.step,
            channel=request.channel,
            phase=request.phase.number,
            direction=request.direction,
            bytes=moved.bytes,
            ready=request.ready,
            started=moved.started,
            ended=moved.ended,
            required=required,
            rule="exposed" if exposed else end.rule,
            storage=moved.storage,
            limit=moved.limit,
        )


def _share(source: UnreportedRequest, bytes_after: int, end: _RequiredEnd) -> None:
    """Give the request that moves first its part of the time until a job waits for the bytes of both."""
    if source.moved is None or source.moved.bytes + bytes_after <= 0:
        return
    part = source.moved.bytes / (source.moved.bytes + bytes_after)
    source.needed(_RequiredEnd(source.ready + (end.time - source.ready) * part, end.rule), source.changed)


def learned_window(request: RequestRecord) -> float | None:
    """The window of a finished request. None: the request is exposed, or belongs to no first phase."""
    return request.window if request.phase == 0 and request.rule != "exposed" else None
