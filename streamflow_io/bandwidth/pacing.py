"""The rates of open requests: each by its expectations, and all of a storage together.

A request has a limit when the length of its window is known (:mod:`.expectations`). The requests of a storage share its
bandwidth (:func:`shares`), without the bandwidth that jobs with a storageBW hold.

Two kinds of requests move as fast as they can. A small request is over before it could be limited. For a request whose
required end has passed, a job waits already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf, isinf

from msgspec import Struct

from streamflow_io.grouping import grouped
from streamflow_io.hints.models import WAYS, Way
from streamflow_io.hints.reasons import RateReason
from streamflow_io.storage.admission.demand import ONE_WAY, Capacity, StoragePlace

from .expectations import Expectations, Expected, differs
from .windows import UnreportedRequest

#: In bytes. A smaller request has moved before the first look at it.
SMALL = 16_000_000
# In bytes per second. No request is stopped altogether, whatever the storage has left.
_LEAST_RATE = 1_000_000
# Fraction of the expected bytes. A request that has not ended has at least this much left, however little was expected.
_LEAST_LEFT = 0.05


class PacedRequest(Struct, eq=False):
    """A request that has not ended. The caller keeps the request with its job.

    :ivar facts: what :class:`~.windows.Windows` knows of the request
    :ivar opened: when the request was reported
    :ivar least: below this rate, in bytes per second, a time limit of the tool would end the job
    :ivar first: the rate with which the request has started
    :ivar moved: bytes at the last report, and an estimate since then: a job with a rate keeps to it
    :ivar looked: when `moved` was last set
    :ivar has_exited: the command has ended. StreamFlow needs some time until the job has ended
    """

    facts: UnreportedRequest
    opened: float
    input_bytes: float
    expected: Expected
    least: float
    is_repeated: bool
    place: StoragePlace | None = None
    admitted: float | None = None
    is_running: bool = False
    has_begun: bool = False
    rate: float | None = None
    first: float | None = None
    moved: float = 0.0
    looked: float = 0.0
    has_exited: bool = False

    @property
    def step(self) -> str:
        """The step of the job."""
        return self.facts.step

    @property
    def is_small(self) -> bool:
        """Whether the request is likely to end before it could be limited."""
        return self.expected.bytes is not None and self.expected.bytes < SMALL

    @property
    def is_paced(self) -> bool:
        """Whether the request shares the storage. A request without a limit may take what others leave."""
        return self.expected.bytes is not None and not self.is_small

    def started(self, now: float) -> None:
        """Note that the job is about to run its command."""
        self.is_running, self.looked = True, now

    def move(self, moved: float, now: float) -> None:
        """Set how many bytes the request has moved so far."""
        self.moved, self.looked = moved, now

    def repeated(self) -> None:
        """Note that the job has failed and is tried again. The request is late then."""
        self.is_repeated, self.has_exited = True, False

    def exited(self) -> None:
        """Note that the command has ended. The request moves nothing more, unless it is repeated."""
        self.has_exited = True

    @property
    def left(self) -> float:
        if self.has_exited:
            return 0.0
        expected = self.expected.bytes or 0.0
        return max(expected - self.moved, _LEAST_LEFT * expected)


class OpenRequest(Struct, frozen=True):
    """A request that moves, or waits for an I/O executor.

    :ivar remaining: bytes that are still to be moved
    :ivar required: its required end. After that, the request gets all free bandwidth
    :ivar limit: bytes per second. None: no limit
    """

    of: PacedRequest
    remaining: float
    required: float
    limit: float | None = None

    def need(self, now: float) -> float:
        """Return the rate at which the request ends in time."""
        if self.remaining <= 0:
            return 0.0
        return self.remaining / (self.required - now) if self.required > now else inf

    def most(self, now: float) -> float:
        """Return the rate that the request is not to exceed while others are in time."""
        return inf if self.limit is None or self.required <= now else self.limit


def shares(requests: Iterable[OpenRequest], bandwidth: float, now: float) -> dict[PacedRequest, float]:
    """Return the rate of each request, in bytes per second.

    Requests with an earlier required end come first: each gets what it needs to end in time, then more up to its limit.

    :param bandwidth: bandwidth of the storage in bytes per second, without what others hold
    """
    ordered = sorted(requests, key=lambda one: (one.required, one.of.facts.job))
    rates: dict[PacedRequest, float] = {}
    left = max(0.0, bandwidth)
    for one in ordered:
        rates[one.of] = min(one.need(now), left)
        left -= rates[one.of]
    for one in ordered:
        more = min(max(0.0, one.most(now) - rates[one.of]), left) if one.remaining > 0 else 0.0
        rates[one.of] += more
        left -= more
    return rates


class Rate(Struct, frozen=True):
    """The rate of a request from now on, in bytes per second. None: no limit."""

    of: PacedRequest
    rate: float | None
    reason: RateReason


Pool = tuple[str, str | None]
CapacityOf = Callable[[StoragePlace, Way], Capacity | None]


class Pacing:
    """Decides the rates of the requests of steps with `storageBW: required`.

    Call :meth:`rates` after each call of another method, and every second or two: needs grow with time.

    :param steps: the steps whose requests have rates
    :param capacity: returns the capacity of a place. None: unknown, or without a storage
    :param hidden: how many jobs of a step are ready behind a waiting job, and not yet reported
    """

    def __init__(
        self,
        steps: dict[str, Expectations],
        capacity: CapacityOf,
        hidden: Callable[[str], int],
    ) -> None:
        self._steps = steps
        self._capacity = capacity
        self._hidden = hidden
        # An ordered set.
        self._open: dict[PacedRequest, None] = {}
        self._failed: set[str] = set()
        self._unheld: set[tuple[str, StoragePlace | None]] = set()
        # Where jobs of a step have moved last: waiting jobs will probably move there, too.
        self._places: dict[str, StoragePlace] = {}
        self._is_over = False

    @property
    def is_idle(self) -> bool:
        """Whether no request has a rate that may change with time."""
        return not any(request.is_running for request in self._open)

    def opened(
        self,
        request: UnreportedRequest,
        now: float,
        input_bytes: float,
        time_limit: float | None = None,
    ) -> PacedRequest:
        """Open a request that is ready.

        :param input_bytes: bytes that the job reads. 0: not known
        :param time_limit: seconds after which the job would be ended. None: never
        """
        is_repeated, phase = request.job in self._failed, request.phase
        expected = Expected()
        if not is_repeated:
            of = self._steps[request.step]
            expected = of.expect(request.channel, phase.number, phase.before, request.ready, input_bytes)
        least = 2 * (expected.bytes or 0.0) / time_limit if time_limit else 0.0
        opened = PacedRequest(request, now, input_bytes, expected, least, is_repeated)
        self._open[opened] = None
        return opened

    def admitted(self, request: PacedRequest, place: StoragePlace, now: float) -> None:
        """Note that a request has an I/O executor, and may start."""
        request.place = self._places[request.step] = place
        request.admitted = now
        if (request.step, place) in self._unheld:
            request.expected = Expected(request.expected.bytes)

    def ended(
        self, request: PacedRequest, now: float, moved: int | None = None, ran: tuple[float, float] = (0.0, 0.0)
    ) -> None:
        """Close a request whose job has ended, or will not start.

        :param moved: bytes. None: the job has not succeeded, or was not measured
        :param ran: start and end of its command. Zeros: not known
        """
        self._open.pop(request, None)
        if moved is None:
            self._failed.add(request.facts.job)
            return
        of, (began, done) = self._steps[request.step], ran
        of.moved(request.facts.channel, moved, request.input_bytes)
        waited = 0.0 if request.admitted is None else request.admitted - request.opened
        of.ran(began - request.facts.ready - waited, now - done)
        if done > began and moved > 0 and request.first is None and request.rate is None:
            of.reached(moved / (done - began))

    def unheld(self, request: PacedRequest) -> None:
        """Remove the limit of a request that cannot be held to a rate at its place, and of its step there."""
        self._unheld.add((request.step, request.place))
        request.expected = Expected(request.expected.bytes)
        request.rate = request.first = None

    def over(self, is_over: bool) -> None:
        """Set whether no job computes any more, or waits to. Then the whole workflow waits for the open requests."""
        self._is_over = is_over

    def rates(self, now: float) -> list[Rate]:
        """Return the new rates of running requests whose rate has changed."""
        for request in self._open:
            self._advance(request, now)
        found = list[Rate]()
        for pool, requests in grouped(self._open, self._pool).items():
            rates = self._free_rates(requests, now) if pool is None else self._shared_rates(requests, now)
            for request in (one for one in requests if one.is_running and not one.has_exited):
                rate, reason = self._told(request, rates, now)
                if differs(rate, request.rate):
                    request.rate = rate
                    found.append(Rate(request, rate, reason))
                if not request.has_begun:
                    request.has_begun, request.first = True, request.rate
        return found

    def _advance(self, request: PacedRequest, now: float) -> None:
        if request.is_running:
            speed = self._steps[request.step].throughput if request.rate is None else request.rate
            request.moved += (speed or 0.0) * max(0.0, now - request.looked)
            request.looked = now

    def _place(self, request: PacedRequest) -> StoragePlace | None:
        return request.place or self._places.get(request.step)

    def _pool(self, request: PacedRequest) -> Pool | None:
        """Return what a request shares with others: a storage, or the part of it on one location. None: nothing."""
        place = self._place(request)
        if place is None or place.storage is None or (capacity := self._capacity(place, "write")) is None:
            return None
        return place.storage, None if capacity.is_shared else place.location

    def _is_late(self, request: PacedRequest, now: float) -> bool:
        end = request.facts.required_end
        return self._is_over or request.is_repeated or (end is not None and end <= now)

    def _free_rates(self, requests: Sequence[PacedRequest], now: float) -> dict[PacedRequest, tuple[float, bool]]:
        """Return the rates of requests that share nothing."""
        return {
            one: (max(self._asked(one, now).need(now), one.expected.limit or inf), False)
            for one in requests
            if one.is_paced
        }

    def _shared_rates(self, requests: Sequence[PacedRequest], now: float) -> dict[PacedRequest, tuple[float, bool]]:
        """Return the rates of requests on one storage, and whether each is higher because others wait for executors."""
        paced = [one for one in requests if one.is_paced]
        found = dict.fromkeys(paced, (inf, False))
        are_waiting = any(one.admitted is None for one in requests)
        for way in WAYS:
            capacities = [(one, self._capacity(place, way)) for one in paced if (place := self._place(one)) is not None]
            of_way = [(one, has) for one, has in capacities if has is not None and way in ONE_WAY[one.facts.direction]]
            crowded = {
                one: has.bandwidth / has.executors
                for one, has in of_way
                if are_waiting and has.idle <= 0 and one.is_running
            }
            asked = [self._asked(one, now, crowded.get(one, 0.0)) for one, _ in of_way]
            given = shares(asked, of_way[0][1].bandwidth, now) if of_way else {}
            for one, _ in of_way:
                # Jobs behind a waiting request that are not reported yet get their part of the requested rate.
                rate, is_crowded = found[one]
                found[one] = min(rate, given[one] / self._times(one)), is_crowded or one in crowded
        return found

    def _asked(self, request: PacedRequest, now: float, at_least: float = 0.0) -> OpenRequest:
        """Return the request with the bandwidth that it asks for.

        :param at_least: a rate that the request may have, whatever its limit is
        """
        known, times, limit = request.facts.required_end, self._times(request), request.expected.limit
        required = min(request.expected.required, inf if known is None else known)
        if self._is_late(request, now):
            required = -inf
        if limit is not None:
            limit = max(limit, at_least) * times
        return OpenRequest(request, request.left * times, required, limit)

    def _times(self, request: PacedRequest) -> int:
        """Return how many jobs a request stands for: a waiting one stands for the jobs of its step behind it, too."""
        return 1 if request.is_running else 1 + self._hidden(request.step)

    def _told(
        self, request: PacedRequest, rates: dict[PacedRequest, tuple[float, bool]], now: float
    ) -> tuple[float | None, RateReason]:
        limit = request.expected.limit
        rate, is_crowded = rates.get(request, (inf, False))
        # All late requests lose their limit at once. Serving late requests one after the other, by their required ends,
        # was simulated. Jobs wait less only if the bandwidth is exact and rates are told at once: 73 s in all instead
        # of 85 s. With rates told every second, jobs wait 275 s instead of 218 s. Where a storage has 1.7 times the
        # stated bandwidth, jobs wait 599 s instead of 257 s.
        if limit is None or isinf(rate) or self._is_late(request, now):
            return None, "late"
        rate = max(rate, request.least, min(limit, _LEAST_RATE))
        if abs(rate - limit) <= 1e-6 * limit:
            return rate, "strategy"
        if rate < limit:
            return rate, "share"
        return rate, "executors" if is_crowded else "need"
