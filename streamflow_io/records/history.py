"""The history of a run: its records, put together job by job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.hints.models import Direction
from streamflow_io.runtime.usage import JobUsage

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
    CommandRecord,
    DelayCause,
    EndedRecord,
    EndStatus,
    JobRecord,
    LentRecord,
    RehearsedRecord,
    StartedRecord,
    SubmittedRecord,
    WaitCause,
)
from .records import (
    ChoiceRecord,
    DiskRecord,
    EndRecord,
    EpochRecord,
    HeldRecord,
    LeaseRecord,
    LocationRecord,
    RateRecord,
    Record,
    RemovedRecord,
    RequestRecord,
    RunRecord,
    RunStatus,
    StepRecord,
)

Interval = tuple[float, float]
# A queue manager takes some time to start a job that need not wait.
_QUEUED = 0.5


class JobAttempt(Struct):
    """One attempt of a job. Times are seconds since the start of the run. None: the job did not get there.

    :ivar waited: seconds until the job had a place, by cause
    :ivar constraint: storageBW of the job, MB/s
    :ivar cores: the cores that the job uses
    :ivar location_cores: the cores of the job's location
    :ivar queue: whether the job was given to a queue manager
    :ivar outputs: the use of each output, if the job was observed; times are as recorded
    :ivar inputs: the use of each input, if the job was observed; times are as recorded
    :ivar splits: outputs of the job that are parts of an input
    """

    name: str
    step: str
    submitted: float | None = None
    admitted: float | None = None
    started: float | None = None
    ended: float | None = None
    location: str | None = None
    storage: str | None = None
    constraint: float | None = None
    status: EndStatus | None = None
    usage: JobUsage | None = None
    waited: Mapping[WaitCause, float] = field(default_factory=dict)
    cores: float | None = None
    location_cores: float | None = None
    queue: bool = False
    outputs: Sequence[OutputRecord] = ()
    inputs: Sequence[InputRecord] = ()
    splits: Sequence[SplitRecord] = ()


class Session(Struct):
    """A read session.

    :ivar progress: chunks that have arrived and parts that were consumed, in order
    :ivar end: None: no end was recorded
    """

    facts: SessionRecord
    progress: list[ChunkRecord | ConsumedRecord] = field(default_factory=list)
    end: SessionEndRecord | None = None


class History(Struct):
    """A run. Times are seconds since its start; times inside records are as recorded.

    :ivar label: the name under which the run is shown
    :ivar seconds: from the start of the run to its end, or to its last record
    :ivar ended: whether the end was recorded; if not, the run was killed or goes on
    :ivar status: how the run ended. None: the run has not ended, or its status is not known
    :ivar routes: the routes from outputs to inputs, if the run was observed
    :ivar edges: files to be delivered early, as planned or as found while the run went on
    :ivar fallbacks: files that the run could not deliver early
    :ivar readings: outputs that jobs began to read before the outputs were complete
    :ivar streamed: byte streams that have ended
    :ivar committed: outputs that jobs committed before they ended
    :ivar requests: data that I/O tasks moved, and that compute jobs wrote
    :ivar rates: how fast jobs might move from each time on, in order
    :ivar leases: bandwidth that the run held of storages that other runs use, too
    :ivar held_back: bursts that waited for their slots in a schedule
    :ivar lent: jobs that ran on cores of other jobs
    :ivar rehearsed: repetitions of jobs that had ended
    :ivar removed: removals of intermediate files, in order
    :ivar disks: the disk space of locations, and what was expected
    :ivar locations: where jobs could start; where some have started may be missing
    :ivar sessions: read sessions, by their numbers
    :ivar tried_again: the names of jobs whose command ran again in place
    """

    label: str
    run: RunRecord
    seconds: float = 0.0
    ended: bool = False
    status: RunStatus | None = None
    steps: dict[str, StepRecord] = field(default_factory=dict)
    jobs: list[JobAttempt] = field(default_factory=list)
    epochs: list[EpochRecord] = field(default_factory=list)
    choices: list[ChoiceRecord] = field(default_factory=list)
    routes: list[RouteRecord] = field(default_factory=list)
    edges: list[EdgeRecord] = field(default_factory=list)
    fallbacks: list[FallbackRecord] = field(default_factory=list)
    readings: list[ReadingRecord] = field(default_factory=list)
    streamed: list[StreamedRecord] = field(default_factory=list)
    committed: list[CommittedRecord] = field(default_factory=list)
    discarded: list[DiscardedRecord] = field(default_factory=list)
    requests: list[RequestRecord] = field(default_factory=list)
    rates: list[RateRecord] = field(default_factory=list)
    leases: list[LeaseRecord] = field(default_factory=list)
    held_back: list[HeldRecord] = field(default_factory=list)
    lent: list[LentRecord] = field(default_factory=list)
    rehearsed: list[RehearsedRecord] = field(default_factory=list)
    removed: list[RemovedRecord] = field(default_factory=list)
    disks: list[DiskRecord] = field(default_factory=list)
    locations: list[LocationRecord] = field(default_factory=list)
    sessions: dict[int, Session] = field(default_factory=dict)
    tried_again: set[str] = field(default_factory=set)

    @property
    def job_names(self) -> set[str]:
        """The jobs. A job that has started again has several attempts in `jobs`."""
        return {job.name for job in self.jobs}

    def since_start(self, time: float) -> float:
        """Return the time of a record in seconds since the start of the run."""
        return max(0.0, time - self.run.time)

    def is_io_task(self, step: str) -> bool:
        return step in self.steps and self.steps[step].io_task

    def direction(self, step: str) -> Direction:
        """Return the direction in which the bytes of a step's jobs count; without hints, written bytes count."""
        return self.steps[step].direction if step in self.steps else "write"

    def waiting(self, job: JobAttempt) -> Interval | None:
        """Return the time in which a job waited for its place, and in a queue. None: the job was not submitted."""
        if job.submitted is None:
            return None
        begun = self.begun(job)
        end = begun if begun is not None else job.ended
        return job.submitted, self.seconds if end is None else end

    def running(self, job: JobAttempt) -> Interval | None:
        """Return the time in which a job ran. None: the job did not start."""
        begun = self.begun(job)
        if begun is None:
            return None
        return begun, self.seconds if job.ended is None else job.ended

    def begun(self, job: JobAttempt) -> float | None:
        """Return when a job began to run: at its start, or after its wait in a queue. None: the job did not start."""
        queued = self.queued(job)
        return job.started if queued is None else queued[1]

    def queued(self, job: JobAttempt) -> Interval | None:
        """Return the time that a job with a place spent in a queue. None: the job was not seen to wait there."""
        measured = self.measured(job) if job.queue else None
        if measured is None or job.started is None or measured[0] - job.started < _QUEUED:
            return None
        return job.started, measured[0]

    def waited(self, job: JobAttempt) -> dict[DelayCause, float]:
        """Return the causes for which a job waited before its command started, with the seconds of each."""
        waited: dict[DelayCause, float] = dict(job.waited.items())
        if (queued := self.queued(job)) is not None:
            waited["queue"] = queued[1] - queued[0]
        return waited

    def measured(self, job: JobAttempt) -> Interval | None:
        """Return the time in which the command of a job ran, as the node runtime measured it. None: no measure."""
        if job.usage is None or job.ended is None:
            return None
        since, until = (self.run.time + time for time in (job.submitted or 0.0, job.ended))
        start, end = job.usage.ran(since, until)
        return start - self.run.time, end - self.run.time

    def forget(self, most: int) -> None:
        """Keep only the last jobs, and the leases since the first of them.

        :param most: how many jobs are kept
        """
        self.jobs = self.jobs[-most:]
        begin = min((job.submitted for job in self.jobs if job.submitted is not None), default=0.0)
        before = [lease for lease in self.leases if self.since_start(lease.time) < begin]
        # Before the first kept job, only the last lease of each storage and direction counts.
        last = {(lease.storage, lease.direction): lease for lease in before}
        self.leases = [*last.values(), *self.leases[len(before) :]]


