"""Whether a schedule can be kept.

It shares no code with what makes schedules: it takes the schedule alone, and the definitions of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from .model import Application, Instance, Schedule

# Volumes and rates agree to this part of them.
_PART = 1e-6
# Times agree to this part of the period, and to this many seconds: floats know them no better.
_PART_OF_PERIOD = 1e-11
_SECONDS = 1e-9


class Problem(Struct, frozen=True):
    """Something that is wrong with a schedule.

    :ivar field: where in the schedule file, as in `applications[2].instances[0]`
    """

    field: str
    message: str


def check(schedule: Schedule) -> list[Problem]:
    """The problems of a schedule. There is none if every application can follow the schedule in every period.

    - Each instance computes for as long as its application needs.
    - Each instance transfers its whole volume, no faster than the application can.
    - Each instance ends before the next one begins, also across the end of the period.
    - All transfers together never need more than the bandwidth of the storage.
    """
    if not schedule.pattern.period > 0:
        return [Problem("period", "is not above 0")]
    if len(schedule.pattern.instances) != len(schedule.set.applications):
        return [Problem("applications", "are others than those of the set")]
    return list(_Checker(schedule).problems())


class _Checker:
    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._period = schedule.pattern.period
        self._near = _PART_OF_PERIOD * self._period + _SECONDS

    def problems(self) -> Iterator[Problem]:
        rows = zip(self._schedule.set.applications, self._schedule.pattern.instances, strict=True)
        for index, (application, instances) in enumerate(rows):
            field = f"applications[{index}]"
            if not instances:
                yield Problem(f"{field}.instances", f"{application.name} has no instance")
            for number, instance in enumerate(instances):
                yield from self._instance(
                    f"{field}.instances[{number}]", application, self._peak(application), instance
                )
            yield from self._order(field, instances)
        yield from self._bandwidth()

    def _peak(self, one: Application) -> float:
        platform = self._schedule.set.platform
        return min(one.nodes * platform.node_bandwidth if one.rate is None else one.rate, platform.bandwidth)

    def _instance(self, field: str, application: Application, peak: float, one: Instance) -> Iterator[Problem]:
        begin, end = one.work
        if not 0 <= begin < self._period:
            yield Problem(f"{field}.work", f"begins at {begin:.9g} s, not within the period of {self._period:.9g} s")
        if abs(end - begin - application.work) > self._near + _PART * application.work:
            message = f"computes for {end - begin:.9g} s, but {application.name} needs {application.work:.9g} s"
            yield Problem(f"{field}.work", message)
        for number, transfer in enumerate(one.transfers):
            place = f"{field}.transfers[{number}]"
            if transfer.end < transfer.start:
                yield Problem(place, f"ends at {transfer.end:.9g} s, before it begins at {transfer.start:.9g} s")
            if not 0 < transfer.rate <= peak * (1 + _PART):
                message = f"moves {transfer.rate:.9g} MB/s, but {application.name} can {peak:.9g} MB/s"
                yield Problem(place, message)
        if one.transfers and min(transfer.start for transfer in one.transfers) < end - self._near:
            yield Problem(f"{field}.transfers", f"begin before the end of the compute at {end:.9g} s")
        ordered = sorted(one.transfers, key=lambda transfer: transfer.start)
        if any(later.start < earlier.end - self._near for earlier, later in pairwise(ordered)):
            yield Problem(f"{field}.transfers", "overlap")
        moved = sum((transfer.end - transfer.start) * transfer.rate for transfer in one.transfers)
        if not abs(moved - application.volume) <= _PART * application.volume:
            message = f"moves {moved:.9g} MB, but {application.name} has {application.volume:.9g} MB"
            yield Problem(f"{field}.transfers", message)

    def _order(self, field: str, instances: Sequence[Instance]) -> Iterator[Problem]:
        """Each instance begins when the one before has ended, the first one a period later."""
        spans = [(one.work[0], max((each.end for each in one.transfers), default=one.work[1])) for one in instances]
        order = sorted(range(len(spans)), key=lambda number: spans[number][0])
        for number, following in pairwise([*order, *order[:1]]):
            begin = spans[following][0] + (self._period if following == order[0] else 0)
            if begin < spans[number][1] - self._near:
                message = f"begins at {begin:.9g} s, before instances[{number}] ends at {spans[number][1]:.9g} s"
                yield Problem(f"{field}.instances[{following}]", message)

    def _bandwidth(self) -> Iterator[Problem]:
        """All together never move more than the storage can."""
        bandwidth = self._schedule.set.platform.bandwidth
        changes: list[tuple[float, float]] = []
        used = over = 0.0
        for instances in self._schedule.pattern.instances:
            for one in (transfer for instance in instances for transfer in instance.transfers):
                rounds, rest = divmod(one.end - one.start, self._period)
                begin = one.start % self._period
                used += rounds * one.rate
                changes += [(begin, one.rate), (begin + rest, -one.rate)]
                if begin + rest > self._period:
                    changes += [(0.0, one.rate), (begin + rest - self._period, -one.rate)]
        changes = sorted((min(time, self._period), change) for time, change in changes)
        for (time, change), (following, _) in pairwise([*changes, (self._period, 0.0)]):
            used += change
            over = over + following - time if used > bandwidth * (1 + _PART) else 0.0
            if over > self._near:
                message = f"at {time:.9g} s move {used:.9g} MB/s together, but the storage can {bandwidth:.9g} MB/s"
                yield Problem("applications", message)
                return
