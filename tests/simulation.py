"""A discrete-event simulation of I/O tasks on storages, driven by the real admission: decisions without a cluster."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from streamflow_io.scheduling.admission import Admission
from streamflow_io.scheduling.demand import Demand, Grant, Request
from streamflow_io.scheduling.learners import LearningEvent
from streamflow_io.scheduling.observations import Observation

MEGABYTE = 1e6


@dataclass(frozen=True)
class Disk:
    """Writers share a bandwidth, which falls when there are more than it can serve well.

    :ivar bandwidth: MB/s of all writers together
    :ivar writer: MB/s that a single writer can reach
    :ivar congestion: how much the bandwidth falls with each writer beyond those that saturate it
    """

    bandwidth: float
    writer: float
    congestion: float

    def rate(self, writers: int) -> float:
        """MB/s of each of so many writers."""
        saturating = self.bandwidth / self.writer
        total = self.bandwidth / (1 + self.congestion * max(0.0, writers - saturating))
        return min(self.writer, total / writers)


@dataclass
class Task:
    """:ivar megabytes: what it writes; :ivar arrival: when it is submitted"""

    name: str
    demand: Demand
    megabytes: float
    arrival: float = 0.0
    fails: bool = False


@dataclass
class Outcome:
    """:ivar seconds: until the last task has ended"""

    seconds: float = 0.0
    grants: list[tuple[float, Grant]] = field(default_factory=list)
    events: list[tuple[float, LearningEvent]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)


def simulate(
    admission: Admission,
    tasks: Sequence[Task],
    disks: Callable[[str, float], Disk],
    measured: bool = False,
    each: Callable[[float], None] = lambda now: None,
) -> Outcome:
    """Run tasks to their end.

    :param disks: the disk that a location writes to at a time
    :param measured: whether bytes are measured
    :param each: called after each event
    """
    outcome = Outcome()
    waiting = [(task.arrival, index) for index, task in enumerate(tasks)]
    heapq.heapify(waiting)
    running: dict[str, tuple[Task, str, float, float]] = {}
    by_name = {task.name: task for task in tasks}
    now = 0.0
    while waiting or running:
        writers: dict[str, int] = {}
        for _, location, _, _ in running.values():
            writers[location] = writers.get(location, 0) + 1
        rates = {location: disks(location, now).rate(count) for location, count in writers.items()}
        next_end = min((left / rates[location] for _, location, left, _ in running.values()), default=float("inf"))
        next_arrival = waiting[0][0] - now if waiting else float("inf")
        assert min(next_end, next_arrival) < float("inf")
        step = min(next_end, next_arrival)
        now += step
        for name, (task, location, left, started) in list(running.items()):
            left -= step * rates[location]
            running[name] = (task, location, left, started)
            if left <= 1e-9:
                del running[name]
                observation = Observation(now - started, task.megabytes * MEGABYTE if measured else None)
                admission.release(name, now, None if task.fails else observation, no_more=not waiting)
                outcome.ended.append(name)
        while waiting and waiting[0][0] <= now + 1e-12:
            task = tasks[heapq.heappop(waiting)[1]]
            admission.submit(Request(task.name, task.demand), now)
        for grant in admission.decide(now):
            outcome.grants.append((now, grant))
            task = by_name[grant.job]
            running[grant.job] = (task, grant.locations[0], task.megabytes, now)
        outcome.events += [(now, event) for event in admission.drain()]
        each(now)
        if not waiting and not running:
            break
    outcome.seconds = now
    return outcome