def read_history(label: str, records: Iterable[Record]) -> History:
    """Put the records of a run together.

    :raises ValueError: if the first record is not that of the run
    """
    iterator = iter(records)
    first = next(iterator, None)
    if not isinstance(first, RunRecord):
        raise ValueError("the first record must be that of the run")
    reader = HistoryReader(label, first)
    for record in iterator:
        reader.told(record)
    return reader.history


class HistoryReader:
    """Puts the records of a run together, one by one.

    :ivar history: the facts so far
    """

    def __init__(self, label: str, run: RunRecord) -> None:
        self.history = History(label, run)
        self._open_jobs: dict[str, JobAttempt] = {}
        # Each edge leads from an output to an input.
        self._edges: set[tuple[str, str | None]] = set()

    def told(self, record: Record) -> None:
        """Add the next record."""
        history = self.history
        time = history.since_start(record.time)
        history.seconds = max(history.seconds, time)
        if (kept := _KEPT.get(type(record))) is not None:
            getattr(history, kept).append(record)
            self._find_edge(record)
        elif isinstance(record, StepRecord):
            history.steps[record.step] = record
        elif isinstance(record, SessionRecord):
            history.sessions[record.session] = Session(record)
        elif isinstance(record, ChunkRecord | ConsumedRecord | SessionEndRecord):
            _follow_session(history.sessions.get(record.session), record)
        elif isinstance(record, EndRecord):
            history.ended, history.status = True, record.status
        elif isinstance(record, CommandRecord):
            if record.attempt > 1:
                history.tried_again.add(record.job)
        elif isinstance(record, JobRecord):
            _follow(history, self._open_jobs, record, time)

    def _find_edge(self, record: Record) -> None:
        """Add an edge that was proven, and streamed, only after the run began."""
        if isinstance(record, EdgeRecord):
            self._edges.add((record.output, record.input))
        elif isinstance(record, ReadingRecord) and (record.output, record.input) not in self._edges:
            self._edges.add((record.output, record.input))
            delivery = Delivery.STREAM if record.delivery == "stream" else Delivery.GATE
            edge = EdgeRecord(time=record.time, output=record.output, input=record.input, delivery=delivery)
            self.history.edges.append(edge)


