"""A run's share of the storages that other runs used, too, from its records."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from streamflow_io.grouping import grouped
from streamflow_io.hints.models import Way
from streamflow_io.records.history import History, Interval
from streamflow_io.records.records import LeaseRecord
from streamflow_io.series import covered

from .model import AnalysisModel


class LeaseResult(AnalysisModel):
    """A storage that is shared, in one direction.

    :ivar waited: the seconds in which a job waited for what other runs held, and was not held back for its slot
    :ivar slowdown: how many times as long the run took as without these waits, at most: other jobs may have run
        meanwhile
    :ivar bursts: the bursts that were held back until their slots in a schedule that runs follow
    :ivar held: the sum of the seconds for which they were held
    """

    storage: str
    direction: Way
    waited: float
    slowdown: float
    bursts: int
    held: float


def lease_results(history: History) -> list[LeaseResult]:
    """Return the leases of each shared storage, in the directions in which it was used."""
    by_account = grouped(history.leases, lambda lease: (lease.storage, lease.direction))
    results = []
    for (name, direction), leases in by_account.items():
        if not any(lease.used or lease.wanted for lease in leases):
            continue
        held = _held(history, name, direction)
        waited = covered(_without(_waits(history, leases), held))
        results.append(
            LeaseResult(
                storage=name,
                direction=direction,
                waited=waited,
                slowdown=history.seconds / max(history.seconds - waited, 1e-3) if history.seconds else 1.0,
                bursts=len(held),
                held=sum(until - since for since, until in held),
            )
        )
    return results


def _waits(history: History, leases: Sequence[LeaseRecord]) -> list[Interval]:
    """Return the times in which more was wanted than was held, while others held some."""
    waits: list[Interval] = []
    for number, one in enumerate(leases):
        if one.others > 0 and one.wanted > one.held - one.used:
            until = history.since_start(leases[number + 1].time) if number + 1 < len(leases) else history.seconds
            waits.append((history.since_start(one.time), until))
    return waits


def _without(spans: Sequence[Interval], others: Iterable[Interval]) -> list[Interval]:
    """Return the parts of some spans that no other span covers. The other spans must not overlap."""
    left = list(spans)
    for begin, end in others:
        parts = [part for first, last in left for part in ((first, min(last, begin)), (max(first, end), last))]
        left = [(first, last) for first, last in parts if first < last]
    return left


def _held(history: History, storage: str, direction: Way) -> list[Interval]:
    """Return when bursts were held. A burst begins with the first job that its storage admits after the hold."""
    jobs = [job for job in history.jobs if job.admitted is not None and job.storage == storage]
    admitted = sorted((job.admitted or 0.0, history.direction(job.step)) for job in jobs)
    found = []
    for record in history.held:
        if record.storage == storage:
            since, slot = history.since_start(record.time), history.since_start(record.until)
            place = bisect_left(admitted, (since, ""))
            begun, way = admitted[place] if place < len(admitted) else (slot, direction)
            if way in (direction, "both"):
                found.append((since, max(since, min(slot, begun))))
    return found
