"""Byte streams as channels: bursts of a file that grows, when its readers have them, how fast each is fed. Pure.

A burst of the producer is a request of each of its readers. It is ready when its first byte is there, and the reader
is; its required end is the beginning of the next burst: nobody waits, but from then on more is to be moved. No burst
follows the last one, and the reader needs it now: it is exposed, and at the commit of the file every limit ends.

The limit of a burst follows from the window of the one before, by the strategies of :mod:`.strategies`. A reader that
is behind gets as much more as it needs to have the burst before the next is expected, and past that it has no limit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from streamflow_io.hints.bandwidth import RequiredConstraint

from .phases import Request, is_exposed
from .strategies import Limited, next_limit

#: Why a stream has its rate: by its strategy; it needs more to be in time (`need`); the next burst is expected, and it
#: has not got this one (`late`); the file is complete, and what is left of it is needed now (`commit`).
StreamReason = Literal["strategy", "need", "late", "commit"]

# Of those that no burst has followed, so many are kept of what a stream has been given, and when.
_KEPT = 100
# A rate that differs by less is no other one.
_SAME = 0.05


class Source(NamedTuple):
    """A file that is read while it is written: of which job and output, and its path."""

    job: str
    port: str
    path: str


class StreamName(NamedTuple):
    """A byte stream of a job that reads; `stream` is unique among those of the job."""

    job: str
    stream: str


@dataclass(frozen=True)
class Burst:
    """What a file has grown by at once.

    :ivar start: when its first byte was there
    :ivar end: bytes of the file when it ended
    """

    start: float
    bytes: int
    end: int


@dataclass(frozen=True)
class StreamRate:
    """How fast a stream may be fed from now on: bytes/s; None: as fast as it is read."""

    name: StreamName
    step: str
    input: str
    rate: float | None
    reason: StreamReason


@dataclass(eq=False)
class _Growth:
    """How a file has grown; `committed`: when it was complete."""

    bursts: list[Burst] = field(default_factory=list)
    committed: float | None = None


@dataclass(eq=False)
class _Stream:
    """:ivar limited: None: it has no limit
    :ivar due: when the next burst is expected; None: nobody knows
    :ivar fed: as it was told last, and an estimate since: a stream that has a rate keeps to it
    :ivar drained: the bytes that it was given when all was given that there was, and when, since the last burst
    :ivar ends: when each burst was given to it; None: not yet
    :ivar rates: its rates since the last burst, with the times from which on they have held
    """

    name: StreamName
    step: str
    input: str
    channel: str
    growth: _Growth
    opened: float
    limited: Limited | None
    due: float | None = None
    fed: float = 0.0
    looked: float = 0.0
    drained: list[tuple[int, float]] = field(default_factory=list)
    ends: list[float | None] = field(default_factory=list)
    limits: list[float | None] = field(default_factory=list)
    rates: list[tuple[float, float | None]] = field(default_factory=list)

    @property
    def rate(self) -> float | None:
        return self.rates[-1][1] if self.rates else None

    @property
    def left(self) -> float:
        """Bytes of bursts that it was not given yet."""
        return self.growth.bursts[-1].end - self.fed if self.growth.bursts else 0.0

    @property
    def is_behind(self) -> bool:
        return self.limited is not None and self.growth.committed is None and self.due is not None and self.left > 0


class Streams:
    """The byte streams of a run. Times are given, those of one clock."""

    def __init__(self) -> None:
        self._growths: dict[Source, _Growth] = {}
        self._streams: dict[StreamName, _Stream] = {}
        # By step: of any of its streams.
        self._newest: dict[str, float] = {}

    @property
    def is_idle(self) -> bool:
        """Whether there is no stream whose rate may change as time goes by."""
        return not any(stream.is_behind for stream in self._streams.values())

    def opened(
        self, name: StreamName, step: str, input_name: str, source: Source, limit: RequiredConstraint | None, now: float
    ) -> None:
        """A job that reads begins an attempt.

        :param limit: None: its bytes are measured, and not limited
        """
        growth = self._growths.setdefault(source, _Growth())
        channel = f"{name.job}/{input_name} of {source.job}"
        limited = None if limit is None else Limited(limit.strategy, limit.tolerance)
        stream = _Stream(name, step, input_name, channel, growth, now, limited)
        self._streams[name] = stream
        for number in range(len(growth.bursts)):
            self._take(stream, number)

    def burst(self, source: Source, burst: Burst) -> None:
        """A burst of a file has ended."""
        growth = self._growths.setdefault(source, _Growth())
        growth.bursts.append(burst)
        for stream in self._streams.values():
            if stream.growth is growth:
                self._take(stream, len(growth.bursts) - 1)

    def committed(self, source: Source, now: float) -> None:
        """A file is complete."""
        growth = self._growths.setdefault(source, _Growth())
        growth.committed = now if growth.committed is None else growth.committed

    def drained(self, name: StreamName, fed: int, at: float) -> None:
        """A stream has been given so many bytes: all that there were."""
        if (stream := self._streams.get(name)) is None:
            return
        stream.drained = [*stream.drained[-_KEPT:], (fed, at)]
        stream.fed, stream.looked = fed, at
        for number in reversed(range(len(stream.ends))):
            if stream.ends[number] is not None:
                break
            if stream.growth.bursts[number].end <= fed:
                stream.ends[number] = at

    def ended(self, job: str, succeeded: bool) -> list[Request]:
        """A job that reads has ended, however.

        :return: what it was given, if it has succeeded
        """
        found: list[Request] = []
        for name in [one for one in self._streams if one.job == job]:
            stream = self._streams.pop(name)
            found += _requests(stream) if succeeded else ()
        return found

    def rates(self, now: float) -> list[StreamRate]:
        """The streams that have another rate from now on."""
        found: list[StreamRate] = []
        for stream in self._streams.values():
            if stream.limited is None:
                continue
            _advance(stream, now)
            rate, reason = _rate(stream, stream.limited, now)
            if _differs(rate, stream.rate):
                stream.rates.append((now, rate))
                found.append(StreamRate(stream.name, stream.step, stream.input, rate, reason))
        return found

    def _take(self, stream: _Stream, number: int) -> None:
        """A burst counts for a stream."""
        bursts = stream.growth.bursts
        burst, start = bursts[number], max(bursts[number].start, stream.opened)
        index = bisect_left(stream.drained, (burst.end, 0.0))
        stream.ends.append(stream.drained[index][1] if index < len(stream.drained) else None)
        stream.drained = stream.drained[index:]
        held = [rate for since, rate in stream.rates if since <= start]
        stream.limits.append(held[-1] if held else None)
        stream.rates = stream.rates[-1:]
        if stream.fed == burst.end - burst.bytes:
            # It is fed since its first byte is there, though that is told only now.
            stream.looked = min(stream.looked, start)
        if number > 0:
            self._newest[stream.step] = burst.start - bursts[number - 1].start
        window = self._newest.get(stream.step)
        if window is None or is_exposed(window, burst.bytes):
            stream.due = None
            return
        stream.due = burst.start + window
        if stream.limited is not None:
            stream.limited = next_limit(stream.limited, window, burst.bytes)


def _advance(stream: _Stream, now: float) -> None:
    if stream.rate is not None and stream.growth.bursts:
        most = max(stream.fed, stream.growth.bursts[-1].end)
        stream.fed = min(most, stream.fed + stream.rate * max(0.0, now - stream.looked))
    stream.looked = max(now, stream.looked)


def _rate(stream: _Stream, limited: Limited, now: float) -> tuple[float | None, StreamReason]:
    if stream.growth.committed is not None:
        return None, "commit"
    if limited.limit is None or stream.due is None:
        return None, "strategy"
    if stream.ends[-1] is not None:
        return limited.limit, "strategy"
    if now >= stream.due:
        return None, "late"
    need = stream.left / (stream.due - now)
    return (limited.limit, "strategy") if need <= limited.limit else (need, "need")


def _differs(rate: float | None, before: float | None) -> bool:
    if rate is None or before is None:
        return rate is not before
    return abs(rate - before) > _SAME * before


def _requests(stream: _Stream) -> Iterator[Request]:
    """What a stream has been given, burst by burst."""
    bursts, committed = stream.growth.bursts, stream.growth.committed
    for number, (burst, ended, limit) in enumerate(zip(bursts, stream.ends, stream.limits, strict=True)):
        if ended is None:
            return  # Its reader wanted no more.
        ready = max(burst.start, stream.opened)
        ended, is_last = max(ended, ready), number + 1 == len(bursts)
        following = committed if is_last else bursts[number + 1].start
        required = ready if following is None else max(ready, following)
        yield Request(
            job=stream.name.job,
            step=stream.step,
            channel=stream.channel,
            phase=number,
            direction="read",
            bytes=burst.bytes,
            ready=ready,
            started=ready,
            ended=ended,
            required=required,
            rule="exposed" if is_last or is_exposed(required - ready, burst.bytes) else "next",
            limit=limit,
            kind="stream",
        )
