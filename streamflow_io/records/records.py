"""The records of a run: one JSON object per line of its telemetry file.

Times are seconds since the epoch, bandwidths MB/s (10^6 bytes per second). `docs/telemetry.md` describes the file, and
the JSON Schema of a line is generated from these Structs.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Literal

from msgspec import Meta, Struct, field
from msgspec.json import Decoder

from streamflow_io.hints.models import Direction, Way
from streamflow_io.hints.reasons import EndRule, RateReason, RequestKind, StreamWait

from .files import (
    ChunkRecord,
    CommittedRecord,
    ConsumedRecord,
    DiscardedRecord,
    EdgeRecord,
    FallbackRecord,
    InputRecord,
    OutputRecord,
    ReadingRecord,
    RouteRecord,
    SessionEndRecord,
    SessionRecord,
    SplitRecord,
    StreamedRecord,
)
from .jobs import (
    AdmittedRecord,
    BaseRecord,
    CommandRecord,
    DirectoriesRecord,
    EndedRecord,
    JobRecord,
    LentRecord,
    RehearsedRecord,
    StartedRecord,
    SubmittedRecord,
    WaitingCause,
)

VERSION: Literal[1] = 1


class RunStorage(Struct, frozen=True):
    """A storage of the StreamFlow file."""

    name: str
    path: str
    scope: Literal["shared", "node"]
    write: float | None = None
    read: float | None = None
    deployment: str | None = None


class RunRecord(BaseRecord, frozen=True, tag="run", kw_only=True):
    """The start of a run; always the first record."""

    version: Literal[1] = VERSION
    name: str
    workflow: Annotated[str, Meta(description="the CWL file")]
    workflow_name: Annotated[str | None, Meta(description="its name in the StreamFlow file")] = None
    streamflow_file: str | None = None
    host: Annotated[str | None, Meta(description="the driver's node")] = None
    pid: Annotated[int | None, Meta(description="the process of the driver, on that node")] = None
    storages: tuple[RunStorage, ...] = ()
    io_executors: int | None = None
    streaming: str | None = None
    oversubscribe: str | None = None
    steps: Annotated[
        dict[str, tuple[str, ...]], Meta(description="each step, with the steps whose results it gets")
    ] = field(default_factory=dict)


class StepRecord(BaseRecord, frozen=True, tag="step"):
    """The hints of a step with IOTask or StorageBandwidth."""

    step: str
    io_task: bool
    storage_bw: Annotated[str | None, Meta(description="as written")] = field(name="storageBW", default=None)
    direction: Direction = "write"


class LeaseRecord(BaseRecord, frozen=True, tag="lease"):
    """A change of this run's share of a storage that other runs use, too."""

    storage: str
    direction: Way
    held: Annotated[float, Meta(description="MB/s of this run")]
    used: Annotated[float, Meta(description="MB/s of its jobs")]
    others: Annotated[float, Meta(description="MB/s of other runs, as far as known")]
    wanted: Annotated[float, Meta(description="MB/s more that the first waiting job needs")]


class HeldRecord(BaseRecord, frozen=True, tag="held"):
    """The beginning of a burst that is held back until its slot in a schedule that runs follow."""

    storage: str
    until: Annotated[float, Meta(description="held until then at most")]


class StreamProgress(Struct, frozen=True, rename="camel", kw_only=True):
    """The progress of a byte stream that goes on."""

    job: Annotated[str, Meta(description="that reads")]
    input: Annotated[str | None, Meta(description="as /step/port; none: not known")] = None
    output: Annotated[str, Meta(description="as /step/port")]
    source: Annotated[str, Meta(description="job that writes")]
    bytes: Annotated[int, Meta(description="that the job was given")]
    rate: Annotated[float | None, Meta(description="bytes per second, now; 0: it stands; none: not known yet")] = None
    since: Annotated[float, Meta(description="since when it moves, or stands")]
    waits: Annotated[StreamWait | None, Meta(description="what the stream waited for, when it was last looked at")] = (
        None
    )


class ProgressRecord(BaseRecord, frozen=True, tag="progress"):
    """The progress of a run, as far as no other record has it.

    The record is not part of the telemetry file: a file beside it holds the latest one.
    """

    streams: tuple[StreamProgress, ...] = ()
    more: Annotated[int, Meta(description="number of streams that are left out")] = 0
    waiting: Annotated[
        dict[str, dict[WaitingCause, int]], Meta(description="by step and what they wait for, how many jobs")
    ] = field(default_factory=dict)


