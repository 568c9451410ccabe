"""Adapter: lends cores that running jobs hold and do not use to jobs that are ready, in StreamFlow's accounts.

Decides nothing: :mod:`streamflow_io.admission.lending` does. What a job has borrowed is not in StreamFlow's accounts,
so that these never have more than there is; what is due is added to them as soon as it is free.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from streamflow.core.scheduling import AvailableLocation, Hardware
from streamflow.core.utils import get_job_step_name
from streamflow.scheduling.scheduler import JobAllocation

from streamflow_io.admission.lending import Answer, Holder, Lending, Loan, Wish
from streamflow_io.records.jobs import LentRecord
from streamflow_io.records.records import Record
from streamflow_io.runtime.locations import node_name
from streamflow_io.runtime.protocol import CoresEvent, Event, ExitEvent, JobSpec, StartedEvent


@dataclass(frozen=True)
class _Place:
    """Where a job runs.

    :ivar capacities: the cores of each location that it uses, its container and its host for instance
    :ivar cores: that it may use
    """

    capacities: Mapping[str, float]
    cores: int


class LentCores:
    """The cores of the jobs of a run that are lent.

    :param jobs: those that were scheduled, by name
    :param used: the hardware that is taken, by the name of a location
    :param takes_part: whether a job may lend and borrow
    :param wake: lets all jobs that wait look again whether they can start
    :param record: keeps a record for telemetry
    """

    def __init__(
        self,
        jobs: Mapping[str, JobAllocation],
        used: MutableMapping[str, Hardware],
        takes_part: Callable[[str], bool],
        wake: Callable[[], None],
        record: Callable[[Record], None],
    ) -> None:
        self._jobs = jobs
        self._used = used
        self._takes_part = takes_part
        self._wake = wake
        self._record = record
        self._lending = Lending()
        self._places: dict[str, _Place] = {}
        self._running_since: dict[str, float] = {}
        # What a job is lent that is about to be given its location.
        self._lent: dict[str, Sequence[Loan]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # Jobs that wait

    def can_start(self, job_name: str, location: AvailableLocation, cores: float) -> bool:
        """Whether a job that lacks nothing but cores on a location may borrow them.

        :param cores: that it asks for
        """
        if not self._lending.is_any_known:
            return False
        wish = self._wish(job_name, location, cores)
        return wish is not None and bool(self._ask(wish).loans)

    def choose(self, job_name: str, locations: Sequence[AvailableLocation], cores: float) -> bool:
        """A job is about to be given its locations; false: what it was to borrow there is not idle any more."""
        self._lent.pop(job_name, None)
        wishes = [wish for location in locations if (wish := self._wish(job_name, location, cores)) is not None]
        # What several locations lend would have to be given back by all of them together.
        if wishes and len(locations) == 1:
            self._lent[job_name] = self._ask(wishes[0]).loans
        return not wishes or bool(self._lent.get(job_name))

    def accounted(self, job_name: str, hardware: Mapping[str, Hardware]) -> MutableMapping[str, Hardware]:
        """What a job is accounted for that is given its location, by the keys of what it asks for."""
        lent = sum(loan.cores for loan in self._lent.get(job_name, ()))
        if not lent:
            return dict(hardware)
        return {key: _with_cores(asked, max(0.0, asked.cores - lent)) for key, asked in hardware.items()}

    # Jobs that run

    def placed(self, job_name: str, locations: Sequence[AvailableLocation], cores: float) -> None:
        """A job has been given its locations.

        :param cores: that it may use besides what it has borrowed, whether it holds them or not
        """
        loans = self._lent.pop(job_name, ())
        lent = sum(loan.cores for loan in loans)
        capacities: dict[str, float] = {}
        for location in locations:
            capacities |= _capacities(location) or {}
        step, held = get_job_step_name(job_name), math.floor(self._jobs[job_name].hardware.cores)
        lends = len(locations) == 1 and held > 0 and self._takes_part(job_name)
        self._places[job_name] = place = _Place(capacities, math.ceil(cores) + lent)
        self._lending.started(Holder(job_name, step, capacities.keys(), place.cores, held, lends), loans)
        if loans:
            where, lenders = node_name(locations[0]), tuple(loan.lender for loan in loans)
            self._record(
                LentRecord(time=time.time(), job=job_name, step=step, location=where, cores=lent, lenders=lenders)
            )

    def borrowed(self, job_name: str) -> int:
        """The cores that a job uses without being accounted for."""
        return self._lending.borrowed(job_name)

    def asked(self, spec: JobSpec) -> JobSpec:
        """A job is about to run its command under the node runtime.

        :return: what the node runtime is to be told of it: to tell how many of its cores it needs
        """
        place = self._places.get(spec.name)
        if place is None or not place.capacities or not place.cores or not self._takes_part(spec.name):
            return spec
        return spec.model_copy(update={"cores": place.cores})

    def running(self, job_name: str) -> None:
        """A job has all its input and is about to run its command."""
        self._running_since[job_name] = time.time()

    def happened(self, job_name: str, event: Event) -> None:
        """The node runtime tells something of a job."""
        if isinstance(event, StartedEvent | ExitEvent):
            # Between two attempts, and while its outputs are collected, nobody knows.
            self._lending.needs(job_name, None, time.time())
            self.settle()
        elif isinstance(event, CoresEvent):
            self._lending.needs(job_name, event.needed, time.time())
            self.settle()
            self._wake()

    def ended(self, job_name: str, succeeded: bool) -> None:
        """A job has ended, however."""
        since = self._running_since.pop(job_name, None)
        self._lending.ended(job_name, time.time() - since if succeeded and since is not None else None)
        self._places.pop(job_name, None)
        self._lent.pop(job_name, None)

    def settle(self) -> None:
        """Account jobs for cores that they have borrowed and that are due, as far as there are free ones."""
        for job_name, due in tuple(self._lending.due()):
            capacities, allocation = self._places[job_name].capacities, self._jobs[job_name]
            free = min(capacity - self._cores_used(name) for name, capacity in capacities.items())
            if (cores := min(due, math.floor(free))) > 0:
                self._lending.repay(job_name, cores)
                allocation.hardware = _with_cores(allocation.hardware, allocation.hardware.cores + cores)
                for name in capacities:
                    self._used[name] = _with_cores(self._used[name], self._used[name].cores + cores)

    def _wish(self, job_name: str, location: AvailableLocation, cores: float) -> Wish | None:
        """What a job lacks on a location; None: nothing, or what nobody can lend."""
        capacities = _capacities(location)
        if not cores or capacities is None or not self._takes_part(job_name):
            return None
        free = {name: capacity - self._cores_used(name) for name, capacity in capacities.items()}
        lacking = {name: math.ceil(cores - free[name]) for name in free if cores > free[name]}
        if not lacking:
            return None
        return Wish(job_name, get_job_step_name(job_name), math.ceil(cores), capacities, lacking)

    def _ask(self, wish: Wish) -> Answer:
        now = time.time()
        answer = self._lending.ask(wish, now)
        if answer.again is not None:
            self._look_again(answer.again - now)
        return answer

    def _look_again(self, seconds: float) -> None:
        """Let jobs that wait look again at a time, or sooner."""
        loop = asyncio.get_running_loop()
        if self._timer is not None and not self._timer.cancelled():
            if loop.time() < self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._wake)

    def _cores_used(self, name: str) -> float:
        used = self._used.get(name)
        return 0.0 if used is None else float(used.cores)


def _capacities(location: AvailableLocation) -> dict[str, float] | None:
    """The cores of a location, and of what it runs on, by name; None: they are not known of all."""
    capacities = {}
    for place in _stack(location):
        if place.hardware is None:
            return None
        capacities[str(place.name)] = float(place.hardware.cores)
    return capacities


def _stack(location: AvailableLocation) -> Iterator[AvailableLocation]:
    yield location
    while location.stacked and location.wraps is not None:
        location = location.wraps
        yield location


def _with_cores(hardware: Hardware, cores: float) -> Hardware:
    return Hardware(cores, hardware.memory, hardware.storage)
