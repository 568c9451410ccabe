"""Requests of runs for a storage that they share, and the allocation of its bandwidth among them.

Amounts are whole numbers of bytes per second.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf

from msgspec import Struct, field

from streamflow_io.grouping import grouped
from streamflow_io.hints.models import WAYS, Way
from streamflow_io.storage.admission.demand import Amounts


def amount(amounts: Amounts, way: Way) -> int:
    """Return the amount in one direction, or 0 if there is no entry."""
    return amounts.get(way, 0)


def plus(one: Amounts, other: Amounts) -> dict[Way, int]:
    """Return the sum in each direction, without zeros."""
    return positive({way: amount(one, way) + amount(other, way) for way in WAYS})


def positive(amounts: Amounts) -> dict[Way, int]:
    """Return the entries with a positive amount."""
    return {way: much for way, much in amounts.items() if much > 0}


class LeaseRequest(Struct, frozen=True):
    """All that a run wants of a storage at one moment. Each request replaces the one before.

    :ivar kept: bandwidth that the run keeps of its leases, at least what its running jobs use. Kept bandwidth is never
        taken away. Other held bandwidth goes back, except what leases after `seen` gave
    :ivar lacks: what the first waiting job lacks beyond `kept`. The job gets all of it, or nothing. Empty: no job waits
    :ivar together: one job lacks both directions, and they are given at once. Otherwise the directions belong to two
        jobs, and one may be given first
    :ivar useful: what all waiting jobs could use beyond `kept`, at least `lacks`. Given only while no other run wants
        anything
    :ivar seconds: how long the jobs of this burst, ended ones included, take if they have the storage for themselves.
        0: not known
    :ivar seen: the number of the last lease that the run has received. 0: none
    :ivar began: when this burst began, on the wall clock. Only with `lacks`
    """

    kept: Amounts = field(default_factory=dict)
    lacks: Amounts = field(default_factory=dict)
    together: bool = False
    useful: Amounts = field(default_factory=dict)
    seconds: float = 0.0
    seen: int = 0
    began: float = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether the run uses nothing, and waits for nothing."""
        return not positive(self.kept) and not positive(self.lacks)


class Lease(Struct, frozen=True):
    """The bandwidth that a run may use of a storage from now on.

    :ivar number: from 1, one more with each lease
    :ivar given: what the run may use beyond what it kept. The run adds it to what it holds, which may be less by now
        than at its request. For a single job the amount may be above the bandwidth. Empty: only `others`, `bandwidth`
        or `contended` has changed
    :ivar others: what other runs hold
    :ivar bandwidth: the storage's bandwidth, for all runs
    :ivar contended: the directions in which another run wants something. There, what a job returns goes back first
    """

    number: int
    given: Amounts
    others: Amounts
    bandwidth: Amounts
    contended: frozenset[Way] = frozenset()


# A burst is due after this many times its own duration. Values from 3 to 10 show no difference in simulations; 1 is
# first come, first served.
FACTOR = 3.0
#: Duration of a burst or job of unknown length. Not 0, or the burst would be due before all others.
UNKNOWN_SECONDS = 1.0


def due(asked: float, seconds: float) -> float:
    """Return when a burst is due.

    :param asked: when the burst began
    :param seconds: how long the burst takes if it has the storage for itself. 0: not known
    """
    return asked + FACTOR * (seconds if math.isfinite(seconds) and seconds > 0 else UNKNOWN_SECONDS)


def takes(asked: float, due: float) -> float:
    """Return how long a burst takes alone, from the time when it is due. 0: not known."""
    return max(0.0, (due - asked) / FACTOR)


# Upper limit for tickets of other runs.
LAST_TICKET = 2**53


class Tenant(Struct, frozen=True):
    """A run with the bandwidth that it holds of a storage, and wants of it.

    :ivar run: identifies the run
    :ivar held: bandwidth that the run may use
    :ivar wanted: bandwidth that the run waits for. Empty: the run waits for nothing
    :ivar due: when the run should have the bandwidth, in seconds of some clock. The earliest is served first
    :ivar ticket: order of asking, among runs that are due at the same time
    :ivar silent: the run has not been heard of for a while, and holds back no other run
    :ivar together: the run needs all that it wants, in both directions, at once. Otherwise one direction may be given
        first
    :ivar owner: the owner of the run. All runs of an owner count as one where a share has to be fair
    :ivar seconds: how long the burst takes if it has the storage for itself, as the run says
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
        """The sort key of the run among those that want something."""
        return self.due, self.ticket, self.run


def contended(others: Iterable[Tenant]) -> frozenset[Way]:
    """Return the directions in which some run wants bandwidth."""
    return frozenset(way for other in others if not other.silent for way, much in other.wanted.items() if much > 0)


def total(tenants: Iterable[Tenant]) -> dict[Way, int]:
    """Return the bandwidth that several runs hold together."""
    held: dict[Way, int] = {}
    for tenant in tenants:
        for way, much in tenant.held.items():
            if much > 0:
                held[way] = held.get(way, 0) + much
    return held


def by_owner(tenants: Iterable[Tenant]) -> dict[int, dict[Way, int]]:
    """Return the bandwidth that the runs of each owner hold together."""
    return {owner: total(runs) for owner, runs in grouped(tenants, lambda tenant: tenant.owner).items()}


def fair_shares(tenants: Collection[Tenant], bandwidth: Amounts) -> dict[Way, int]:
    """Return the bandwidth that each owner may have, if all owners that use it or wait for it have the same."""
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
    """Return what a run is given now.

    Each run keeps what it waits for from the runs behind it in order. So a small want behind a large one waits;
    otherwise the large one would starve. With the result, all runs together hold no more than the bandwidth, with one
    exception: a want above the bandwidth is given when no run holds anything in that direction.

    Owners that have overstayed keep nothing from others, and what they hold counts only up to their fair share. In a
    direction where they hold more, or wait, the run is given nothing beyond the share of its own owner. Only a single
    job may be above.

    :param others: all runs but this one
    :param useful: what else the run could use; given as far as it is free, if no other run wants anything
    :param overstayed: other owners that have had more than their share for too long; see :class:`Patience`
    :return: in each direction at least all that the run wants, or nothing
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


