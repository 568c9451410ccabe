"""A discrete-event simulation of I/O tasks on storages, driven by the real admission: decisions without a cluster."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from streamflow_io.storage.admission.admission import Admission
from streamflow_io.storage.admission.demand import AdmissionRequest, Demand, Grant
from streamflow_io.storage.admission.epochs import EpochEnded, Observation
from streamflow_io.storage.admission.learners import LearningEvent
from streamflow_io.storage.admission.workload import Chosen, Reason

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
        """MB/s of each of the writers."""
        saturating = self.bandwidth / self.writer
        total = self.bandwidth / (1 + self.congestion * max(0.0, writers - saturating))
        return min(self.writer, total / writers)


@dataclass
class Task:
    """:ivar megabytes: what it writes; :ivar arrival: when it is ready, s; :ivar home: the location of its input"""

    name: str
    demand: Demand
    megabytes: float
    arrival: float = 0.0
    fails: bool = False
    home: str | None = None


@dataclass
class _Running:
    task: Task
    storage: str
    started: float
    left: float


@dataclass
class Outcome:
    """:ivar seconds: until the last task has ended"""

    seconds: float = 0.0
    grants: list[tuple[float, Grant[str]]] = field(default_factory=list)
    events: list[tuple[float, LearningEvent]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def epochs(self, step: str) -> list[EpochEnded]:
        return [told.event for _, told in self.events if told.step == step and isinstance(told.event, EpochEnded)]

    def chosen(self, step: str, reason: Reason) -> list[float]:
        """The constraints that were chosen for a reason."""
        events = [told.event for _, told in self.events if told.step == step]
        return [event.constraint for event in events if isinstance(event, Chosen) and event.reason == reason]


def simulate(
    admission: Admission[str],
    tasks: Sequence[Task],
    disks: Callable[[str, float], Disk],
    measured: bool = False,
    in_turn: bool = False,
    each: Callable[[float], None] = lambda now: None,
) -> Outcome:
    """Run I/O tasks to their end.

    :param tasks: in order of arrival
    :param disks: the disk of a location, or of a shared storage by its name, at a time
    :param measured: whether bytes are measured
    :param in_turn: a task is submitted when the one before of its step has started, as by StreamFlow; otherwise all
        that are ready are submitted at once
    :param each: called after each event
    """
    outcome = Outcome()
    arriving = deque(tasks)
    ready: dict[str, deque[Task]] = {task.demand.step: deque() for task in tasks}
    left = Counter(task.demand.step for task in tasks)
    by_name = {task.name: task for task in tasks}
    running: dict[str, _Running] = {}
    now = 0.0

    def submit(step: str) -> None:
        task = ready[step].popleft()
        left[step] -= 1
        preferred = () if task.home is None else (task.home,)
        admission.submit(AdmissionRequest(task.name, task.demand, preferred), now, len(ready[step]) if in_turn else 0)

    def decide() -> None:
        while grants := admission.decide(now):
            for grant in grants:
                outcome.grants.append((now, grant))
                task = by_name[grant.job]
                running[grant.job] = _Running(task, _storage(grant), now, task.megabytes)
                if in_turn and ready[grant.step]:
                    submit(grant.step)

    while arriving or running:
        writers = Counter(one.storage for one in running.values())
        rates = {storage: disks(storage, now).rate(count) for storage, count in writers.items()}
        until_end = min((one.left / rates[one.storage] for one in running.values()), default=float("inf"))
        until_arrival = max(0.0, arriving[0].arrival - now) if arriving else float("inf")
        now += (step := min(until_end, until_arrival))
        for name, one in list(running.items()):
            one.left -= step * rates[one.storage]
            if one.left <= 1e-9:
                del running[name]
                observation = Observation(now - one.started, one.task.megabytes * MEGABYTE if measured else None)
                step_name = one.task.demand.step
                no_more = left[step_name] == 0
                more = len(ready[step_name]) if in_turn else 0
                admission.release(name, now, None if one.task.fails else observation, no_more, more)
                outcome.ended.append(name)
        while arriving and arriving[0].arrival <= now:
            task = arriving.popleft()
            ready[task.demand.step].append(task)
        for step_name, tasks_of_step in ready.items():
            while tasks_of_step and not (in_turn and admission.waiting(step_name)):
                submit(step_name)
        decide()
        outcome.events += [(now, event) for event in admission.drain()]
        each(now)
    outcome.seconds = now
    return outcome


@dataclass(frozen=True)
class Work:
    """Tasks that compute and then write what they have, on nodes with cores and a disk of their own.

    :ivar seconds: how long each task computes, in the order of their start; the first core that is free takes the next
    """

    nodes: int
    cores: int
    disk: Disk
    megabytes: float
    seconds: Sequence[float]

    def as_io_tasks(self, demand: Demand) -> list[Task]:
        """The I/O tasks that write, in order of arrival: each core goes on with the next task to compute."""
        cores = [(0.0, node) for node in range(self.nodes) for _ in range(self.cores)]
        heapq.heapify(cores)
        written: list[tuple[float, int]] = []
        for seconds in self.seconds:
            begin, node = heapq.heappop(cores)
            heapq.heappush(cores, (begin + seconds, node))
            written.append((begin + seconds, node))
        return [
            Task(f"{demand.step}/{number}", demand, self.megabytes, arrival, home=f"n{node}")
            for number, (arrival, node) in enumerate(sorted(written))
        ]


def _storage(grant: Grant[str]) -> str:
    storage = grant.placement.storage
    return storage.name if storage is not None and storage.scope == "shared" else grant.locations[0]
