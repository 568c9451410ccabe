"""The records of a run: one JSON object per line of its telemetry file. Pure.

Times are seconds since the epoch; bandwidths MB/s (10^6 bytes per second); bytes are bytes. `docs/telemetry.md`
describes the file; its JSON Schema is generated from these models.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.alias_generators import to_camel

from streamflow_io.bandwidth.pacing import Reason
from streamflow_io.bandwidth.phases import Kind, Rule
from streamflow_io.bandwidth.streams import StreamReason
from streamflow_io.graph.io_graph import Delivery
from streamflow_io.graph.possible import PossibleRoute
from streamflow_io.hints.models import Direction, Way
from streamflow_io.runtime.protocol import WaitsFor

from .base_record import BaseRecord
from .session_records import ArrivedRecord, ChunkRecord, ConsumedRecord, SessionEndRecord, SessionRecord

VERSION: Literal[1] = 1
#: What is said of an edge that CAPIO serves.
SERVED = "served"
#: Why nothing is delivered early in a run that is to be a baseline.
OFF = "`runtime: off`"


EndStatus = Literal["completed", "failed", "cancelled", "rolled back"]


class JobRecord(BaseRecord):
    """Something happens to a job."""

    job: str
    step: str


class Storage(BaseModel):
    """A storage of the StreamFlow file."""

    model_config = ConfigDict(frozen=True, defer_build=True)
    name: str
    path: str
    scope: Literal["shared", "node"]
    write: float | None = None
    read: float | None = None
    deployment: str | None = None


class RunRecord(BaseRecord):
    """Always the first: the run starts."""

    event: Literal["run"] = "run"
    version: Literal[1] = VERSION
    name: str = Field(description="the name of the run")
    workflow: str = Field(description="the CWL file")
    storages: tuple[Storage, ...] = ()
    io_executors: int | None = Field(None, description="as configured")
    streaming: str | None = Field(None, description="as configured; none: not recorded")
    oversubscribe: str | None = Field(None, description="as configured; none: not recorded")
    steps: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="each step that runs jobs, with those whose results it gets; those come before",
    )


class StepRecord(BaseRecord):
    """What the hints say of a step; one for each with IOTask or StorageBandwidth."""

    event: Literal["step"] = "step"
    step: str
    io_task: bool
    storage_bw: str | None = Field(None, alias="storageBW", description="as written")
    direction: Direction = "write"


class SubmittedRecord(JobRecord):
    """A job asks to be scheduled."""

    event: Literal["submitted"] = "submitted"


class AdmittedRecord(JobRecord):
    """A job may start, as far as storages are concerned."""

    event: Literal["admitted"] = "admitted"
    location: str
    storage: str | None = None
    constraint: float | None = Field(None, description="its storageBW; none: it needs no bandwidth")
    allocated: float | None = Field(None, description="admitted storageBW of all jobs on the storage, with this one")
    running: int = Field(description="admitted I/O tasks on the location, with this one")


class LeaseRecord(BaseRecord):
    """Something has changed of what this run has of a storage that other runs use, too."""

    event: Literal["lease"] = "lease"
    storage: str
    direction: Way
    held: float = Field(description="by this run")
    used: float = Field(description="by its jobs")
    others: float = Field(description="what other runs hold, as far as this one knows")
    wanted: float = Field(description="what its first waiting job needs beyond what is used")


class HeldRecord(BaseRecord):
    """A burst of this run on a storage begins, and is held back until its slot in a schedule that runs follow."""

    event: Literal["held"] = "held"
    storage: str
    slot: float = Field(description="when it is due by the schedule, in seconds since the epoch")
    until: float = Field(description="until when it is held back, at the latest")


#: What a job waits for before it has a place: `storage` is bandwidth of it, or an I/O executor; `place` one of so many
#: jobs that a location takes.
WaitCause = Literal["storage", "cores", "memory", "disk", "place"]


#: What it waits for until its command runs; `queue`: it was given to a queue manager, and does not run yet.
DelayCause = Literal["storage", "cores", "memory", "disk", "place", "queue"]


#: What it waits for now; `gate`: its command runs, and is held where it opens a file that is not committed yet.
WaitingCause = Literal["storage", "cores", "memory", "disk", "place", "queue", "gate"]


class StreamProgress(BaseModel):
    """How far a byte stream is that goes on."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True)
    job: str = Field(description="that reads")
    input: str | None = Field(None, description="as /step/port; none: not known")
    output: str = Field(description="as /step/port")
    source: str = Field(description="the job that writes")
    bytes: int = Field(description="that the job was given")
    rate: float | None = Field(None, description="bytes per second, now; 0: it stands; none: not known yet")
    since: float = Field(description="since when it moves, or stands")
    waits: WaitsFor | None = Field(None, description="for whom or what it waited, when it was last looked at")


