"""Bandwidth that a run holds of a shared storage, and its next request."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Hashable, Iterable
from statistics import median

from msgspec import Struct

from streamflow_io.hints.models import WAYS, Way
from streamflow_io.storage.admission.demand import Amounts, Queued

from .allocation import UNKNOWN_SECONDS, Lease, LeaseRequest, amount, plus, positive

#: The duration of a step's jobs is estimated from this many of the last ones.
LAST_JOBS = 32


class _LeasedJob(Struct, frozen=True):
    step: str
    amount: int
    started: float


def expected_seconds(took: Collection[float]) -> float:
    """Return how long the next job of a step will take.

    :param took: seconds of the last jobs
    """
    return median(took) if took else UNKNOWN_SECONDS


class LeaseBurst:
    """The jobs of a run on one storage, from when the first of them waits until none runs or waits.

    Ended jobs count, so that a burst does not become shorter while it goes on.
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, _LeasedJob] = {}
        self._took: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=LAST_JOBS))
        # Bytes that the ended jobs of this burst were to move.
        self._ended = 0.0
        self._began = 0.0

    def started(self, job: Hashable, step: str, amount: int, now: float) -> None:
        """Add a job with an amount of bytes per second.

        :param now: seconds of a clock that never goes back
        """
        self._running[job] = _LeasedJob(step, amount, now)

    def ended(self, job: Hashable, now: float) -> float | None:
        """Remove a job that has ended.

        :param now: seconds of a clock that never goes back
        :return: when the job had started. None: the job had no bandwidth
        """
        if (one := self._running.pop(job, None)) is None:
            return None
        self._took[one.step].append(now - one.started)
        self._ended += one.amount * self._expected(one.step)
        return one.started

    def returned(self, job: Hashable) -> None:
        """Remove a job that has given back its bandwidth and waits again."""
        self._running.pop(job, None)

    @property
    def is_idle(self) -> bool:
        """Whether no job of the burst runs."""
        return not self._running

    def began(self, is_waiting: bool, now: float) -> float:
        """Return when the burst began: since then the run uses the storage, or waits for it. 0: no burst.

        Leases do not count: a run that keeps a lease through a pause has a new burst after the pause.

        :param is_waiting: a job of the run lacks bandwidth
        :param now: seconds on the wall clock
        """
        if self.is_idle and not is_waiting:
            self._began = 0.0
        elif not self._began:
            self._began = now
        return self._began

    def over(self) -> bool:
        """End the burst: no job runs or waits.

        :return: whether any job has ended since the last call
        """
        had_any, self._ended = self._ended > 0, 0.0
        return had_any

    def seconds(self, queued: Iterable[Queued], bandwidth: int) -> float:
        """Return how long all jobs of the burst take together, if no other run uses the storage.

        :param queued: the jobs that wait
        :param bandwidth: the storage's bandwidth, in bytes per second
        """
        amounts: Counter[str] = Counter()
        for job in self._running.values():
            amounts[job.step] += job.amount
        running = sum(amount * self._expected(step) for step, amount in amounts.items())
        queue = sum(one.amount * one.jobs * self._expected(one.step) for one in queued)
        return (self._ended + running + queue) / bandwidth

    def _expected(self, step: str) -> float:
        return expected_seconds(self._took[step])


#: Seconds after which bandwidth that no job uses goes back.
UNUSED_SECONDS = 1.0


class LeaseHolder:
    """A run's side of its leases of one storage.

    Whenever something has happened, in this order: call :meth:`returned`; let jobs start with the bandwidth that is
    :attr:`held`; call :meth:`settle`.

    While no other run wants anything, the next job may use at once what a job returns. Otherwise returned bandwidth
    goes back first, so that the run with the longest queue does not keep the storage.

    Guarantee: `held` is at least what jobs use, and at most what the last lease or a later request has said.
    """

    def __init__(self) -> None:
        self.held: Amounts = {}
        self._used: Amounts = {}
        self._contended: frozenset[Way] = frozenset()
        self._seen = 0
        self._requested = LeaseRequest()
        # Since when the run holds something that no job uses.
        self._unused_since: float | None = None

    def told(self, lease: Lease, now: float) -> None:
        """Receive a lease.

        :param now: as for :meth:`settle`
        """
        self._seen, self._contended = lease.number, lease.contended
        self.held = plus(self.held, lease.given)
        if lease.given:
            self._unused_since = now

    def returned(self, used: Amounts) -> None:
        """Give back what ended jobs had, in directions where other runs want it.

        :param used: what jobs have now
        """
        freed = {way: max(0, amount(self._used, way) - amount(used, way)) for way in self._contended}
        self.held = {way: max(amount(used, way), amount(self.held, way) - amount(freed, way)) for way in WAYS}
        self._used = used

    def over(self) -> None:
        """Give back all that no job uses. A burst is over, and the next one may be held back."""
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
    ) -> LeaseRequest | None:
        """Compute the next request. Call when all jobs have started that can.

        :param used: what jobs have now
        :param needed: what the first waiting jobs need beyond `used`
        :param useful: what all waiting jobs could use beyond `used`, at least `needed`
        :param together: one job needs both directions
        :param seconds: see :class:`~.lease.LeaseRequest`
        :param now: seconds of a clock that never goes back
        :param began: see :class:`~.lease.LeaseRequest`
        :return: the request. None: the same as before
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
        request = LeaseRequest(positive(self.held), seen=self._seen)
        if lacks:
            more = positive({way: amount(useful, way) - free[way] for way in WAYS})
            request = LeaseRequest(positive(self.held), lacks, together, more, seconds, self._seen, began)
        if request == self._requested:
            return None
        self._requested = request
        return request

    def _let_go(self, used: Amounts, needed: Amounts, together: bool) -> None:
        """Give back free bandwidth in directions where it is not enough for the waiting job.

        Another run may wait for just this bandwidth, and hold the rest.
        """
        short = {way for way in WAYS if amount(needed, way) > amount(self.held, way) - amount(used, way)}
        if short and together:
            short = {*WAYS}
        self.held = {way: amount(used if way in short else self.held, way) for way in WAYS}

    @property
    def is_idle(self) -> bool:
        """Whether jobs use all that the run holds, so that passing time changes nothing."""
        return self._unused_since is None
