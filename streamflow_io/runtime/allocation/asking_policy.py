"""When a deployment asks for another allocation, and which one it gives back."""

from __future__ import annotations

from msgspec import Struct

_PATIENCE_SECONDS = 10.0


class AskingLimits(Struct, frozen=True):
    """The limits of a deployment that asks for several allocations.

    :ivar most: how many may be asked for in a run
    :ivar idle: the seconds after which an allocation without jobs is given back; None: at the end of the run
    :ivar patience: the seconds for which jobs wait for cores before another allocation is asked for beside one that
        runs
    """

    most: int
    idle: float | None = None
    patience: float = _PATIENCE_SECONDS


class Situation(Struct, frozen=True):
    """The allocations of a deployment, and the jobs that wait for nodes. Moments are in seconds.

    :ivar asked: how many allocations were asked for
    :ivar is_asked: whether one of them waits in the queue
    :ivar idle_since: for each allocation that runs, since when no job needs it; None: a job does, or only its nodes
        see a file
    :ivar waits: whether a job waits for this deployment
    :ivar lacks_since: since when a job lacks cores, memory or time on the nodes; None: no job does
    """

    now: float
    asked: int
    is_asked: bool
    idle_since: tuple[float | None, ...]
    waits: bool
    lacks_since: float | None


def asks(limits: AskingLimits, situation: Situation) -> bool:
    """Whether to ask for another allocation now."""
    if situation.is_asked or situation.asked >= limits.most:
        return False
    if not situation.idle_since:
        return situation.waits
    return situation.lacks_since is not None and situation.now - situation.lacks_since >= limits.patience


def to_give_back(limits: AskingLimits, situation: Situation) -> int | None:
    """Return the place of the allocation to give back now; None: all stay.

    The run keeps one, or may ask for another one.
    """
    if limits.idle is None or situation.waits:
        return None
    if situation.asked >= limits.most and len(situation.idle_since) + situation.is_asked < 2:
        return None
    idle = [
        (since, place)
        for place, since in enumerate(situation.idle_since)
        if since is not None and situation.now - since >= limits.idle
    ]
    return min(idle)[1] if idle else None
