"""Online policies that order transfers: those of the paper, those of others, and ours.

`fairshare` is what happens without a scheduler. Sources: the paper, section 4 (`mindilation`, `maxsyseff`, `minmax`,
`roundrobin`); Boito, Pallez, Teylo, Vidal, *IO-Sets: simple and efficient approaches for I/O bandwidth management*
(`set10`). `density` and `paced` are ours.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from .model import ApplicationSet, Pattern
from .play import Policy, State
from .slots import slots_of

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


class Density(Policy):
    """First goes the application that computes most per MB: the optimal order in the bound of the efficiency."""

    def key(self, application: int, state: State) -> float:
        one = state.set.applications[application]
        return -one.nodes * one.work / one.volume if one.volume > 0 else -math.inf


class Paced(Policy):
    """First goes the application that is first due, if each is to keep its rate.

    :param rates: instances/s of each application
    :param phases: of each application, in instances: equal applications that have different ones take turns
    """

    def __init__(self, rates: Sequence[float], phases: Sequence[float] | None = None) -> None:
        self._rates, self._phases = rates, phases or [0.0] * len(rates)

    def key(self, application: int, state: State) -> float:
        return (state.ended[application] + 1 + self._phases[application]) / self._rates[application]


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
    """Max-min fairness, weighted by nodes: all applications transfer at once."""

    shares = True

    def share(self, active: Sequence[int], state: State) -> dict[int, float]:
        weights = [float(state.set.applications[index].nodes) for index in active]
        return max_min(active, weights, state)


class Set10(FCFS):
    """Classes of applications by the power of 10 of their periods: one at a time of each, short periods get more."""

    shares = True

    def share(self, active: Sequence[int], state: State) -> dict[int, float]:
        first: dict[int, int] = {}
        for index in active:
            first.setdefault(round(math.log10(state.set.durations[index])), index)
        return max_min(list(first.values()), [10.0**-number for number in first], state)


def paced(of: ApplicationSet, rates: Sequence[float]) -> Policy:
    """:class:`Paced`, where equal applications take turns."""
    equal = Counter((one.nodes, one.work, one.volume, one.rate) for one in of.applications)
    seen: Counter[tuple[object, ...]] = Counter()
    phases = []
    for one in of.applications:
        kind = (one.nodes, one.work, one.volume, one.rate)
        phases.append(seen[kind] / equal[kind])
        seen[kind] += 1
    return Paced(rates, phases)


_BY_NAME: dict[str, Callable[[ApplicationSet], Policy]] = {
    "fairshare": lambda _: FairShare(),
    "fcfs": lambda _: FCFS(),
    "roundrobin": lambda _: RoundRobin(),
    "mindilation": lambda _: MinMax(1),
    "maxsyseff": lambda _: MinMax(0),
    "minmax": lambda _: MinMax(_THRESHOLD),
    "set10": lambda _: Set10(),
    "density": lambda _: Density(),
    "paced": lambda of: paced(of, of.fair_rates()),
}
POLICIES = tuple(_BY_NAME)
POLICY_ALLOWED = f"{', '.join(POLICIES)}, slots (of a schedule file); minmax:G with G from 0 to 1; each with :{WHOLE}"


def policy(text: str, of: ApplicationSet, pattern: Pattern | None = None) -> Policy:
    """A policy by its name, as in `fcfs`, `minmax:0.7`, `density:whole`.

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
        made = _BY_NAME[name](of)
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


def max_min(active: Sequence[int], weights: Sequence[float], state: State) -> dict[int, float]:
    """Divide the bandwidth by weights. A part that one application cannot use goes to the others by their weights.

    O(n log n); Bertsekas and Gallager, *Data Networks*, section 6.5.2.
    """
    peaks = state.set.peaks
    rest, weight, rates = state.set.platform.bandwidth, sum(weights), dict[int, float]()
    each = rest / weight if weight else 0.0
    if all(peaks[index] >= each * own for own, index in zip(weights, active, strict=True)):
        return {index: each * own for own, index in zip(weights, active, strict=True)}
    for own, index in sorted(zip(weights, active, strict=True), key=lambda one: peaks[one[1]] / one[0]):
        rates[index] = rate = min(peaks[index], rest * own / weight)
        rest -= rate
        weight -= own
    return rates
