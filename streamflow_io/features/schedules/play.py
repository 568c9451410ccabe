"""Inputs and outcomes of a simulation of applications: policies, perturbations, results.

Seconds, MB and MB/s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from .model import ApplicationSet

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


class Perturbation(NamedTuple):
    """From a time on, an application is there, is no longer there, or works or transfers `factor` times as much."""

    application: int
    time: float
    kind: Literal["arrives", "ends", "work", "volume"]
    factor: float = 1.0


class State:
    """The state that a policy sees. Sequences are by application.

    :ivar arrived: when it began
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


def staggered(of: ApplicationSet) -> list[Perturbation]:
    """Let applications begin at different times, evenly over their own.

    Those that begin together stay together under some policies, and then meet at the storage for ever.
    """
    count = len(of.applications)
    return [Perturbation(index, index / count * own, "arrives") for index, own in enumerate(of.durations)]


def seconds_of(of: ApplicationSet, instances: int) -> float:
    """The seconds to simulate for about a number of instances, and at least 20 of each application."""
    rates = of.fair_rates()
    return max(instances / sum(rates), 20 / (1 - WARM_UP) / min(rates))
