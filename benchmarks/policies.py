"""Who may transfer, on sets of the paper: what policies reach, and how fast that is simulated.

Nothing is measured but the time: the figures are the same on every machine. They are compared with those of another
simulation of the same policies, which is where the goals come from.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streamflow_io.features.schedules.files import paper_set
from streamflow_io.features.schedules.fluid import simulate
from streamflow_io.features.schedules.play import Perturbation, seconds_of, staggered
from streamflow_io.features.schedules.policies import policy

from .model import Comparison, Sample
from .workload import Outcome, Variant, Workload

GOAL = 0.002
_INSTANCES = 12_000


@dataclass(frozen=True)
class Case:
    """A policy on a set of the paper.

    :ivar together: whether its applications begin within seconds; else evenly over their own duration. In some sets
        they stay together for ever: those figures were found so
    :ivar efficiency: that it has to reach, and `dilation`; none: no goal
    """

    number: int
    policy: str
    together: bool = False
    efficiency: float | None = None
    dilation: float | None = None

    @property
    def name(self) -> str:
        return f"{self.policy}, set {self.number}"

    def begins(self) -> list[Perturbation]:
        evenly = staggered(paper_set(self.number))
        return [one._replace(time=one.application) for one in evenly] if self.together else evenly


CASES = (
    Case(1, "fcfs", True, 0.0977, 1.767),
    Case(2, "fcfs", True, 0.2896, 1.425),
    Case(3, "fcfs", True, 0.4850, 1.080),
    Case(4, "fcfs", False, 0.6547, 1.009),
    Case(1, "fcfs:whole", True, 0.0833, 2.07),
    Case(2, "fcfs:whole", True, 0.2744, 1.673),
    Case(3, "fcfs:whole", True, 0.4693, 1.271),
    Case(4, "fcfs:whole", False, 0.6532, 1.018),
    *(Case(number, name) for name in ("density", "mindilation", "maxsyseff", "fairshare") for number in (1, 2, 3, 4)),
)


def run(case: Case) -> Outcome:
    """Play a case."""
    of = paper_set(case.number)
    begin = time.process_time()
    found = simulate(of, policy(case.policy, of), seconds_of(of, _INSTANCES), perturbations=case.begins())
    seconds = time.process_time() - begin
    further = {
        "efficiency": found.efficiency,
        "dilation": found.dilation,
        "of_the_best": found.efficiency / of.bounds.efficiency,
        "us_per_instance": seconds / sum(found.ended) * 1e6,
    }
    if case.efficiency is not None and case.dilation is not None:
        further["efficiency_off"] = abs(found.efficiency - case.efficiency)
        further["dilation_off"] = abs(found.dilation - case.dilation)
    return Outcome(Sample(wall=seconds, window=seconds, further=further), {case.name: repr(found)})


def variants() -> list[Variant]:
    return [Variant(case.name, lambda _, case=case: run(case)) for case in CASES]  # type: ignore[misc]


def comparisons() -> list[Comparison]:
    found = []
    for case in CASES:
        if case.efficiency is not None:
            found += [
                Comparison(name=f"{case.name}: {what}, off by", measure=f"{what}_off", variant=case.name, at_most=GOAL)
                for what in ("efficiency", "dilation")
            ]
        found.append(Comparison(name=f"{case.name}: of the best efficiency", measure="of_the_best", variant=case.name))
    return found


def _prepare(directory: Path) -> Sequence[Variant]:
    return variants()


POLICIES = Workload(
    "policies",
    "policies that say who may transfer, simulated on sets of the paper on periodic I/O scheduling",
    _prepare,
    comparisons(),
)
