"""Records what jobs read before it is complete, and what they commit early. Each edge is logged once."""

from __future__ import annotations

import time
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
from streamflow_io.records.files import CommittedRecord, DiscardedRecord, ReadingRecord, StreamedRecord
from streamflow_io.records.records import Record
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

from .progress import Progress

# Commits are not logged if they come fewer seconds than this before the end of the job.
_EARLY = 0.1


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
                first = "" if path is not None else f"the first of {commits.files:,} files of "
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
                lag=event.lag,
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