class ProgressRecord(BaseRecord):
    """How far the run is: what no other record has. Not in the telemetry file, but in a file that is replaced."""

    event: Literal["progress"] = "progress"
    streams: tuple[StreamProgress, ...] = ()
    more: int = Field(0, description="so many streams more")
    waiting: dict[str, dict[WaitingCause, int]] = Field(
        default_factory=dict, description="by step and what they wait for, how many jobs"
    )


class StartedRecord(JobRecord):
    """A job runs."""

    event: Literal["started"] = "started"
    location: str
    waited: dict[WaitCause, float] = Field(
        default_factory=dict, description="since it was submitted: seconds, by what it has waited for"
    )
    cores: float | None = Field(None, description="that it uses, whether it had to have them free or not")
    location_cores: float | None = Field(None, description="that its location has")
    queue: bool = Field(False, description="it is given to a queue manager: its command may start later")


class LentRecord(JobRecord):
    """A job is about to run on cores that others hold and do not use."""

    event: Literal["lent"] = "lent"
    location: str
    cores: int = Field(description="how many it has borrowed")
    lenders: tuple[str, ...] = Field(description="the jobs that hold them")


class RehearsedRecord(JobRecord):
    """A job that had ended was run once more, to find out whether one of its inputs may be read as a stream."""

    event: Literal["rehearsed"] = "rehearsed"
    input: str = Field(description="as /step/port")
    way: Literal["net", "pipe"] | None = Field(None, description="how it reads a stream; none: it does not")
    reason: str | None = Field(None, description="why not, or why that is not known")
    known: bool = Field(description="false: it has shown nothing")
    seconds: float = Field(description="that it took")
    bytes: int = Field(description="of the file")
    excerpt: int | None = Field(None, description="so many of its first bytes were enough; none: it was tried whole")