#: Seconds for which each owner may stand in the way, whatever it says: a run may be told late that another waits.
GRACE_SECONDS = 5.0
#: Seconds that a run waits for a job that needs more than its fair share, if others have reasons.
LARGE_SECONDS = 30.0
#: The longest time that an owner may need because it has needed it before.
MOST_SECONDS = 600.0
# An owner may stand in the way for this many times its stated or earlier duration: other runs wait, too.
_TIMES = 2.0
# For each second of use of the storage, an observer forgives this part of a second of its waiting time.
_FORGIVEN = 0.25
# At most this time is counted between two looks of the observer, which may have been stopped.
_MOST_BETWEEN_LOOKS = 3.0


def stands_in_the_way(
    mine: Tenant, others: Sequence[Tenant], bandwidth: Amounts, overstayed: Collection[int] = ()
) -> frozenset[int]:
    """Return the other owners that keep a run from its fair share.

    An owner does so if it has more than its own share in a direction that the run waits for. If the run waits for more
    than its share and its owner has nothing, each owner that has anything does so.

    All of these may have overstayed, and the run's owner may have less than half of its share. Then the owners of
    waiting runs count, too, if these runs come before this run in order.
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
    """Whether a job needs more than the fair share of its owner, which has nothing yet."""
    return held == 0 and wanted > share


class _ObservedOwner(Struct):
    """The observer's record of an owner.

    :ivar level: seconds for which the owner has kept the observer from its share, less a part of the observer's use
        since then
    :ivar spell: how long the owner has stood in the way, until it gives way
    :ivar longest: the longest spell that has ended
    :ivar has_overstayed: the owner does not count beyond its share any more
    """

    level: float = 0.0
    spell: float = 0.0
    longest: float = 0.0
    has_overstayed: bool = False

    def in_the_way(self, passed: float, most: float, said: float) -> None:
        """Add time for which the owner has stood in the way.

        :param most: for how many seconds the owner may do so, whatever reasons it has
        :param said: how long its bursts take
        """
        self.spell += passed
        if not self.has_overstayed:
            self.level += passed
            self.has_overstayed = self.level >= max(GRACE_SECONDS, min(most, _TIMES * max(said, self.longest)))

    def gives_way(self) -> None:
        """End the spell: the owner has no more than its share, and holds back no other owner."""
        self.longest, self.spell = max(self.longest, min(self.spell, MOST_SECONDS)), 0.0
        self.has_overstayed = self.has_overstayed and self.level > 0


class Patience:
    """How long a run has been kept from its fair share, and by which owners.

    Guarantee: an owner keeps the run from its share for at most a quarter of the time for which the run's owner uses
    the storage. Once, the time is added for which the owner may stand in the way.
    """

    def __init__(self) -> None:
        self._accounts: dict[int, _ObservedOwner] = {}
        self._last = inf
        self._before: frozenset[int] = frozenset()

    @property
    def overstayed(self) -> frozenset[int]:
        """The owners that do not count beyond their share any more."""
        return frozenset(owner for owner, account in self._accounts.items() if account.has_overstayed)

    def look(self, mine: Tenant, others: Sequence[Tenant], bandwidth: Amounts, seconds: float, now: float) -> None:
        """Look at what all runs hold and want.

        :param seconds: how long the burst of the run takes if it has the storage for itself
        :param now: seconds of a clock that never goes back
        """
        passed, self._last = max(0.0, min(now - self._last, _MOST_BETWEEN_LOOKS)), now
        before, self._before = self._before, stands_in_the_way(mine, others, bandwidth, self.overstayed)
        if not self._before and not self._accounts:
            return
        shares, owners = fair_shares((mine, *others), bandwidth), by_owner((mine, *others))
        uses = any(owners[mine.owner].values())
        most = longest_wait(mine, others, bandwidth, seconds)
        for owner in self._before | self._accounts.keys():
            account, blocks = self._accounts.setdefault(owner, _ObservedOwner()), owner in self._before
            if uses and (account.has_overstayed or not blocks):
                account.level = max(0.0, account.level - passed * _FORGIVEN)
            if blocks:
                said = max(other.seconds for other in others if other.owner == owner)
                account.in_the_way(passed if owner in before else 0.0, most, said)
            elif all(much <= shares[way] for way, much in owners.get(owner, {}).items()):
                account.gives_way()


def longest_wait(mine: Tenant, others: Sequence[Tenant], bandwidth: Amounts, seconds: float) -> float:
    """Return how many seconds a run may be kept from its fair share, whatever reasons others have.

    With this limit, the run has had at least half of its share when its burst ends. With its share the burst takes this
    time, and it takes as much longer as it has waited.

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
