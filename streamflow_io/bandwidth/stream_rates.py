"""Measures byte streams burst by burst, and limits streams with `streamBW: required` to what is required.

:mod:`streamflow_io.bandwidth.streams` decides. Producers report the bursts in which their files grow. Readers report
when they have been given all bytes.
"""

from __future__ import annotations

import asyncio
import posixpath
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace
from streamflow.core.utils import get_job_step_name
from streamflow.core.workflow import Status, Token

from streamflow_io.adapters.attempts import Attempt
from streamflow_io.adapters.inputs import stream_bw, written_to
from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.adapters.tokens import StreamToken, stream_tokens
from streamflow_io.hints.bandwidth import RequiredConstraint
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.records.records import RateRecord, Record
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import (
    CommittedEvent,
    DrainedEvent,
    Event,
    InputStream,
    JobSpec,
    PhaseEvent,
    StreamLimit,
)
from streamflow_io.storage.learned_limits import input_bytes

from .growths import GrowingFile, StreamBurst, StreamName
from .learned_windows import RememberedWindows
from .phases import request_record
from .streams import Streams

_MB = 10**6
# Seconds between two looks at the rates while a reader is behind.
_LOOK_SECONDS = 0.5


class StreamRates(Listener):
    """The byte streams of a run.

    :param is_on: whether any stream is limited
    :param remembered: windows of outputs, by their names
    :param find: returns the open job with a name
    :param record: keeps a record for telemetry
    """

    def __init__(
        self,
        is_on: bool,
        remembered: RememberedWindows,
        find: Callable[[str], JobState | None],
        record: Callable[[Record], None],
    ) -> None:
        self._is_on = is_on
        self._remembered = remembered
        self._find = find
        self._record = record
        self._streams = Streams()
        self._looking: asyncio.Task[None] | None = None

    def opened(
        self, job: JobState, inputs: Mapping[str, Token], read: Mapping[str, tuple[StreamToken, Attempt]]
    ) -> None:
        """Open the byte streams of a job's attempt that is about to read.

        :param inputs: the inputs of the job
        :param read: the byte streams of the job, by their names in it
        """
        names = {id(token): name for name, value in inputs.items() for token in stream_tokens(value)}
        step, now = job.step, time.time()
        for stream, (token, attempt) in read.items():
            source = GrowingFile(token.source.job, token.source.port, str(written_to(token, attempt)))
            bandwidth = stream_bw(token)
            required = bandwidth if self._is_on and isinstance(bandwidth, RequiredConstraint) else None
            output = posixpath.join(get_job_step_name(source.job), source.port)
            self._streams.opened(
                StreamName(job.name, stream),
                step,
                names.get(id(token), stream),
                source,
                required,
                now,
                output,
                None if required is None else self._remembered.of(output, self._input_bytes(source.job)),
                attempt.has_written(source.port, token.source.path),
            )
        if read:
            self._update(now)

    def starting(self, job: JobState, spec: JobSpec, runtime: NodeRuntime) -> JobSpec:
        """Give the streams of the attempt the rates that they have now."""
        return replace(spec, streams=tuple(self._limited(job, one) for one in spec.streams))

    def event(self, job: JobState, event: Event) -> None:
        now = time.time()
        # Clocks of hosts differ, and reports come a moment later.
        later = now - event.time
        match event:
            case PhaseEvent(port=str(port), path=str(path)):
                burst = StreamBurst(event.start + later, event.bytes, event.end)
                self._streams.burst(GrowingFile(job.name, port, path), burst)
            case CommittedEvent():
                self._streams.committed(GrowingFile(job.name, event.port, event.path), now)
            case DrainedEvent():
                self._streams.drained(StreamName(job.name, event.name), event.bytes, event.last + later)
            case _:
                return
        self._update(now)

    def ended(self, job: JobState) -> None:
        """Record what the byte streams of the job have moved, if the job has succeeded."""
        for request in self._streams.ended(job.name, job.status is Status.COMPLETED):
            self._record(request_record(request, time.time()))

    async def run_closed(self) -> None:
        """Remember the windows of this run."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self._remembered.keep(self._streams.learned)

    def _input_bytes(self, producer: str) -> float:
        job = self._find(producer)
        return 0.0 if job is None else sum(map(input_bytes, job.job.inputs.values()))

    def _limited(self, job: JobState, one: InputStream) -> InputStream:
        if one.id is None:
            return one
        rate = self._streams.rate(StreamName(job.name, one.id))
        return one if rate is None else replace(one, limit=StreamLimit(rate=max(1, round(rate))))

    def _update(self, now: float) -> None:
        for one in self._streams.rates(now):
            rate = None if one.rate is None else one.rate / _MB
            job, stream = one.name
            self._record(RateRecord(time=now, job=job, step=one.step, input=one.input, rate=rate, reason=one.reason))
            if (reader := self._find(job)) is not None:
                reader.limit(one.rate, stream)
        if self._looking is None and not self._streams.is_idle:
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while not self._streams.is_idle:
            await asyncio.sleep(_LOOK_SECONDS)
            self._update(time.time())
        self._looking = None


def remembered_streams(path: Path, hints: Mapping[str, StepAnnotations], tools: Mapping[str, str]) -> RememberedWindows:
    """Return the windows of outputs whose byte streams are limited to what is required.

    :param path: the file of learned windows
    :param hints: the hints of the steps of the workflow, by path
    :param tools: the digests of the tools whose windows are learned, by step path
    """
    ports = [(step, port) for step, of in hints.items() for port in of.required_streams]
    return RememberedWindows(
        path,
        {posixpath.join(step, port): tools[step] for step, port in ports},
        {posixpath.join(step, port): f"stream of {port}" for step, port in ports},
    )
