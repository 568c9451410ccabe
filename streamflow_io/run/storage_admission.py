"""Adapter: keeps the jobs of I/O tasks, and those with a storageBW, back until their storage has room for them.

Decides nothing: `admission/` does. Translates StreamFlow's jobs, targets and locations, and wakes those who wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import Target
from streamflow.core.scheduling import AvailableLocation
from streamflow.core.utils import get_job_step_name
from streamflow.core.workflow import Job

from streamflow_io.admission.admission import Admission
from streamflow_io.admission.demand import READ_SESSIONS, Capacity, Demand, Grant, Queued, Request
from streamflow_io.admission.observations import Observation
from streamflow_io.bandwidth.pacing import Place
from streamflow_io.hints.config import SchedulerConfig, StorageConfig
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.models import Way
from streamflow_io.learned.limits import RememberedLimits
from streamflow_io.records.records import Record
from streamflow_io.runtime.locations import node_name

from .admission_log import AdmissionLog
from .demands import Demands, RequiredJobs, pool_of
from .shared_storages import Meeting, SharedStorages
from .storages import Storages


class StorageAdmission:
    """The jobs of annotated steps on their way to StreamFlow's scheduler.

    :param storages: that the config has
    :param annotations: by step path
    :param remembered: the limits of earlier runs
    :param more_jobs: whether a step may get further jobs
    :param arrived: how many jobs of a step have all their input
    :param wake: lets StreamFlow ask again for the jobs that wait there
    :param record: keeps a record for telemetry
    :param required: knows jobs that take no bandwidth
    :param meeting: of the runs that use the same storages; none: they are this run's alone
    """

    def __init__(
        self,
        context: StreamFlowContext,
        config: SchedulerConfig,
        storages: Storages,
        annotations: Mapping[str, StepAnnotations],
        remembered: RememberedLimits,
        more_jobs: Callable[[str], bool],
        arrived: Callable[[str], int],
        wake: Callable[[], None],
        record: Callable[[Record], None],
        required: RequiredJobs | None = None,
        meeting: Meeting | None = None,
    ) -> None:
        self._required = required
        self._by_name = {storage.name: storage for storage in config.storages}
        self._annotations = annotations
        self._remembered = remembered
        self._more_jobs = more_jobs
        self._arrived = arrived
        self._wake = wake
        self._submitted: dict[str, int] = {}
        self._log = AdmissionLog(remembered, record)
        self._admission = Admission(config.io_executors, remembered.make_learner)
        self._demands = Demands(context, storages, annotations, self._admission, required)
        #: Makes the locations of a target known; see :meth:`.demands.Demands.locate`.
        self.locate = self._demands.locate
        self._shared = SharedStorages(meeting, self._admission.leases, self._queued, self._look_again, record)
        self._jobs: dict[str, Demand] = {}
        self._waiting: dict[str, asyncio.Future[None]] = {}
        # What I/O tasks were granted, until StreamFlow has a place for them.
        self._granted: dict[str, Grant] = {}
        # Jobs that lacked bandwidth where StreamFlow has a place for them.
        self._lacking: set[str] = set()
        # Of chunks of read sessions, who is told when they may be read.
        self._readers: dict[str, Callable[[Grant], None]] = {}
        self._deciding = False

    def concerns(self, job_name: str) -> bool:
        """Whether the hints of a job's step say something about storage."""
        annotations = self._annotations.get(get_job_step_name(job_name))
        return annotations is not None and annotations.concern_storage

    def is_io_task(self, job_name: str) -> bool:
        annotations = self._annotations.get(get_job_step_name(job_name))
        return annotations is not None and annotations.io_task is not None

    async def close(self) -> None:
        """What this run holds of storages is for others. Nothing else is called after this."""
        await self._shared.close()

    async def admit(self, job: Job, targets: Sequence[Target]) -> Sequence[Target]:
        """Let a job wait for its turn, if it is an I/O task; must be followed by :meth:`release` at some time.

        :return: where it may run, first where it was granted to
        """
        for target in {pool_of(target): target for target in targets}.values():
            await self.locate(target)
        demand = self._demands.of(job, targets)
        preferred = await self._demands.preferred(job) if self._demands.has_choice(targets) else ()
        demand = await self._remembered.load(demand, job)
        self._jobs[job.name] = demand
        for placement in demand.placements if demand.constraint is not None else ():
            self.share(placement.storage)
        self._watch(job, demand)
        due = None if self._required is None or demand.constraint is None else self._required.due(job)
        # StreamFlow submits the jobs of a step one after the other: each when the one before has started.
        self._submitted[demand.step] = self._submitted.get(demand.step, 0) + 1
        self._admission.submit(Request(job.name, demand, preferred, due), time.time(), self.behind(demand.step))
        if not demand.io_task:
            return targets
        self._waiting[job.name] = asyncio.get_running_loop().create_future()
        try:
            self.decide()
            await self._waiting[job.name]
        finally:
            del self._waiting[job.name]
        placement = self._granted[job.name].placement
        return sorted(targets, key=lambda target: self._demands.placement(job.name, target) != placement)

    def may_start(self, job_name: str, target: Target, location: AvailableLocation) -> bool:
        """Whether a job for which StreamFlow has a free location may start there."""
        if job_name not in self._jobs:
            return False
        if job_name in self._granted:
            return self._is_granted(job_name, target, location)
        could = self._admission.could_start(job_name, node_name(location), self._demands.placement(job_name, target))
        if not could and job_name not in self._lacking:
            self._lacking.add(job_name)
            # What it needs of a storage that is shared has to be asked for.
            self._decide_soon()
        return could

    def stand_down(self, job_name: str, target: Target, location: AvailableLocation) -> None:
        """StreamFlow has no place for a job on a location: what it holds there is for others."""
        if job_name not in self._jobs:
            return
        if job_name not in self._granted:
            self._lacking.discard(job_name)
            if self._admission.stand_down(job_name, node_name(location), self._demands.placement(job_name, target)):
                self.decide()
        elif self._is_granted(job_name, target, location):
            del self._granted[job_name]
            self._admission.give_back(job_name, time.time())
            self._shared.returned_by(job_name)
            self.decide()
            # There may be a place for it on another location, or others may wait for what it held.
            self._wake()

    def start(self, job_name: str, target: Target, locations: Iterable[AvailableLocation]) -> None:
        """StreamFlow has given a job its locations."""
        now = time.time()
        self._lacking.discard(job_name)
        if (grant := self._granted.pop(job_name, None)) is None:
            nodes = list(dict.fromkeys(map(node_name, locations)))
            grant = self._admission.start(job_name, nodes, now, self._demands.placement(job_name, target))
            self._shared.started(grant, now)
        self._log.admitted(grant, now)
        self.decide()

    def release(self, job_name: str, observation: Observation | None) -> None:
        """A job has ended, or will not start; may be called again.

        :param observation: none if it did not succeed
        """
        if self._jobs.pop(job_name, None) is not None:
            self._granted.pop(job_name, None)
            self._lacking.discard(job_name)
            step = get_job_step_name(job_name)
            no_more = not self._more_jobs(step)
            self._release(job_name, observation, no_more, self.behind(step))
            self.decide()

    def submit_reader(self, request: Request, granted: Callable[[Grant], None]) -> None:
        """Let a chunk of a read session wait for its turn: an I/O task that needs no place of StreamFlow.

        Must be followed by :meth:`end_reader` at some time. Its placement has been located (:meth:`locate`).

        :param granted: called when it may be read, and not before this returns
        """
        self._readers[request.job] = granted
        self._admission.submit(request, time.time())
        self._decide_soon()

    def end_reader(self, job: str, observation: Observation | None) -> None:
        """A chunk has arrived, or is not to be read.

        :param observation: none if nothing is to be learned of it
        """
        if self._readers.pop(job, None) is not None:
            self._release(job, observation)
            self._decide_soon()
            if self._lacking:
                # No job of StreamFlow has ended, so that nobody else tells them.
                self._wake()

    def decide(self) -> None:
        """Wake those who may start."""
        now = time.time()
        self._shared.returned()
        for grant in self._admission.decide(now):
            self._shared.started(grant, now)
            if grant.job in self._jobs:
                self._granted[grant.job] = grant
                # It is missing if the job was cancelled just now: it will be released.
                if (future := self._waiting.get(grant.job)) is not None and not future.done():
                    future.set_result(None)
            elif (granted := self._readers.get(grant.job)) is not None:
                granted(grant)
        for event in self._admission.drain():
            self._log.told(event, now)
        self._shared.settle(now)

    def _look_again(self) -> None:
        """What this run has of a storage has changed."""
        self.decide()
        if self._lacking:
            self._wake()

    def _release(
        self, job: str, observation: Observation | None, no_more: bool = False, ready: int | None = None
    ) -> None:
        now = time.time()
        if self._shared.ended(job, now) and observation is not None:
            observation = replace(observation, is_disturbed=True)
        self._admission.release(job, now, observation, no_more, ready)

    def _decide_soon(self) -> None:
        """When all that is submitted now is there: a learner sees then how many there are."""
        if not self._deciding:
            self._deciding = True
            asyncio.get_running_loop().call_soon(self._decide_now)

    def _decide_now(self) -> None:
        self._deciding = False
        self.decide()

    def _is_granted(self, job_name: str, target: Target, location: AvailableLocation) -> bool:
        """Whether a location is one where an I/O task was granted to start."""
        grant = self._granted[job_name]
        return node_name(location) in grant.locations and grant.placement == self._demands.placement(job_name, target)

    # What a job needs

    def behind(self, step: str) -> int:
        """How many jobs have all their input, and wait until StreamFlow has started the one before them."""
        return max(0, self._arrived(step) - self._submitted.get(step, 0))

    def capacity(self, place: Place, way: Way) -> Capacity | None:
        """What a storage, and a location, has for those that hold nothing of it; None: there is no storage."""
        storage = self._by_name.get(place.storage or "")
        return None if storage is None else self._admission.capacity(storage, way, place.location)

    def told(self, record: Record) -> None:
        """Something was recorded of a job."""
        self._shared.told(record)

    def share(self, storage: StorageConfig | None) -> None:
        """Jobs, or chunks of a read session, are about to ask for bandwidth of a storage."""
        if storage is not None:
            self._shared.use(storage)

    def _watch(self, job: Job, demand: Demand) -> None:
        """Jobs of which bandwidth is required share what others leave, also those of other runs."""
        annotations = self._annotations.get(get_job_step_name(job.name))
        if annotations is not None and annotations.required is not None:
            for placement in demand.placements:
                if placement.storage is not None:
                    self._shared.watch(placement.storage)

    def _queued(self, storage: StorageConfig) -> Iterator[Queued]:
        """The jobs that wait for a storage, and those that StreamFlow will submit when these have started."""
        for queued in self._admission.queued(storage):
            yield replace(queued, jobs=queued.jobs + (self.behind(queued.step) if queued.step != READ_SESSIONS else 0))
