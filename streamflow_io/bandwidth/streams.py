"""Byte streams as channels: bursts of a growing file, when its readers have them, and how fast each reader is fed.

A burst of the producer is a request of each of its readers. The request is ready when its first byte and the reader are
there. The required end of the request is the beginning of the next burst: no job waits, but from then on more is to be
moved. No burst follows the last burst, which the reader needs now. So the last burst is exposed, and every limit ends
at the commit of the file.

The limit of a burst follows from the window of the burst before, by the strategy of :mod:`.strategies`. For the first
burst, the window comes from other readers of its step, or from an earlier run. A reader that is behind gets a higher
rate, so that it has the burst before the next one is expected. After that time the reader has no limit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct, field

from streamflow_io.hints.bandwidth import RequiredConstraint
from streamflow_io.hints.reasons import StreamReason

from .expectations import Learned
from .growths import GrowingFile, Growth, Growths, StreamBurst, StreamName
from .phases import IORequest, is_exposed
from .strategies import Limited, differs, next_limit

# The most reports about a stream's progress that are kept while no burst has followed.
_KEPT = 100


class StreamRate(Struct, frozen=True):
    """The rate of a stream from now on, in bytes per second. None: no limit."""

    name: StreamName
    step: str
    input: str
    rate: float | None
    reason: StreamReason


class _MeasuredStream(Struct, eq=False):
    """A byte stream of a reading job.

    :ivar limited: None: no limit
    :ivar due: when the next burst is expected. None: unknown
    :ivar fed: bytes at the last report, and an estimate since then: a stream with a rate keeps to it
    :ivar drained: how many bytes the stream had been given when it had all there were, and when; since the last burst
    :ivar ends: when the stream had been given each burst. None: the burst is not complete there
    :ivar limits: the rate at the start of each burst, in bytes per second. None: no limit
    :ivar rates: rates since the last burst, each with the time from which on it has held
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
        """How many bytes of bursts the stream was not given yet."""
        return self.growth.bursts[-1].end - self.fed if self.growth.bursts else 0.0

    @property
    def is_awaited(self) -> bool:
        """Whether the rate changes with time: the stream has a limit, and was not given all before the next burst."""
        is_limited = self.limited is not None and self.growth.committed is None
        return is_limited and self.due is not None and self.ends[-1] is None


class _ExpectedBurst(NamedTuple):
    """After how many seconds the next burst is expected, and how many bytes a burst has."""

    window: float
    bytes: float


