"""Foretells how long runs on one storage take: together, without one of them, or if one starts later."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from .curve import StorageCurve
from .jobs import Outcome, PeriodicRun, Way, alone, play

# The number of steps from now to the end of the others.
_STARTS = 40
# Of more runs only the last one is left out, and starts in fewer steps: each is as much to play as all together.
_MANY = 20
_STARTS_OF_MANY = 10
# A smaller difference is no gain.
_GAIN = 0.01


class Scenario(Struct, frozen=True):
    """Runs that start together.

    :ivar without: the run that is not there; none: all are
    :ivar dilations: of each run that is there, in their order
    :ivar rate: MB/s of all together, from the first start to the last end
    """

    without: str | None
    makespan: float
    dilations: tuple[float, ...]
    rate: float

    @property
    def slowest(self) -> float:
        """The largest dilation."""
        return max(self.dilations)


class LaterStart(Struct, frozen=True):
    """The last run starts later, and then all of them end no later than if it started now.

    :ivar delay: seconds
    :ivar end: when it ends, in seconds from now; :ivar end_now: if it starts now
    :ivar slowest: the largest dilation, from when each starts; :ivar slowest_now: if all start now
    """

    delay: float
    end: float
    end_now: float
    slowest: float
    slowest_now: float


class Forecast(Struct, frozen=True):
    """The forecast of some runs.

    :ivar alone: seconds that each run takes alone
    :ivar later: a later start of one run. None: a later start is not better for all
    """

    alone: tuple[float, ...]
    scenarios: tuple[Scenario, ...]
    later: LaterStart | None


def forecast(runs: Sequence[PeriodicRun], bandwidth: float, curve: StorageCurve, way: Way) -> Forecast:
    """Play runs together, and without each of them; of more than 20 runs, without the last.

    :param runs: at least one, with names that differ; the last is the one that could start later
    :param bandwidth: of the storage, as the ledger has it, MB/s
    :param way: how they share it
    """
    own = alone(runs, bandwidth, curve)
    scenarios = [_scenario(None, play(runs, bandwidth, curve, way), own)]
    if len(runs) > 1:
        for index, one in enumerate(runs):
            if index < len(runs) - 1 and len(runs) > _MANY:
                continue
            others = [*runs[:index], *runs[index + 1 :]]
            seconds = [*own[:index], *own[index + 1 :]]
            scenarios.append(_scenario(one.name, play(others, bandwidth, curve, way), seconds))
    return Forecast(tuple(own), tuple(scenarios), later_start(runs, own, bandwidth, curve, way))


def _scenario(without: str | None, outcome: Outcome, own: Sequence[float]) -> Scenario:
    rate = outcome.moved / outcome.makespan if outcome.makespan > 0 else 0.0
    return Scenario(without, outcome.makespan, tuple(outcome.dilations(own)), rate)


def later_start(
    runs: Sequence[PeriodicRun], own: Sequence[float], bandwidth: float, curve: StorageCurve, way: Way
) -> LaterStart | None:
    """Whether all runs end no later, and one of them earlier, if the last one starts later: the best such delay."""
    if len(runs) < 2:
        return None
    now = play(runs, bandwidth, curve, way)
    longest, steps = max(now.seconds[:-1]), _STARTS if len(runs) <= _MANY else _STARTS_OF_MANY
    best: tuple[float, float, Outcome] | None = None
    for step in range(1, steps + 1):
        delay = longest * step / steps
        later = play([*runs[:-1], replace(runs[-1], start=runs[-1].start + delay)], bandwidth, curve, way)
        ends = [*later.seconds[:-1], later.seconds[-1] + delay]
        if any(end > before * (1 + 1e-9) for end, before in zip(ends, now.seconds, strict=True)):
            continue
        gain = max(before / end for end, before in zip(ends, now.seconds, strict=True))
        if gain > 1 + _GAIN and (best is None or sum(ends) < best[0] * (1 - 1e-9)):
            best = sum(ends), delay, later
    if best is None:
        return None
    _, delay, later = best
    slowest = max(later.dilations(own))
    return LaterStart(delay, later.seconds[-1] + delay, now.seconds[-1], slowest, max(now.dilations(own)))
