"""Makes the schedule of runs that share a storage, and says whether it is to be followed: a program of its own.

So that it costs no run its core: `python -m streamflow_io.features.schedules.plan_program FILE < REQUEST`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

from msgspec import Struct
from pydantic import BaseModel

from .burst_profile import BurstProfile
from .check import check
from .files import schedule_to_json
from .jobs import PeriodicRun, StorageCurve, alone, play
from .model import Application, ApplicationSet, Pattern, Platform, Schedule, Slots, slots_of
from .persched import Sweep, persched

#: The least gain in the dilation of the slowest run, as a part of that with due dates alone.
GAIN = 0.03


class Worth(Struct, frozen=True):
    """:ivar due: dilation of the slowest run with due dates alone, the mean of all draws
    :ivar slots: the same, if all follow the schedule
    """

    due: float
    slots: float

    @property
    def is_enough(self) -> bool:
        return self.slots <= self.due * (1 - GAIN)

    def __str__(self) -> str:
        return f"dilation of the slowest run {self.slots:.3f} with the schedule, {self.due:.3f} without"


def worth(
    runs: Sequence[PeriodicRun],
    slots: Sequence[Slots],
    bandwidth: float,
    curve: StorageCurve,
    draws: Sequence[Sequence[float]],
) -> Worth:
    """Play runs with and without a schedule, each time with other works within the errors of their profiles.

    :param draws: at least one; in each, what the works of each run are multiplied with
    """
    due, followed = [], []
    for factors in draws:
        noise = partial(_noise, factors)
        own = alone(runs, bandwidth, curve, noise)
        due.append(max(play(runs, bandwidth, curve, "due", noise).dilations(own)))
        followed.append(max(play(runs, bandwidth, curve, "due", noise, slots).dilations(own)))
    return Worth(sum(due) / len(draws), sum(followed) / len(draws))


def _noise(factors: Sequence[float], run: int, _: int) -> float:
    return factors[run]


_NICE = 19
_DRAWS = 20
# Of the run with the longest bursts; the others as many as take as long.
_BURSTS = 24
# Until all have read it.
_SOON_SECONDS = 1.0


class PlanRequest(BaseModel):
    """
    :ivar bandwidth: of the storage, MB/s
    :ivar seconds: of CPU time
    :ivar curve: of the storage: numbers of jobs, and MB/s of all together; empty: it was not measured
    """

    bandwidth: float
    seconds: float
    runs: dict[str, BurstProfile]
    curve: tuple[tuple[int, float], ...] = ()


def main() -> int:
    os.nice(_NICE)
    request = PlanRequest.model_validate_json(sys.stdin.read())
    applications = application_set(request)
    pattern = find_pattern(applications, request.seconds)
    if pattern is None:
        return 1
    schedule = Schedule(applications, pattern)
    if check(schedule):
        return 1
    judged = judge(request, pattern)
    verdict = {"followed": judged.is_enough, "reason": str(judged), "start": time.time() + _SOON_SECONDS}
    Path(sys.argv[1]).write_text(json.dumps({**schedule_to_json(schedule), **verdict}), encoding="utf-8")
    return 0


def application_set(request: PlanRequest) -> ApplicationSet:
    """The runs as applications of one node each, in the order of their names."""
    platform = Platform(len(request.runs), request.bandwidth, request.bandwidth)
    return ApplicationSet(
        platform,
        tuple(
            Application(name, 1, own.work, own.volume, min(own.rate, request.bandwidth))
            for name, own in sorted(request.runs.items())
        ),
    )


def find_pattern(applications: ApplicationSet, seconds: float) -> Pattern | None:
    """The best pattern for the slowest run that PerSched finds. None: the time was too short.

    :param seconds: of CPU time
    """
    until = time.process_time() + seconds
    sweep = Sweep(max(applications.durations))
    return persched(applications, sweep, "dilation", lambda: time.process_time() < until)


def judge(request: PlanRequest, pattern: Pattern) -> Worth:
    """Whether these runs would gain by it, on a storage as it was measured, and as they have seen it."""
    order = sorted(request.runs.items())
    alone = [own.work + own.volume / min(own.rate, request.bandwidth) for _, own in order]
    counts = [max(4, round(_BURSTS * max(alone) / seconds)) for seconds in alone]
    curve = _curve(request)
    runs = [simulated(name, count, own, curve) for (name, own), count in zip(order, counts, strict=True)]
    curve = curve.corrected(seen for _, own in order for seen in own.seen)
    random = Random(0)
    draws = [[max(0.0, random.gauss(1.0, own.error)) for _, own in order] for _ in range(_DRAWS)]
    return worth(runs, slots_of(pattern), request.bandwidth, curve, draws)


def _curve(request: PlanRequest) -> StorageCurve:
    if request.curve:
        with suppress(ValueError):  # whoever has made the directory has made a mistake
            return StorageCurve.of(request.curve)
    return StorageCurve.unmeasured(request.bandwidth, max(own.storage_bw for own in request.runs.values()))


def simulated(name: str, bursts: int, own: BurstProfile, curve: StorageCurve) -> PeriodicRun:
    """A run whose jobs are as fast as the storage lets them, if that explains how fast they were.

    Of others nothing is known but how long a job has its storageBW: it takes as long whatever others do.
    """
    if own.moved is not None and own.seen and all(map(curve.explains, own.seen)):
        each, latency = own.moved / own.jobs, own.latency
    else:
        each, latency = 0.0, own.volume / own.jobs / own.storage_bw
    return PeriodicRun(name, bursts, own.jobs, each, own.storage_bw, own.work, latency=latency)


if __name__ == "__main__":
    sys.exit(main())
