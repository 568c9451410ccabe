"""Finds whether a run uses a storage in periodic bursts, and their profile, from what is known of its jobs.

Bursts are found by structure, not by gaps in time: a burst of 16 jobs that moves 4 at once has waves of its own.
StreamFlow's tags count the iterations of loops and the elements of scatters (`0.ITERATION.ELEMENT`). The steps of a
loop that was unrolled differ by name. So the jobs of a burst share their step, and their tag without its last number.

MB is 10^6 bytes; rates are MB/s.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median, quantiles

from streamflow_io.grouping import grouped
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.models import Way
from streamflow_io.records.history import History, Interval, JobAttempt
from streamflow_io.report.analysis.model import MB
from streamflow_io.report.analysis.network import tag_of
from streamflow_io.series import covered

from .burst_profile import BurstProfile, SeenRate

# What was seen for less of the time in which something moved says little: jobs begin and end, and are not even then.
_LEAST_SEEN = 0.2


def latency(history: History, job: JobAttempt) -> float:
    """Seconds in which a job has its storageBW, and moves nothing: it is started, computes, or is over."""
    measured = history.measured(job)
    if job.admitted is None or job.ended is None or job.usage is None or measured is None:
        return 0.0
    seconds = max(0.0, job.ended - job.admitted)
    # Several threads compute at once.
    return min(seconds, max(0.0, seconds - (measured[1] - measured[0])) + job.usage.cpu_seconds)


def seen_rates(history: History, storage: str, way: Way, jobs: Sequence[JobAttempt]) -> tuple[SeenRate, ...]:
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
    least = _LEAST_SEEN * sum(seconds.values())
    return tuple(
        SeenRate(jobs=count, rate=megabytes[count] / own, seconds=own)
        for count, own in sorted(seconds.items())
        if own >= least and megabytes[count] > 0
    )


def _moving(history: History, job: JobAttempt, way: Way) -> tuple[float, float, float] | None:
    """From when to when a job has moved, and how many MB/s."""
    measured = history.measured(job)
    if job.usage is None or measured is None or job.usage.paused_seconds:
        return None
    begin, end = min(measured[0] + job.usage.cpu_seconds, measured[1]), measured[1]
    return (begin, end, job.usage.moved(way) / MB / (end - begin)) if end > begin else None


def _disturbed(history: History, storage: str, way: Way) -> Iterator[Interval]:
    """When another run held something, as far as this one knew."""
    told = [each for each in history.leases if each.storage == storage and each.direction == way]
    times = [*(history.since_start(each.time) for each in told), history.seconds]
    for lease, (begin, end) in zip(told, pairwise(times), strict=True):
        if lease.others > 0:
            yield begin, end


def _constant(
    moving: Sequence[tuple[float, float, float]], disturbed: Sequence[Interval]
) -> Iterator[tuple[float, float, int, float]]:
    """The times in which the same jobs moved, and no other: begin, end, number of jobs, MB/s of all together."""
    changes = [(time, sign, 0, sign * rate) for begin, end, rate in moving for time, sign in ((begin, 1), (end, -1))]
    changes += [(time, 0, sign, 0.0) for begin, end in disturbed for time, sign in ((begin, 1), (end, -1))]
    count, others, rate, before = 0, 0, 0.0, 0.0
    for time, job, other, faster in sorted(changes):
        if count > 0 and others == 0 and time > before:
            yield before, time, count, rate
        count, others, rate, before = count + job, others + other, rate + faster, time


# Of fewer bursts nothing is said.
LEAST_BURSTS = 4
# The first and the last burst are left out if this number is left: the first has no compute before it, the last is
# often smaller.
_LEAST_INNER = 6
# A burst is compact if some job of it is outstanding for at least this part of its time.
_COMPACT = 0.9
_LEAST_SHARE = 0.1
MOST_SPREAD = 0.5
# The standard deviation of a normal distribution is its interquartile range divided by this.
_NORMAL = 1.35
# The standard error of a median is larger than that of a mean by this factor.
_MEDIAN = 1.25


class _Burst:
    """Jobs that belong together, the first submitted first. Times are seconds since the start of the run."""

    def __init__(self, history: History, jobs: Sequence[JobAttempt]) -> None:
        self.begin = min(_submitted(job) for job in jobs)
        self.all_submitted = max(_submitted(job) for job in jobs)
        ends = [job.ended for job in jobs]
        self.is_over = None not in ends
        self.end = max(end if end is not None else math.inf for end in ends)
        self.outstanding = [(_submitted(job), job.ended if job.ended is not None else history.seconds) for job in jobs]
        self.volume = sum(_megabytes(history, job) for job in jobs)
        self.leased = sum(_leased(job) for job in jobs)
        self.latencies = [latency(history, job) for job in jobs]
        self.constraints = list({job.name: job.constraint or 0.0 for job in jobs}.values())

    @property
    def is_dense(self) -> bool:
        return covered(self.outstanding) >= _COMPACT * (self.end - self.begin)


def find_profile(history: History, storage: StorageConfig) -> BurstProfile | None:
    """The profile of the bursts of a run on a storage, in the direction with more bytes; medians of its bursts.

    :return: None if the bursts are not periodic, or go on while the run computes
    """
    jobs = [job for job in history.jobs if job.submitted is not None and job.constraint and job.storage == storage.name]
    by_way = grouped(jobs, lambda job: history.direction(job.step))
    for way, own in sorted(by_way.items(), key=lambda item: -sum(_megabytes(history, job) for job in item[1])):
        bandwidth = {"write": storage.write, "read": storage.read, "both": None}[way]
        if way != "both" and (found := _profile(history, storage.name, way, bandwidth, own)) is not None:
            return found
    return None


def _profile(
    history: History, storage: str, way: Way, bandwidth: float | None, jobs: Sequence[JobAttempt]
) -> BurstProfile | None:
    found = _bursts(history, jobs)
    if len(found) < LEAST_BURSTS:
        return None
    inner = found[1:-1] if len(found) >= _LEAST_INNER + 2 else found
    volume, leased = (median(each) for each in zip(*((burst.volume, burst.leased) for burst in inner), strict=True))
    if volume <= 0 or leased <= 0:
        return None
    if not (all(burst.is_dense for burst in inner) and all(a.end <= b.begin for a, b in pairwise(inner))):
        return None
    rate = median(sum(burst.constraints) for burst in inner)
    if bandwidth is not None:
        rate = min(rate, bandwidth)
    works = [later.begin - earlier.end for earlier, later in pairwise(inner)]
    work = median(works)
    # Whether it is 0.1 or 0.2 s of a period of 10 s does not matter.
    scale = max(work, _LEAST_SHARE * (work + volume / rate))
    spread = max(_spread(works, scale), _spread([burst.volume for burst in inner], volume))
    if spread > MOST_SPREAD:
        return None
    return BurstProfile(
        direction=way,
        bursts=len(found),
        jobs=round(median(len(burst.constraints) for burst in inner)),
        storage_bw=median(constraint for burst in inner for constraint in burst.constraints),
        volume=leased,
        rate=rate,
        work=work,
        error=_MEDIAN * spread / math.sqrt(len(inner)),
        moved=volume,
        latency=median(each for burst in inner for each in burst.latencies),
        seen=seen_rates(history, storage, way, jobs),
    )


def _bursts(history: History, jobs: Sequence[JobAttempt]) -> list[_Burst]:
    """The bursts of jobs in order, without a last one that is not over; too few: there is no such structure."""
    for key in (_without_element, _whole_tag):
        groups = grouped(jobs, key)
        bursts = sorted((_Burst(history, of) for of in groups.values()), key=lambda burst: burst.begin)
        if not all(earlier.all_submitted < later.begin for earlier, later in pairwise(bursts)):
            continue
        over = bursts if bursts[-1].is_over else bursts[:-1]
        if key is _whole_tag and not _are_iterations(history, {tag for _, tag in groups}):
            return over[:1]
        # Several bursts of a scatter each are none of its elements.
        if len(bursts) > 1:
            return over
    return []


def _without_element(job: JobAttempt) -> tuple[str, str]:
    return job.step, tag_of(job).rpartition(".")[0]


def _whole_tag(job: JobAttempt) -> tuple[str, str]:
    return job.step, tag_of(job)


def _are_iterations(history: History, tags: Collection[str]) -> bool:
    """Whether tags count the iterations of a loop: one is computed after the other. A scatter has all its elements."""
    of = [job for job in history.jobs if job.submitted is not None and tag_of(job) in tags]
    computing = [job for job in of if not history.is_io_task(job.step)] or of
    for jobs in grouped(computing, lambda job: job.step).values():
        pairs = list(pairwise(sorted(jobs, key=_submitted)))
        early = sum(earlier.ended is None or _submitted(later) < earlier.ended for earlier, later in pairs)
        if 2 * early > len(pairs):
            return False
    return True


def _submitted(job: JobAttempt) -> float:
    return job.submitted if job.submitted is not None else 0.0


def _megabytes(history: History, job: JobAttempt) -> float:
    if job.usage is not None:
        return job.usage.moved(history.direction(job.step)) / MB
    running = history.running(job)
    return 0.0 if running is None else (job.constraint or 0.0) * (running[1] - running[0])


def _leased(job: JobAttempt) -> float:
    if job.admitted is None or job.ended is None:
        return 0.0
    return (job.constraint or 0.0) * max(0.0, job.ended - job.admitted)


def _spread(values: Iterable[float], middle: float) -> float:
    first, _, third = quantiles(values, n=4, method="inclusive")
    if third <= first:
        return 0.0
    return (third - first) / (_NORMAL * middle) if middle > 0 else math.inf
