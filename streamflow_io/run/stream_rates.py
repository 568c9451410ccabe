"""Adapter: measures byte streams burst by burst, and keeps those with `streamBW: required` to what is required.

Decides nothing: :mod:`streamflow_io.bandwidth.streams` does. Producers tell in which bursts their files grow, readers
when they have been given all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from streamflow.core.utils import get_job_step_name
from streamflow.core.workflow import Token

from streamflow_io.bandwidth.streams import Burst, Source, StreamName, Streams
from streamflow_io.hints.bandwidth import RequiredConstraint
from streamflow_io.runtime import Event
from streamflow_io.runtime.protocol import CommittedEvent, DrainedEvent, PhaseEvent
from streamflow_io.telemetry.records import EndedRecord, RateRecord, Record, RequestRecord

from .attempts import Attempt
from .inputs import stream_bw, written_to
from .request_records import request_record
from .tokens import StreamToken, stream_tokens

_MB = 10**6
# How often rates are looked at while a reader is behind.
_LOOK_SECONDS = 0.5


class StreamRates:
    """The byte streams of a run.

    :param is_on: whether any stream is limited
    :param tell: lets a stream of a job be fed with so many bytes per second; None: as fast as it is read
    :param record: keeps a record for telemetry
    """

    def __init__(
        self, is_on: bool, tell: Callable[[str, str, float | None], None], record: Callable[[Record], None]
    ) -> None:
        self._is_on = is_on
        self._tell = tell
        self._record = record
        self._streams = Streams()
        self._looking: asyncio.Task[None] | None = None

    def opened(
        self, job_name: str, inputs: Mapping[str, Token], read: Mapping[str, tuple[StreamToken, Attempt]]
    ) -> None:
        """An attempt of a job is about to read.

        :param inputs: of the job
        :param read: its byte streams, by what they are called there
        """
        names = {id(token): name for name, value in inputs.items() for token in stream_tokens(value)}
        step, now = get_job_step_name(job_name), time.time()
        for stream, (token, attempt) in read.items():
            source = Source(token.source.job, token.source.port, str(written_to(token, attempt)))
            bandwidth = stream_bw(token)
            required = bandwidth if self._is_on and isinstance(bandwidth, RequiredConstraint) else None
            input_name = names.get(id(token), stream)
            self._streams.opened(StreamName(job_name, stream), step, input_name, source, required, now)
        if read:
            self._update(now)

    def happened(self, job_name: str, event: Event) -> None:
        """The node runtime tells something of a job."""
        now = time.time()
        # Clocks of hosts differ, and what is told comes a moment later.
        later = now - event.time
        match event:
            case PhaseEvent(port=str(port), path=str(path)):
                burst = Burst(event.start + later, event.bytes, event.end)
                self._streams.burst(Source(job_name, port, path), burst)
            case CommittedEvent():
                self._streams.committed(Source(job_name, event.port, event.path), now)
            case DrainedEvent():
                self._streams.drained(StreamName(job_name, event.name), event.bytes, event.last + later)
            case _:
                return
        self._update(now)

    def told(self, record: Record) -> list[RequestRecord]:
        """Something has happened to a job.

        :return: what its byte streams have moved, if it has ended well
        """
        if not isinstance(record, EndedRecord):
            return []
        requests = self._streams.ended(record.job, record.status == "completed")
        return [request_record(request, record.time) for request in requests]

    async def close(self) -> None:
        """No job runs any more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    def _update(self, now: float) -> None:
        for one in self._streams.rates(now):
            rate = None if one.rate is None else one.rate / _MB
            job, stream = one.name
            self._record(RateRecord(time=now, job=job, step=one.step, input=one.input, rate=rate, reason=one.reason))
            self._tell(job, stream, one.rate)
        if self._looking is None and not self._streams.is_idle:
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while not self._streams.is_idle:
            await asyncio.sleep(_LOOK_SECONDS)
            self._update(time.time())
        self._looking = None
