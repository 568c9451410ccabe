"""A run's share of the storages that other runs used, too, from its records."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from streamflow_io.grouping import grouped
from streamflow_io.hints.models import Way
from streamflow_io.records.history import History
from streamflow_io.records.records import LeaseRecord
from streamflow_io.series import covered, thinned

from .model import POINTS, AnalysisModel

# The clocks of an entry and of a telemetry record may differ by this many seconds.
_AT_SLOT = 0.05


class HeldBurst(AnalysisModel):
    """A burst that was held back until its slot in a schedule that runs follow.

    :ivar since: when the burst could have begun
    :ivar slot: until when the burst was to wait, at the latest
    :ivar begun: when its first job was admitted. None: no job was
    """

    since: float
    slot: float
    begun: float | None

    @property
    def is_at_slot(self) -> bool:
        """Whether the burst waited for its slot; if not, the schedule or the run ended before."""
        return self.begun is not None and self.begun >= self.slot - _AT_SLOT

    @property
    def seconds(self) -> float:
        """The seconds for which the burst was held."""
        return max(0.0, min(self.slot, self.slot if self.begun is None else self.begun) - self.since)


class LeaseResult(AnalysisModel):
    """A storage that is shared, in one direction.

    :ivar begun: when the run started, in seconds since the epoch, for the comparison of runs
    :ivar levels: time, and from then on MB/s of this run's jobs, and of other runs
    :ivar waits: begin and end of each time in which a job waited for what other runs held, and was not held back for
        its slot
    :ivar waited: the sum of these times in seconds
    :ivar held: bursts that waited for a slot in a schedule
    :ivar slowdown: how many times as long the run took as without these waits, at most: other jobs may have run
        meanwhile
    """

    storage: str
    direction: Way
    limit: float | None
    begun: float
    levels: list[tuple[float, float, float]]
    waits: list[tuple[float, float]]
    waited: float
    held: list[HeldBurst]
    slowdown: float


def lease_results(history: History) -> list[LeaseResult]:
    """Return the leases of each shared storage, in the directions in which it was used."""
    storages = {storage.name: storage for storage in history.run.storages}
    by_account = grouped(history.leases, lambda lease: (lease.storage, lease.direction))
    results = []
    for (name, direction), leases in by_account.items():
        if not any(lease.used or lease.wanted for lease in leases):
            continue
        held = _held(history, name, direction)
        waits = _without(_waits(history, leases), [(one.since, one.since + one.seconds) for one in held])
        waited = covered(waits)
        storage = storages.get(name)
        results.append(
            LeaseResult(
                storage=name,
                direction=direction,
                limit=None if storage is None else getattr(storage, direction) or storage.write or storage.read,
                begun=history.run.time,
                levels=thinned([(history.since_start(one.time), one.used, one.others) for one in leases], POINTS),
                waits=thinned(waits, POINTS),
                waited=waited,
                held=held,
                slowdown=history.seconds / max(history.seconds - waited, 1e-3) if history.seconds else 1.0,
            )
        )
    return results


def _waits(history: History, leases: Sequence[LeaseRecord]) -> list[tuple[float, float]]:
    """Return the times in which more was wanted than was held, while others held some."""
    waits: list[tuple[float, float]] = []
    for number, one in enumerate(leases):
        if one.others > 0 and one.wanted > one.held - one.used:
            begun = history.since_start(one.time)
            until = history.since_start(leases[number + 1].time) if number + 1 < len(leases) else history.seconds
            if waits and waits[-1][1] >= begun:
                waits[-1] = waits[-1][0], until
            else:
                waits.append((begun, until))
    return waits


def _without(spans: Sequence[tuple[float, float]], others: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the parts of some spans that no other span covers. The other spans must not overlap."""
    left = list(spans)
    for begin, end in others:
        parts = [part for first, last in left for part in ((first, min(last, begin)), (max(first, end), last))]
        left = [(first, last) for first, last in parts if first < last]
    return left


def _held(history: History, storage: str, direction: Way) -> list[HeldBurst]:
    """Return the held bursts. A burst begins with the first job on its storage that is admitted after the hold."""
    jobs = [job for job in history.jobs if job.admitted is not None and job.storage == storage]
    admitted = sorted((job.admitted or 0.0, history.direction(job.step)) for job in jobs)
    found = []
    for record in history.held:
        if record.storage == storage:
            since = history.since_start(record.time)
            place = bisect_left(admitted, (since, ""))
            begun, way = admitted[place] if place < len(admitted) else (None, direction)
            if way in (direction, "both"):
                found.append(HeldBurst(since=since, slot=history.since_start(record.until), begun=begun))
    return found
