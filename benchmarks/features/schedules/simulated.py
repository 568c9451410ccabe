"""Whether it pays that runs follow a schedule of their bursts: simulated, on random sets of runs.

Only the time is measured. The other figures are the same on every machine, but for the schedules found in that time.
The schedule is made and judged as in a run (:mod:`streamflow_io.features.schedules.plan_program`); what the runs
really do differs from their profiles by what the variant says.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from benchmarks.model import Comparison, Sample
from benchmarks.workload import Outcome, Variant, Workload
from streamflow_io.features.schedules.burst_profile import BurstProfile, PublishedRate
from streamflow_io.features.schedules.curve import StorageCurve
from streamflow_io.features.schedules.jobs import PeriodicRun, alone, play
from streamflow_io.features.schedules.plan_program import PlanRequest, application_set, find_pattern, judge
from streamflow_io.features.schedules.slots import Slots, slots_of

_SETS, _BURSTS, _DRAWS = 14, 24, 5
_BANDWIDTH = 16.0
# As the disk of `shared-bursts`: best with four writers.
_CURVE = StorageCurve.of({1: 5.5, 2: 8.2, 4: 12.3, 8: 9.0, 16: 6.0}.items())
_BEST = 12.3
_STORAGE_BW = 4.0
_SECONDS = 2.0
_KNOWN = 0.01
_EXACT, _WRONG, _VERY_WRONG = "works as known", "works 10 % off", "works 25 % off"
_GOALS = {"due": None, "slots / due": None, "auto / due": 1.0, "worst auto / due": 1.01, "followed": None}
_OFF = {_EXACT: 0.0, _WRONG: 0.1, _VERY_WRONG: 0.25}


@dataclass(frozen=True)
class Planned:
    """A set of runs, the slots of its schedule, and whether it is followed."""

    runs: tuple[PeriodicRun, ...]
    slots: tuple[Slots, ...]
    followed: bool


@cache
def planned(number: int) -> Planned:
    """A set by its number: 2 to 6 runs, which together want what the storage has at best."""
    random = Random(number)
    count = random.randint(2, 6)
    jobs = [random.choice((1, 2, 4, 8, 16)) for _ in range(count)]
    sizes = [random.choice((2.0, 4.0, 8.0, 16.0)) for _ in range(count)]
    bursts = [own * size / _BEST for own, size in zip(jobs, sizes, strict=True)]
    periods = [random.uniform(0.5, 2.0) * burst for burst in bursts]
    scale = sum(burst / period for burst, period in zip(bursts, periods, strict=True))
    works = [max(0.1, period * scale - burst) for period, burst in zip(periods, bursts, strict=True)]
    profiles = {
        f"run {index}": _profile(own, size, work)
        for index, (own, size, work) in enumerate(zip(jobs, sizes, works, strict=True))
    }
    request = PlanRequest(bandwidth=_BANDWIDTH, seconds=_SECONDS, runs=profiles, curve=_CURVE.points)
    pattern = find_pattern(application_set(request), _SECONDS)
    assert pattern is not None
    longest = max(work + burst for work, burst in zip(works, bursts, strict=True))
    runs = tuple(
        PeriodicRun(name, max(4, round(_BURSTS * longest / (own.work + burst))), own.jobs, size, _STORAGE_BW, own.work)
        for (name, own), burst, size in zip(profiles.items(), bursts, sizes, strict=True)
    )
    return Planned(runs, tuple(slots_of(pattern)), judge(request, pattern).is_enough)


def _profile(jobs: int, megabytes: float, work: float) -> BurstProfile:
    """The profile of a run that is alone: bursts of a number of jobs, MB of each, seconds of work before each."""
    at_once = min(jobs, int(_BANDWIDTH / _STORAGE_BW))
    rate = _CURVE.total(at_once)
    return BurstProfile(
        direction="write",
        bursts=_BURSTS,
        jobs=jobs,
        storage_bw=_STORAGE_BW,
        # A job has its storageBW for as long as it takes.
        volume=jobs * _STORAGE_BW * megabytes * at_once / rate,
        rate=min(_BANDWIDTH, jobs * _STORAGE_BW),
        work=work,
        error=_KNOWN,
        moved=jobs * megabytes,
        seen=(PublishedRate(jobs=at_once, rate=rate, seconds=1.0),),
    )


def run(variant: str) -> Outcome:
    """Play all sets, with due dates alone, with their schedules, and with those that are followed."""
    begin = time.process_time()
    rows = [_play(planned(number), _OFF[variant], Random(f"{number} {variant}")) for number in range(_SETS)]
    seconds = time.process_time() - begin
    auto = [slots if planned(number).followed else due for number, (due, slots) in enumerate(rows)]
    further = {
        "due": _mean(due for due, _ in rows),
        "slots / due": _mean(slots / due for due, slots in rows),
        "auto / due": _mean(own / due for own, (due, _) in zip(auto, rows, strict=True)),
        "worst auto / due": max(own / due for own, (due, _) in zip(auto, rows, strict=True)),
        "followed": float(sum(planned(number).followed for number in range(_SETS))),
    }
    return Outcome(Sample(wall=seconds, window=seconds, further=further), {})


def _play(of: Planned, off: float, random: Random) -> tuple[float, float]:
    """The mean dilation of the slowest run, with due dates alone and with the schedule."""
    due, slots = [], []
    for _ in range(_DRAWS):
        factors = [1 + random.choice((-off, off)) for _ in of.runs]

        def noise(index: int, _: int, factors: Sequence[float] = factors) -> float:
            return factors[index]

        own = alone(of.runs, _BANDWIDTH, _CURVE, noise)
        due.append(max(play(of.runs, _BANDWIDTH, _CURVE, "due", noise).dilations(own)))
        slots.append(max(play(of.runs, _BANDWIDTH, _CURVE, "due", noise, of.slots).dilations(own)))
    return sum(due) / len(due), sum(slots) / len(slots)


def _mean(values: Iterable[float]) -> float:
    """The geometric one."""
    found = [math.log(value) for value in values]
    return math.exp(sum(found) / len(found))


def _prepare(directory: Path) -> Sequence[Variant]:
    return [Variant(name, lambda _, name=name: run(name)) for name in _OFF]  # type: ignore[misc]


def _comparisons() -> list[Comparison]:
    found = []
    for name in _OFF:
        found += [
            Comparison(name=f"{name}: {measure}", measure=measure, variant=name, at_most=goal)
            for measure, goal in _GOALS.items()
        ]
    return found


SCHEDULES = Workload(
    "schedules",
    f"{_SETS} random sets of runs with periodic bursts that follow a schedule, or do not; simulated",
    _prepare,
    _comparisons(),
)