class Streams:
    """The byte streams of a run. The caller gives all times, by one clock.

    The cost of a report about one stream does not depend on the number of others.
    """

    def __init__(self) -> None:
        self._growths = Growths()
        self._streams: dict[StreamName, _MeasuredStream] = {}
        self._of_jobs: dict[str, list[StreamName]] = {}
        # Streams with a report since the last look at the rates, and streams whose rate changes with time.
        self._told: dict[StreamName, None] = {}
        self._awaited: dict[StreamName, None] = {}
        # The newest rhythm of any stream of each step.
        self._newest: dict[str, _ExpectedBurst] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no stream has a rate that may change with time."""
        return not any(self._streams[name].left > 0 for name in self._awaited)

    @property
    def learned(self) -> dict[str, Learned]:
        """The facts to be remembered of outputs whose readers are limited."""
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
        """Open a stream of a reading job that begins an attempt.

        :param limit: None: the stream is measured, and not limited
        :param output: the output for which the growth of the file is remembered
        :param learned: what an earlier run has learned. What this run knows counts more
        :param is_complete: the file does not grow any more
        """
        self._leave(name)
        growth = self._growths.read(source, is_complete, now)
        growth.readers[name] = None
        channel = f"{name.job}/{input_name} of {source.job}"
        limited = None
        if limit is not None:
            limited, growth.output = Limited(limit.tolerance), output
            if learned is not None and learned.bytes is not None:
                self._newest.setdefault(step, _ExpectedBurst(learned.window, learned.bytes))
        stream = _MeasuredStream(name, step, input_name, channel, growth, now, limited)
        self._streams[name] = stream
        self._of_jobs.setdefault(name.job, []).append(name)
        self._told[name] = None
        first = self._newest.get(step)
        if limited is not None and first is not None and not growth.bursts:
            stream.limited = next_limit(limited, *first)
        for number in range(len(growth.bursts)):
            self._take(stream, number)
        if stream.limited is not None and growth.bursts:
            # The bursts were there before the stream, and it begins with this rate.
            stream.limits = [_rate(stream, stream.limited, now)[0]] * len(growth.bursts)

    def burst(self, source: GrowingFile, burst: StreamBurst) -> None:
        """Add a burst of a file that has ended."""
        growth = self._growths.burst(source, burst)
        for name in growth.readers:
            self._take(self._streams[name], len(growth.bursts) - 1)
        self._told |= growth.readers

    def committed(self, source: GrowingFile, now: float) -> None:
        """Note that a file is complete."""
        if (growth := self._growths.committed(source, now)) is not None:
            self._told |= growth.readers

    def drained(self, name: StreamName, fed: int, at: float) -> None:
        """Note that a stream has been given `fed` bytes, which is all there were."""
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

    def ended(self, job: str, succeeded: bool) -> list[IORequest]:
        """Close the streams and files of a job that has ended, with or without success.

        :return: the requests of its streams, if the job has succeeded
        """
        found: list[IORequest] = []
        for name in [*self._of_jobs.get(job, ())]:
            found += _requests(self._streams[name]) if succeeded else ()
            self._leave(name)
        self._growths.ended(job)
        return found

    def rate(self, name: StreamName) -> float | None:
        """Return how fast a stream may be fed now, in bytes per second. None: no limit."""
        return self._streams[name].rate if name in self._streams else None

    def rates(self, now: float) -> list[StreamRate]:
        """Return the new rates of streams whose rate has changed."""
        found: list[StreamRate] = []
        looked_at, self._told = self._told | self._awaited, {}
        for stream in map(self._streams.__getitem__, looked_at):
            if stream.limited is None:
                continue
            _advance(stream, now)
            rate, reason = _rate(stream, stream.limited, now)
            if differs(rate, stream.rate):
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

    def _take(self, stream: _MeasuredStream, number: int) -> None:
        """Count a burst for a stream."""
        bursts = stream.growth.bursts
        burst, start = bursts[number], max(bursts[number].start, stream.opened)
        index = bisect_left(stream.drained, (burst.end, 0.0))
        stream.ends.append(stream.drained[index][1] if index < len(stream.drained) else None)
        stream.drained = stream.drained[index:]
        held = [rate for since, rate in stream.rates if since <= start]
        stream.limits.append(held[-1] if held else None)
        stream.rates = stream.rates[-1:]
        if stream.fed == burst.end - burst.bytes:
            # The stream is fed since the first byte of the burst, though the report comes only now.
            stream.looked = start
        if number > 0:
            self._newest[stream.step] = _ExpectedBurst(burst.start - bursts[number - 1].start, burst.bytes)
        newest = self._newest.get(stream.step)
        if newest is None or is_exposed(newest.window, burst.bytes):
            stream.due = None
            return
        stream.due = burst.start + newest.window
        if stream.limited is not None:
            stream.limited = next_limit(stream.limited, newest.window, burst.bytes)


def _advance(stream: _MeasuredStream, now: float) -> None:
    if stream.rate is not None and stream.growth.bursts:
        most = max(stream.fed, stream.growth.bursts[-1].end)
        stream.fed = min(most, stream.fed + stream.rate * max(0.0, now - stream.looked))
    stream.looked = max(now, stream.looked)


def _rate(stream: _MeasuredStream, limited: Limited, now: float) -> tuple[float | None, StreamReason]:
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


def _requests(stream: _MeasuredStream) -> Iterator[IORequest]:
    """Yield the requests of a stream, burst by burst."""
    bursts, committed = stream.growth.bursts, stream.growth.committed
    for number, (burst, ended, limit) in enumerate(zip(bursts, stream.ends, stream.limits, strict=True)):
        if ended is None:
            return  # The reader has stopped before the end.
        ready = max(burst.start, stream.opened)
        ended, is_last = max(ended, ready), number + 1 == len(bursts)
        following = committed if is_last else bursts[number + 1].start
        required = ready if following is None else max(ready, following)
        yield IORequest(
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
