"""Online policies that order transfers. `fairshare` is what happens without a scheduler.

Source: the paper, section 4 (`mindilation`, `maxsyseff`, `minmax`, `roundrobin`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import Struct

from .model import ApplicationSet, Instance, Pattern

#: What the work of an instance of an application (by index, from 0) is multiplied with.
Noise = Callable[[int, int], float]
# Of the simulated time, before it is measured.
WARM_UP = 0.2


class Event(NamedTuple):
    """The compute of an instance has ended, so that its transfer may begin; or its transfer has ended."""

    time: float
    application: int
    instance: int
    is_end: bool


class State:
    """The state that a policy sees. Sequences are by application.

    :ivar ready: when its compute ended, of one that transfers or waits
    :ivar ended: how many instances have ended
    :ivar worked: seconds of compute of these
    :ivar served: when its last transfer ended; at first, when it arrived
    """

    def __init__(self, of: ApplicationSet) -> None:
        count = len(of.applications)
        self.set = of
        self.time = 0.0
        self.arrived = [0.0] * count
        self.ready = [0.0] * count
        self.ended = [0] * count
        self.worked = [0.0] * count
        self.served = [0.0] * count


class Policy:
    """Orders transfers by keys, each with as much as it can use of the rest; or says how much each gets.

    :ivar moves: whether the order of those that wait can change while nothing happens to them
    :ivar shares: whether :meth:`share` decides; a policy that is `whole` does not share
    :ivar whole: a transfer begins only at its full rate, and is not interrupted
    """

    moves = False
    shares = False
    whole = False

    def key(self, application: int, state: State) -> float:
        """The key of an application. The least goes first; of equals, the application that was ready first."""
        raise NotImplementedError

    def opens(self, application: int, instance: int) -> float:
        """Before this time the transfer of an instance does not begin."""
        return 0.0

    def share(self, active: Sequence[int], state: State) -> dict[int, float]:
        """The rates, above 0, of those that transfer or wait."""
        raise NotImplementedError


class PlayedOutcome(Struct, frozen=True):
    """Figures after the warm-up, with fractions of instances at both ends. Sequences are by application.

    :ivar efficiency: the part of all nodes' time in which they compute
    :ivar dilations: how many times as long as alone it took for what it has done; infinite: it stood still
    :ivar rates: instances/s
    :ivar moved: MB, in all the time
    :ivar ended: instances, in all the time
    """

    efficiency: float
    dilations: tuple[float, ...]
    rates: tuple[float, ...]
    moved: tuple[float, ...]
    ended: tuple[int, ...]

    @property
    def dilation(self) -> float:
        """The largest."""
        return max(self.dilations)


def lognormal(variation: float, normals: Sequence[Callable[[], float]]) -> Noise:
    """Works that are lognormal, and in the mean what they are without noise.

    :param variation: their standard deviation, divided by their mean
    :param normals: for each application a source of standard normal numbers: so all policies get the same works
    """
    deviation = math.sqrt(math.log1p(variation**2))
    return lambda application, _: math.exp(deviation * normals[application]() - deviation**2 / 2)


def staggered(of: ApplicationSet) -> list[float]:
    """Return when each application begins, so that applications begin at different times, evenly over their own.

    Those that begin together stay together under some policies, and then meet at the storage for ever.
    """
    count = len(of.applications)
    return [index / count * own for index, own in enumerate(of.durations)]


def seconds_of(of: ApplicationSet, instances: int) -> float:
    """The seconds to simulate for about a number of instances, and at least 20 of each application."""
    rates = of.fair_rates()
    return max(instances / sum(rates), 20 / (1 - WARM_UP) / min(rates))


WHOLE = "whole"
_FAST = 1e6
_THRESHOLD = 0.5


class FCFS(Policy):
    """First goes the application that was ready first."""

    def key(self, application: int, state: State) -> float:
        return state.ready[application]


class RoundRobin(Policy):
    """First goes the application whose last transfer ended first."""

    def key(self, application: int, state: State) -> float:
        return state.served[application]


class MinMax(Policy):
    """The most slowed down first, of those that are slowed down below a threshold; then as :class:`MaxSysEff`.

    :param threshold: of rho~/rho: 1: always by it (the paper's MinDilation); 0: never (MaxSysEff)
    """

    moves = True

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold

    def key(self, application: int, state: State) -> float:
        seconds = state.time - state.arrived[application]
        if seconds <= 0:
            return -math.inf
        share = state.ended[application] * state.set.durations[application] / seconds
        if share < self._threshold or self._threshold == 1:
            # Before the others, which are at or above 0. No application is much faster than alone.
            return share - _FAST
        return state.set.applications[application].nodes * state.worked[application] / seconds


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


class SlotPolicy(Policy):
    """Follows the slots of a pattern: no transfer begins before its slot, and a late transfer goes first.

    The instances of an application have their slots one after the other: slots count, phases do not.
    """

    def __init__(self, pattern: Pattern) -> None:
        self._slots = slots_of(pattern)

    def opens(self, application: int, instance: int) -> float:
        return self._slots[application].at(instance)

    def key(self, application: int, state: State) -> float:
        return self.opens(application, state.ended[application])


class FairShare(FCFS):
    """Max-min fairness, weighted by nodes: all applications transfer at once.

    O(n log n); Bertsekas and Gallager, *Data Networks*, section 6.5.2.
    """

    shares = True

    def share(self, active: Sequence[int], state: State) -> dict[int, float]:
        peaks, rates = state.set.peaks, dict[int, float]()
        nodes = {index: state.set.applications[index].nodes for index in active}
        rest, weight = state.set.platform.bandwidth, sum(nodes.values())
        # A part that one application cannot use goes to the others by their nodes.
        for index in sorted(active, key=lambda index: peaks[index] / nodes[index]):
            rates[index] = rate = min(peaks[index], rest * nodes[index] / weight)
            rest -= rate
            weight -= nodes[index]
        return rates


_BY_NAME: dict[str, Callable[[], Policy]] = {
    "fairshare": FairShare,
    "fcfs": FCFS,
    "roundrobin": RoundRobin,
    "mindilation": lambda: MinMax(1),
    "maxsyseff": lambda: MinMax(0),
    "minmax": lambda: MinMax(_THRESHOLD),
}
POLICIES = tuple(_BY_NAME)
POLICY_ALLOWED = f"{', '.join(POLICIES)}, slots (of a schedule file); minmax:G with G from 0 to 1; each with :{WHOLE}"


def policy(text: str, pattern: Pattern | None = None) -> Policy:
    """A policy by its name, as in `fcfs`, `minmax:0.7`, `fcfs:whole`.

    :param pattern: with the slots of `slots`
    :raises ValueError: if there is none; says which there are
    """
    name, *options = text.split(":")
    whole = options[-1:] == [WHOLE]
    if whole:
        options.pop()
    if name == "slots" and pattern is not None and not options:
        made: Policy = SlotPolicy(pattern)
    elif name == "minmax" and len(options) == 1 and (threshold := _share(options[0])) is not None:
        made = MinMax(threshold)
    elif name in _BY_NAME and not options:
        made = _BY_NAME[name]()
    else:
        raise ValueError(f"{text!r} is no policy; allowed: {POLICY_ALLOWED}")
    made.whole = whole
    return made


def _share(text: str) -> float | None:
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0 <= share <= 1 else None
