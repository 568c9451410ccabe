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
    constraint: Annotated[float | None, Meta(description="storageBW of the job; none: the job needs no bandwidth")] = (
        None
    )
    allocated: Annotated[
        float | None, Meta(description="admitted storageBW of all jobs on the storage, with this one")
    ] = None
    running: Annotated[int, Meta(description="admitted I/O tasks on the location, with this one")]


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
    waited: Annotated[
        dict[WaitCause, float], Meta(description="seconds since the job was submitted, by the cause of the wait")
    ] = field(default_factory=dict)
    cores: Annotated[
        float | None, Meta(description="the cores that the job uses, also where they did not have to be free")
    ] = None
    location_cores: Annotated[float | None, Meta(description="the cores of the location")] = None
    queue: Annotated[bool, Meta(description="a queue manager has the job; the command may start later")] = False


class DirectoriesRecord(JobRecord, frozen=True, tag="directories", kw_only=True):
    """Directories that StreamFlow has made for a job."""

    deployment: Annotated[
        str | None, Meta(description="as in the StreamFlow file; none: the directories are on the driver's node")
    ] = None
    location: str
    paths: Annotated[tuple[str, ...], Meta(description="as that location has them, also of a job in a container")]


class LentRecord(JobRecord, frozen=True, tag="lent"):
    """The start of a job on cores that other jobs hold and do not use."""

    location: str
    cores: Annotated[int, Meta(description="the number of borrowed cores")]
    lenders: Annotated[tuple[str, ...], Meta(description="the jobs that hold these cores")]


class RehearsedRecord(JobRecord, frozen=True, tag="rehearsed", kw_only=True):
    """A repetition of a job that had ended, to find out whether one of its inputs may be read as a stream."""

    input: Annotated[str, Meta(description="as /step/port")]
    way: Annotated[
        Literal["net", "pipe"] | None, Meta(description="the way in which the job reads a stream; none: the job cannot")
    ] = None
    reason: Annotated[str | None, Meta(description="why the job cannot read a stream, or why that is not known")] = None
    known: Annotated[bool, Meta(description="false: the rehearsal has shown nothing")]
    seconds: Annotated[float, Meta(description="the time of all that was tried")]
    bytes: Annotated[int, Meta(description="the size of the file")]
    excerpt: Annotated[
        int | None, Meta(description="the number of first bytes that were enough; none: the whole file was tried")
    ] = None


class EndedRecord(JobRecord, frozen=True, tag="ended"):
    """The end of a job."""

    status: EndStatus
    usage: Annotated[JobUsage | None, Meta(description="measured where the node runtime ran the job")] = None


class CommandRecord(JobRecord, frozen=True, tag="command", kw_only=True):
    """The end of one attempt of a job's command. `docs/telemetry.md` says where its standard error is."""

    attempt: Annotated[int, Meta(description="from 1")]
    command: Annotated[str, Meta(description="the command line with its redirections; of a long one the first 16 kB")]
    location: str
    directory: Annotated[str | None, Meta(description="the directory of the job")] = None
    started: Annotated[float, Meta(description="when the command started")]
    code: Annotated[int | None, Meta(description="the exit code; none: not known")] = None
    stream: Annotated[
        Literal["stderr", "both"],
        Meta(description="the output that is kept; `both`: standard output and standard error went to one place"),
    ] = "stderr"
    file: Annotated[
        str | None,
        Meta(description="the file with this output, relative to the directory of the run; none: it is not kept"),
    ] = None
    bytes: Annotated[int, Meta(description="the size of that output")] = 0
    cut: Annotated[
        int | None,
        Meta(description="bytes of the beginning in the file, before those of the end; none: the file has all"),
    ] = None
