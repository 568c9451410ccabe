"""Lending in whole runs, simulated: jobs that wait and compute by turns share the cores of a node.

List scheduling has anomalies (Graham, "Bounds on multiprocessing timing anomalies", 1969): where more jobs can start,
the last one may end later. So this looks at many runs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from statistics import fmean

from streamflow_io.storage.admission.lending import IDLE, Holder, Lending, Loan, Wish

STEP_SECONDS = 0.5
NODE = "node"
RUNS = 60


@dataclass
class SimulatedJob:
    """:ivar phases: whether it computes, and for how long, in seconds of a core"""

    name: str
    step: str
    phases: deque[tuple[bool, float]]
    held: int = 1
    started: float = 0.0
    busy: float = 0.0
    told: int = 1


@dataclass
class SimulatedRun:
    """Jobs of one core each; of each step the first that waits may start, as StreamFlow has it.

    :ivar lends: whether cores that are idle are lent
    """

    cores: int
    waiting: dict[str, deque[SimulatedJob]]
    lends: bool
    now: float = 0.0
    borrowed: int = 0
    lending: Lending = field(default_factory=Lending)
    running: list[SimulatedJob] = field(default_factory=list)

    def seconds(self) -> float:
        """How long all takes."""
        while self.running or any(self.waiting.values()):
            while any(self._start(queue) for queue in self.waiting.values() if queue):
                pass
            self._go_on()
            for name, _ in tuple(self.lending.due()):
                if self._free > 0:
                    self.lending.repay(name, 1)
                    next(job for job in self.running if job.name == name).held = 1
        return self.now

    @property
    def _free(self) -> int:
        return self.cores - sum(job.held for job in self.running)

    def _start(self, queue: deque[SimulatedJob]) -> bool:
        job = queue[0]
        loans: tuple[Loan, ...] = ()
        if self._free <= 0:
            wish = Wish(job.name, job.step, 1, {NODE: self.cores}, {NODE: 1})
            loans = tuple(self.lending.ask(wish, self.now).loans) if self.lends else ()
            if not loans:
                return False
        job.held, job.started, job.busy = 1 - len(loans), self.now, self.now
        self.borrowed += len(loans)
        self.running.append(queue.popleft())
        self.lending.started(Holder(job.name, job.step, {NODE}, 1, job.held), loans)
        return True

    def _go_on(self) -> None:
        computing = sum(job.phases[0][0] for job in self.running)
        share = min(1.0, self.cores / max(computing, 1))
        self.now += STEP_SECONDS
        for job in tuple(self.running):
            computes, left = job.phases.popleft()
            left -= STEP_SECONDS * (share if computes else 1.0)
            job.busy = self.now if computes else job.busy
            needed = 1 if self.now - job.busy < IDLE else 0
            if needed != job.told:
                job.told = needed
                self.lending.needs(job.name, needed, self.now)
            if left > 0:
                job.phases.appendleft((computes, left))
            if not job.phases:
                self.running.remove(job)
                self.lending.ended(job.name, self.now - job.started)


def simulated(seed: int, lends: bool) -> SimulatedRun:
    """Up to four steps: of a few jobs that wait and compute by turns, or of up to twenty that compute."""
    random = Random(seed)
    cores, waiting = random.choice([1, 2, 2, 4, 8]), {}

    def phase(computes: bool, mean: float) -> tuple[bool, float]:
        return computes, random.expovariate(1 / mean) + STEP_SECONDS

    for step in [f"/{number}" for number in range(random.randint(1, 4))]:
        mean = random.choice([1.0, 3.0, 20.0, 60.0])
        if waits := random.random() < 0.4:
            mean = random.choice([1.0, 30.0, 100.0])
        jobs = [
            [part for _ in range(random.randint(1, 3)) for part in (phase(False, 30.0), phase(True, mean))]
            if waits
            else [phase(True, mean)]
            for _ in range(random.randint(1, 3 if waits else 20))
        ]
        waiting[step] = deque(SimulatedJob(f"{step}/{n}", step, deque(phases)) for n, phases in enumerate(jobs))
    return SimulatedRun(cores, waiting, lends)


def test_runs_that_lend_are_faster_and_hardly_ever_slower() -> None:
    ratios = []
    for seed in range(RUNS):
        lent = simulated(seed, lends=True)
        seconds = lent.seconds()
        if lent.borrowed:
            ratios.append(seconds / simulated(seed, lends=False).seconds())
    assert len(ratios) > RUNS / 5
    assert fmean(ratios) < 0.97
    assert sum(ratio > 1.01 for ratio in ratios) < 0.05 * len(ratios)
    assert max(ratios) < 1.05
