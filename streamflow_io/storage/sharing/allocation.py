"""Who of those that use a storage may have what he wants."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from streamflow_io.hints.models import WAYS, Way
from streamflow_io.storage.admission.storages import Amounts

from .lease import amount, positive

# As long as it would take alone, so many times. From 3 to 10 there is no difference in simulations; 1 is first come,
# first served.
FACTOR = 3.0
#: Of a burst, or a job, of which nobody knows how long it takes: not 0, or it would be due before all others.
UNKNOWN_SECONDS = 1.0


def due(asked: float, seconds: float) -> float:
    """When a burst is due.

    :param asked: when it began
    :param seconds: how long it takes if the storage is its alone; 0: not known
    """
    return asked + FACTOR * (seconds if math.isfinite(seconds) and seconds > 0 else UNKNOWN_SECONDS)


def takes(asked: float, due: float) -> float:
    """How long a burst takes alone, by when it is due; 0: not known."""
    return max(0.0, (due - asked) / FACTOR)


# Tickets of others are believed up to here.
LAST_TICKET = 2**53


@dataclass(frozen=True)
class Tenant:
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


def contended(others: Iterable[Tenant]) -> frozenset[Way]:
    """Where somebody wants something."""
    return frozenset(way for other in others if not other.silent for way, much in other.wanted.items() if much > 0)


def total(tenants: Iterable[Tenant]) -> dict[Way, int]:
    """What several hold together."""
    held: dict[Way, int] = {}
    for tenant in tenants:
        for way, much in tenant.held.items():
            if much > 0:
                held[way] = held.get(way, 0) + much
    return held


def by_owner(tenants: Iterable[Tenant]) -> dict[int, dict[Way, int]]:
    """What the runs of each owner hold together."""
    held: dict[int, dict[Way, int]] = {}
    for tenant in tenants:
        of_owner = held.setdefault(tenant.owner, {})
        for way, much in tenant.held.items():
            if much > 0:
                of_owner[way] = of_owner.get(way, 0) + much
    return held


def fair_shares(tenants: Collection[Tenant], bandwidth: Amounts) -> dict[Way, int]:
    """What each owner may have of the bandwidth, of those that use it or wait for it."""
    shares: dict[Way, int] = {}
    for way in WAYS:
        owners = {
            tenant.owner
            for tenant in tenants
            if amount(tenant.held, way) > 0 or (amount(tenant.wanted, way) > 0 and not tenant.silent)
        }
        shares[way] = amount(bandwidth, way) // max(1, len(owners))
    return shares


def decide(
    mine: Tenant,
    others: Iterable[Tenant],
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
    :param overstayed: other owners that have had more than their share for too long; see :class:`Patience`
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


def _free(mine: Tenant, others: tuple[Tenant, ...], bandwidth: Amounts, overstayed: Collection[int]) -> dict[Way, int]:
    tenants = (mine, *others)
    if not overstayed:
        held = total(tenants)
        return {way: amount(bandwidth, way) - amount(held, way) for way in WAYS}
    shares, owners = fair_shares(tenants, bandwidth), by_owner(tenants)
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


#: So long each owner may stand in the way, whatever it says: a run may be told late that another waits.
GRACE_SECONDS = 5.0
#: For a job that needs more than its fair share a run waits so long, if others have reasons.
LARGE_SECONDS = 30.0
#: The longest time that an owner may need because it has needed it before.
MOST_SECONDS = 600.0
# So many times as long as it says, or as it has needed before, an owner may stand in the way: others wait, too.
_TIMES = 2.0
# For each second for which an observer has used the storage, so much of what it has waited counts no more.
_FORGIVEN = 0.25
# Between two looks of the observer no more is counted: it may have been stopped.
_MOST_BETWEEN_LOOKS = 3.0


def stands_in_the_way(
    mine: Tenant, others: Sequence[Tenant], bandwidth: Amounts, overstayed: Collection[int] = ()
) -> frozenset[int]:
    """The other owners that keep a run from its fair share.

    Each has more than its own share of what the run waits for; or has anything, if the run waits for more than its
    share and its owner has nothing. Where there is no such owner but those that have overstayed, it is each that wants
    something before the run, whose owner has less than half of its share.
    """
    if all(other.owner == mine.owner for other in others):
        return frozenset()
    shares, owners = fair_shares((mine, *others), bandwidth), by_owner((mine, *others))
    own = owners.pop(mine.owner)
    found: set[int] = set()
    for way, wanted in positive(mine.wanted).items():
        share, has = shares[way], amount(own, way)
        if has >= share:
            continue
        most = 0 if is_large(wanted, has, share) else share
        holders = {owner for owner, held in owners.items() if amount(held, way) > most}
        found |= holders
        if 2 * has < share and holders <= {*overstayed}:
            before = (other for other in others if not other.silent and other.order < mine.order)
            found |= {other.owner for other in before if amount(other.wanted, way) > 0 and other.owner != mine.owner}
    return frozenset(found)


def is_large(wanted: int, held: int, share: int) -> bool:
    """Whether a job needs more than there is in the fair share of its owner, which has nothing yet."""
    return held == 0 and wanted > share


@dataclass
class _Account:
    """What an observer knows of an owner.

    :ivar level: seconds for which the owner has kept the observer from its share, less a part of its use since then
    :ivar spell: for how long the owner has stood in the way, until it gives way
    :ivar longest: the longest spell that has ended
    :ivar has_overstayed: it counts no more beyond its share
    """

    level: float = 0.0
    spell: float = 0.0
    longest: float = 0.0
    has_overstayed: bool = False

    def in_the_way(self, passed: float, most: float, said: float) -> None:
        """It has stood in the way for so long.

        :param most: for how many seconds it may, whatever reasons it has
        :param said: how long its bursts take
        """
        self.spell += passed
        if not self.has_overstayed:
            self.level += passed
            self.has_overstayed = self.level >= max(GRACE_SECONDS, min(most, _TIMES * max(said, self.longest)))

    def gives_way(self) -> None:
        """It has no more than its share, and keeps back nobody."""
        self.longest, self.spell = max(self.longest, min(self.spell, MOST_SECONDS)), 0.0
        self.has_overstayed = self.has_overstayed and self.level > 0


class Patience:
    """How long a run has been kept from its fair share, and by which owners.

    Guarantee: an owner keeps the run from its share for at most a quarter of the time for which the owner of the run
    uses the storage, and once for the time that it may stand in the way.
    """

    def __init__(self) -> None:
        self._accounts: dict[int, _Account] = {}
        self._last = inf
        self._before: frozenset[int] = frozenset()

    @property
    def overstayed(self) -> frozenset[int]:
        """The owners that count no more beyond their share."""
        return frozenset(owner for owner, account in self._accounts.items() if account.has_overstayed)

    def look(self, mine: Tenant, others: Sequence[Tenant], bandwidth: Amounts, seconds: float, now: float) -> None:
        """Look at what all hold and want.

        :param seconds: how long the burst of the run takes if the storage is its alone
        :param now: of a clock that never goes back
        """
        passed, self._last = max(0.0, min(now - self._last, _MOST_BETWEEN_LOOKS)), now
        before, self._before = self._before, stands_in_the_way(mine, others, bandwidth, self.overstayed)
        if not self._before and not self._accounts:
            return
        shares, owners = fair_shares((mine, *others), bandwidth), by_owner((mine, *others))
        uses = any(owners[mine.owner].values())
        most = longest_wait(mine, others, bandwidth, seconds)
        for owner in self._before | self._accounts.keys():
            account, blocks = self._accounts.setdefault(owner, _Account()), owner in self._before
            if uses and (account.has_overstayed or not blocks):
                account.level = max(0.0, account.level - passed * _FORGIVEN)
            if blocks:
                said = max(other.seconds for other in others if other.owner == owner)
                account.in_the_way(passed if owner in before else 0.0, most, said)
            elif all(much <= shares[way] for way, much in owners.get(owner, {}).items()):
                account.gives_way()


def longest_wait(mine: Tenant, others: Sequence[Tenant], bandwidth: Amounts, seconds: float) -> float:
    """For how many seconds a run may be kept from its fair share, whatever reasons others have.

    Then the run has had at least half of its share when its burst ends: with its share the burst takes so long, and so
    much longer for what it has waited.

    :param seconds: how long the burst takes alone
    """
    tenants = (mine, *others)
    shares, own = fair_shares(tenants, bandwidth), by_owner(tenants)[mine.owner]
    most = 0.0
    for way, wanted in positive(mine.wanted).items():
        most = max(most, (1 - _FORGIVEN) * seconds * amount(bandwidth, way) / max(1, shares[way]))
        if is_large(wanted, amount(own, way), shares[way]):
            most = max(most, LARGE_SECONDS)
    return most
