"""Holds back I/O tasks, and jobs with a storageBW, until their storage has room for them.

:mod:`streamflow_io.storage.admission` decides. This module translates StreamFlow's jobs, targets and locations, and
wakes the jobs that wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Sequence, Set

from msgspec import Struct
from msgspec.structs import replace
from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import Target
from streamflow.core.scheduling import AvailableLocation
from streamflow.core.workflow import Status
from streamflow.log_handler import logger

from streamflow_io._streamflow import NoHostsError
from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.hints.config import SchedulerConfig, StorageConfig
from streamflow_io.hints.models import Way
from streamflow_io.records.jobs import AdmittedRecord
from streamflow_io.records.records import ChoiceRecord, EpochRecord, Record
from streamflow_io.runtime.locations import DRIVERS_NODE, node_name

from .admission.admission import Admission
from .admission.demand import AdmissionRequest, Capacity, Grant, Queued, StoragePlace
from .admission.epochs import EpochEnded, Observation
from .admission.learners import LearningEvent
from .demands import Demands, Spacing, pool_of
from .learned_limits import RememberedLimits
from .shared_storages import Meeting, SharedStorages
from .storages import Storages


class _StorageRequest(Struct, eq=False):
    """A job on its way to StreamFlow's scheduler.

    :ivar pools: of the targets of the job
    :ivar wakes: ends the wait of an I/O task for its grant; None: no I/O task, or the task has stopped waiting
    :ivar grant: of an I/O task, until StreamFlow has a place for the task
    :ivar is_lacking: the job lacked bandwidth where StreamFlow had a place for the job
    """

    pools: Set[str]
    wakes: asyncio.Future[None] | None = None
    grant: Grant[_StorageRequest] | None = None
    is_lacking: bool = False

    def granted(self, grant: Grant[_StorageRequest]) -> None:
        self.grant = grant
        # The future is missing if the job was cancelled just now. The job will be released.
        if self.wakes is not None and not self.wakes.done():
            self.wakes.set_result(None)


class StorageAdmission(Listener):
    """The jobs of annotated steps on their way to StreamFlow's scheduler.

    :param storages: the storages of the config
    :param remembered: the limits of earlier runs
    :param more_jobs: whether a step may get further jobs
    :param arrived: how many jobs of a step have all their input
    :param wake: lets StreamFlow ask again for the jobs that wait there
    :param record: keeps a record for telemetry
    :param spacing: what jobs with `storageBW: required` take
    :param meeting: where the runs meet that use the same storages. None: no storage is shared
    """

    def __init__(
        self,
        context: StreamFlowContext,
        config: SchedulerConfig,
        storages: Storages,
        remembered: RememberedLimits,
        more_jobs: Callable[[str], bool],
        arrived: Callable[[str], int],
        wake: Callable[[], None],
        record: Callable[[Record], None],
        spacing: Spacing,
        meeting: Meeting | None = None,
    ) -> None:
        self._by_name = {storage.name: storage for storage in config.storages}
        self._remembered = remembered
        self._more_jobs = more_jobs
        self._arrived = arrived
        self._wake = wake
        self._submitted: dict[str, int] = {}
        self._log = AdmissionLog(remembered, record)
        self._admission: Admission[_StorageRequest] = Admission(config.io_executors, remembered.make_learner)
        self._demands = Demands(context, storages, self._admission, spacing)
        self._shared = SharedStorages(meeting, self._admission.leases, self._queued, self._look_again, record)
        # The requests of the jobs that wait for the storages or use them.
        self._open: set[_StorageRequest] = set()
        self._deciding = False

    @property
    def listeners(self) -> Sequence[Listener]:
        """The listeners of the turn policy, and then the admission itself."""
        return *self._shared.listeners, self

    async def run_closed(self) -> None:
        """Return what this run holds of storages."""
        await self._shared.close()

    async def admit(self, job: JobState, targets: Sequence[Target]) -> Sequence[Target]:
        """Submit a job. An I/O task waits for its grant.

        :return: the targets that have hosts, first those where a grant lets the job run
        :raises NoHostsError: if no target has hosts any more
        """
        targets = await self._located(targets)
        assert job.hints is not None, f"{job.name} needs nothing of storages"
        demand = self._demands.of(job, job.hints, targets)
        preferred = await self._demands.preferred(job) if self._demands.has_choice(targets) else ()
        demand = await self._remembered.load(demand, job.job)
        submission = _StorageRequest({*map(pool_of, targets)})
        self._open.add(submission)
        job.keep(submission)
        for storage in (placement.storage for placement in demand.placements if placement.storage is not None):
            if demand.constraint is not None:
                self._shared.use(storage)
            if job.hints.required is not None:
                # Such jobs use the bandwidth that others leave.
                self._shared.watch(storage)
        # StreamFlow submits the jobs of a step one after the other: each when the one before has started.
        self._submitted[demand.step] = self._submitted.get(demand.step, 0) + 1
        self._admission.submit(AdmissionRequest(submission, demand, preferred), time.time(), self.behind(demand.step))
        if not demand.io_task:
            return targets
        submission.wakes = asyncio.get_running_loop().create_future()
        try:
            self.decide()
            await submission.wakes
        finally:
            submission.wakes = None
        if submission.grant is None:
            # A host was lost meanwhile.
            return targets
        placement = submission.grant.placement
        return sorted(targets, key=lambda target: self._demands.placement(job.step, target) != placement)

    async def _located(self, targets: Sequence[Target]) -> Sequence[Target]:
        """Tell admission the locations of targets, and return the targets that have some."""
        ended: dict[str, NoHostsError] = {}
        for pool, target in {pool_of(target): target for target in targets}.items():
            try:
                await self._demands.locate(target)
            except NoHostsError as error:
                ended[pool] = error
                self._end(target, error)
        left = [target for target in targets if pool_of(target) not in ended]
        if not left:
            raise next(iter(ended.values()))
        return left

    def may_start(
        self, job: JobState, target: Target, location: AvailableLocation, available: Collection[str] | None = None
    ) -> bool:
        """Whether a job for which StreamFlow has a free location may start there.

        :param available: the names of all locations that the target has now. None: no location is lost
        """
        if (submission := job.kept(_StorageRequest)) is None:
            return False
        if submission.grant is not None:
            if available is None or not self._is_lost(job, submission.grant, target, available):
                return self._is_granted(job, submission.grant, target, location)
            self._give_back(submission)
        could = self._admission.could_start(submission, node_name(location), self._demands.placement(job.step, target))
        if not could and not submission.is_lacking:
            submission.is_lacking = True
            # What the job needs of a shared storage has to be requested.
            self._decide_soon()
        return could

    def stand_down(self, job: JobState, target: Target, location: AvailableLocation) -> None:
        """Free the bandwidth that a job holds at a location where StreamFlow has no place for the job."""
        if (submission := job.kept(_StorageRequest)) is None:
            return
        if submission.grant is None:
            submission.is_lacking = False
            if self._admission.stand_down(submission, node_name(location), self._demands.placement(job.step, target)):
                self.decide()
        elif self._is_granted(job, submission.grant, target, location):
            self._give_back(submission)
            # The job may find a place at another location, and other jobs may wait for what it held.
            self._wake()

    def no_hosts(self, job: JobState, target: Target, error: NoHostsError) -> None:
        """Free what a job holds at a target that has no hosts any more. The job may start at its other targets."""
        self._end(target, error)
        submission = job.kept(_StorageRequest)
        grant = None if submission is None else submission.grant
        if submission is not None and grant is not None and grant.placement.pool == pool_of(target):
            self._give_back(submission)
        self._wake()

    async def hosts_changed(self, deployment: str) -> None:
        """Let jobs start at the hosts that a deployment has now, and free what I/O tasks hold at lost ones."""
        for target in self._demands.targets(deployment):
            try:
                await self._demands.locate(target)
            except NoHostsError as error:
                self._end(target, error)
            left = self._admission.locations(pool := pool_of(target))
            for waiting in self._open:
                grant = waiting.grant
                if grant is not None and grant.placement.pool == pool and not left >= {*grant.locations}:
                    self._give_back(waiting)
        self.decide()

    def _end(self, target: Target, error: NoHostsError) -> None:
        """Start no job at a target any more, and fail the I/O tasks that wait and have no other target."""
        self._demands.end(target)
        for waiting in self._open:
            if waiting.wakes is not None and not waiting.wakes.done() and waiting.pools <= self._demands.ended:
                waiting.wakes.set_exception(error)
        self._decide_soon()

    def placed(self, job: JobState) -> None:
        if (submission := job.kept(_StorageRequest)) is None:
            return
        now = time.time()
        submission.is_lacking = False
        grant, submission.grant = submission.grant, None
        if grant is None:
            nodes = list(dict.fromkeys(map(node_name, job.places)))
            grant = self._admission.start(submission, nodes, now, self._demands.placement(job.step, job.target))
            self._shared.started(grant)
        job.keep(grant)
        self._log.admitted(job, grant, now)
        self.decide()

    def ended(self, job: JobState) -> None:
        if (submission := job.drop(_StorageRequest)) is None:
            return
        self._open.remove(submission)
        observation = _observation(job)
        if self._shared.ended(submission) and observation is not None:
            observation = replace(observation, is_disturbed=True)
        no_more = not self._more_jobs(job.step)
        self._admission.release(submission, time.time(), observation, no_more, self.behind(job.step))
        self.decide()

    def decide(self) -> None:
        """Wake the jobs that may start."""
        now = time.time()
        self._shared.returned()
        for grant in self._admission.decide(now):
            self._shared.started(grant)
            grant.job.granted(grant)
        for event in self._admission.drain():
            self._log.told(event, now)
        self._shared.settle(now)

    def _look_again(self) -> None:
        """Decide again, because what this run has of a storage has changed."""
        self.decide()
        if any(submission.is_lacking for submission in self._open):
            self._wake()

    def _decide_soon(self) -> None:
        """Decide once all jobs are there that are submitted at this moment, so that a learner sees their number."""
        if not self._deciding:
            self._deciding = True
            asyncio.get_running_loop().call_soon(self._decide_now)

    def _decide_now(self) -> None:
        self._deciding = False
        self.decide()

    def _is_granted(
        self, job: JobState, grant: Grant[_StorageRequest], target: Target, location: AvailableLocation
    ) -> bool:
        """Whether a location is one where an I/O task was granted to start."""
        return node_name(location) in grant.locations and grant.placement == self._demands.placement(job.step, target)

    def _is_lost(
        self, job: JobState, grant: Grant[_StorageRequest], target: Target, available: Collection[str]
    ) -> bool:
        """Whether a host where an I/O task was granted to start has been lost since."""
        places = {*available, DRIVERS_NODE}
        return grant.placement == self._demands.placement(job.step, target) and not places >= {*grant.locations}

    def _give_back(self, submission: _StorageRequest) -> None:
        submission.grant = None
        self._admission.give_back(submission, time.time())
        self._shared.returned_by(submission)
        self.decide()

    # Needs of a job

    def behind(self, step: str) -> int:
        """Return how many jobs have all their input, and wait until StreamFlow has started the one before them."""
        return max(0, self._arrived(step) - self._submitted.get(step, 0))

    def capacity(self, place: StoragePlace, way: Way) -> Capacity | None:
        """Return the unheld bandwidth of a storage, and the executors of a location. None: no such storage."""
        storage = self._by_name.get(place.storage or "")
        return None if storage is None else self._admission.capacity(storage, way, place.location)

    def _queued(self, storage: StorageConfig) -> Iterator[Queued]:
        """Yield the jobs that wait for a storage, with those that StreamFlow will submit when these have started."""
        for queued in self._admission.queued(storage):
            yield replace(queued, jobs=queued.jobs + self.behind(queued.step))


def _observation(job: JobState) -> Observation | None:
    """Return what a learner sees of a job. None: nothing, because the job has failed, or its I/O was not measured."""
    usage, hints = job.usage, job.hints
    if job.status is not Status.COMPLETED or hints is None:
        return None
    if usage is None:
        began = job.submitted if job.started is None else job.started
        return None if job.sources or job.ended is None else Observation(job.ended - began)
    # The time in which a job waits for its stream, or at the gate, is no time in I/O.
    seconds = usage.io_seconds if job.sources else usage.ended - usage.started
    return None if seconds is None else Observation(seconds, usage.moved(hints.direction))


class AdmissionLog:
    """Records what admission reports.

    :param remembered: the learned limits, for the next run
    :param record: keeps a record for telemetry
    """

    def __init__(self, remembered: RememberedLimits, record: Callable[[Record], None]) -> None:
        self._remembered = remembered
        self._record = record
        self._uneven: set[str] = set()

    def admitted(self, job: JobState, grant: Grant[_StorageRequest], now: float) -> None:
        """Record that a job may start."""
        storage = grant.placement.storage.name if grant.placement.storage is not None else None
        self._record(
            AdmittedRecord(
                time=now,
                job=job.name,
                step=grant.step,
                location=grant.locations[0],
                storage=storage,
                constraint=grant.constraint,
                allocated=grant.allocated,
                running=grant.running,
            )
        )

    def told(self, learning: LearningEvent, now: float) -> None:
        """Record, log and remember an event of a learner."""
        step, storage, event = learning.step, learning.subject.storage.name, learning.event
        if isinstance(event, EpochEnded):
            self._record(
                EpochRecord(
                    time=now,
                    step=step,
                    storage=storage,
                    location=event.location or "",
                    number=event.number,
                    constraint=event.constraint,
                    concurrency=event.concurrency,
                    jobs=event.jobs,
                    mean_seconds=event.mean_seconds,
                    registered=event.registered,
                    started=event.started,
                )
            )
            if event.uneven and step not in self._uneven:
                self._uneven.add(step)
                logger.info(f"The jobs of {step} differ in size: their times are compared per byte")
            if event.registered:
                # There may be too few jobs for the next epoch. The next run continues from here.
                self._remembered.learned(learning)
            return
        choice = ChoiceRecord(time=now, step=step, storage=storage, constraint=event.constraint, reason=event.reason)
        self._record(choice)
        if event.reason in ("learned", "remembered", "contradicted"):
            logger.info(f"{_what(learning)}: {event.constraint:g} MB/s ({event.reason})")
        if event.reason == "too few jobs":
            logger.info(
                f"{_what(learning)}: there were too few jobs to learn all of it. The last ones had "
                f"{event.constraint:g} MB/s. The next run goes on from what was learned"
            )
        if event.reason == "learned":
            self._remembered.learned(learning)
        elif event.reason == "contradicted":
            self._remembered.contradicted(learning)


def _what(learning: LearningEvent) -> str:
    storage = learning.subject.storage.name
    return f"storageBW of {learning.step} on {storage}"
