"""Lends idle cores of running jobs to ready jobs, in StreamFlow's accounts.

:mod:`streamflow_io.storage.admission.lending` decides. Borrowed cores are not in StreamFlow's accounts, so that these
never exceed the cores that exist. Cores that are due are added to the accounts as soon as they are free.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence

from msgspec import Struct
from streamflow.core.scheduling import AvailableLocation, Hardware
from streamflow.core.workflow import Status

from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.records.jobs import LentRecord
from streamflow_io.records.records import Record
from streamflow_io.runtime.locations import node_name, stack_of
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import CoresEvent, Event, ExitEvent, JobSpec, StartedEvent
from streamflow_io.runtime.wire import with_observation

from .admission.lending import Holder, Lending, Loan, LoanAnswer, Wish


class _CoresOfJob(Struct, frozen=True):
    """The place of a job.

    :ivar capacities: the cores of each location that the job uses, for instance its container and its host
    :ivar cores: the cores that the job may use
    """

    capacities: Mapping[str, float]
    cores: int


class _ChosenLoans(Struct, frozen=True):
    """The loans of a job that is about to be given its location."""

    loans: Sequence[Loan[JobState]]


class LentCores(Listener):
    """The lent cores of the jobs of a run.

    :param used: the hardware in use, by the name of a location
    :param takes_part: whether a job may lend and borrow
    :param wake: lets all waiting jobs look again whether they can start
    :param record: keeps a record for telemetry
    """

    def __init__(
        self,
        used: MutableMapping[str, Hardware],
        takes_part: Callable[[JobState], bool],
        wake: Callable[[], None],
        record: Callable[[Record], None],
    ) -> None:
        self._used = used
        self._takes_part = takes_part
        self._wake = wake
        self._record = record
        self._lending = Lending[JobState]()
        self._timer: asyncio.TimerHandle | None = None

    async def run_closed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # Jobs that wait

    def can_start(self, job: JobState, location: AvailableLocation, cores: float) -> bool:
        """Whether a job that lacks nothing but cores on a location may borrow them.

        :param cores: the cores that the job asks for
        """
        if not self._lending.is_any_known:
            return False
        wish = self._wish(job, location, cores)
        return wish is not None and bool(self._ask(wish).loans)

    def choose(self, job: JobState, locations: Sequence[AvailableLocation], cores: float) -> bool:
        """Choose the loans of a job that is about to be given its locations.

        :return: false if cores that the job was to borrow there are not idle any more
        """
        job.drop(_ChosenLoans)
        wishes = [wish for location in locations if (wish := self._wish(job, location, cores)) is not None]
        # Cores that several locations lend would have to be given back by all of them together.
        loans = self._ask(wishes[0]).loans if wishes and len(locations) == 1 else ()
        job.keep(_ChosenLoans(loans))
        return not wishes or bool(loans)

    def accounted(self, job: JobState, hardware: Mapping[str, Hardware]) -> MutableMapping[str, Hardware]:
        """Return the hardware to account for a job, without borrowed cores. The keys are those of its request."""
        lent = _cores(job)
        if not lent:
            return dict(hardware)
        return {key: _with_cores(asked, max(0.0, asked.cores - lent)) for key, asked in hardware.items()}

    # Jobs that run

    def placed(self, job: JobState) -> None:
        chosen = job.drop(_ChosenLoans)
        loans = () if chosen is None else chosen.loans
        lent = sum(loan.cores for loan in loans)
        capacities: dict[str, float] = {}
        for location in job.places:
            capacities |= _capacities(location) or {}
        held = math.floor(job.allocation.hardware.cores) if job.allocation is not None else 0
        lends = len(job.places) == 1 and held > 0 and self._takes_part(job)
        place = _CoresOfJob(capacities, math.ceil(job.cores) + lent)
        job.keep(place)
        job.cores += lent
        self._lending.started(Holder(job, job.step, capacities.keys(), place.cores, held, lends), loans)
        if loans:
            where, lenders = node_name(job.places[0]), tuple(loan.lender.name for loan in loans)
            self._record(
                LentRecord(time=time.time(), job=job.name, step=job.step, location=where, cores=lent, lenders=lenders)
            )

    def borrowed(self, job: JobState) -> int:
        """Return the cores that a job uses without being accounted for them."""
        return self._lending.borrowed(job)

    def starting(self, job: JobState, spec: JobSpec, runtime: NodeRuntime) -> JobSpec:
        """Request reports of how many of its cores the job needs."""
        place = job.kept(_CoresOfJob)
        if place is None or not place.capacities or not place.cores or not self._takes_part(job):
            return spec
        return with_observation(spec, cores=place.cores)

    def event(self, job: JobState, event: Event) -> None:
        if isinstance(event, StartedEvent | ExitEvent):
            # The need is not known between two attempts, or while outputs are collected.
            self._lending.needs(job, None, time.time())
            self.settle()
        elif isinstance(event, CoresEvent):
            self._lending.needs(job, event.needed, time.time())
            self.settle()
            self._wake()

    def ended(self, job: JobState) -> None:
        took = None
        if job.status is Status.COMPLETED and job.started is not None and job.ended is not None:
            took = job.ended - job.started
        self._lending.ended(job, took)

    def settle(self) -> None:
        """Account jobs for borrowed cores that are due, as far as cores are free."""
        for job, due in tuple(self._lending.due()):
            place, allocation = job.kept(_CoresOfJob), job.allocation
            if place is None or allocation is None:
                continue
            capacities = place.capacities
            free = min(capacity - self._cores_used(name) for name, capacity in capacities.items())
            if (cores := min(due, math.floor(free))) > 0:
                self._lending.repay(job, cores)
                allocation.hardware = _with_cores(allocation.hardware, allocation.hardware.cores + cores)
                for name in capacities:
                    self._used[name] = _with_cores(self._used[name], self._used[name].cores + cores)

    def _wish(self, job: JobState, location: AvailableLocation, cores: float) -> Wish[JobState] | None:
        """Return the cores that a job lacks on a location. None: a loan is not needed, or not possible."""
        capacities = _capacities(location)
        if not cores or capacities is None or not self._takes_part(job):
            return None
        free = {name: capacity - self._cores_used(name) for name, capacity in capacities.items()}
        lacking = {name: math.ceil(cores - free[name]) for name in free if cores > free[name]}
        if not lacking:
            return None
        return Wish(job, job.step, math.ceil(cores), capacities, lacking)

    def _ask(self, wish: Wish[JobState]) -> LoanAnswer[JobState]:
        now = time.time()
        answer = self._lending.ask(wish, now)
        if answer.again is not None:
            self._look_again(answer.again - now)
        return answer

    def _look_again(self, seconds: float) -> None:
        """Let waiting jobs look again after some seconds, or sooner."""
        loop = asyncio.get_running_loop()
        if self._timer is not None and not self._timer.cancelled():
            if loop.time() < self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._wake)

    def _cores_used(self, name: str) -> float:
        used = self._used.get(name)
        return 0.0 if used is None else float(used.cores)


def _cores(job: JobState) -> int:
    """Return the cores that a job borrows at the location that it is about to be given."""
    chosen = job.kept(_ChosenLoans)
    return 0 if chosen is None else sum(loan.cores for loan in chosen.loans)


def _capacities(location: AvailableLocation) -> dict[str, float] | None:
    """Return the cores of a location and of each location below it, by name. None: some are not known."""
    capacities = {}
    for place in stack_of(location):
        if place.hardware is None:
            return None
        capacities[str(place.name)] = float(place.hardware.cores)
    return capacities


def _with_cores(hardware: Hardware, cores: float) -> Hardware:
    return Hardware(cores, hardware.memory, hardware.storage)
