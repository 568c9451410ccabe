"""How fast a storage was while so many jobs of a run moved at once: points of its curve, under just this use. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from streamflow_io.hints.models import Direction
from streamflow_io.telemetry.history import History, Interval, Job
from streamflow_io.telemetry.numbers import MB, Result

# What was seen for less of the time in which something moved says little: jobs begin and end, and are not even then.
_LEAST_SHARE = 0.2


class SeenRate(Result):
    """:ivar jobs: that moved at once; :ivar rate: MB/s of all together; :ivar seconds: for so long, all together"""

    jobs: int
    rate: float
    seconds: float


def latency(history: History, job: Job) -> float:
    """Seconds in which a job has its storageBW, and moves nothing: it is started, computes, or is over."""
    measured = history.measured(job)
    if job.admitted is None or job.ended is None or job.usage is None or measured is None:
        return 0.0
    seconds = max(0.0, job.ended - job.admitted)
    # Several threads compute at once.
    return min(seconds, max(0.0, seconds - (measured[1] - measured[0])) + job.usage.cpu_seconds)


def seen_rates(history: History, storage: str, way: Direction, jobs: Sequence[Job]) -> tuple[SeenRate, ...]:
    """How fast a storage was, by the number of jobs that moved, while no other run held any of it.

    Jobs that were held to their storageBW say nothing of the storage, and are none of them.

    :param jobs: of the run, on the storage in this direction
    :return: by jobs; only of numbers for which it was seen for a fifth of the time
    """
    moving = [each for job in jobs if (each := _moving(history, job, way)) is not None]
    seconds: defaultdict[int, float] = defaultdict(float)
    megabytes: defaultdict[int, float] = defaultdict(float)
    for begin, end, count, rate in _constant(moving, [*_disturbed(history, storage, way)]):
        seconds[count] += end - begin
        megabytes[count] += rate * (end - begin)
    least = _LEAST_SHARE * sum(seconds.values())
    return tuple(
        SeenRate(jobs=count, rate=megabytes[count] / own, seconds=own)
        for count, own in sorted(seconds.items())
        if own >= least and megabytes[count] > 0
    )


def _moving(history: History, job: Job, way: Direction) -> tuple[float, float, float] | None:
    """From when to when a job has moved, and how many MB/s."""
    measured = history.measured(job)
    if job.usage is None or measured is None or job.usage.paused_seconds:
        return None
    begin, end = min(measured[0] + job.usage.cpu_seconds, measured[1]), measured[1]
    return (begin, end, job.usage.moved(way) / MB / (end - begin)) if end > begin else None


def _disturbed(history: History, storage: str, way: Direction) -> Iterator[Interval]:
    """When another run held something, as far as this one knew."""
    told = [each for each in history.leases if each.storage == storage and way in ("both", each.direction)]
    times = [*(history.since_start(each.time) for each in told), history.seconds]
    for lease, (begin, end) in zip(told, pairwise(times), strict=True):
        if lease.others > 0:
            yield begin, end


def _constant(
    moving: Sequence[tuple[float, float, float]], disturbed: Sequence[Interval]
) -> Iterator[tuple[float, float, int, float]]:
    """From when to when the same jobs moved, and nobody else: how many, and how many MB/s together."""
    changes = [(time, sign, 0, sign * rate) for begin, end, rate in moving for time, sign in ((begin, 1), (end, -1))]
    changes += [(time, 0, sign, 0.0) for begin, end in disturbed for time, sign in ((begin, 1), (end, -1))]
    count, others, rate, before = 0, 0, 0.0, 0.0
    for time, job, other, faster in sorted(changes):
        if count > 0 and others == 0 and time > before:
            yield before, time, count, rate
        count, others, rate, before = count + job, others + other, rate + faster, time
