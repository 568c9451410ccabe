"""A discrete-event simulation of a run of any size, with the real decisions of the driver.

What decides is the product's: :class:`Admission` with its ledger, learners and heaps of locations, and
:class:`StreamingJobs`. What is decided about is played: a virtual clock, cores, how long jobs take, and StreamFlow,
which submits the jobs of a step one after the other, and asks for a job that needs a core about each location with one.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import json
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from streamflow_io.admission.admission import Admission
from streamflow_io.admission.demand import Demand, Grant, Request
from streamflow_io.admission.observations import Observation
from streamflow_io.run.attempts import StreamingJobs

from .meter import Meter, longest_collection
from .simulated_work import (
    CORES_PER_NODE,
    POOL,
    STEPS_PER_LANE,
    Durations,
    Size,
    Step,
    begin_streaming,
    end_streaming,
    lanes,
)

# StreamFlow asks about every location with a free core; their number is not what is measured here.
ASKED = 4
_OPENED_AFTER = 1.0
_MEGABYTE = 1e6


@dataclass
class _Queue:
    """The jobs of a step that have not started, by their items.

    :ivar ready: they have all their input
    :ivar waiting: the one that was submitted, and waits
    :ivar left: how many will still be submitted
    """

    step: Step
    index: int
    left: int
    ready: deque[int] = field(default_factory=deque)
    waiting: int | None = None


@dataclass
class _Running:
    """:ivar takes_core: whether it has a core there"""

    location: int
    started: float
    takes_core: bool


class Simulation:
    """One run to its end.

    :ivar meter: of the decisions
    :ivar events: how many events of jobs there were: submitted, opened, ended
    :ivar now: the virtual time, s
    :ivar most_running: jobs at once
    """

    def __init__(self, size: Size, meter: Meter | None = None) -> None:
        self.meter = meter or Meter()
        self.events = 0
        self.now = 0.0
        self.most_running = 0
        self._admission = Admission()
        self._streaming = StreamingJobs()
        self._durations = Durations()
        self._locations = [f"node{index:05d}" for index in range(size.nodes)]
        self._admission.set_locations(POOL, dict.fromkeys(self._locations, float(CORES_PER_NODE)))
        self._index = {location: index for index, location in enumerate(self._locations)}
        # A free core is the number of its node.
        self._cores = [node for _ in range(CORES_PER_NODE) for node in range(size.nodes)]
        items = [_part(size.jobs // STEPS_PER_LANE, size.lanes, number) for number in range(size.lanes)]
        self._queues = [_Queue(step, index, items[index // STEPS_PER_LANE]) for index, step in enumerate(lanes(size))]
        self._by_step = {queue.step.name: queue for queue in self._queues}
        self._running: dict[tuple[int, int], _Running] = {}
        # Where the job before ran, while its successor has not ended.
        self._places: dict[tuple[int, int], int] = {}
        self._clock: list[tuple[float, int, Callable[[_Queue, int], None], int, int]] = []
        self._sequence = 0
        self._awake: deque[_Queue] = deque()
        self._core_waiters: deque[_Queue] = deque()
        self._asking: dict[int, set[str]] = {}
        self._digest = hashlib.sha256()
        for queue in self._queues[::STEPS_PER_LANE]:
            queue.ready.extend(range(queue.left))
            self._awake.append(queue)

    async def run(self) -> None:
        """Until the last job has ended. It has to be a coroutine: attempts of streaming jobs need an event loop.

        :raises RuntimeError: if jobs are left that never start
        """
        self._submit_all()
        while self._clock:
            self.now, _, action, index, item = heapq.heappop(self._clock)
            self.events += 1
            action(self._queues[index], item)
            self._submit_all()
            self.most_running = max(self.most_running, len(self._running))
        if left := sum(queue.left + (queue.waiting is not None) for queue in self._queues):
            raise RuntimeError(f"{left} jobs never start")

    @property
    def digest(self) -> str:
        """Of all that was decided: equal for equal decisions."""
        return self._digest.hexdigest()

    # Submission, as by StreamFlow: the next job of a step when the one before has started

    def _submit_all(self) -> None:
        while self._awake:
            queue = self._awake.popleft()
            if queue.waiting is None and queue.ready:
                queue.waiting = queue.ready.popleft()
                queue.left -= 1
                self.events += 1
                self._submit(queue, queue.waiting)

    def _submit(self, queue: _Queue, item: int) -> None:
        demand = queue.step.demand
        before = self._places.get((queue.index - 1, item))
        if demand is None:
            if before is not None and self._queues[queue.index - 1].step.is_streamed:
                with self.meter:
                    is_member = self._streaming.is_running(_name(self._queues[queue.index - 1], item))
                if is_member:
                    self._start(queue, before, False)
                    return
            self._core_waiters.append(queue)
            self._give_cores()
            return
        preferred = () if before is None else (self._locations[before],)
        # Of its own for each job, as the adapter makes it.
        request = Request(_name(queue, item), replace(demand), preferred)
        with self.meter:
            self._admission.submit(request, self.now, len(queue.ready))
        self._decide()
        if not demand.io_task:
            self._asking[queue.index] = set()
            self._ask(queue, item, demand)

    def _decide(self) -> None:
        with self.meter:
            grants = self._admission.decide(self.now)
            self._admission.drain()
        for grant in grants:
            self._granted(self._by_step[grant.step], grant, False)

    def _granted(self, queue: _Queue, grant: Grant, takes_core: bool) -> None:
        self._digest.update(f"{grant.job} {grant.locations[0]} {grant.constraint}\n".encode())
        self._start(queue, self._index[grant.locations[0]], takes_core, grant)

    # Cores, as by StreamFlow: all that wait for one are looked at when a job has ended

    def _give_cores(self) -> None:
        while self._core_waiters and self._cores:
            self._start(self._core_waiters.popleft(), self._cores.pop(), True)
        for index in list(self._asking):
            queue = self._queues[index]
            assert queue.step.demand is not None
            assert queue.waiting is not None
            self._ask(queue, queue.waiting, queue.step.demand)

    def _ask(self, queue: _Queue, item: int, demand: Demand) -> None:
        """About some of the locations with a free core; there it starts, or waits for bandwidth only."""
        job, asked = _name(queue, item), self._asking[queue.index]
        free = {self._locations[node]: node for node in self._cores[-ASKED:]}
        for location in asked - free.keys():
            with self.meter:
                others_may_start = self._admission.stand_down(job, location, demand.placements[0])
            if others_may_start:
                self._decide()
        asked &= free.keys()
        possible: list[str] = []
        for location in free:
            with self.meter:
                if self._admission.could_start(job, location, demand.placements[0]):
                    possible.append(location)
                else:
                    asked.add(location)
        if not possible:
            return
        with self.meter:
            grant = self._admission.start(job, possible[:1], self.now, demand.placements[0])
        del self._asking[queue.index]
        _remove_last(self._cores, free[possible[0]])
        self._granted(queue, grant, True)
        self._decide()

    # Jobs

    def _start(self, queue: _Queue, location: int, takes_core: bool, grant: Grant | None = None) -> None:
        item = queue.waiting
        assert item is not None
        queue.waiting = None
        self._awake.append(queue)
        self._running[queue.index, item] = _Running(location, self.now, takes_core)
        self._places[queue.index, item] = location
        if queue.step.is_streamed:
            self._stream(queue, item)
        constraint, running = (None, 0) if grant is None else (grant.constraint, grant.running)
        ends = self.now + self._durations.seconds(queue.step, constraint, running)
        self._at(ends, self._end, queue, item)

    def _stream(self, queue: _Queue, item: int) -> None:
        with self.meter:
            begin_streaming(self._streaming, _name(queue, item))
        self._at(self.now + _OPENED_AFTER, self._open, queue, item)

    def _open(self, queue: _Queue, item: int) -> None:
        """Its stream can be read: the next job may start."""
        self._arrive(self._queues[queue.index + 1], item)

    def _end(self, queue: _Queue, item: int) -> None:
        producer = (queue.index - 1, item)
        if producer in self._running and self._queues[queue.index - 1].step.is_streamed:
            # It reads until its producer has ended, and then works for a while.
            self._at(self.now + queue.step.seconds, self._end, queue, item)
            return
        ended = self._running.pop((queue.index, item))
        self._places.pop(producer, None)
        if ended.takes_core:
            self._cores.append(ended.location)
        if queue.step.is_streamed:
            with self.meter:
                end_streaming(self._streaming, _name(queue, item))
        elif (queue.index + 1) % STEPS_PER_LANE:
            self._arrive(self._queues[queue.index + 1], item)
        else:
            del self._places[queue.index, item]
        if queue.step.demand is not None:
            self._release(queue, item, self.now - ended.started)
        self._give_cores()

    def _release(self, queue: _Queue, item: int, seconds: float) -> None:
        observation = Observation(seconds, queue.step.megabytes * _MEGABYTE)
        with self.meter:
            self._admission.release(_name(queue, item), self.now, observation, queue.left == 0, len(queue.ready))
        self._decide()

    def _arrive(self, queue: _Queue, item: int) -> None:
        queue.ready.append(item)
        self._awake.append(queue)

    def _at(self, when: float, action: Callable[[_Queue, int], None], queue: _Queue, item: int) -> None:
        self._sequence += 1
        heapq.heappush(self._clock, (when, self._sequence, action, queue.index, item))


def figures(size: Size) -> dict[str, object]:
    """Simulate a run, and say what the decisions took; times are CPU times.

    :return: `figures`: numbers, by name; `shares`: of the functions that take most; `digest`
    """
    simulation = Simulation(size)
    begin = time.process_time()
    with longest_collection() as collected:
        asyncio.run(simulation.run())
    seconds, meter = time.process_time() - begin, simulation.meter
    return {
        "figures": {
            "seconds": seconds,
            "decisions": meter.count,
            "decisions_per_s": 1 / meter.mean,
            "us_per_decision": 1e6 * meter.mean,
            "us_at_most_99_percent": 1e6 * meter.at_most(0.99),
            "ms_longest_decision": 1e3 * meter.longest,
            "ms_longest_collection": 1e3 * collected(),
            "ms_of_decisions_per_job": 1e3 * meter.mean * meter.count / size.jobs,
            "events": simulation.events,
            "events_per_s": simulation.events / seconds,
            "most_running": simulation.most_running,
            "virtual_s": simulation.now,
            "peak_mib": _peak_mebibytes(),
        },
        "shares": dict(list(meter.shares().items())[:8]),
        "digest": simulation.digest,
    }


def _name(queue: _Queue, item: int) -> str:
    return f"{queue.step.name}/0.{item}"


def _part(total: int, parts: int, number: int) -> int:
    """The size of one of the parts of a total."""
    return total // parts + (number < total % parts)


def _remove_last(values: list[int], value: int) -> None:
    index = len(values) - 1
    while values[index] != value:
        index -= 1
    del values[index]


def _peak_mebibytes() -> float:
    # Not `ru_maxrss`, which knows that of the parent, too, from before the `exec`.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) / 1024


if __name__ == "__main__":
    print(json.dumps(figures(Size(*map(int, sys.argv[1:])))))
