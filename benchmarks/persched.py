"""Schedules for the ten sets of the paper: PerSched as published, and the planner, for each goal. Nothing is run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from streamflow_io.features.schedules.check import check
from streamflow_io.features.schedules.files import PAPER_SETS, paper_set, published
from streamflow_io.features.schedules.model import Algorithm, ApplicationSet, Goal, Pattern, Schedule, figures
from streamflow_io.features.schedules.persched import Sweep, persched
from streamflow_io.features.schedules.search import search

from .model import Comparison, Sample
from .processes import CommandError
from .workload import Outcome, Variant, Workload

SECONDS = 10.0
"""CPU time of the planner, for each set and goal."""
REACHED: dict[Goal, Sequence[float]] = {
    "efficiency": (0.09771, 0.29253, 0.48748, 0.65588, 0.81522, 0.81759, 0.82640, 0.97692, 0.97892, 0.98651),
    "dilation": (1.7653, 1.4213, 1.0773, 1.0055, 1.0104, 1.0002, 1.0035, 1.0005, 1.0000, 1.0072),
}
"""What a prototype has reached at best, by set."""
_PAPER = "PerSched"
_PLANNED: dict[Goal, str] = {"efficiency": "planner, efficiency", "dilation": "planner, dilation"}


def _prepare(_: Path) -> Sequence[Variant]:
    return [
        Variant(_PAPER, lambda _: _published(range(1, PAPER_SETS + 1))),
        *(Variant(name, partial(_planned, goal)) for goal, name in _PLANNED.items()),
    ]


def _published(numbers: Sequence[int]) -> Outcome:
    further = {"most_off_efficiency": 0.0, "most_off_dilation": 0.0}
    for number in numbers:
        applications, expected = paper_set(number), published(number)
        begin = time.process_time()
        found = persched(applications, Sweep(expected.least_period))
        efficiency, dilation = _checked(applications, found)
        further |= _figures(number, efficiency, dilation, begin)
        for name, off in (("efficiency", efficiency - expected.efficiency), ("dilation", dilation - expected.dilation)):
            further[f"most_off_{name}"] = max(further[f"most_off_{name}"], abs(off))
    return _outcome(numbers, further)


def _planned(goal: Goal, _: Path) -> Outcome:
    numbers = range(1, PAPER_SETS + 1)
    further = {"most_worse": 0.0}
    for number in numbers:
        applications = paper_set(number)
        begin = time.process_time()
        found = search(applications, goal, SECONDS, max(applications.durations))
        efficiency, dilation = _checked(applications, None if found is None else found.pattern)
        further |= _figures(number, efficiency, dilation, begin)
        reached = REACHED[goal][number - 1]
        worse = reached - efficiency if goal == "efficiency" else dilation - reached
        further["most_worse"] = max(further["most_worse"], worse)
    return _outcome(numbers, further)


def _checked(applications: ApplicationSet, found: Pattern | None) -> tuple[float, float]:
    """:raises CommandError: if there is no pattern, or it cannot be kept"""
    if found is None:
        raise CommandError("there is no schedule")
    algorithm = Algorithm("benchmark", {}, 0)
    schedule = Schedule(applications, "efficiency", found, figures(applications, found), algorithm)
    if problems := check(schedule):
        raise CommandError(f"the schedule cannot be kept: {problems[0].field} {problems[0].message}")
    return schedule.figures.efficiency, schedule.figures.dilation


def _figures(number: int, efficiency: float, dilation: float, begin: float) -> dict[str, float]:
    cpu = time.process_time() - begin
    return {f"efficiency_{number}": efficiency, f"dilation_{number}": dilation, f"cpu_s_{number}": cpu}


def _outcome(numbers: Sequence[int], further: dict[str, float]) -> Outcome:
    times = [further[f"cpu_s_{number}"] for number in numbers]
    further |= {"most_cpu_s": max(times)}
    return Outcome(Sample(wall=sum(times), window=sum(times), further=further))


def _comparisons() -> list[Comparison]:
    goals = [
        Comparison(name="table 4, efficiency off by", measure="most_off_efficiency", variant=_PAPER, at_most=0.0001),
        Comparison(name="table 4, dilation off by", measure="most_off_dilation", variant=_PAPER, at_most=0.0005),
        *(
            Comparison(name=f"{name}, worse than reached by", measure="most_worse", variant=name, at_most=most)
            for name, most in zip(_PLANNED.values(), (0.0003, 0.001), strict=True)
        ),
        # It ends with the linear program in which the time ends.
        *(
            Comparison(name=f"{name}, most CPU s", measure="most_cpu_s", variant=name, at_most=1.2 * SECONDS)
            for name in _PLANNED.values()
        ),
    ]
    rows = [
        Comparison(name=f"set {number}, {variant}: {measure}", measure=f"{measure}_{number}", variant=variant)
        for number in range(1, PAPER_SETS + 1)
        for variant in (_PAPER, *_PLANNED.values())
        for measure in ("efficiency", "dilation")
    ]
    return [*goals, *rows]


PERSCHED = Workload(
    "persched", "schedules for the ten sets of the paper: PerSched, and the planner", _prepare, _comparisons()
)
