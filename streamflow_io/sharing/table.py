"""Who of those that use a storage may have what he wants. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streamflow_io.admission.storages import Amounts
from streamflow_io.hints.models import WAYS, Way

from .wish import amount, positive


@dataclass(frozen=True)
class Claim:
    """What a run holds of a storage, and wants of it.

    :ivar run: what tells runs apart
    :ivar held: what it may use
    :ivar wanted: what it waits for; empty: it waits for nothing
    :ivar due: when it should have it, in seconds of some clock; who is due first is first
    :ivar ticket: of those that are due at the same time, who asked first
    :ivar silent: it has not been heard of for a while, and holds back nobody
    :ivar together: it wants all of it, in both directions, or nothing; else one may be given before the other
    """

    run: str
    held: Amounts = field(default_factory=dict)
    wanted: Amounts = field(default_factory=dict)
    due: float = 0.0
    ticket: int = 0
    silent: bool = False
    together: bool = True

    @property
    def order(self) -> tuple[float, int, str]:
        """Its place among those that want something."""
        return self.due, self.ticket, self.run


def contended(others: Iterable[Claim]) -> frozenset[Way]:
    """Where somebody wants something."""
    return frozenset(way for other in others if not other.silent for way, much in other.wanted.items() if much > 0)


def total(claims: Iterable[Claim]) -> dict[Way, int]:
    """What several hold together."""
    held: dict[Way, int] = {}
    for claim in claims:
        for way, much in claim.held.items():
            if much > 0:
                held[way] = held.get(way, 0) + much
    return held


def decide(
    mine: Claim, others: Iterable[Claim], bandwidth: Amounts, useful: Mapping[Way, int] | None = None
) -> dict[Way, int]:
    """What a run is given now.

    Who is first in order keeps from those behind it what it waits for: a small want behind a large one waits, or the
    large one would starve. With what is given all hold no more than the bandwidth together, with one exception: a
    want above the bandwidth is given when nobody holds anything there.

    :param others: not the run itself
    :param useful: what else it could use, given as far as there is some if nobody else wants anything
    :return: in each direction at least all that it wants, or nothing
    """
    wanted = positive(mine.wanted)
    if not wanted:
        return {}
    others, place = tuple(others), mine.order
    held, kept_back = total((mine, *others)), contended(other for other in others if other.order < place)
    free = {way: amount(bandwidth, way) - amount(held, way) for way in WAYS}
    given = {
        way: lacked
        for way, lacked in wanted.items()
        if way not in kept_back and (lacked <= free[way] or amount(held, way) == 0)
    }
    if not given or (mine.together and given != wanted):
        return {}
    more = useful if useful is not None and not contended(others) else {}
    return positive({way: max(amount(given, way), min(amount(more, way), free[way])) for way in WAYS})
