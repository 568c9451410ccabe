"""What a run holds of a shared storage, and what it wishes next."""

from __future__ import annotations

from streamflow_io.admission.storages import Amounts
from streamflow_io.hints.models import WAYS, Way

from .wish import Lease, Wish, amount, plus, positive

#: Seconds after which what nobody uses goes back.
UNUSED_SECONDS = 1.0


class Holding:
    """A run's side of what it was given of one storage.

    In this order, whenever something has happened: :meth:`returned`; let jobs start with what is :attr:`held`;
    :meth:`settle`.

    What a job returns may be used by the next one at once, as long as no other run wants anything. Else it goes back
    first, so that the run with the longest queue does not keep the storage.

    Guarantee: what is held is at most what the last lease or a later wish has said, and never less than what is used.
    """

    def __init__(self) -> None:
        self.held: Amounts = {}
        self._used: Amounts = {}
        self._contended: frozenset[Way] = frozenset()
        self._seen = 0
        self._wished = Wish()
        # Since when something is held that nobody uses.
        self._unused_since: float | None = None

    def told(self, lease: Lease, now: float) -> None:
        """The run was given something, or others want something now that did not."""
        self._seen, self._contended = lease.number, lease.contended
        self.held = plus(self.held, lease.given)
        if lease.given:
            self._unused_since = now

    def returned(self, used: Amounts) -> None:
        """Jobs have ended, maybe: what they had is for others first, where others want it.

        :param used: what jobs have now
        """
        freed = {way: max(0, amount(self._used, way) - amount(used, way)) for way in self._contended}
        self.held = {
            way: max(amount(used, way), amount(self.held, way) - freed[way] if way in freed else amount(self.held, way))
            for way in WAYS
        }
        self._used = used

    def over(self) -> None:
        """A burst is over, and the next one may be held back: what nobody uses is not kept for it."""
        self.held, self._unused_since = self._used, None

    def settle(
        self,
        used: Amounts,
        needed: Amounts,
        useful: Amounts,
        together: bool,
        seconds: float,
        now: float,
        began: float = 0.0,
    ) -> Wish | None:
        """All that can start has started.

        :param used: what jobs have now
        :param needed: beyond it, what the first that wait need
        :param useful: beyond it, what all that wait could use, at least what is needed
        :param together: what is needed in both directions is for one job
        :param seconds: see :class:`~.wish.Wish`; :param began: the same
        :return: what is to be wished; none: nothing new
        """
        self._used = used
        self._let_go(used, needed, together)
        unused = any(amount(self.held, way) > amount(used, way) for way in WAYS)
        if not unused:
            self._unused_since = None
        elif self._unused_since is None:
            self._unused_since = now
        elif now - self._unused_since >= UNUSED_SECONDS:
            self.held, self._unused_since = used, None
        free = {way: amount(self.held, way) - amount(used, way) for way in WAYS}
        lacks = positive({way: amount(needed, way) - free[way] for way in WAYS})
        wish = Wish(positive(self.held), seen=self._seen)
        if lacks:
            more = positive({way: amount(useful, way) - free[way] for way in WAYS})
            wish = Wish(positive(self.held), lacks, together, more, seconds, self._seen, began)
        if wish == self._wished:
            return None
        self._wished = wish
        return wish

    def _let_go(self, used: Amounts, needed: Amounts, together: bool) -> None:
        """Who needs more than is free waits with nothing: another run may wait for just that, and hold the rest."""
        short = {way for way in WAYS if amount(needed, way) > amount(self.held, way) - amount(used, way)}
        if short and together:
            short = {*WAYS}
        self.held = {way: amount(used if way in short else self.held, way) for way in WAYS}

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held that nobody uses: time changes nothing."""
        return self._unused_since is None
