"""The use of each location in a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from streamflow_io.grouping import grouped
from streamflow_io.records.history import History, JobAttempt

from .model import AnalysisModel


class LocationResult(AnalysisModel):
    """The use of a location.

    :ivar jobs: the attempts that started there
    :ivar cores: None: unknown
    :ivar held: the cores that jobs held there, in the mean over the run. None: unknown
    :ivar received: the bytes of streams that came from other locations
    :ivar sent: the bytes of streams that went to other locations
    """

    location: str
    jobs: int
    failed: int
    cores: float | None
    held: float | None
    received: int
    sent: int


def location_results(history: History) -> list[LocationResult]:
    """Return the locations where jobs started, or could start, in the order of their names.

    Streams within a location do not count.
    """
    received: defaultdict[str, int] = defaultdict(int)
    sent: defaultdict[str, int] = defaultdict(int)
    attempts = grouped(history.jobs, lambda job: job.name)
    for stream in history.streamed:
        time = history.since_start(stream.time)
        source = _location(attempts[stream.source or ""], time)
        target = _location(attempts[stream.job], time)
        if source is not None and target is not None and source != target:
            received[target] += stream.bytes
            sent[source] += stream.bytes
    ran = (job for job in history.jobs if job.started is not None and job.location is not None)
    started = grouped(ran, lambda job: job.location or "")
    offered = {record.location: record.location_cores for record in history.locations}
    return [
        LocationResult(
            location=location,
            jobs=len(jobs),
            failed=sum(job.status == "failed" for job in jobs),
            cores=next((job.location_cores for job in jobs if job.location_cores is not None), offered.get(location)),
            held=_held(history, jobs),
            received=received[location],
            sent=sent[location],
        )
        for location, jobs in ((name, started[name]) for name in sorted({*offered, *started}))
    ]


def rest_of(locations: Sequence[LocationResult]) -> LocationResult:
    """Return several locations as one, whose name says how many there are."""
    cores = [one.cores for one in locations if one.cores is not None]
    held = [one.held for one in locations if one.held is not None]
    return LocationResult(
        location=f"and {len(locations):,} more",
        jobs=sum(one.jobs for one in locations),
        failed=sum(one.failed for one in locations),
        cores=sum(cores) if cores else None,
        held=sum(held) if held else None,
        received=sum(one.received for one in locations),
        sent=sum(one.sent for one in locations),
    )


def _location(attempts: Sequence[JobAttempt], time: float) -> str | None:
    """Return where the last attempt ran that had started by a time."""
    started = (one.location for one in attempts if one.started is not None and one.started <= time)
    return next(reversed(list(started)), None)


def _held(history: History, jobs: Sequence[JobAttempt]) -> float | None:
    known = [(job.cores, history.running(job)) for job in jobs if job.cores is not None]
    if (jobs and not known) or history.seconds <= 0:
        return None
    return sum(cores * (ran[1] - ran[0]) for cores, ran in known if ran is not None) / history.seconds
