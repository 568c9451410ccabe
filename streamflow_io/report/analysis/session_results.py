"""The results of read sessions: a row of a table and the lines of a figure for each.

Times are seconds since the start of the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict

from streamflow_io.hints.reasons import SessionReason
from streamflow_io.records.files import ChunkRecord, SessionForm
from streamflow_io.records.history import History, Interval, Session
from streamflow_io.series import levels, thinned

from .model import POINTS, AnalysisModel
from .phases import overlap


class ReadAhead(AnalysisModel):
    """The bytes that had arrived, and the consumed part of them, at a time."""

    time: float
    arrived: int
    consumed: int


class SessionResult(AnalysisModel):
    """A read session.

    :ivar readers: how many chunks may be read at the same time
    :ivar most_readers: how many chunks were read at the same time
    :ivar window: the most bytes that may have arrived and not be consumed
    :ivar storage_bytes: bytes that were not in the page cache when their chunk was read, as far as is known
    :ivar cached_bytes: bytes that were in the page cache, from before the session or because of other readers
    :ivar read_seconds: from the beginning of the session to its last chunk
    :ivar overlap: the share of the reading time in which at least one job computed; a job that only tells the parts
        does not count. None: no chunk was read
    :ivar reason: why the session ended. None: no end was recorded
    :ivar over_time: from the beginning to the last chunk, or to the last part that is consumed
    """

    session: int
    step: str
    file: str
    size: int
    form: SessionForm
    readers: int
    most_readers: int
    window: int
    storage_bytes: int
    cached_bytes: int
    read_seconds: float
    overlap: float | None
    reason: SessionReason | None
    over_time: list[ReadAhead]


def session_results(history: History) -> list[SessionResult]:
    """Return the read sessions of a run, in the order in which they began."""
    return [_result(history, session) for session in history.sessions.values()]


def _result(history: History, session: Session) -> SessionResult:
    facts, end = session.facts, session.end
    began = history.since_start(facts.time)
    chunks = [step for step in session.progress if isinstance(step, ChunkRecord)]
    cached = sum(chunk.cached or 0 for chunk in chunks)
    storage = sum(max(0, chunk.bytes - (chunk.cached or 0)) for chunk in chunks)
    reading = [_reading(history, chunk) for chunk in chunks]
    readers = levels([change for since, until in reading for change in ((since, 1), (until, -1))], POINTS)
    return SessionResult(
        **{name: value for name, value in asdict(facts).items() if name in SessionResult.model_fields},
        most_readers=int(max((count for _, count in readers), default=0)),
        storage_bytes=storage,
        cached_bytes=cached,
        read_seconds=max((until for _, until in reading), default=began) - began,
        overlap=overlap(reading, _computing(history, session)),
        reason=None if end is None else end.reason,
        over_time=thinned(_over_time(history, session), POINTS),
    )


def _reading(history: History, chunk: ChunkRecord) -> Interval:
    return history.since_start(chunk.time - chunk.seconds), history.since_start(chunk.time)


def _computing(history: History, session: Session) -> list[Interval]:
    """Return when jobs computed. Jobs of a virtual split do not count: they only say its parts."""
    split = session.facts.step if session.facts.form == "said" else None
    jobs = (job for job in history.jobs if job.step != split and not history.is_io_task(job.step))
    return list(filter(None, map(history.running, jobs)))


def _over_time(history: History, session: Session) -> Sequence[ReadAhead]:
    points = [ReadAhead(time=history.since_start(session.facts.time), arrived=0, consumed=0)]
    arrived = 0
    until = None if session.end is None else session.end.time
    for step in session.progress:
        # The window does not hold bytes that arrive after the end.
        is_late = isinstance(step, ChunkRecord) and until is not None and step.time > until
        if step.held is None or is_late:
            continue
        consumed = arrived - step.held
        if isinstance(step, ChunkRecord):
            arrived += step.bytes
        points.append(ReadAhead(time=history.since_start(step.time), arrived=arrived, consumed=consumed))
    return points
