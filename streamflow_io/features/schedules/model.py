"""Applications that compute and transfer by turns, on a platform with one storage; patterns; what is reachable.

Source: the paper, section 2; its numbers of equations are given. Units: seconds, MB and MB/s.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

from msgspec import Struct

Goal = Literal["efficiency", "dilation"]


class Platform(Struct, frozen=True):
    """Nodes that share a storage.

    :ivar nodes: how many there are; more than the applications have, if some are idle
    :ivar node_bandwidth: of one node, in MB/s
    :ivar bandwidth: of the storage, in MB/s
    """

    nodes: int
    node_bandwidth: float
    bandwidth: float


class Application(Struct, frozen=True):
    """An application that computes and then transfers, again and again, on nodes of its own.

    :ivar work: seconds of each compute
    :ivar volume: MB of each transfer
    :ivar rate: MB/s that it can reach. None: its nodes are the limit
    """

    name: str
    nodes: int
    work: float
    volume: float
    rate: float | None = None


class ScheduleBounds(Struct, frozen=True):
    """Bounds that no schedule can exceed.

    :ivar efficiency: the largest, given the bandwidth of the storage
    :ivar dilation: the smallest
    """

    efficiency: float
    dilation: float


class ApplicationSet(Struct, frozen=True, dict=True):
    """The applications of a platform.

    Sequences of numbers are by application, in their order. A *rate* in instances/s says how often an application
    computes and transfers: in a pattern, its instances divided by the period.
    """

    platform: Platform
    applications: tuple[Application, ...]

    @cached_property
    def peaks(self) -> tuple[float, ...]:
        """MB/s of each when it is alone: c = min(nodes x node bandwidth, bandwidth)."""
        return tuple(min(self._own_peak(one), self.platform.bandwidth) for one in self.applications)

    def _own_peak(self, one: Application) -> float:
        return one.nodes * self.platform.node_bandwidth if one.rate is None else one.rate

    @cached_property
    def io_times(self) -> tuple[float, ...]:
        """Seconds of a transfer of each when it is alone."""
        return tuple(one.volume / peak for one, peak in zip(self.applications, self.peaks, strict=True))

    @cached_property
    def durations(self) -> tuple[float, ...]:
        """Seconds of an instance of each when it is alone: d = work + I/O time."""
        return tuple(one.work + io_time for one, io_time in zip(self.applications, self.io_times, strict=True))

    def efficiency(self, rates: Sequence[float]) -> float:
        """The part of all nodes' time in which they compute: equation 1.

        :param rates: instances/s of each application
        """
        worked = (one.nodes * one.work * rate for one, rate in zip(self.applications, rates, strict=True))
        return sum(worked) / self.platform.nodes

    def dilations(self, rates: Sequence[float]) -> list[float]:
        """How many times as long as alone each takes: rho/rho~; infinite for one that stands still.

        :param rates: instances/s of each application
        """
        return [1 / (rate * own) if rate > 0 else float("inf") for rate, own in zip(rates, self.durations, strict=True)]

    def dilation(self, rates: Sequence[float]) -> float:
        """The largest of the :meth:`dilations`: equation 2."""
        return max(self.dilations(rates))

    def load(self, rates: Sequence[float]) -> float:
        """MB/s that the storage has to bear."""
        return sum(one.volume * rate for one, rate in zip(self.applications, rates, strict=True))

    @cached_property
    def bounds(self) -> ScheduleBounds:
        """The bounds that no schedule can exceed."""
        dilation = max(1.0, self.load([1 / own for own in self.durations]) / self.platform.bandwidth)
        return ScheduleBounds(self.efficiency(self.best_rates()), dilation)

    def best_rates(self) -> list[float]:
        """The rates of the largest efficiency, of all that the bandwidth allows.

        A fractional knapsack, solved exactly: bandwidth goes first to the application that computes most per MB.
        """
        rates = [0.0] * len(self.applications)
        left = self.platform.bandwidth
        for index in sorted(range(len(rates)), key=self._worked_per_megabyte, reverse=True):
            rates[index] = min(1 / self.durations[index], max(left, 0) / self.applications[index].volume)
            left -= rates[index] * self.applications[index].volume
        return rates

    def _worked_per_megabyte(self, index: int) -> float:
        one = self.applications[index]
        return one.nodes * one.work / one.volume

    def least_period(self, counts: Sequence[int]) -> float:
        """The least seconds that a pattern takes.

        :param counts: the instances of each application
        """
        alone = max(count * own for count, own in zip(counts, self.durations, strict=True))
        return max(alone, self.load(counts) / self.platform.bandwidth)


class Transfer(Struct, frozen=True):
    """Data that moves at a constant rate.

    :ivar start: seconds from the beginning of the pattern; like `end`, it may lie beyond the period: it wraps around
    :ivar rate: in MB/s
    """

    start: float
    end: float
    rate: float


class Instance(Struct, frozen=True):
    """A compute and the transfer that follows, which may be interrupted.

    :ivar work: from when to when it computes, in seconds from the beginning of the pattern
    """

    work: tuple[float, float]
    transfers: tuple[Transfer, ...]


class Pattern(Struct, frozen=True):
    """The instances of all applications within a period, which repeats itself.

    :ivar period: in seconds
    :ivar instances: those of each application, in the order of their beginnings
    """

    period: float
    instances: tuple[tuple[Instance, ...], ...]

    @property
    def counts(self) -> list[int]:
        """How many instances of each application there are."""
        return [len(own) for own in self.instances]

    @property
    def rates(self) -> list[float]:
        """Instances/s of each application: with them, equation 3 is equations 1 and 2."""
        return [count / self.period for count in self.counts]


class Slots(Struct, frozen=True):
    """The slots of one run, in seconds since the schedule began for the first time.

    :ivar starts: in a period, in order; at least one
    """

    period: float
    starts: tuple[float, ...]

    def at(self, number: int) -> float:
        """The slot of the burst with a number, from 0."""
        cycles, index = divmod(number, len(self.starts))
        return cycles * self.period + self.starts[index]


def slots_of(pattern: Pattern) -> list[Slots]:
    """The slots of each application."""
    return [Slots(pattern.period, tuple(_starts(pattern.period, own))) for own in pattern.instances]


def _starts(period: float, instances: Sequence[Instance]) -> list[float]:
    """When the transfers begin of those instances that begin to compute in the first period."""
    ordered = sorted((one.work[0] % period, one.work[0], one.transfers[0].start) for one in instances)
    return [first + start - work for first, work, start in ordered]


class Schedule(Struct, frozen=True):
    """A pattern for a set of applications."""

    set: ApplicationSet
    pattern: Pattern
