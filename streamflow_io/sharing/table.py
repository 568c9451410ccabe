"""Who of those that use a storage may have what he wants. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from streamflow_io.admission.storages import Amounts
from streamflow_io.hints.models import WAYS, Way

from .wish import amount, positive

# Tickets of others are believed up to here.
LAST_TICKET = 2**53


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
    :ivar owner: whose run it is: all runs of an owner count as one where a share has to be fair
    :ivar seconds: how long its burst takes if the storage is its alone, as it says
    """

    run: str
    held: Amounts = field(default_factory=dict)
    wanted: Amounts = field(default_factory=dict)
    due: float = 0.0
    ticket: int = 0
    silent: bool = False
    together: bool = True
    owner: int = 0
    seconds: float = 0.0

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


def by_owner(claims: Iterable[Claim]) -> dict[int, dict[Way, int]]:
    """What the runs of each owner hold together."""
    held: dict[int, dict[Way, int]] = {}
    for claim in claims:
        of_owner = held.setdefault(claim.owner, {})
        for way, much in claim.held.items():
            if much > 0:
                of_owner[way] = of_owner.get(way, 0) + much
    return held


def fair_shares(claims: Collection[Claim], bandwidth: Amounts) -> dict[Way, int]:
    """What each owner may have of the bandwidth, of those that use it or wait for it."""
    shares: dict[Way, int] = {}
    for way in WAYS:
        owners = {
            claim.owner
            for claim in claims
            if amount(claim.held, way) > 0 or (amount(claim.wanted, way) > 0 and not claim.silent)
        }
        shares[way] = amount(bandwidth, way) // max(1, len(owners))
    return shares


def decide(
    mine: Claim,
    others: Iterable[Claim],
    bandwidth: Amounts,
    useful: Mapping[Way, int] | None = None,
    overstayed: Collection[int] = (),
) -> dict[Way, int]:
    """What a run is given now.

    Who is first in order keeps from those behind it what it waits for: a small want behind a large one waits, or the
    large one would starve. With what is given all hold no more than the bandwidth together, with one exception: a
    want above the bandwidth is given when nobody holds anything there.

    Owners that have overstayed keep nothing from others, and what they hold counts only up to their fair share. Where
    they hold more, or wait, the run is given nothing beyond the share of its own owner; only a single job may be above.

    :param others: not the run itself
    :param useful: what else it could use, given as far as there is some if nobody else wants anything
    :param overstayed: other owners that have had more than their share for too long; see :mod:`.fairness`
    :return: in each direction at least all that it wants, or nothing
    """
    wanted = positive(mine.wanted)
    if not wanted:
        return {}
    others, place = tuple(others), mine.order
    believed = tuple(other for other in others if other.owner not in overstayed)
    kept_back = contended(other for other in believed if other.order < place)
    held, free = total((mine, *believed)), _free(mine, others, bandwidth, overstayed)
    given = {
        way: lacked
        for way, lacked in wanted.items()
        if way not in kept_back and (lacked <= free[way] or amount(held, way) == 0)
    }
    if not given or (mine.together and given != wanted):
        return {}
    more = useful if useful is not None and not contended(others) else {}
    return positive({way: max(amount(given, way), min(amount(more, way), free[way])) for way in WAYS})


def _free(mine: Claim, others: tuple[Claim, ...], bandwidth: Amounts, overstayed: Collection[int]) -> dict[Way, int]:
    claims = (mine, *others)
    if not overstayed:
        held = total(claims)
        return {way: amount(bandwidth, way) - amount(held, way) for way in WAYS}
    shares, owners = fair_shares(claims, bandwidth), by_owner(claims)
    waits = contended(other for other in others if other.owner in overstayed)
    free: dict[Way, int] = {}
    for way in WAYS:
        counted, is_limited = 0, way in waits
        for owner, held in owners.items():
            much = amount(held, way)
            if owner in overstayed and much > shares[way]:
                much, is_limited = shares[way], True
            counted += much
        free[way] = amount(bandwidth, way) - counted
        if is_limited:
            free[way] = min(free[way], shares[way] - amount(owners[mine.owner], way))
    return free
