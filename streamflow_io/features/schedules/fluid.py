"""Simulates applications that compute and transfer by turns, where a policy says which transfers may move.

A transfer is a fluid: it may be interrupted, and moves at any rate up to the peak of its application. Nothing changes
between events, which are the start of an application, the end of a compute or transfer, and the opening of a slot. So
the state is exact at each event.

Source: the paper, section 2; seconds, MB and MB/s.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import NamedTuple

from .model import ApplicationSet
from .policies import WARM_UP, Event, Noise, PlayedOutcome, Policy, State

# Of the bandwidth of the storage: less is nothing, it is what sums of floats leave.
_LEAST_SHARE = 1e-12


def simulate(
    of: ApplicationSet,
    policy: Policy,
    seconds: float,
    *,
    noise: Noise | None = None,
    begins: Sequence[float] = (),
    log: list[Event] | None = None,
) -> PlayedOutcome:
    """Play a policy.

    O((applications that transfer at once + log all) x events), if the policy neither `moves` nor `shares`; else
    O(applications that wait x log of that x events).

    :param begins: when each application begins to compute; empty: all begin at 0
    :param log: gets all events, in their order
    """
    return _Simulation(of, policy, seconds, noise, begins or [0.0] * len(of.applications), log).run()


# What happens, in the order in which it counts at the same time.
_MOVED, _COMPUTED, _OPENS, _BEGINS, _MEASURE = range(5)


class _ApplicationProgress(NamedTuple):
    instances: float
    worked: float
    alone: float


class _Simulation:
    """Sequences are by application.

    `left` are MB of the instance that had not been moved at `since`; `rate` is with which it moves from then on. An
    entry of the heap counts only if its version is still the application's.
    """

    def __init__(
        self,
        of: ApplicationSet,
        policy: Policy,
        seconds: float,
        noise: Noise | None,
        begins: Sequence[float],
        log: list[Event] | None,
    ) -> None:
        count = len(of.applications)
        self._set, self._policy, self._noise, self._log = of, policy, noise, log
        self._end, self._begins = seconds, begins
        self._state = State(of)
        self._peaks = of.peaks
        self._heap: list[tuple[float, int, int, int]] = []
        self._waiting: list[tuple[float, float, int]] = []
        self._key: list[tuple[float, float, int] | None] = [None] * count
        self._moving: dict[int, float] = {}
        self._works = [one.work for one in of.applications]
        self._volumes = [one.volume for one in of.applications]
        self._began: list[float | None] = [None] * count
        self._work, self._volume, self._left = [0.0] * count, [0.0] * count, [0.0] * count
        self._since, self._version = [0.0] * count, [0] * count
        self._alone, self._moved = [0.0] * count, [0.0] * count
        self._from = [WARM_UP * seconds] * count
        self._before = [_ApplicationProgress(0, 0, 0)] * count

    def run(self) -> PlayedOutcome:
        heap, state = self._heap, self._state
        heapq.heappush(heap, (WARM_UP * self._end, _MEASURE, 0, 0))
        for index, begin in enumerate(self._begins):
            heapq.heappush(heap, (begin, _BEGINS, index, 0))
        while heap and heap[0][0] <= self._end:
            state.time = now = heap[0][0]
            changed = False
            while heap and heap[0][0] == now:
                changed |= self._happens(*heapq.heappop(heap))
            if changed:
                self._allocate(now)
        state.time = self._end
        return self._outcome()

    def _happens(self, now: float, kind: int, index: int, version: int) -> bool:
        """Do what happens at an event; whether the rates have to be decided again."""
        if kind == _MEASURE:
            self._before = [self._progress(index, now) for index in range(len(self._works))]
        elif kind == _BEGINS:
            self._begin(index, now)
            return True
        elif version == self._version[index]:
            if kind == _MOVED:
                self._finish(index, now)
            elif kind == _COMPUTED:
                self._request(index, now)
            else:
                self._wait(index, now)
            return True
        return False

    def _begin(self, index: int, now: float) -> None:
        self._state.arrived[index] = self._state.served[index] = now
        self._from[index] = max(now, self._from[index])
        self._compute(index, now)

    def _compute(self, index: int, now: float) -> None:
        """An instance begins."""
        work = self._works[index]
        if self._noise is not None:
            work *= self._noise(index, self._state.ended[index])
        self._work[index] = work
        self._left[index] = self._volume[index] = self._volumes[index]
        self._began[index] = now
        heapq.heappush(self._heap, (now + work, _COMPUTED, index, self._version[index]))

    def _request(self, index: int, now: float) -> None:
        """End the compute of an application."""
        state = self._state
        instance = state.ended[index]
        state.ready[index] = self._since[index] = now
        if self._log is not None:
            self._log.append(Event(now, index, instance, False))
        opens = self._policy.opens(index, instance)
        if opens > now:
            heapq.heappush(self._heap, (opens, _OPENS, index, self._version[index]))
        elif self._volume[index] > 0:
            self._wait(index, now)
        else:
            self._finish(index, now)

    def _wait(self, index: int, now: float) -> None:
        self._since[index] = now
        self._key[index] = key = (self._policy.key(index, self._state), self._state.ready[index], index)
        insort(self._waiting, key)

    def _finish(self, index: int, now: float) -> None:
        """End the transfer of an application."""
        state = self._state
        self._stop(index)
        if self._log is not None:
            self._log.append(Event(now, index, state.ended[index], True))
        state.ended[index] += 1
        state.worked[index] += self._work[index]
        state.served[index] = now
        self._alone[index] += self._work[index] + self._volume[index] / self._peaks[index]
        self._moved[index] += self._volume[index]
        self._compute(index, now)

    def _stop(self, index: int) -> None:
        """Take an application out of those that wait or move."""
        key = self._key[index]
        if key is not None:
            del self._waiting[bisect_left(self._waiting, key)]
            self._key[index] = None
        self._moving.pop(index, None)
        self._version[index] += 1

    def _allocate(self, now: float) -> None:
        """Decide the rates from now on."""
        policy, state = self._policy, self._state
        if policy.moves:
            for _, ready, index in self._waiting:
                self._key[index] = (policy.key(index, state), ready, index)
            self._waiting = sorted(key for key in self._key if key is not None)
        if policy.whole:
            rates = self._whole()
        elif policy.shares:
            rates = policy.share([key[2] for key in self._waiting], state)
        else:
            rates = self._in_order()
        for index in [index for index in self._moving if index not in rates]:
            self._move(index, 0.0, now)
        for index, rate in rates.items():
            if rate != self._moving.get(index, 0.0):
                self._move(index, rate, now)
        if policy.shares and self._moving:
            # All rates change at each event: only the first end of a transfer is one.
            ends = ((self._since[index] + self._left[index] / rate, index) for index, rate in self._moving.items())
            end, first = min(ends)
            heapq.heappush(self._heap, (end, _MOVED, first, self._version[first]))

    def _in_order(self) -> dict[int, float]:
        rest, rates = self._set.platform.bandwidth, dict[int, float]()
        least, peaks = _LEAST_SHARE * rest, self._peaks
        for _, _, index in self._waiting:
            if rest <= least:
                break
            rates[index] = rate = min(peaks[index], rest)
            rest -= rate
        return rates

    def _whole(self) -> dict[int, float]:
        """Let transfers that move go on, and start others in their order, each at its full rate."""
        rates = dict(self._moving)
        rest = self._set.platform.bandwidth * (1 + _LEAST_SHARE) - sum(rates.values())
        for _, _, index in self._waiting:
            if index not in rates:
                if self._peaks[index] > rest:
                    break
                rates[index] = self._peaks[index]
                rest -= self._peaks[index]
        return rates

    def _move(self, index: int, rate: float, now: float) -> None:
        """From now on it moves at another rate."""
        left = self._left[index] = self._remaining(index, now)
        self._since[index] = now
        self._version[index] += 1
        if rate > 0:
            self._moving[index] = rate
            if not self._policy.shares:
                heapq.heappush(self._heap, (now + left / rate, _MOVED, index, self._version[index]))
        else:
            del self._moving[index]

    def _remaining(self, index: int, now: float) -> float:
        return max(0.0, self._left[index] - self._moving.get(index, 0.0) * (now - self._since[index]))

    def _progress(self, index: int, now: float) -> _ApplicationProgress:
        """The work that an application has done, with the part of its instance that is done."""
        ended, worked, alone = self._state.ended[index], self._state.worked[index], self._alone[index]
        began = self._began[index]
        if began is None:
            return _ApplicationProgress(ended, worked, alone)
        work, peak = self._work[index], self._peaks[index]
        done = min(now - began, work) + (self._volume[index] - self._remaining(index, now)) / peak
        part = done / (work + self._volume[index] / peak)
        return _ApplicationProgress(ended + part, worked + part * work, alone + done)

    def _outcome(self) -> PlayedOutcome:
        efficiency, rates, dilations, moved = 0.0, list[float](), list[float](), list[float]()
        for index, before in enumerate(self._before):
            after = self._progress(index, self._end)
            seconds = self._end - self._from[index]
            efficiency += self._set.applications[index].nodes * max(0.0, after.worked - before.worked)
            rates.append((after.instances - before.instances) / seconds if seconds > 0 else 0.0)
            alone = after.alone - before.alone
            dilations.append(1.0 if seconds <= 0 else seconds / alone if alone > 0 else math.inf)
            left = 0.0 if self._began[index] is None else self._volume[index] - self._remaining(index, self._end)
            moved.append(self._moved[index] + left)
        efficiency /= self._set.platform.nodes * (1 - WARM_UP) * self._end
        return PlayedOutcome(efficiency, tuple(dilations), tuple(rates), tuple(moved), tuple(self._state.ended))