class RequestRecord(JobRecord, frozen=True, tag="request", kw_only=True):
    """Data that moved, and when a job first waited for the data.

    An I/O task moved the data, or a compute job wrote the data. Requests are recorded when both facts
    are known, in no order.
    """

    channel: Annotated[str, Meta(description="the source of the requests")]
    phase: Annotated[int, Meta(description="number in the channel, from 0")]
    kind: Annotated[
        RequestKind,
        Meta(description="an I/O task, or a burst of a compute job"),
    ] = "task"
    storage: str | None = None
    direction: Direction
    bytes: int
    ready: Annotated[float, Meta(description="when the input was there; of a burst: its first byte")]
    started: Annotated[float, Meta(description="when the command started; of a burst: `ready`")]
    ended: Annotated[float, Meta(description="when the command ended; of a burst: its last byte")]
    required: Annotated[float, Meta(description="when a job first waits for the data")]
    rule: Annotated[EndRule, Meta(description="the reason for the required end")]
    limit: Annotated[float | None, Meta(description="MB/s at the start; none: no limit")] = None

    @property
    def window(self) -> float:
        """The seconds that the request may take without a job waiting for it."""
        return self.required - self.ready


class RateRecord(JobRecord, frozen=True, tag="rate", kw_only=True):
    """A new rate of a job of an I/O task: no faster than required."""

    rate: Annotated[float | None, Meta(description="MB/s; none: no limit")] = None
    reason: Annotated[RateReason, Meta(description="see docs/required-bandwidth.md")]


class EpochRecord(BaseRecord, frozen=True, tag="epoch", kw_only=True):
    """The end of an epoch of learning."""

    step: str
    storage: str
    location: str
    number: Annotated[int, Meta(description="from 1 for each learning")]
    constraint: Annotated[float, Meta(description="storageBW of a job")]
    concurrency: Annotated[int, Meta(description="jobs at once")]
    jobs: Annotated[int, Meta(description="jobs in the mean")]
    mean_seconds: Annotated[float | None, Meta(description="mean time of a job; none: no job succeeded")] = None
    registered: Annotated[bool, Meta(description="whether the result counts")]
    started: float


class ChoiceRecord(BaseRecord, frozen=True, tag="choice"):
    """A new constraint of a step's jobs, from now on."""

    step: str
    storage: str
    constraint: Annotated[float, Meta(description="storageBW of a job")]
    reason: Literal["first", "learning", "learned", "remembered", "objective", "contradicted", "too few jobs"]


class LocationRecord(BaseRecord, frozen=True, tag="location"):
    """A location where a job may start. A deployment with one location has no such record."""

    location: str
    location_cores: float | None = None


class QueuedRecord(BaseRecord, frozen=True, tag="queued"):
    """An allocation that a deployment waits for, in the queue of a queue manager."""

    deployment: str
    waits: Annotated[str | None, Meta(description="for what, and why; none: it waits no more")] = None


class RemovedRecord(BaseRecord, frozen=True, tag="removed"):
    """The disk space of the directories of jobs, with `intermediates: remove`, in bytes, as measured when jobs end."""

    bytes: Annotated[int, Meta(description="removed since the start of the run")]
    held: Annotated[int, Meta(description="left in directories of ended jobs, with results")]
    peak: Annotated[int, Meta(description="the most of `held`")]
    limit: Annotated[int | None, Meta(description="the diskLimit; none: no limit")] = None


class DiskRecord(BaseRecord, frozen=True, tag="disk"):
    """The disk space of a successful run with `intermediates: remove`, and what was expected, in bytes."""

    location: str
    peak: int
    written: int
    expected_peak: int | None = None
    expected_written: int | None = None


class ResultsRecord(BaseRecord, frozen=True, tag="results"):
    """The directories of jobs that results of the run need. The other results were copied."""

    directories: Annotated[tuple[str, ...], Meta(description="their names")] = ()


#: How a run has ended.
RunStatus = Literal["completed", "failed", "cancelled"]
#: `ended`: how is not known. `killed`: no process writes the records any more, and the last one is missing. A run on
#: another host counts as killed when the time of its records has not changed for two minutes.
RunState = Literal["running", "ended", "killed", RunStatus]


class EndRecord(BaseRecord, frozen=True, tag="end"):
    """The end of a run; the last record of a run that was not killed."""

    status: Annotated[RunStatus | None, Meta(description="none: not known")] = None


Record = (
    RunRecord
    | StepRecord
    | SubmittedRecord
    | AdmittedRecord
    | LeaseRecord
    | HeldRecord
    | DirectoriesRecord
    | LentRecord
    | RehearsedRecord
    | StartedRecord
    | EndedRecord
    | CommandRecord
    | RouteRecord
    | EdgeRecord
    | FallbackRecord
    | ReadingRecord
    | StreamedRecord
    | CommittedRecord
    | DiscardedRecord
    | OutputRecord
    | InputRecord
    | SplitRecord
    | RequestRecord
    | RateRecord
    | EpochRecord
    | ChoiceRecord
    | SessionRecord
    | ChunkRecord
    | ConsumedRecord
    | SessionEndRecord
    | LocationRecord
    | QueuedRecord
    | RemovedRecord
    | DiskRecord
    | ResultsRecord
    | EndRecord
)


@cache
def record_decoder() -> Decoder[Record]:
    """Return the decoder of a line. The decoder is built when first used: most runs only write records."""
    return Decoder(Record)