class Usage(BaseModel):
    """What the node runtime measured of a job's process tree."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True)
    started: float = Field(description="when its command started")
    ended: float
    bytes_read: int = Field(description="by system calls")
    bytes_written: int = Field(description="by system calls")
    storage_bytes_read: int = Field(description="from storage, as the kernel accounts them")
    storage_bytes_written: int = Field(description="to storage, as the kernel accounts them")
    cpu_seconds: float
    io_seconds: float | None = Field(None, description="time in I/O: one of its threads waited for a device")
    held_seconds: float | None = Field(None, description="one of its calls waited at the gate")
    paused_seconds: float | None = Field(None, description="it was paused, to be held to its storageBW (`limited`)")
    pauses: int | None = Field(None, description="how often")
    bytes_ahead: int | None = Field(None, description="the most that it had moved before their time")

    def moved(self, direction: Direction) -> int:
        """The bytes moved in a direction; in both: their sum."""
        read = _moved(self.bytes_read, self.storage_bytes_read)
        written = _moved(self.bytes_written, self.storage_bytes_written)
        return {"read": read, "write": written, "both": read + written}[direction]

    def ran(self, since: float, until: float) -> tuple[float, float]:
        """When the command ran, by the driver's clock.

        Its node may have another clock: then it ended when the driver saw it end.

        :param since: when the job was submitted
        :param until: when it had ended
        """
        if self.started < since or self.ended > until:
            return max(since, until - (self.ended - self.started)), until
        return self.started, self.ended


def _moved(by_calls: int, by_kernel: int) -> int:
    # Files that are mapped into memory are seen by the kernel's accounts only. Those count whole folios, up to 32 times
    # what was written, so that they are taken only where system calls explain next to nothing.
    return by_kernel if by_kernel > 64 * by_calls else by_calls


class EndedRecord(JobRecord):
    """A job has ended."""

    event: Literal["ended"] = "ended"
    status: EndStatus
    usage: Usage | None = Field(None, description="where the node runtime ran it")


class CommandRecord(JobRecord):
    """A command of a job has ended: one for each attempt. `docs/telemetry.md` says where its standard error is."""

    event: Literal["command"] = "command"
    attempt: int = Field(description="from 1")
    command: str = Field(description="as it was run, with its redirections; of a long one the first 16 kB")
    location: str
    directory: str | None = Field(None, description="where it ran")
    started: float
    code: int | None = Field(None, description="its exit code; none: not known")
    stream: Literal["stderr", "both"] = Field(
        "stderr", description="what is kept; `both`: standard output and standard error, which have gone to one place"
    )
    file: str | None = Field(
        None, description="where that is kept, relative to the directory of the run; none: it is not"
    )
    bytes: int = Field(0, description="so many there were of it")
    cut: int | None = Field(None, description="the file has so many bytes of its beginning, then its end; none: all")


class RouteRecord(PossibleRoute, BaseRecord):
    """A way from an output of a step to an input of another; written at the start of a run that is observed."""

    event: Literal["route"] = "route"


class EdgeRecord(BaseRecord):
    """A file that is to be delivered before its job ends, and how it will be; written at the start of the run."""

    event: Literal["edge"] = "edge"
    output: str = Field(description="as /step/port")
    input: str | None = Field(None, description="as /step/port; none: an output of the workflow")
    delivery: Delivery
    fallback: str | None = Field(None, description="why it is not delivered as the rule asks, if so")
    capio: str | None = Field(
        None, description="with `runtime: capio`: `served`, or why the embedded node runtime serves it"
    )


class FallbackRecord(JobRecord):
    """What was found when a job was to run; the first time for each reason and output."""

    event: Literal["fallback"] = "fallback"
    output: str | None = Field(None, description="as /step/port: what it has got when it was complete; none: all")
    reason: str
    without: str | None = Field(None, description="it started again without this, `CAPIO`; none: it fell back at once")


class ReadingRecord(JobRecord):
    """A job is about to run, and reads what is not complete, as far as is known."""

    event: Literal["reading"] = "reading"
    input: str = Field(description="as /step/port")
    output: str = Field(description="as /step/port: what it reads")
    delivery: Literal["stream", "gate"]
    sources: tuple[str, ...] = Field(description="the jobs that write it")


class StreamedRecord(JobRecord):
    """A byte stream into a job has ended well."""

    event: Literal["streamed"] = "streamed"
    input: str | None = Field(None, description="as /step/port; none: not known")
    outputs: tuple[str, ...] = Field(
        description="as /step/port: what it has read; several, if it reads several of one job: then it is one of these"
    )
    source: str | None = Field(None, description="the job that has written it")
    bytes: int
    first: float | None = Field(None, description="when its first byte was given to the job")
    last: float | None = Field(None, description="when its last byte was")
    waited: float | None = Field(
        None, description="for so many seconds the job had taken all that there was, and waited for more"
    )
    behind: float | None = Field(None, description="for so many it had not taken what it was given")
    lag: int | None = Field(None, description="so many bytes there were at most that it had not been given")
    capio: bool | None = Field(
        None, description="CAPIO carried it: what it was given is what it read, and it is not known how it waited"
    )


class CommittedRecord(JobRecord):
    """What a job has committed of an output before it ended; before its `ended`, if it has succeeded.

    Times are by the clock of its node.
    """

    event: Literal["committed"] = "committed"
    output: str = Field(description="as /step/port")
    path: str | None = Field(None, description="relative to the output directory; none: several files")
    files: int
    bytes: int
    first: float = Field(description="when the first file was committed")
    last: float = Field(description="when the last one was")
    ended: float = Field(description="when the command ended")


class OutputRecord(JobRecord):
    """What a job did with a file of one of its outputs, or with several; before its `ended`, if it was observed."""

    event: Literal["output"] = "output"
    port: str
    path: str = Field(description="relative to the output directory; of several files: a directory above all of them")
    files: int = Field(1, description="of how many files this is")
    opened: float | None = Field(None, description="the first time")
    closes: int = Field(description="how often it was closed after writing; of several files: the least")
    most_closes: int = Field(description="of several files: the most")
    first_close: float | None = None
    last_close: float | None = None
    size: int | None = Field(None, description="bytes, together; none: not known")
    ended: float = Field(description="when the command ended")


class InputRecord(JobRecord):
    """How a job used a file of one of its inputs, or several; before its `ended`, if it was observed."""

    event: Literal["input"] = "input"
    input: str
    path: str = Field(description="absolute, or relative to the output directory of `source`")
    source: str | None = Field(None, description="the job whose output it is")
    files: int = Field(1, description="of how many files this is")
    opens: int = Field(description="how often it was opened; 0: never; of several files: the most")
    sequential: bool = Field(description="it was only read, front to back, in each opening")
    reasons: tuple[str, ...] = Field((), description="why not, if so")
    first: float | None = Field(None, description="when it was opened first")
    last: float | None = Field(None, description="when it was opened last")
    touched: float | None = Field(
        None, description="when it was first opened, listed, or asked for its size or kind by its path"
    )
    read: float | None = Field(None, description="it was not read later; none: not known")
    whole: bool = Field(False, description="by `read` the job had written to none of its outputs")


class SplitRecord(JobRecord):
    """A job has written parts of an input, as far as could be seen: a rule of a read session that gives them."""

    event: Literal["split"] = "split"
    port: str
    of: str = Field(description="the input")
    count: int = Field(description="how many parts")
    names: str = Field(description="the name of a part, with one %d for its number")
    first: int = Field(description="the number of the first")
    records: str
    every: int | None = Field(None, description="this many records in each part")
    parts: int | None = Field(None, description="this many parts of equal bytes")
    chunk: int | None = Field(None, description="at most this many MiB in each part")
    equal: bool = Field(description="this many parts of equal bytes are the same parts")


class RequestRecord(JobRecord):
    """What an I/O task or a byte stream has moved, or a compute job written, and when somebody first waited for it.

    When that is known, in no order.
    """

    event: Literal["request"] = "request"
    channel: str = Field(description="what issues such requests one after the other")
    phase: int = Field(description="of the channel, from 0")
    kind: Kind = Field(
        "task", description="what an I/O task has moved; a burst of a byte stream; one that a compute job has written"
    )
    storage: str | None = None
    direction: Direction
    bytes: int
    ready: float = Field(description="when what the job reads was there; of a burst, when its first byte was")
    started: float = Field(description="when its command began; of a burst, when it was ready")
    ended: float = Field(description="when its command had ended, or the reader had been given the burst")
    required: float = Field(description="the required end: when somebody first waits for it")
    rule: Rule = Field(description="why then")
    limit: float | None = Field(None, description="MB/s, how fast it might move at its start; none: as it could")
    estimate: bool = Field(False, description="`ready` or `required` are not known for certain")


class RateRecord(JobRecord):
    """A job of an I/O task, or a byte stream, may move so fast from now on: no faster than it is required."""

    event: Literal["rate"] = "rate"
    input: str | None = Field(None, description="that is fed by the stream; none: the job is an I/O task")
    rate: float | None = Field(None, description="MB/s; none: as fast as it can")
    reason: Reason | StreamReason = Field(description="why; see docs/required-bandwidth.md")


class EpochRecord(BaseRecord):
    """An epoch of learning has ended."""

    event: Literal["epoch"] = "epoch"
    step: str
    storage: str
    location: str
    number: int = Field(description="from 1, for each time that the step learns")
    constraint: float
    concurrency: int = Field(description="how many jobs fit at once")
    jobs: int = Field(description="how many jobs the mean is of")
    mean_seconds: float | None = Field(None, description="the mean time of a job; none: no job succeeded")
    registered: bool
    started: float


class ChoiceRecord(BaseRecord):
    """The constraint of a step is another one from now on."""

    event: Literal["choice"] = "choice"
    step: str
    storage: str
    constraint: float
    reason: Literal[
        "first", "learning", "learned", "remembered", "objective", "contradicted", "drifted", "too few jobs"
    ]
    outstanding: int = Field(description="jobs of the step that wait or run")
    estimates: dict[str, float] = Field(
        default_factory=dict, description="by registered constraint, the seconds that all of them would take"
    )


#: How a run has ended.
RunStatus = Literal["completed", "failed", "cancelled"]


class EndRecord(BaseRecord):
    """The last one of a run that was not killed."""

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
