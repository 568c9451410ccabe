"""The records of a run: one JSON object per line of its telemetry file.

Times are seconds since the epoch, bandwidths MB/s (10^6 bytes per second). `docs/telemetry.md` describes the file, and
the JSON Schema of a line is generated from these models.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.alias_generators import to_camel

from streamflow_io.hints.models import Direction, Way
from streamflow_io.hints.reasons import EndRule, RateReason, RequestKind, StreamReason, StreamWait

from .files import (
    ArrivedRecord,
    ChunkRecord,
    CommittedRecord,
    ConsumedRecord,
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
    EndedRecord,
    JobRecord,
    LentRecord,
    RehearsedRecord,
    StartedRecord,
    SubmittedRecord,
    WaitingCause,
)

VERSION: Literal[1] = 1


class RunStorage(BaseModel):
    """A storage of the StreamFlow file."""

    model_config = ConfigDict(frozen=True, defer_build=True)
    name: str
    path: str
    scope: Literal["shared", "node"]
    write: float | None = None
    read: float | None = None
    deployment: str | None = None


class RunRecord(BaseRecord):
    """The start of a run; always the first record."""

    event: Literal["run"] = "run"
    version: Literal[1] = VERSION
    name: str = Field(description="the name of the run")
    workflow: str = Field(description="the CWL file")
    storages: tuple[RunStorage, ...] = ()
    io_executors: int | None = Field(None, description="as configured")
    streaming: str | None = Field(None, description="as configured")
    oversubscribe: str | None = Field(None, description="as configured")
    steps: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="each step that runs jobs, with the steps whose results it gets",
    )


class StepRecord(BaseRecord):
    """The hints of a step with IOTask or StorageBandwidth."""

    event: Literal["step"] = "step"
    step: str
    io_task: bool
    storage_bw: str | None = Field(None, alias="storageBW", description="as written")
    direction: Direction = "write"


class LeaseRecord(BaseRecord):
    """A change of this run's share of a storage that other runs use, too."""

    event: Literal["lease"] = "lease"
    storage: str
    direction: Way
    held: float = Field(description="MB/s that this run holds")
    used: float = Field(description="MB/s that the jobs of this run use")
    others: float = Field(description="MB/s that other runs hold, as far as this run knows")
    wanted: float = Field(description="MB/s that the first waiting job needs in addition")


class HeldRecord(BaseRecord):
    """The beginning of a burst that is held back until its slot in a schedule that runs follow."""

    event: Literal["held"] = "held"
    storage: str
    slot: float = Field(description="when the burst is due by the schedule")
    until: float = Field(description="the latest time until which the burst is held back")


class StreamProgress(BaseModel):
    """The progress of a byte stream that goes on."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True)
    job: str = Field(description="that reads")
    input: str | None = Field(None, description="as /step/port; none: not known")
    output: str = Field(description="as /step/port")
    source: str = Field(description="the job that writes")
    bytes: int = Field(description="that the job was given")
    rate: float | None = Field(None, description="bytes per second, now; 0: it stands; none: not known yet")
    since: float = Field(description="since when it moves, or stands")
    waits: StreamWait | None = Field(None, description="what the stream waited for, when it was last looked at")


class ProgressRecord(BaseRecord):
    """The progress of a run, as far as no other record has it.

    The record is not part of the telemetry file: a file beside it holds the latest one.
    """

    event: Literal["progress"] = "progress"
    streams: tuple[StreamProgress, ...] = ()
    more: int = Field(0, description="the number of streams that are left out")
    waiting: dict[str, dict[WaitingCause, int]] = Field(
        default_factory=dict, description="by step and what they wait for, how many jobs"
    )


class RequestRecord(JobRecord):
    """Data that moved, and when a job first waited for the data.

    An I/O task or a byte stream moved the data, or a compute job wrote the data. Requests are recorded when both facts
    are known, in no order.
    """

    event: Literal["request"] = "request"
    channel: str = Field(description="the source of such requests, one after the other")
    phase: int = Field(description="the number of the request in its channel, from 0")
    kind: RequestKind = Field(
        "task", description="data of an I/O task, a burst of a byte stream, or a burst that a compute job has written"
    )
    storage: str | None = None
    direction: Direction
    bytes: int
    ready: float = Field(description="when the input of the job was there; of a burst, when its first byte was there")
    started: float = Field(description="when the command started; of a burst, when it was ready")
    ended: float = Field(description="when the command ended, or the reader had the burst")
    required: float = Field(description="the required end: when a job first waits for the data")
    rule: EndRule = Field(description="the reason for the required end")
    limit: float | None = Field(None, description="MB/s that were allowed at the start; none: no limit")
    estimate: bool = Field(False, description="true: `ready` or `required` is an estimate")


class RateRecord(JobRecord):
    """A new rate of a job of an I/O task, or of a byte stream: no faster than required."""

    event: Literal["rate"] = "rate"
    input: str | None = Field(None, description="the input that the stream feeds; none: the job is an I/O task")
    rate: float | None = Field(None, description="MB/s; none: no limit")
    reason: RateReason | StreamReason = Field(description="the reason; see docs/required-bandwidth.md")


class EpochRecord(BaseRecord):
    """The end of an epoch of learning."""

    event: Literal["epoch"] = "epoch"
    step: str
    storage: str
    location: str
    number: int = Field(description="the number of the epoch, from 1 each time that the step learns")
    constraint: float = Field(description="storageBW of a job")
    concurrency: int = Field(description="the number of jobs at once")
    jobs: int = Field(description="the number of jobs in the mean")
    mean_seconds: float | None = Field(None, description="the mean time of a job; none: no job succeeded")
    registered: bool = Field(description="whether the result counts")
    started: float = Field(description="when the epoch started")


class ChoiceRecord(BaseRecord):
    """A new constraint of a step's jobs, from now on."""

    event: Literal["choice"] = "choice"
    step: str
    storage: str
    constraint: float = Field(description="storageBW of a job")
    reason: Literal[
        "first", "learning", "learned", "remembered", "objective", "contradicted", "drifted", "too few jobs"
    ]
    outstanding: int = Field(description="jobs of the step that wait or run")
    estimates: dict[str, float] = Field(
        default_factory=dict, description="seconds that all of these would take, by registered constraint"
    )


#: How a run has ended.
RunStatus = Literal["completed", "failed", "cancelled"]


class EndRecord(BaseRecord):
    """The end of a run; the last record of a run that was not killed."""

    event: Literal["end"] = "end"
    status: RunStatus | None = Field(None, description="none: not known")


Record = Annotated[
    RunRecord
    | StepRecord
    | SubmittedRecord
    | AdmittedRecord
    | LeaseRecord
    | HeldRecord
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
    | OutputRecord
    | InputRecord
    | SplitRecord
    | RequestRecord
    | RateRecord
    | EpochRecord
    | ChoiceRecord
    | SessionRecord
    | ChunkRecord
    | ArrivedRecord
    | ConsumedRecord
    | SessionEndRecord
    | EndRecord,
    Field(discriminator="event"),
]
RECORD: TypeAdapter[Record] = TypeAdapter(Record, config=ConfigDict(defer_build=True))
