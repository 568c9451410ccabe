"""A decision takes the same time however many jobs wait."""

from __future__ import annotations

import statistics
import sys
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any

from streamflow_io.hints.bandwidth import AutoConstraint, StaticConstraint
from streamflow_io.hints.config import StorageConfig
from streamflow_io.storage.admission.admission import Admission
from streamflow_io.storage.admission.demand import AdmissionRequest, Demand, Placement
from streamflow_io.storage.admission.epochs import Observation

STEPS = 20
SSD = StorageConfig(name="ssd", path="/ssd", scope="node", write=450)
NFS = StorageConfig(name="nfs", path="/nfs", scope="shared", write=45_000)


class Cluster:
    """Locations with all they can run, and a number of jobs more that wait.

    Of 20 steps: most with a static constraint, some that learn, some that are no I/O tasks.
    """

    def __init__(self, waiting: int, locations: int) -> None:
        self.admission = Admission(4)
        self.locations = [f"n{index}" for index in range(locations)]
        self.admission.set_locations("hpc", dict.fromkeys(self.locations, 48.0))
        self.demands = [self._demand(number) for number in range(STEPS)]
        self.running: deque[str] = deque()
        self.asking: deque[tuple[str, str]] = deque()
        self.submitted = 0
        for _ in range(4 * locations):
            self.submit()
        self.decide()
        while self.submitted - len(self.running) < waiting:
            self.submit()
        self.decide()

    def _demand(self, number: int) -> Demand:
        constraint = AutoConstraint() if number % 5 == 1 else StaticConstraint(100.0 + number)
        storage = NFS if number % 7 == 2 else SSD
        return Demand(f"/step{number}", number % 5 != 3, constraint, "write", (Placement("hpc", storage),))

    def submit(self) -> None:
        self.submitted += 1
        demand = self.demands[self.submitted % STEPS]
        job = f"{demand.step}/{self.submitted}"
        self.admission.submit(AdmissionRequest(job, demand), 0.0)
        if not demand.io_task:
            self.asking.append((job, self.locations[self.submitted % len(self.locations)]))
            self.ask()

    def decide(self) -> None:
        self.running.extend(grant.job for grant in self.admission.decide(0.0))
        self.admission.drain()

    def ask(self) -> None:
        """About the oldest job that has a core, and waits for bandwidth only."""
        job, location = self.asking[0]
        if self.admission.could_start(job, location):
            self.asking.popleft()
            self.admission.start(job, [location], 0.0)
            self.running.append(job)

    def end_one(self) -> None:
        self.admission.release(self.running.popleft(), 0.0, Observation(1.0))
        self.decide()
        if self.asking:
            self.ask()
            self.decide()

    def submit_one(self) -> None:
        self.submit()
        self.decide()


def counted(decision: Callable[[], None]) -> int:
    """How many lines of code a decision executes."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        decision()
    finally:
        sys.settrace(before)
    return lines


def lines_of(cluster: Cluster) -> float:
    return statistics.mean(counted(cluster.end_one) + counted(cluster.submit_one) for _ in range(3 * STEPS))


def test_a_decision_does_not_look_at_all_that_wait() -> None:
    # Jobs of every step wait in both: with fewer jobs for each location, some steps have none that wait.
    few, many = Cluster(waiting=500, locations=50), Cluster(waiting=2000, locations=50)
    assert lines_of(many) <= 1.1 * lines_of(few)
