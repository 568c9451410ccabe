"""What a run holds of a shared storage, and what it requests next."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from statistics import median

from streamflow_io.hints.models import WAYS, Way
from streamflow_io.storage.admission.demand import Queued
from streamflow_io.storage.admission.storages import Amounts

from .allocation import UNKNOWN_SECONDS
from .lease import Lease, LeaseRequest, amount, plus, positive

#: So many of the last jobs of a step tell how long one takes.
LAST_JOBS = 32


@dataclass(frozen=True)
class _Running:
    step: str
    amount: int
    started: float


def expected_seconds(took: Collection[float]) -> float:
    """How long the next job of a step takes.

    :param took: seconds of the last ones
    """
    return median(took) if took else UNKNOWN_SECONDS


class LeaseBurst:
    """The jobs of a run on one storage, from when the first of them waits until none runs or waits.

    Those that have ended count: a burst does not become shorter while it goes on.
    """

    def __init__(self) -> None:
        self._running: dict[str, _Running] = {}
        # By step, of all that run: there may be thousands of jobs.
        self._amounts: Counter[str] = Counter()
        self._took: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=LAST_JOBS))
        # Bytes that jobs of this burst that have ended were to move.
        self._ended = 0.0
        self._began = 0.0

    def started(self, job: str, step: str, amount: int, now: float) -> None:
        """A job has so many bytes per second from now on."""
        self._running[job] = _Running(step, amount, now)
        self._amounts[step] += amount

    def ended(self, job: str, now: float) -> float | None:
        """A job has ended.

        :return: when it had started; none: it had no bandwidth
        """
        if (one := self._leave(job)) is None:
            return None
        self._took[one.step].append(now - one.started)
        self._ended += one.amount * self._expected(one.step)
        return one.started

    def returned(self, job: str) -> None:
        """A job has given back what it had, and waits again."""
        self._leave(job)

    @property
    def is_idle(self) -> bool:
        """Whether no job of it runs."""
        return not self._running

    def began(self, is_waiting: bool, now: float) -> float:
        """When it began: the run uses the storage since then, or waits for it.

        Whatever the run still holds of it: who keeps a lease through a pause has a new burst after it.

        :param is_waiting: a job of it lacks bandwidth
        :return: 0: it has not
        """
        if self.is_idle and not is_waiting:
            self._began = 0.0
        elif not self._began:
            self._began = now
        return self._began

    def over(self) -> bool:
        """None runs or waits: what comes next is another burst.

        :return: whether any has run since the last one
        """
        had_any, self._ended = self._ended > 0, 0.0
        return had_any

    def seconds(self, queued: Iterable[Queued], bandwidth: int) -> float:
        """How long all jobs of the burst take, one after the other or together, if nobody else uses the storage.

        :param queued: those that wait
        :param bandwidth: of the storage, bytes per second
        """
        running = sum(amount * self._expected(step) for step, amount in self._amounts.items())
        queue = sum(one.amount * one.jobs * self._expected(one.step) for one in queued)
        return (self._ended + running + queue) / bandwidth

    def _leave(self, job: str) -> _Running | None:
        one = self._running.pop(job, None)
        if one is not None:
            self._amounts[one.step] -= one.amount
            if not self._amounts[one.step]:
                del self._amounts[one.step]
        return one

    def _expected(self, step: str) -> float:
        return expected_seconds(self._took[step])


#: Seconds after which what nobody uses goes back.
UNUSED_SECONDS = 1.0


class LeaseHolder:
    """A run's side of what it was given of one storage.

    In this order, whenever something has happened: :meth:`returned`; let jobs start with what is :attr:`held`;
    :meth:`settle`.

    What a job returns may be used by the next one at once, as long as no other run wants anything. Else it goes back
    first, so that the run with the longest queue does not keep the storage.

    Guarantee: what is held is at most what the last lease or a later request has said, and at least what is used.
    """

    def __init__(self) -> None:
        self.held: Amounts = {}
        self._used: Amounts = {}
        self._contended: frozenset[Way] = frozenset()
        self._seen = 0
        self._requested = LeaseRequest()
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
    ) -> LeaseRequest | None:
        """All that can start has started.

        :param used: what jobs have now
        :param needed: beyond it, what the first that wait need
        :param useful: beyond it, what all that wait could use, at least what is needed
        :param together: what is needed in both directions is for one job
        :param seconds: see :class:`~.lease.LeaseRequest`; :param began: the same
        :return: what is to be requested; none: nothing new
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
        """Who needs more than is free waits with nothing: another run may wait for just that, and hold the rest."""
        short = {way for way in WAYS if amount(needed, way) > amount(self.held, way) - amount(used, way)}
        if short and together:
            short = {*WAYS}
        self.held = {way: amount(used if way in short else self.held, way) for way in WAYS}

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held that nobody uses: time changes nothing."""
        return self._unused_since is None
