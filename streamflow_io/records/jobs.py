"""The records of single jobs, and the fields that all records have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from streamflow_io.runtime.usage import JobUsage


class BaseRecord(Struct, frozen=True, rename="camel", tag_field="event"):
    """A line of the telemetry file."""

    time: Annotated[float, Meta(description="seconds since the epoch")]


EndStatus = Literal["completed", "failed", "cancelled", "rolled back"]


class JobRecord(BaseRecord, frozen=True):
    """An event of a job."""

    job: str
    step: str


class SubmittedRecord(JobRecord, frozen=True, tag="submitted"):
    """A job that asks to be scheduled."""


class AdmittedRecord(JobRecord, frozen=True, tag="admitted", kw_only=True):
    """A job that may start, as far as storages are concerned."""

    location: str
    storage: str | None = None
    constraint: Annotated[float | None, Meta(description="storageBW of the job; none: no bandwidth")] = None
    allocated: Annotated[float | None, Meta(description="storageBW of all jobs on the storage")] = None
    running: Annotated[int, Meta(description="I/O tasks on the location")]


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


class StartedRecord(JobRecord, frozen=True, tag="started"):
    """The start of a job."""

    location: str
    waited: Annotated[dict[WaitCause, float], Meta(description="seconds of waiting, by cause")] = field(
        default_factory=dict
    )
    cores: Annotated[float | None, Meta(description="cores of the job, free or not")] = None
    location_cores: float | None = None
    queue: Annotated[bool, Meta(description="a queue manager has the job; the command may start later")] = False


class DirectoriesRecord(BaseRecord, frozen=True, tag="directories", kw_only=True):
    """Directories that StreamFlow has made for a job, or to copy a result.

    The job may have ended before: so the record is no event of the job.
    """

    job: str
    step: str
    deployment: Annotated[
        str | None, Meta(description="as in the StreamFlow file; none: the directories are on the driver's node")
    ] = None
    location: str
    paths: Annotated[tuple[str, ...], Meta(description="as that location has them, also of a job in a container")]


class LentRecord(JobRecord, frozen=True, tag="lent"):
    """The start of a job on cores that other jobs hold and do not use."""

    location: str
    cores: Annotated[int, Meta(description="borrowed cores")]
    lenders: Annotated[tuple[str, ...], Meta(description="jobs that hold these cores")]


class RehearsedRecord(JobRecord, frozen=True, tag="rehearsed", kw_only=True):
    """A repetition of a job that had ended, to find out whether one of its inputs may be read as a stream."""

    input: Annotated[str, Meta(description="as /step/port")]
    way: Annotated[Literal["net", "pipe"] | None, Meta(description="how the job can read a stream; none: not")] = None
    reason: Annotated[str | None, Meta(description="why not, or why unknown")] = None
    known: Annotated[bool, Meta(description="false: the rehearsal has shown nothing")]
    seconds: Annotated[float, Meta(description="time of all trials")]
    bytes: Annotated[int, Meta(description="size of the file")]
    excerpt: Annotated[int | None, Meta(description="first bytes that were enough; none: the whole file")] = None


class EndedRecord(JobRecord, frozen=True, tag="ended"):
    """The end of a job."""

    status: EndStatus
    usage: Annotated[JobUsage | None, Meta(description="measured where the node runtime ran the job")] = None


class CommandRecord(JobRecord, frozen=True, tag="command", kw_only=True):
    """The end of one attempt of a job's command. `docs/telemetry.md` says where its standard error is."""

    attempt: Annotated[int, Meta(description="from 1")]
    command: Annotated[str, Meta(description="the command line; of a long one the first 16 kB")]
    location: str
    directory: Annotated[str | None, Meta(description="as that location has it, also of a job in a container")] = None
    started: float
    code: Annotated[int | None, Meta(description="exit code; none: not known")] = None
    stream: Annotated[
        Literal["stderr", "both"],
        Meta(description="the kept output; `both`: standard output and error"),
    ] = "stderr"
    file: Annotated[
        str | None,
        Meta(description="its file, relative to the directory of the run; none: not kept"),
    ] = None
    bytes: Annotated[int, Meta(description="size of that output")] = 0
    cut: Annotated[
        int | None,
        Meta(description="bytes from the beginning, before those from the end; none: complete"),
    ] = None
