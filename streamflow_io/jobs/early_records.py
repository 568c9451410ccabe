"""Records what jobs read before it is complete, and what they commit early. Each edge is logged once.

Also shows how far the byte streams of a run are, and what its jobs wait for, at most twice a second.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Literal

from msgspec import Struct, field
from streamflow.core.utils import get_job_step_name
from streamflow.log_handler import logger

from streamflow_io.adapters.jobs import JobState
from streamflow_io.adapters.outputs import relative_or_absolute
from streamflow_io.adapters.tokens import StreamToken, stream_tokens
from streamflow_io.grouping import grouped
from streamflow_io.hints.inheritance import port_path
from streamflow_io.hints.reasons import StreamWait
from streamflow_io.records.files import CommittedRecord, DiscardedRecord, ReadingRecord, StreamedRecord
from streamflow_io.records.jobs import WaitingCause
from streamflow_io.records.records import ProgressRecord, Record, StreamProgress
from streamflow_io.runtime.protocol import (
    CarriedEvent,
    CommittedEvent,
    Event,
    FedEvent,
    HeldEvent,
    InputStream,
    JobSpec,
    StreamEvent,
    WarningEvent,
)
from streamflow_io.wording import counted

# Commits are not logged if they come fewer seconds than this before the end of the job.
_EARLY = 0.1
# Seconds between two states that are shown.
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


class _Commits(Struct):
    """The commits of one output of a job; times by the clock of its node."""

    path: str
    first: float
    last: float
    files: int = 0
    size: int = 0


class _RecordedStream(Struct):
    """A stream that a job reads, or a file in CAPIO.

    :ivar output: as /step/port
    :ivar source: the name of the job that writes it
    """

    input: str | None
    output: str
    source: str


class _Early(Struct):
    """The early inputs and the early commits of a job.

    :ivar streams: by the names that the node runtime has for them
    :ivar read: the files that the job may read from CAPIO, by path
    :ivar ended: the streams that were read to their end, or as far as the command wanted
    :ivar as_files: the sources of inputs that the command has got as files after all, each with the output, if known
    """

    directory: str
    streams: dict[str, _RecordedStream]
    read: dict[str, _RecordedStream]
    commits: dict[str, _Commits] = field(default_factory=dict)
    ended: list[_RecordedStream] = field(default_factory=list)
    as_files: set[tuple[str, str | None]] = field(default_factory=set)

    def streamed(self) -> set[tuple[str, str]]:
        """The inputs that were only read as streams, each with the output that was read."""
        return {
            (stream.input, stream.output)
            for stream in self.ended
            if stream.input is not None
            and self.as_files.isdisjoint({(stream.source, stream.output), (stream.source, None)})
        }


class EarlyRecords:
    """Records what is delivered early. Each edge is logged in words the first time.

    :param record: keeps a record for telemetry
    :param progress: shows how far byte streams are
    :ivar streamed: by step: its inputs that a successful job has only read as streams, each with the output
    """

    def __init__(self, record: Callable[[Record], None], progress: Progress) -> None:
        self._record = record
        self._progress = progress
        # The names of the jobs under node runtimes.
        self._running: set[str] = set()
        self._said: set[tuple[str, ...]] = set()
        self.streamed: dict[str, set[tuple[str, str]]] = {}

    def told(self, spec: JobSpec, job: JobState) -> None:
        """Note that a job is about to run its command under the node runtime."""
        read = [(name, token) for name, value in job.job.inputs.items() for token in stream_tokens(value)]
        inputs = {token.value["path"]: name for name, token in read}
        streams = {
            stream.id or stream.name: _RecordedStream(
                inputs.get(str(stream.target.get("fifo"))), _output(stream), stream.name
            )
            for stream in spec.streams
        }
        held = {token.value["path"]: _RecordedStream(name, _edge(token)[0], token.source.job) for name, token in read}
        job.keep(_Early(str(job.job.output_directory), streams, held))
        self._running.add(job.name)
        for name, stream in streams.items():
            port = None if stream.input is None else port_path(job.step, stream.input)
            self._progress.reads(job, name, stream.source, stream.output, port)
        for (name, output, delivery), tokens in grouped(read, lambda one: (one[0], *_edge(one[1]))).items():
            self._reads(job, name, output, delivery, tuple(token.source.job for _, token in tokens))

    def event(self, job: JobState, event: Event) -> None:
        """Record an event that the node runtime has reported of a job."""
        if (early := job.kept(_Early)) is None:
            return
        if isinstance(event, StreamEvent):
            self._progress.ended(job, event.id or event.name)
            self._streamed(job, early, event)
        elif isinstance(event, CarriedEvent):
            self._carried(job, early, event)
        elif isinstance(event, HeldEvent):
            early.as_files.add((event.name, None))
        elif isinstance(event, WarningEvent) and event.input is not None:
            output = None if event.port is None else port_path(get_job_step_name(event.input), event.port)
            early.as_files.add((event.input, output))
        elif isinstance(event, FedEvent):
            self._progress.fed(job, event)
        elif isinstance(event, CommittedEvent) and not event.at_end:
            path = relative_or_absolute(str(event.path), early.directory)
            commits = early.commits.setdefault(event.port, _Commits(path, event.time, event.time))
            commits.last = event.time
            commits.files += 1
            commits.size += event.size
        elif isinstance(event, CommittedEvent) and event.discarded:
            output, (bytes_, size) = port_path(job.step, event.port), (event.discarded, event.size)
            self._record(DiscardedRecord(time.time(), job.name, job.step, output=output, bytes=bytes_, size=size))

    def ended(self, job: JobState, ended: float | None) -> None:
        """Record the early commits of a job, which has ended.

        :param ended: when its command had ended, by the clock of its node; None: the job has not succeeded
        """
        self._running.discard(job.name)
        early, step = job.drop(_Early), job.step
        if early is None or ended is None:
            return
        if edges := early.streamed():
            self.streamed.setdefault(step, set()).update(edges)
        for port, commits in early.commits.items():
            output = port_path(step, port)
            facts = {"first": commits.first, "last": commits.last, "ended": ended}
            path = commits.path if commits.files == 1 else None
            self._record(
                CommittedRecord(
                    time=time.time(),
                    job=job.name,
                    step=step,
                    output=output,
                    path=path,
                    files=commits.files,
                    bytes=commits.size,
                    **facts,
                )
            )
            if ended - commits.first >= _EARLY:
                what = output if path is None else f"{path} of {step}"
                first = "" if path is not None else f"the first of {counted(commits.files, 'file')} of "
                self._say(
                    (output,), f"{first}{what} was committed {ended - commits.first:.1f} s before its job had ended"
                )

    def _reads(
        self, job: JobState, name: str, output: str, delivery: Literal["stream", "gate"], sources: tuple[str, ...]
    ) -> None:
        step = job.step
        self._record(
            ReadingRecord(
                time=time.time(),
                job=job.name,
                step=step,
                input=port_path(step, name),
                output=output,
                delivery=delivery,
                sources=sources,
            )
        )
        # A reader that had to wait for cores may find the file complete.
        if any(source in self._running for source in sources):
            does = "reads" if delivery == "stream" else "runs, and opens"
            self._say((step, name, output), f"{step} {does} {output} while it is written")

    def _streamed(self, job: JobState, early: _Early, event: StreamEvent) -> None:
        if (stream := early.streams.get(event.id or event.name)) is None:
            return
        step, now = job.step, time.time()
        early.ended.append(stream)
        self._record(
            StreamedRecord(
                time=now,
                job=job.name,
                step=step,
                input=None if stream.input is None else port_path(step, stream.input),
                outputs=(stream.output,),
                source=stream.source,
                bytes=event.bytes,
                # By the driver's clock, as the records of its producer.
                first=now - (event.time - event.first),
                last=now - (event.time - event.last),
                waited=event.waited,
                behind=event.behind,
            )
        )

    def _carried(self, job: JobState, early: _Early, event: CarriedEvent) -> None:
        if (stream := early.read.get(event.path)) is None:
            return
        step = job.step
        port = None if stream.input is None else port_path(step, stream.input)
        if event.bytes is None:
            self._progress.reads(job, event.path, stream.source, stream.output, port)
            return
        self._progress.ended(job, event.path)
        early.ended.append(stream)
        self._record(
            StreamedRecord(
                time=event.time,
                job=job.name,
                step=step,
                input=port,
                outputs=(stream.output,),
                source=stream.source,
                bytes=event.bytes,
                first=event.first,
                last=event.last,
                capio=True,
            )
        )

    def _say(self, edge: tuple[str, ...], message: str) -> None:
        if edge not in self._said:
            self._said.add(edge)
            logger.info(message)


def _output(stream: InputStream) -> str:
    return port_path(get_job_step_name(stream.name), stream.port)


def _edge(token: StreamToken) -> tuple[str, Literal["stream", "gate"]]:
    source = token.source
    return port_path(get_job_step_name(source.job), source.port), "stream" if source.gate is None else "gate"
