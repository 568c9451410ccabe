"""A run's share of the storages that other runs used, too, from its records."""

from __future__ import annotations

from collections.abc import Sequence

from streamflow_io.grouping import grouped
from streamflow_io.hints.models import Way
from streamflow_io.records.history import History
from streamflow_io.records.records import LeaseRecord
from streamflow_io.series import covered, thinned

from .model import POINTS, AnalysisModel


class LeaseResult(AnalysisModel):
    """A storage that is shared, in one direction.

    :ivar begun: when the run started, in seconds since the epoch, for the comparison of runs
    :ivar levels: time, and from then on MB/s of this run's jobs, and of other runs
    :ivar waits: begin and end of each time in which a job waited for what other runs held
    :ivar waited: the sum of these times in seconds
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
    slowdown: float


def lease_results(history: History) -> list[LeaseResult]:
    """Return the leases of each shared storage, in the directions in which it was used."""
    storages = {storage.name: storage for storage in history.run.storages}
    by_account = grouped(history.leases, lambda lease: (lease.storage, lease.direction))
    results = []
    for (name, direction), leases in by_account.items():
        if not any(lease.used or lease.wanted for lease in leases):
            continue
        waits = _waits(history, leases)
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