# Records that are kept as they are, with the lists of the history that take them.
_KEPT: Mapping[type[Record], str] = {
    EpochRecord: "epochs",
    ChoiceRecord: "choices",
    RouteRecord: "routes",
    EdgeRecord: "edges",
    FallbackRecord: "fallbacks",
    ReadingRecord: "readings",
    StreamedRecord: "streamed",
    CommittedRecord: "committed",
    DiscardedRecord: "discarded",
    RequestRecord: "requests",
    RateRecord: "rates",
    LeaseRecord: "leases",
    HeldRecord: "held_back",
    LentRecord: "lent",
    RehearsedRecord: "rehearsed",
    RemovedRecord: "removed",
    DiskRecord: "disks",
    LocationRecord: "locations",
}


def _follow_session(session: Session | None, record: ChunkRecord | ConsumedRecord | SessionEndRecord) -> None:
    if session is None:
        return
    if isinstance(record, SessionEndRecord):
        session.end = record
    else:
        session.progress.append(record)


def _follow(history: History, open_jobs: dict[str, JobAttempt], record: JobRecord, time: float) -> None:
    job = open_jobs.get(record.job)
    if job is None or isinstance(record, SubmittedRecord):
        if job is not None:
            job.ended = time
        job = open_jobs[record.job] = JobAttempt(record.job, record.step)
        history.jobs.append(job)
    if isinstance(record, SubmittedRecord):
        job.submitted = time
    elif isinstance(record, AdmittedRecord):
        job.admitted = time
        job.location, job.storage, job.constraint = record.location, record.storage, record.constraint
    elif isinstance(record, StartedRecord):
        job.started, job.location, job.waited = time, record.location, record.waited
        job.cores, job.location_cores, job.queue = record.cores, record.location_cores, record.queue
    elif isinstance(record, OutputRecord):
        job.outputs = (*job.outputs, record)
    elif isinstance(record, InputRecord):
        job.inputs = (*job.inputs, record)
    elif isinstance(record, SplitRecord):
        job.splits = (*job.splits, record)
    elif isinstance(record, EndedRecord):
        del open_jobs[record.job]
        job.ended, job.status, job.usage = time, record.status, record.usage
