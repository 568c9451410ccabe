"""The timeline of each job of a run: its waits, its run, its waits inside for bytes or at the gate, its byte streams.

Times are seconds since the start of the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamflow_io.grouping import grouped
from streamflow_io.records.files import CommittedRecord, StreamedRecord
from streamflow_io.records.history import History, JobAttempt
from streamflow_io.records.jobs import DelayCause

from .critical_path import PathSpan
from .model import AnalysisModel


class TimelineStream(AnalysisModel):
    """A byte stream into a job.

    :ivar input: None: unknown
    :ivar begin: when the job was given the first byte. None: unknown
    :ivar waited: seconds in which the job had taken all available bytes, and waited for more
    :ivar behind: seconds in which the job had not taken the bytes that it was given
    """

    output: str
    input: str | None
    source: str | None
    begin: float | None
    end: float | None
    bytes: int
    waited: float | None
    behind: float | None


class TimelineCommit(AnalysisModel):
    """Files that a job committed before its end.

    :ivar time: when the last file was committed
    """

    output: str
    time: float
    files: int
    bytes: int


class TimelineJob(AnalysisModel):
    """An attempt of a job.

    :ivar waited: seconds before its command ran, by the cause of the wait
    :ivar running: None: the job has not started
    :ivar cpu_seconds: CPU time of all its processes. None, here and below: unmeasured
    :ivar io_seconds: seconds in which one of its threads waited for a device
    :ivar held_seconds: seconds in which the job waited at the gate
    :ivar pauses: how often the job was paused to keep its limit. None: the job had no limit
    :ivar paused_seconds: the sum of these pauses
    :ivar on_path: seconds in which the job was on the critical path, waiting or running
    """

    job: str
    step: str
    io_task: bool
    location: str | None
    status: str | None
    waiting: tuple[float, float] | None
    waited: dict[DelayCause, float]
    running: tuple[float, float] | None
    cpu_seconds: float | None
    io_seconds: float | None
    held_seconds: float | None
    pauses: int | None
    paused_seconds: float | None
    bytes_read: int | None
    bytes_written: int | None
    on_path: float
    streams: list[TimelineStream]
    commits: list[TimelineCommit]


def timeline(history: History, path: Sequence[PathSpan]) -> list[TimelineJob]:
    """Return all attempts of all jobs, in the order of their starts."""
    jobs = sorted(history.jobs, key=lambda job: (_first_time(job), job.submitted or 0.0))
    streams = grouped(history.streamed, lambda stream: stream.job)
    commits = grouped(history.committed, lambda commit: commit.job)
    on_path = grouped((span for span in path if span.what != "between"), lambda span: span.job)
    return [
        _job(
            history,
            job,
            [one for one in streams.get(job.name, ()) if _is_of(history, job, one)],
            [one for one in commits.get(job.name, ()) if _is_of(history, job, one)],
            sum(span.seconds for span in on_path.get(job.name, ()) if _within(job, span)),
        )
        for job in jobs
    ]


def _is_of(history: History, job: JobAttempt, record: StreamedRecord | CommittedRecord) -> bool:
    """Whether a record of a job belongs to this attempt."""
    time = history.since_start(record.time)
    return (job.submitted or 0.0) <= time and (job.ended is None or time <= job.ended + 1e-6)


def _within(job: JobAttempt, span: PathSpan) -> bool:
    return (job.submitted or 0.0) <= span.begin + 1e-6 and (job.ended is None or span.end <= job.ended + 1e-6)


def _job(
    history: History,
    job: JobAttempt,
    streams: Sequence[StreamedRecord],
    commits: Sequence[CommittedRecord],
    on_path: float,
) -> TimelineJob:
    usage = job.usage
    return TimelineJob(
        job=job.name,
        step=job.step,
        io_task=history.is_io_task(job.step),
        location=job.location,
        status=job.status,
        waiting=history.waiting(job),
        waited=history.waited(job),
        running=history.running(job),
        cpu_seconds=None if usage is None else usage.cpu_seconds,
        io_seconds=None if usage is None else usage.io_seconds,
        held_seconds=None if usage is None else usage.held_seconds,
        pauses=None if usage is None else usage.pauses,
        paused_seconds=None if usage is None else usage.paused_seconds,
        bytes_read=None if usage is None else usage.moved("read"),
        bytes_written=None if usage is None else usage.moved("write"),
        on_path=on_path,
        streams=[_stream(history, stream) for stream in streams],
        commits=[_commit(history, job, commit) for commit in commits],
    )


def _stream(history: History, stream: StreamedRecord) -> TimelineStream:
    return TimelineStream(
        output=", ".join(stream.outputs),
        input=stream.input,
        source=stream.source,
        begin=None if stream.first is None else history.since_start(stream.first),
        end=None if stream.last is None else history.since_start(stream.last),
        bytes=stream.bytes,
        waited=stream.waited,
        behind=stream.behind,
    )


def _commit(history: History, job: JobAttempt, commit: CommittedRecord) -> TimelineCommit:
    # Clocks of nodes differ: the time between the commit and the end of the job is known in any case.
    ended = history.seconds if job.ended is None else job.ended
    time = max(job.started or 0.0, ended - (commit.ended - commit.last))
    return TimelineCommit(output=commit.output, time=time, files=commit.files, bytes=commit.bytes)


def _first_time(job: JobAttempt) -> float:
    return next((time for time in (job.started, job.ended, job.submitted) if time is not None), 0.0)
