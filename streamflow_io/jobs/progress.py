"""Shows how far the byte streams of a run are, and what its jobs wait for, at most twice a second."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable

from msgspec import Struct

from streamflow_io.adapters.jobs import JobState
from streamflow_io.hints.reasons import StreamWait
from streamflow_io.records.jobs import WaitingCause
from streamflow_io.records.records import ProgressRecord, StreamProgress
from streamflow_io.runtime.protocol import FedEvent

_BETWEEN = 0.5
# The most streams that are shown.
_MOST = 200


class _ShownStream(Struct):
    """A byte stream that a job reads.

    :ivar output: as /step/port, as is `input`
    :ivar told: the time of the last event, by the clock of its node; None: no event has come
    :ivar since: when the stream began to move, or to stand still, by the clock of the driver
    """

    input: str | None
    output: str
    source: str
    since: float
    told: float | None = None
    bytes: int = 0
    rate: float | None = None
    waits: StreamWait | None = None


class Progress:
    """The present state of a run, which is in no record.

    :param show: called with the state when it has changed
    """

    def __init__(self, show: Callable[[ProgressRecord], None]) -> None:
        self._show = show
        self._streams: defaultdict[JobState, dict[str, _ShownStream]] = defaultdict(dict)
        self._causes: dict[JobState, WaitingCause] = {}
        self._waiting: defaultdict[str, Counter[WaitingCause]] = defaultdict(Counter)
        self._timer: asyncio.TimerHandle | None = None
        self._shown = 0.0

    def waits(self, job: JobState, cause: WaitingCause | None) -> None:
        """Note what a job waits for; None: for nothing that is known."""
        before = self._causes.get(job)
        if before == cause:
            return
        of_step = self._waiting[job.step]
        if before is not None:
            of_step[before] -= 1
            del self._causes[job]
        if cause is not None:
            of_step[cause] += 1
            self._causes[job] = cause
        self._changed()

    def reads(self, job: JobState, name: str, source: str, output: str, input_port: str | None) -> None:
        """Note that a job is about to read a byte stream.

        :param output: as /step/port, as is `input_port`
        """
        self._streams[job][name] = _ShownStream(input_port, output, source, time.time())
        self._changed()

    def fed(self, job: JobState, event: FedEvent) -> None:
        """Note how far a byte stream is."""
        if (stream := self._streams.get(job, {}).get(event.name)) is None:
            return
        now = time.time()
        rate = 0.0
        if not event.stalled:
            # Before the first event, the start of the movement is not known. Events come once a second.
            seconds = 1.0 if stream.told is None else event.time - stream.told
            rate = (event.bytes - stream.bytes) / max(seconds, 1e-3)
        if stream.rate is None or (rate > 0) is not (stream.rate > 0):
            # Clocks of hosts differ: only times of the same clock are subtracted.
            stood = 0.0 if rate > 0 or event.last is None else event.time - event.last
            stream.since = max(stream.since, now - stood)
        stream.bytes, stream.rate, stream.waits, stream.told = event.bytes, rate, event.waits, event.time
        self._changed()

    def ended(self, job: JobState, name: str) -> None:
        """Note that a byte stream of a job has ended."""
        if self._streams.get(job, {}).pop(name, None) is not None:
            self._changed()

    def job_ended(self, job: JobState) -> None:
        """Note that a job has ended: the job reads nothing, and waits for nothing."""
        self.waits(job, None)
        if self._streams.pop(job, None):
            self._changed()

    def close(self) -> None:
        """Show nothing any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _changed(self) -> None:
        if self._timer is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # without an event loop nothing is shown
            return
        self._timer = loop.call_later(max(0.0, self._shown + _BETWEEN - time.monotonic()), self._tell)

    def _tell(self) -> None:
        self._timer, self._shown = None, time.monotonic()
        going = [(job, stream) for job, streams in self._streams.items() for stream in streams.values()]
        waiting = {step: {cause: n for cause, n in of.items() if n} for step, of in self._waiting.items()}
        self._show(
            ProgressRecord(
                time=time.time(),
                streams=tuple(_record(job, stream) for job, stream in going[:_MOST]),
                more=max(0, len(going) - _MOST),
                waiting={step: of for step, of in waiting.items() if of},
            )
        )


def _record(job: JobState, stream: _ShownStream) -> StreamProgress:
    return StreamProgress(
        job=job.name,
        input=stream.input,
        output=stream.output,
        source=stream.source,
        bytes=stream.bytes,
        rate=stream.rate,
        since=stream.since,
        waits=stream.waits,
    )
