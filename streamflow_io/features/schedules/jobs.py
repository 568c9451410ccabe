"""Simulates runs that share one storage in bursts of jobs, in one way or another, at the speed of the storage.

A job is admitted as a whole and never interrupted, as by the scheduler `sfio.io-aware`. Jobs that have been admitted
share the bandwidth of the storage evenly; that bandwidth depends on their number. The ledger of the runs decides
with the code of the plugin itself, `sharing.allocation`.

MB is 10^6 bytes, rates are MB/s.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from msgspec import Struct

from streamflow_io.storage.sharing.allocation import Tenant, decide, due
from streamflow_io.storage.sharing.lease_holder import LAST_JOBS, expected_seconds

from .burst_profile import SeenRate
from .model import Slots

# A rate that is off by a larger factor, up or down, is none of this storage. Its jobs do not keep the storage busy,
# their data stays in memory, or others used the storage, too.
_MOST_OFF = 1.5


class StorageCurve(Struct, frozen=True):
    """MB/s of all together, for some numbers of writers (or readers): between them linear, beyond them constant.

    :ivar points: (number, MB/s) by number, at least one; both above 0
    """

    points: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, points: Iterable[tuple[int, float]]) -> StorageCurve:
        """:raises ValueError: if there are none, or one is not above 0, or a number is there twice; says which"""
        ordered = sorted(points)
        if not ordered:
            raise ValueError("no number of writers is given")
        for (count, rate), before in zip(ordered, [0, *(count for count, _ in ordered)], strict=False):
            if count <= 0 or not 0 < rate < float("inf"):
                raise ValueError(f"{count}:{rate:g} is not above 0")
            if count == before:
                raise ValueError(f"{count} writers are there twice")
        return cls(tuple(ordered))

    @classmethod
    def unmeasured(cls, bandwidth: float, storage_bw: float) -> StorageCurve:
        """The curve of a storage that gives each job its storageBW, until its bandwidth is used up.

        :param bandwidth: above 0, MB/s
        :param storage_bw: above 0, MB/s
        """
        each = min(bandwidth, storage_bw)
        return cls.of({1: each, math.ceil(bandwidth / each): bandwidth}.items())

    def total(self, count: int) -> float:
        """MB/s of some jobs together. Fewer jobs than ever measured are each as fast as in the smallest measurement."""
        (least, first), (_, last) = self.points[0], self.points[-1]
        if count <= least:
            return first * count / least
        index = bisect_left(self.points, (count, 0.0))
        if index == len(self.points):
            return last
        (left, low), (right, high) = self.points[index - 1], self.points[index]
        return low + (high - low) * (count - left) / (right - left)

    def explains(self, seen: SeenRate) -> bool:
        """Whether a rate that was seen may be that of this storage, in another state or under another use."""
        return 1 / _MOST_OFF <= seen.rate / self.total(seen.jobs) <= _MOST_OFF

    def corrected(self, seen: Iterable[SeenRate]) -> StorageCurve:
        """The curve through what was seen, as far as it explains it.

        It is as many times as fast as it was with the numbers of jobs that were seen; between them by linear
        interpolation of that factor, beyond them by that of the nearest: its form there is as it was.
        """
        seconds: defaultdict[int, float] = defaultdict(float)
        weighted: defaultdict[int, float] = defaultdict(float)
        for one in filter(self.explains, seen):
            seconds[one.jobs] += one.seconds
            weighted[one.jobs] += one.seconds * one.rate / self.total(one.jobs)
        if not seconds:
            return self
        factors = StorageCurve.of((count, weighted[count] / own) for count, own in seconds.items())
        least = factors.points[0][0]
        counts = {count for count, _ in (*self.points, *factors.points)}
        return StorageCurve.of((count, self.total(count) * factors.total(max(least, count))) for count in counts)


#: How runs share a storage: each has a ledger of its own (`own`), or all share one (`due`): the first that is due goes
#: first.
Way = Literal["own", "due"]
#: What the work of a burst of a run (both by index, from 0) is multiplied with.
Noise = Callable[[int, int], float]


class PeriodicRun(Struct, frozen=True):
    """A run that computes, and then has a burst of equal jobs on the storage, again and again.

    :ivar jobs: of a burst
    :ivar megabytes: of a job
    :ivar storage_bw: of a job
    :ivar latency: seconds in which a job has its storageBW, and moves nothing: it is started, computes, or is over
    :ivar work: seconds from the end of a burst to the next; the first is before the first burst
    """

    name: str
    bursts: int
    jobs: int
    megabytes: float
    storage_bw: float
    work: float
    latency: float = 0.0


class Outcome(Struct, frozen=True):
    """
    :ivar seconds: from the start of each run to its end
    :ivar busy: seconds in which at least one job moved
    """

    seconds: tuple[float, ...]
    busy: float

    def dilations(self, alone: Sequence[float]) -> list[float]:
        """How many times as long as alone each run took.

        :param alone: how long each takes alone, above 0
        """
        return [own / other for own, other in zip(self.seconds, alone, strict=True)]


def play(
    runs: Sequence[PeriodicRun],
    bandwidth: float,
    curve: StorageCurve,
    way: Way,
    noise: Noise | None = None,
    slots: Sequence[Slots] = (),
) -> Outcome:
    """Let runs use a storage together.

    O(log n) for a job, with n runs.

    :param bandwidth: of the storage, as the ledger has it
    :param slots: of each run. No burst begins before its slot, or waits for longer than a period; late bursts go first.
        Only with the shared ledger. Empty: no burst is held back
    """
    return _EvenStorage(runs, bandwidth, curve, way, noise, slots).play()


def alone(
    runs: Sequence[PeriodicRun], bandwidth: float, curve: StorageCurve, noise: Noise | None = None
) -> list[float]:
    """How long each run takes if it has the storage for itself, with the same works as in :func:`play`."""
    return [play([one], bandwidth, curve, "own", _of_one(noise, index)).seconds[0] for index, one in enumerate(runs)]


def _of_one(noise: Noise | None, index: int) -> Noise | None:
    return None if noise is None else lambda _, burst: noise(index, burst)


class _RunState:
    """The state of a run.

    :ivar amount: of a job, bytes per second
    :ivar begun: bursts
    :ivar waiting: jobs; it asks for the next of them; :ivar running: jobs
    :ivar asked: when its burst began; it is `due` when it would be without others, and some more
    :ivar took: seconds of the last jobs
    """

    def __init__(self, facts: PeriodicRun) -> None:
        self.facts = facts
        self.amount = round(facts.storage_bw * 1e6)
        self.begun = self.waiting = self.running = 0
        self.asked = self.due = 0.0
        self.took: deque[float] = deque(maxlen=LAST_JOBS)
        self.end = 0.0


class _EvenStorage:
    """Jobs that move share evenly: each is done when as many MB as its own have gone by for each, `_passed`."""

    def __init__(
        self,
        runs: Sequence[PeriodicRun],
        bandwidth: float,
        curve: StorageCurve,
        way: Way,
        noise: Noise | None,
        slots: Sequence[Slots] = (),
    ) -> None:
        self._runs = [_RunState(one) for one in runs]
        self._curve, self._way, self._noise, self._slots = curve, way, noise, slots
        self._bandwidth = round(bandwidth * 1e6)
        self._computing: list[tuple[float, int]] = []
        self._starting: list[tuple[float, int]] = []
        self._moving: list[tuple[float, int, float]] = []
        self._queue: list[tuple[float, int, int]] = []
        self._held = self._tickets = 0
        self._now = self._passed = self._busy = 0.0

    def play(self) -> Outcome:
        for index, run in enumerate(self._runs):
            if run.facts.bursts > 0:
                self._compute(index, 0.0)
        while self._computing or self._starting or self._moving:
            rate = self._curve.total(len(self._moving)) / len(self._moving) if self._moving else 0.0
            moved = self._now + (self._moving[0][0] - self._passed) / rate if self._moving else float("inf")
            begins = self._computing[0][0] if self._computing else float("inf")
            if self._starting and self._starting[0][0] <= min(moved, begins):
                now, index = heapq.heappop(self._starting)
                self._advance(now, rate)
                self._move(index)
                continue
            if begins <= moved:
                now, index = heapq.heappop(self._computing)
                self._advance(now, rate)
                self._begin(index)
            else:
                self._advance(moved, rate)
                end, index, started = heapq.heappop(self._moving)
                self._passed = end
                self._finish(index, started)
            self._admit(index)
        return Outcome(tuple(run.end for run in self._runs), self._busy)

    def _advance(self, now: float, rate: float) -> None:
        if self._moving:
            self._busy += now - self._now
        self._passed += (now - self._now) * rate
        self._now = now

    def _work(self, index: int, burst: int) -> float:
        work = self._runs[index].facts.work
        return work if self._noise is None else work * self._noise(index, burst)

    def _compute(self, index: int, begin: float) -> None:
        """A run computes, and then has its next burst."""
        ready = begin + self._work(index, self._runs[index].begun)
        if self._slots:
            own = self._slots[index]
            ready = max(ready, min(own.at(self._runs[index].begun), ready + own.period))
        heapq.heappush(self._computing, (ready, index))

    def _begin(self, index: int) -> None:
        """A burst begins: all its jobs are ready."""
        run = self._runs[index]
        run.begun += 1
        run.waiting = run.facts.jobs
        run.asked = self._now
        if self._way == "due":
            self._ask(index)

    def _finish(self, index: int, started: float) -> None:
        """A job has ended, and gives back what it had."""
        run = self._runs[index]
        run.running -= 1
        self._held -= run.amount
        run.took.append(self._now - started)
        if run.waiting == 0 and run.running == 0:
            run.end = self._now
            if run.begun < run.facts.bursts:
                self._compute(index, self._now)

    def _due(self, index: int) -> float:
        run = self._runs[index]
        if self._slots:
            return self._slots[index].at(run.begun - 1)
        expected = run.amount * run.facts.jobs * expected_seconds(run.took)
        return due(run.asked, expected / self._bandwidth)

    def _ask(self, index: int) -> None:
        """Let a run ask for the bandwidth of its next job."""
        self._tickets += 1
        run = self._runs[index]
        run.due = self._due(index)
        heapq.heappush(self._queue, (run.due, self._tickets, index))

    def _admit(self, index: int) -> None:
        """Start all jobs that may."""
        if self._way == "own":
            run = self._runs[index]
            while run.waiting and (run.running == 0 or (run.running + 1) * run.amount <= self._bandwidth):
                self._start(index)
            return
        while self._queue:
            _, _, first = self._queue[0]
            jobs = self._given(first) // self._runs[first].amount
            if not jobs:
                return
            heapq.heappop(self._queue)
            for _ in range(min(jobs, self._runs[first].waiting)):
                self._start(first)
            if self._runs[first].waiting:
                self._ask(first)

    def _given(self, index: int) -> int:
        """The bandwidth that the first run in order is given. Of later runs only their holdings count."""
        run = self._runs[index]
        own = run.running * run.amount
        mine = Tenant("mine", {"write": own}, {"write": run.amount}, run.due)
        others = Tenant("others", {"write": self._held - own})
        return decide(mine, (others,), {"write": self._bandwidth}).get("write", 0)

    def _start(self, index: int) -> None:
        run = self._runs[index]
        run.waiting -= 1
        run.running += 1
        self._held += run.amount
        if run.facts.latency > 0:
            heapq.heappush(self._starting, (self._now + run.facts.latency, index))
        else:
            self._move(index)

    def _move(self, index: int) -> None:
        facts = self._runs[index].facts
        heapq.heappush(self._moving, (self._passed + facts.megabytes, index, self._now - facts.latency))
