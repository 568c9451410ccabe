"""A run's share of the storages that other runs used, too, from its records."""

from __future__ import annotations

from collections.abc import Sequence

from streamflow_io.grouping import grouped
from streamflow_io.hints.models import Way
from streamflow_io.records.history import History, Interval
from streamflow_io.records.records import LeaseRecord
from streamflow_io.series import covered

from .model import AnalysisModel


class LeaseResult(AnalysisModel):
    """A storage that is shared, in one direction.

    :ivar waited: the seconds in which a job waited while other runs held something, also for its turn in a schedule
    :ivar slowdown: how many times as long the run took as without these waits, at most: other jobs may have run
        meanwhile
    """

    storage: str
    direction: Way
    waited: float
    slowdown: float


def lease_results(history: History) -> list[LeaseResult]:
    """Return the leases of each shared storage, in the directions in which it was used."""
    by_account = grouped(history.leases, lambda lease: (lease.storage, lease.direction))
    results = []
    for (name, direction), leases in by_account.items():
        if not any(lease.used or lease.wanted for lease in leases):
            continue
        waited = covered(_waits(history, leases))
        results.append(
            LeaseResult(
                storage=name,
                direction=direction,
                waited=waited,
                slowdown=history.seconds / max(history.seconds - waited, 1e-3) if history.seconds else 1.0,
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
