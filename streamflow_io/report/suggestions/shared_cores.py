"""The time that a run takes longer because its jobs compute more than its cores can do at the same time.

The work is a fluid: a job uses its CPU time evenly while its command runs. While all jobs together want more than all
cores, all of them slow down alike. The cores of all locations count as one pool. Other programs are not known.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, pairwise

from msgspec import Struct

from streamflow_io.records.history import History

from .simulation import SimulatedHint, SimulatedJob, Times, end_of, simulate

#: Cores that compute for this share of the time have next to nothing to spare.
BUSY = 0.9


class CoreUse(Struct, frozen=True):
    """The use that a run's jobs made of the cores of its locations.

    :ivar cores: the cores of all locations with a known number of cores
    :ivar share: the CPU time of the jobs, as a share of the cores' time between the first start and the last end
    """

    cores: float
    share: float

    @property
    def is_busy(self) -> bool:
        return self.share >= BUSY

    @property
    def text(self) -> str:
        """The use of the cores and its consequence, as a sentence without its end."""
        one = self.cores == 1
        return (
            f"the {'core' if one else f'{self.cores:,.0f} cores'} of the run computed for {self.share:.0%} of its time:"
            " jobs that run beside others cannot make it shorter"
        )


def core_use(history: History) -> CoreUse | None:
    """Return the use that a run's jobs made of its cores. None: the cores or their use are not known."""
    known = [job for job in history.jobs if job.usage is not None and job.location_cores]
    cores = sum({job.location: job.location_cores or 0.0 for job in known}.values())
    intervals = [interval for job in known if (interval := history.measured(job)) is not None]
    seconds = max((end for _, end in intervals), default=0.0) - min((begin for begin, _ in intervals), default=0.0)
    if not cores or seconds <= 0:
        return None
    used = sum(job.usage.cpu_seconds for job in known if job.usage is not None)
    return CoreUse(cores, min(1.0, used / (cores * seconds)))


def simulate_on_cores(jobs: Sequence[SimulatedJob], hints: Collection[SimulatedHint] = ()) -> list[Times]:
    """Return when each job would have run under these hints on the cores of the run."""
    return share_cores(jobs, simulate(jobs, hints))


def saved_on_cores(jobs: Sequence[SimulatedJob], hints: Collection[SimulatedHint]) -> float:
    """Return the seconds by which the last job would have ended earlier; from 0 to the time of the run."""
    before, after = (end_of(simulate_on_cores(jobs, some)) for some in ((), hints))
    # Errors of the fluid model are in both times.
    return end_of(jobs) * max(0.0, 1.0 - after / before) if before > 0 else 0.0


def share_cores(jobs: Sequence[SimulatedJob], times: Sequence[Times]) -> list[Times]:
    """Return when jobs run that share the cores.

    :param times: when each job would run if there were enough cores, in the order of `jobs`
    :return: never earlier than `times`, and the same where the cores are enough or not known
    """
    clock = _Clock(jobs, times)
    return [Times(clock.at(one.started), clock.at(one.ended)) for one in times]


class _Clock:
    """Maps times with enough cores to times on the cores of the run."""

    def __init__(self, jobs: Sequence[SimulatedJob], times: Sequence[Times]) -> None:
        cores = sum(_cores(jobs).values())
        changes: dict[float, float] = {}
        for job, one in zip(jobs, times, strict=True):
            if job.cpu_seconds > 0 and job.location_cores and one.ended > one.started:
                rate = job.cpu_seconds / (one.ended - one.started)
                changes[one.started] = changes.get(one.started, 0.0) + rate
                changes[one.ended] = changes.get(one.ended, 0.0) - rate
        self._moments = sorted(changes)
        wanted = list(accumulate(changes[moment] for moment in self._moments))
        self._rates = [max(1.0, want / cores) for want in wanted]
        passed = [
            rate * (after - before)
            for rate, (before, after) in zip(self._rates[:-1], pairwise(self._moments), strict=True)
        ]
        self._passed = list(accumulate(passed, initial=self._moments[0])) if self._moments else []

    def at(self, time: float) -> float:
        index = bisect_right(self._moments, time) - 1
        if index < 0:
            return time
        return self._passed[index] + self._rates[index] * (time - self._moments[index])


def _cores(jobs: Sequence[SimulatedJob]) -> Mapping[str | None, float]:
    return {job.location: job.location_cores for job in jobs if job.location_cores}
