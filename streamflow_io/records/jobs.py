"""The records of single jobs, and the fields that all records have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from streamflow_io.runtime.usage import JobUsage


class BaseRecord(BaseModel):
    """A line of the telemetry file."""

    # Models are built when first used: each run imports all of them at its start, and writes some.
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True)
    time: float = Field(description="seconds since the epoch")
    event: str


EndStatus = Literal["completed", "failed", "cancelled", "rolled back"]


class JobRecord(BaseRecord):
    """An event of a job."""

    job: str
    step: str


class SubmittedRecord(JobRecord):
    """A job that asks to be scheduled."""

    event: Literal["submitted"] = "submitted"


class AdmittedRecord(JobRecord):
    """A job that may start, as far as storages are concerned."""

    event: Literal["admitted"] = "admitted"
    location: str
    storage: str | None = None
    constraint: float | None = Field(None, description="storageBW of the job; none: the job needs no bandwidth")
    allocated: float | None = Field(None, description="admitted storageBW of all jobs on the storage, with this one")
    running: int = Field(description="admitted I/O tasks on the location, with this one")


#: Causes for which a job waits before it has a place. `storage`: bandwidth, or an I/O executor. `place`: a location
#: that takes one more job.
WaitCause = Literal["storage", "cores", "memory", "disk", "place"]


#: Causes for which a job waits until its command runs. `queue`: a queue manager has the job, and has not started it.
DelayCause = Literal["storage", "cores", "memory", "disk", "place", "queue"]


#: Causes for which a job waits now. `gate`: its command runs, and is held where it opens a file that is not committed
#: yet.
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
    """The start of a job."""

    event: Literal["started"] = "started"
    location: str
    waited: dict[WaitCause, float] = Field(
        default_factory=dict, description="seconds since the job was submitted, by the cause of the wait"
    )
    cores: float | None = Field(
        None, description="the cores that the job uses, also where they did not have to be free"
    )
    location_cores: float | None = Field(None, description="the cores of the location")
    queue: bool = Field(False, description="a queue manager has the job; the command may start later")


class LentRecord(JobRecord):
    """The start of a job on cores that other jobs hold and do not use."""

    event: Literal["lent"] = "lent"
    location: str
    cores: int = Field(description="the number of borrowed cores")
    lenders: tuple[str, ...] = Field(description="the jobs that hold these cores")


class RehearsedRecord(JobRecord):
    """A repetition of a job that had ended, to find out whether one of its inputs may be read as a stream."""

    event: Literal["rehearsed"] = "rehearsed"
    input: str = Field(description="as /step/port")
    way: Literal["net", "pipe"] | None = Field(
        None, description="the way in which the job reads a stream; none: the job cannot"
    )
    reason: str | None = Field(None, description="why the job cannot read a stream, or why that is not known")
    known: bool = Field(description="false: the rehearsal has shown nothing")
    seconds: float = Field(description="the time of all that was tried")
    bytes: int = Field(description="the size of the file")
    excerpt: int | None = Field(
        None, description="the number of first bytes that were enough; none: the whole file was tried"
    )


class EndedRecord(JobRecord):
    """The end of a job."""

    event: Literal["ended"] = "ended"
    status: EndStatus
    usage: JobUsage | None = Field(None, description="measured where the node runtime ran the job")


class CommandRecord(JobRecord):
    """The end of one attempt of a job's command. `docs/telemetry.md` says where its standard error is."""

    event: Literal["command"] = "command"
    attempt: int = Field(description="from 1")
    command: str = Field(description="the command line with its redirections; of a long one the first 16 kB")
    location: str
    directory: str | None = Field(None, description="the directory of the job")
    started: float = Field(description="when the command started")
    code: int | None = Field(None, description="the exit code; none: not known")
    stream: Literal["stderr", "both"] = Field(
        "stderr", description="the output that is kept; `both`: standard output and standard error went to one place"
    )
    file: str | None = Field(
        None, description="the file with this output, relative to the directory of the run; none: it is not kept"
    )
    bytes: int = Field(0, description="the size of that output")
    cut: int | None = Field(
        None, description="bytes of the beginning in the file, before those of the end; none: the file has all"
    )
