"""Bandwidth that a run holds and wants of a storage, from look to look."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from streamflow_io.hints.models import Way
from streamflow_io.storage.admission.demand import Amounts

from .allocation import (
    LAST_TICKET,
    Lease,
    LeaseRequest,
    Patience,
    Tenant,
    contended,
    decide,
    due,
    plus,
    positive,
    total,
)
from .turns import BurstDelay, Turns


class Participant:
    """A run among the runs that use a storage.

    Guarantee: all runs together use no more than the bandwidth, under two conditions. Each run calls :meth:`look` with
    the bandwidth that all others hold at that moment. Each run uses no more than it keeps and is given. See
    :func:`.allocation.decide` for a want above the bandwidth, and :class:`.allocation.Patience` for owners that keep
    others from their share.

    :param run: identifies the run
    :param owner: the owner of the run
    :ivar turns: the turns of the bursts of the run. None: each burst asks for bandwidth at once
    :ivar watches: report each change of the bandwidth that others hold. Otherwise only its first and last change
    """

    def __init__(self, run: str, owner: int = 0) -> None:
        self._run = run
        self._owner = owner
        self._patience = Patience()
        self.turns: Turns | None = None
        self.watches = False
        self._request = LeaseRequest()
        self._asked: float | None = None
        self._lease: Lease | None = None
        # The amounts of the leases since the last request, by the number of the lease.
        self._untold: dict[int, Amounts] = {}
        self._ticket = 0
        self._held: dict[Way, int] = {}
        self._wanted: dict[Way, int] = {}

    def request(self, request: LeaseRequest) -> None:
        """Set what the run wants from now on."""
        self._request = request
        if request.is_empty:
            self._asked = None
            if self.turns is not None:
                self.turns.end()
        elif request.lacks and self._asked != request.began:
            self._asked = request.began
            if self.turns is not None:
                self.turns.begin(request.began)

    @property
    def hold(self) -> BurstDelay | None:
        """The turn of the burst that has begun. None: the burst asks for bandwidth at once."""
        return None if self.turns is None else self.turns.hold

    @property
    def tenant(self) -> Tenant:
        """The bandwidth that the run held and wanted after the last look."""
        together = self._request.together
        return Tenant(self._run, self._held, self._wanted, self.due, self._ticket, together=together, owner=self._owner)

    @property
    def overstayed(self) -> frozenset[int]:
        """The other owners that do not count beyond their fair share any more."""
        return self._patience.overstayed

    @property
    def asked(self) -> float:
        """When the burst of the run began. 0: there is none."""
        return self._asked or 0.0

    @property
    def due(self) -> float:
        """When the burst of the run should have its turn. 0: there is none."""
        if self._asked is None:
            return 0.0
        return due(self._asked, self._request.seconds) if self.hold is None else self.hold.due

    def look(self, others: Sequence[Tenant], bandwidth: Amounts, now: float = inf, passed: float = 0.0) -> Lease | None:
        """Return held bandwidth that is not kept, and take the bandwidth that is available.

        :param others: all other runs
        :param bandwidth: the storage's bandwidth
        :param now: seconds on the wall clock
        :param passed: seconds of a clock that never goes back
        :return: the bandwidth that the run may use from now on. None: nothing has changed for the run
        """
        request, last = self._request, 0 if self._lease is None else self._lease.number
        self._untold = {number: given for number, given in self._untold.items() if number > request.seen}
        untold: dict[Way, int] = {}
        for given in self._untold.values():
            untold = plus(untold, given)
        self._held = plus(request.kept, untold)
        is_held_back = self.hold is not None and now < self.hold.until
        lacks = {} if is_held_back else positive(request.lacks)
        self._wanted = {way: lacked for way, lacked in lacks.items() if way not in untold}
        if not self._wanted:
            self._ticket = 0
        elif self._ticket == 0:
            self._ticket = min(LAST_TICKET, 1 + max((other.ticket for other in others), default=0))
        self._patience.look(self.tenant, others, bandwidth, request.seconds, passed)
        if given := decide(self.tenant, others, bandwidth, {} if untold else request.useful, self.overstayed):
            self._held = plus(self._held, given)
            self._wanted = {way: lacked for way, lacked in self._wanted.items() if way not in given}
            self._ticket = self._ticket if self._wanted else 0
            self._untold[last + 1] = given
        return self._tell(Lease(last + 1, given, total(others), bandwidth, contended(others)))

    def leave(self) -> bool:
        """Return all that is held, if the run requests nothing any more. Needs no look at what others hold.

        Does nothing if the run was given something since its request, or watches: then the run has to look.

        :return: whether all was returned
        """
        if not self._request.is_empty or self.watches or any(number > self._request.seen for number in self._untold):
            return False
        self._untold.clear()
        self._held, self._wanted, self._ticket = {}, {}, 0
        return True

    def _tell(self, lease: Lease) -> Lease | None:
        last = self._lease
        if not lease.given and last is not None and self._is_known(last, lease):
            return None
        self._lease = lease
        return lease

    def _is_known(self, last: Lease, lease: Lease) -> bool:
        has_changed = self.watches and positive(last.others) != positive(lease.others)
        return not has_changed and _situation(last) == _situation(lease)


def _situation(lease: Lease) -> tuple[Amounts, frozenset[Way], frozenset[Way]]:
    """Return the facts about others that a run is told at once. The amounts that they hold come with the next lease."""
    return lease.bandwidth, lease.contended, frozenset(positive(lease.others))
