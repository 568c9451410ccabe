"""How long an owner may have more than its fair share of a storage while another waits.

An owner is a user: the runs of one user count as one, however many they are, and one cannot write in the name of
another. The fair share of an owner is the bandwidth through the number of owners that use the storage or wait for it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf

from streamflow_io.admission.storages import Amounts

from .table import Claim, by_owner, fair_shares
from .wish import amount, positive

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
    mine: Claim, others: Sequence[Claim], bandwidth: Amounts, overstayed: Collection[int] = ()
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

    def look(self, mine: Claim, others: Sequence[Claim], bandwidth: Amounts, seconds: float, now: float) -> None:
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


def longest_wait(mine: Claim, others: Sequence[Claim], bandwidth: Amounts, seconds: float) -> float:
    """For how many seconds a run may be kept from its fair share, whatever reasons others have.

    Then the run has had at least half of its share when its burst ends: with its share the burst takes so long, and so
    much longer for what it has waited.

    :param seconds: how long the burst takes alone
    """
    claims = (mine, *others)
    shares, own = fair_shares(claims, bandwidth), by_owner(claims)[mine.owner]
    most = 0.0
    for way, wanted in positive(mine.wanted).items():
        most = max(most, (1 - _FORGIVEN) * seconds * amount(bandwidth, way) / max(1, shares[way]))
        if is_large(wanted, amount(own, way), shares[way]):
            most = max(most, LARGE_SECONDS)
    return most
