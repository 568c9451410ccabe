"""How long decisions take, how evenly, and in which functions."""

from __future__ import annotations

import contextlib
import cProfile
import gc
import pstats
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType

SAMPLED = 64
_NANOSECONDS = 1e9
# By (file, line, function): calls but for recursive ones, calls, seconds in the function itself, ...
_Stats = dict[tuple[str, int, str], tuple[int, int, float, float, object]]


class Meter:
    """Measures the CPU time of decisions: of what is done inside of `with meter`.

    Some are profiled instead, which would falsify their time.

    :param sampled: each so manieth decision is profiled
    :ivar count: all decisions
    :ivar seconds: of those that were timed
    :ivar longest: seconds of the longest of them
    """

    def __init__(self, sampled: int = SAMPLED) -> None:
        self._sampled = sampled
        self.count = 0
        self.seconds = 0.0
        self.longest = 0.0
        self._timed = 0
        self._by_bits: Counter[int] = Counter()
        self._profiler = cProfile.Profile(time.thread_time)
        self._begin = 0

    def __enter__(self) -> None:
        self.count += 1
        if self.count % self._sampled == 0:
            self._profiler.enable()
        self._begin = time.thread_time_ns()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        nanoseconds = time.thread_time_ns() - self._begin
        if self.count % self._sampled == 0:
            self._profiler.disable()
            return
        self._timed += 1
        self.seconds += nanoseconds / _NANOSECONDS
        self.longest = max(self.longest, nanoseconds / _NANOSECONDS)
        self._by_bits[nanoseconds.bit_length()] += 1

    @property
    def mean(self) -> float:
        """Seconds of a decision."""
        return self.seconds / max(self._timed, 1)

    def at_most(self, part: float) -> float:
        """Seconds that so large a part of the decisions did not exceed, rounded up to a power of two of nanoseconds."""
        seen = 0
        for bits in sorted(self._by_bits):
            seen += self._by_bits[bits]
            if seen >= part * self._timed:
                return float(2**bits) / _NANOSECONDS
        return 0.0

    def calls(self) -> float:
        """Calls of functions in a decision: as many for equal decisions, whatever else the machine does."""
        profiled = self.count // self._sampled
        return sum(calls for _, calls, *_ in self._stats().values()) / profiled if profiled else 0.0

    def shares(self) -> dict[str, float]:
        """The part of the time of decisions that is spent in each function itself, as `file.py:function`."""
        own: defaultdict[str, float] = defaultdict(float)
        for (file, _, function), (_, _, seconds, *_) in self._stats().items():
            own[f"{Path(file).name}:{function}" if file != "~" else function] += seconds
        total = sum(own.values()) or 1.0
        return {name: own[name] / total for name in sorted(own, key=lambda name: -own[name])}

    def _stats(self) -> _Stats:
        if self.count < self._sampled:
            return {}
        # The type stubs do not know of `stats`.
        stats: _Stats = vars(pstats.Stats(self._profiler))["stats"]
        return stats


@contextlib.contextmanager
def longest_collection() -> Iterator[Callable[[], float]]:
    """Measure Python's collections of garbage, which make a decision wait.

    :return: the CPU time of the longest so far, s
    """
    longest = begin = 0.0

    def notice(phase: str, _: Mapping[str, int]) -> None:
        nonlocal longest, begin
        if phase == "start":
            begin = time.thread_time()
        else:
            longest = max(longest, time.thread_time() - begin)

    gc.callbacks.append(notice)
    try:
        yield lambda: longest
    finally:
        gc.callbacks.remove(notice)
