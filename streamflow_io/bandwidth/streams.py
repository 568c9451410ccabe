"""Byte streams as channels: bursts of a file that grows, when its readers have them, how fast each is fed.

A burst of the producer is a request of each of its readers. It is ready when its first byte is there, and the reader
is; its required end is the beginning of the next burst: nobody waits, but from then on more is to be moved. No burst
follows the last one, and the reader needs it now: it is exposed, and at the commit of the file every limit ends.

The limit of a burst follows from the window of the one before, by the strategies of :mod:`.strategies`; that of the
first one from those of other readers of its step, or of an earlier run. A reader that is behind gets as much more as it
needs to have the burst before the next is expected, and past that it has no limit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from streamflow_io.hints.bandwidth import RequiredConstraint
from streamflow_io.hints.reasons import StreamReason

from .expectations import Learned
from .growths import GrowingFile, Growth, Growths, StreamBurst, StreamName
from .phases import Request, is_exposed
from .strategies import Limited, next_limit

# Of those that no burst has followed, so many are kept of what a stream has been given, and when.
_KEPT = 100
# A rate that differs by less is no other one.
_SAME = 0.05


@dataclass(frozen=True)
class StreamRate:
    """How fast a stream may be fed from now on: bytes/s; None: as fast as it is read."""

    name: StreamName
    step: str
    input: str
    rate: float | None
    reason: StreamReason


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
    growth: Growth
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
    def is_awaited(self) -> bool:
        """Whether its rate changes as time goes by: it has a limit, and was not given all before the next burst."""
        is_limited = self.limited is not None and self.growth.committed is None
        return is_limited and self.due is not None and self.ends[-1] is None


class _Rhythm(NamedTuple):
    """After how many seconds the next burst is expected, and how many bytes a burst has."""

    window: float
    bytes: float


class Streams:
    """The byte streams of a run. Times are given, those of one clock.

    What is told of one stream costs no more when there are many others.
    """

    def __init__(self) -> None:
        self._growths = Growths()
        self._streams: dict[StreamName, _Stream] = {}
        self._of_jobs: dict[str, list[StreamName]] = {}
        # Of which something was told since rates were looked at, and those whose rate changes as time goes by.
        self._told: dict[StreamName, None] = {}
        self._awaited: dict[StreamName, None] = {}
        # By step: of any of its streams.
        self._newest: dict[str, _Rhythm] = {}

    @property
    def is_idle(self) -> bool:
        """Whether there is no stream whose rate may change as time goes by."""
        return not any(self._streams[name].left > 0 for name in self._awaited)

    @property
    def learned(self) -> dict[str, Learned]:
        """What is to be remembered of outputs whose readers are limited."""
        return self._growths.learned

    def opened(
        self,
        name: StreamName,
        step: str,
        input_name: str,
        source: GrowingFile,
        limit: RequiredConstraint | None,
        now: float,
        output: str = "",
        learned: Learned | None = None,
        is_complete: bool = False,
    ) -> None:
        """A job that reads begins an attempt.

        :param limit: None: its bytes are measured, and not limited
        :param output: what is learned of the file is remembered for
        :param learned: what an earlier run has learned of it; what is known of this one counts more
        :param is_complete: the file does not grow any more
        """
        self._leave(name)
        growth = self._growths.read(source, is_complete, now)
        growth.readers[name] = None
        channel = f"{name.job}/{input_name} of {source.job}"
        limited = None
        if limit is not None:
            limited, growth.output = Limited(limit.strategy, limit.tolerance), output
            if learned is not None and learned.bytes is not None:
                self._newest.setdefault(step, _Rhythm(learned.window, learned.bytes))
        stream = _Stream(name, step, input_name, channel, growth, now, limited)
        self._streams[name] = stream
        self._of_jobs.setdefault(name.job, []).append(name)
        self._told[name] = None
        first = self._newest.get(step)
        if limited is not None and first is not None and not growth.bursts:
            stream.limited = next_limit(limited, *first)
        for number in range(len(growth.bursts)):
            self._take(stream, number)
        if stream.limited is not None and growth.bursts:
            # They were there before it began, and it begins with this.
            stream.limits = [_rate(stream, stream.limited, now)[0]] * len(growth.bursts)

    def burst(self, source: GrowingFile, burst: StreamBurst) -> None:
        """A burst of a file has ended."""
        growth = self._growths.burst(source, burst)
        for name in growth.readers:
            self._take(self._streams[name], len(growth.bursts) - 1)
        self._told |= growth.readers

    def committed(self, source: GrowingFile, now: float) -> None:
        """A file is complete."""
        if (growth := self._growths.committed(source, now)) is not None:
            self._told |= growth.readers

    def drained(self, name: StreamName, fed: int, at: float) -> None:
        """A stream has been given so many bytes: all that there were."""
        if (stream := self._streams.get(name)) is None:
            return
        stream.drained = [*stream.drained[-_KEPT:], (fed, at)]
        stream.fed, stream.looked = fed, at
        self._told[name] = None
        for number in reversed(range(len(stream.ends))):
            if stream.ends[number] is not None:
                break
            if stream.growth.bursts[number].end <= fed:
                stream.ends[number] = at

    def ended(self, job: str, succeeded: bool) -> list[Request]:
        """A job has ended, however: it reads nothing any more, and writes nothing.

        :return: what it was given, if it has succeeded
        """
        found: list[Request] = []
        for name in [*self._of_jobs.get(job, ())]:
            found += _requests(self._streams[name]) if succeeded else ()
            self._leave(name)
        self._growths.ended(job)
        return found

    def rate(self, name: StreamName) -> float | None:
        """How fast a stream may be fed now, bytes/s; None: as fast as it is read."""
        return self._streams[name].rate if name in self._streams else None

    def rates(self, now: float) -> list[StreamRate]:
        """The streams that have another rate from now on."""
        found: list[StreamRate] = []
        looked_at, self._told = self._told | self._awaited, {}
        for stream in map(self._streams.__getitem__, looked_at):
            if stream.limited is None:
                continue
            _advance(stream, now)
            rate, reason = _rate(stream, stream.limited, now)
            if _differs(rate, stream.rate):
                stream.rates.append((now, rate))
                found.append(StreamRate(stream.name, stream.step, stream.input, rate, reason))
            if stream.is_awaited:
                self._awaited[stream.name] = None
            else:
                self._awaited.pop(stream.name, None)
        return found

    def _leave(self, name: StreamName) -> None:
        """Forget a stream, if there is one."""
        if (stream := self._streams.pop(name, None)) is not None:
            stream.growth.readers.pop(name, None)
            of_job = self._of_jobs[name.job]
            of_job.remove(name)
            if not of_job:
                del self._of_jobs[name.job]
            self._told.pop(name, None)
            self._awaited.pop(name, None)

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
            stream.looked = start
        if number > 0:
            self._newest[stream.step] = _Rhythm(burst.start - bursts[number - 1].start, burst.bytes)
        newest = self._newest.get(stream.step)
        if newest is None or is_exposed(newest.window, burst.bytes):
            stream.due = None
            return
        stream.due = burst.start + newest.window
        if stream.limited is not None:
            stream.limited = next_limit(stream.limited, newest.window, burst.bytes)


def _advance(stream: _Stream, now: float) -> None:
    if stream.rate is not None and stream.growth.bursts:
        most = max(stream.fed, stream.growth.bursts[-1].end)
        stream.fed = min(most, stream.fed + stream.rate * max(0.0, now - stream.looked))
    stream.looked = max(now, stream.looked)


def _rate(stream: _Stream, limited: Limited, now: float) -> tuple[float | None, StreamReason]:
    if stream.growth.committed is not None:
        return None, "commit"
    if not stream.growth.bursts:
        return limited.limit, "strategy"
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
