"""The records of single jobs, and what all records have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from streamflow_io.hints.models import Direction


class BaseRecord(BaseModel):
    """A line of the telemetry file."""

    # Built when first used: each run starts with importing all of them, and writes some.
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True)
    time: float = Field(description="seconds since the epoch")
    event: str


EndStatus = Literal["completed", "failed", "cancelled", "rolled back"]


class JobRecord(BaseRecord):
    """Something happens to a job."""

    job: str
    step: str


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


#: What a job waits for before it has a place. `storage`: bandwidth, or an I/O executor. `place`: a location that takes
#: one more job.
WaitCause = Literal["storage", "cores", "memory", "disk", "place"]


#: What a job waits for until its command runs. `queue`: a queue manager has the job, and has not started it.
DelayCause = Literal["storage", "cores", "memory", "disk", "place", "queue"]


#: What a job waits for now. `gate`: its command runs, and is held where it opens a file that is not committed yet.
WaitingCause = Literal["storage", "cores", "memory", "disk", "place", "queue", "gate"]


#: The causes in words.
CAUSES: Mapping[WaitingCause, str] = {
    "storage": "bandwidth of the storage",
    "cores": "cores",
    "memory": "memory",
    "disk": "space on disk",
    "place": "a place",
    "queue": "the queue",
    "gate": "the gate",
}


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
    """A job is about to run on cores that other jobs hold and do not use."""

    event: Literal["lent"] = "lent"
    location: str
    cores: int = Field(description="how many it has borrowed")
    lenders: tuple[str, ...] = Field(description="the jobs that hold them")


class RehearsedRecord(JobRecord):
    """A repetition of a job that had ended, to find out whether one of its inputs may be read as a stream."""

    event: Literal["rehearsed"] = "rehearsed"
    input: str = Field(description="as /step/port")
    way: Literal["net", "pipe"] | None = Field(None, description="how it reads a stream; none: it does not")
    reason: str | None = Field(None, description="why not, or why that is not known")
    known: bool = Field(description="false: it has shown nothing")
    seconds: float = Field(description="that it took")
    bytes: int = Field(description="of the file")
    excerpt: int | None = Field(
        None, description="the number of first bytes that were enough; none: the whole file was tried"
    )


def _measured(recorded: str, told: str, description: str, default: object = ...) -> Any:
    """A field that a record and `sfio-node` name differently; both names are read."""
    return Field(default, validation_alias=AliasChoices(recorded, told), description=description)


class JobUsage(BaseModel):
    """The resources that a job's process tree used, as the node runtime measured them."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True)
    started: float = Field(description="when its command started")
    ended: float
    bytes_read: int = _measured("bytesRead", "rchar", "by system calls")
    bytes_written: int = _measured("bytesWritten", "wchar", "by system calls")
    storage_bytes_read: int = _measured("storageBytesRead", "read_bytes", "from storage, as the kernel accounts them")
    storage_bytes_written: int = _measured(
        "storageBytesWritten", "write_bytes", "to storage, as the kernel accounts them"
    )
    cpu_seconds: float
    io_seconds: float | None = _measured("ioSeconds", "io", "time in I/O: one of its threads waited for a device", None)
    held_seconds: float | None = _measured("heldSeconds", "held", "one of its calls waited at the gate", None)
    paused_seconds: float | None = _measured(
        "pausedSeconds", "paused", "it was paused, to be held to its storageBW (`limited`)", None
    )
    pauses: int | None = Field(None, description="how often")
    bytes_ahead: int | None = _measured("bytesAhead", "ahead", "the most that it had moved before their time", None)

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
    usage: JobUsage | None = Field(None, description="where the node runtime ran it")


class CommandRecord(JobRecord):
    """The end of one attempt of a job's command. `docs/telemetry.md` says where its standard error is."""

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
    bytes: int = Field(0, description="the size of that output")
    cut: int | None = Field(
        None, description="bytes of the beginning in the file, before those of the end; none: the file has all"
    )
