"""How long an owner may have more than its fair share of a storage while another waits. Pure.

An owner is a user: the runs of one user count as one, however many they are, and one cannot write in the name of
another. The fair share of an owner is the bandwidth through the number of owners that use the storage or wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
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
# Between two looks of the observer no more is counted: it may have been stopped.
_MOST_BETWEEN_LOOKS = 3.0


def stands_in_the_way(mine: Claim, others: Sequence[Claim], bandwidth: Amounts) -> frozenset[int]:
    """The other owners that keep a run from its fair share.

    Each has more than its own share of what the run waits for; or wants something before the run, whose owner has less
    than half of its share; or has anything, if the run waits for more than its share and its owner has nothing.
    """
    claims = (mine, *others)
    shares, owners = fair_shares(claims, bandwidth), by_owner(claims)
    own = owners.pop(mine.owner)
    found: set[int] = set()
    for way, wanted in positive(mine.wanted).items():
        share, has = shares[way], amount(own, way)
        if has >= share:
            continue
        most = 0 if is_large(wanted, has, share) else share
        found |= {owner for owner, held in owners.items() if amount(held, way) > most}
        if 2 * has < share:
            before = (other for other in others if not other.silent and other.order < mine.order)
            found |= {other.owner for other in before if amount(other.wanted, way) > 0 and other.owner != mine.owner}
    return frozenset(found)


def is_large(wanted: int, held: int, share: int) -> bool:
    """Whether a job needs more than there is in the fair share of its owner, which has nothing yet."""
    return held == 0 and wanted > share


@dataclass
class _Account:
    """What an observer knows of an owner.

    :ivar level: seconds for which the owner has kept the observer from its share, less those of use since then
    :ivar spell: for how long the owner has stood in the way, since that began
    :ivar longest: the longest spell that has ended
    :ivar has_overstayed: it counts no more beyond its share
    """

    level: float = 0.0
    spell: float = 0.0
    longest: float = 0.0
    has_overstayed: bool = False

    def in_the_way(self, passed: float, uses: bool, limit: float) -> None:
        """It has stood in the way for so long."""
        self.spell += passed
        if not self.has_overstayed:
            self.level += passed
        elif uses:
            self.level = max(0.0, self.level - passed)
        self.has_overstayed = self.has_overstayed or self.level >= limit

    def out_of_the_way(self, passed: float, uses: bool) -> None:
        """It has not."""
        self.longest, self.spell = max(self.longest, min(self.spell, MOST_SECONDS)), 0.0
        if uses:
            self.level = max(0.0, self.level - passed)
        self.has_overstayed = self.has_overstayed and self.level > 0


class Patience:
    """How long a run has been kept from its fair share, and by which owners.

    Guarantee: the time for which an owner keeps the run from its share is at most the time for which the owner of the
    run uses the storage, and once :func:`patience` more.
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
        before, self._before = self._before, stands_in_the_way(mine, others, bandwidth)
        if not self._before and not self._accounts:
            return
        uses = any(by_owner((mine, *others))[mine.owner].values())
        most = longest_wait(mine, others, bandwidth, seconds)
        for owner in self._before | self._accounts.keys():
            account = self._accounts.setdefault(owner, _Account())
            if owner in self._before:
                said = max(other.seconds for other in others if other.owner == owner)
                limit = max(GRACE_SECONDS, min(most, max(said, account.longest)))
                account.in_the_way(passed if owner in before else 0.0, uses, limit)
            else:
                account.out_of_the_way(passed, uses)


def longest_wait(mine: Claim, others: Sequence[Claim], bandwidth: Amounts, seconds: float) -> float:
    """For how many seconds a run may be kept from its fair share, whatever reasons others have.

    As long as its burst takes with that: then it has had at least half of its share when it ends.

    :param seconds: how long the burst takes alone
    """
    claims = (mine, *others)
    shares, own = fair_shares(claims, bandwidth), by_owner(claims)[mine.owner]
    most = 0.0
    for way, wanted in positive(mine.wanted).items():
        most = max(most, seconds * amount(bandwidth, way) / max(1, shares[way]))
        if is_large(wanted, amount(own, way), shares[way]):
            most = max(most, LARGE_SECONDS)
    return most
