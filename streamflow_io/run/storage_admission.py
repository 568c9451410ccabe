"""Adapter: keeps the jobs of I/O tasks, and those with a storageBW, back until their storage has room for them.

Decides nothing: `admission/` does. Translates StreamFlow's jobs, targets and locations, and wakes those who wait.
"""

from __future__ import annotations

import asyncio
import posixpath
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import Target
from streamflow.core.scheduling import AvailableLocation
from streamflow.core.utils import get_job_step_name
from streamflow.core.workflow import Job
from streamflow.log_handler import logger
from streamflow.workflow.token import FileToken

from streamflow_io.admission.admission import Admission
from streamflow_io.admission.demand import Capacity, Demand, Grant, Placement, Request
from streamflow_io.admission.observations import Observation
from streamflow_io.bandwidth.pacing import Place
from streamflow_io.hints.bandwidth import AutoConstraint, RequiredConstraint, StaticConstraint
from streamflow_io.hints.config import SchedulerConfig, StorageConfig
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.models import Way
from streamflow_io.learned.limits import RememberedLimits
from streamflow_io.runtime.locations import innermost, node_name
from streamflow_io.telemetry.records import Record

from .admission_log import AdmissionLog
from .storages import Storages
from .tokens import streams_of


class RequiredJobs(Protocol):
    """What is known of jobs of steps with `storageBW: required`; nothing of others."""

    def spacing(self, job: Job, bandwidth: float, executors: int) -> StaticConstraint | None: ...
    def due(self, job: Job) -> float | None: ...


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
    ) -> None:
        self._required = required
        self._by_name = {storage.name: storage for storage in config.storages}
        self._context = context
        self._storages = storages
        self._annotations = annotations
        self._remembered = remembered
        self._more_jobs = more_jobs
        self._arrived = arrived
        self._wake = wake
        self._submitted: dict[str, int] = {}
        self._log = AdmissionLog(remembered, record)
        self._admission = Admission(config.io_executors, remembered.make_learner)
        # By step, pool and working directory: targets on the same locations may differ in their storage.
        self._placements: dict[tuple[str, str, str], Placement] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        # By pool, on how many nodes its locations are, if several are on one.
        self._most_nodes: dict[str, int] = {}
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

    async def admit(self, job: Job, targets: Sequence[Target]) -> Sequence[Target]:
        """Let a job wait for its turn, if it is an I/O task; must be followed by :meth:`release` at some time.

        :return: where it may run, first where it was granted to
        """
        for target in {_pool(target): target for target in targets}.values():
            await self.locate(target)
        demand = self._demand(job, targets)
        preferred = await self._preferred(job) if self._has_choice(targets) else ()
        demand = await self._remembered.load(demand, job)
        self._jobs[job.name] = demand
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
        return sorted(targets, key=lambda target: self._placement(job.name, target) != placement)

    def may_start(self, job_name: str, target: Target, location: AvailableLocation) -> bool:
        """Whether a job for which StreamFlow has a free location may start there."""
        if job_name not in self._jobs:
            return False
        if job_name in self._granted:
            return self._is_granted(job_name, target, location)
        could = self._admission.could_start(job_name, node_name(location), self._placement(job_name, target))
        if not could:
            self._lacking.add(job_name)
        return could

    def stand_down(self, job_name: str, target: Target, location: AvailableLocation) -> None:
        """StreamFlow has no place for a job on a location: what it holds there is for others."""
        if job_name not in self._jobs:
            return
        if job_name not in self._granted:
            if self._admission.stand_down(job_name, node_name(location), self._placement(job_name, target)):
                self.decide()
        elif self._is_granted(job_name, target, location):
            del self._granted[job_name]
            self._admission.give_back(job_name, time.time())
            self.decide()
            # There may be a place for it on another location, or others may wait for what it held.
            self._wake()

    def start(self, job_name: str, target: Target, locations: Iterable[AvailableLocation]) -> None:
        """StreamFlow has given a job its locations."""
        now = time.time()
        self._lacking.discard(job_name)
        if (grant := self._granted.pop(job_name, None)) is None:
            nodes = list(dict.fromkeys(map(node_name, locations)))
            grant = self._admission.start(job_name, nodes, now, self._placement(job_name, target))
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
            self._admission.release(job_name, time.time(), observation, no_more, self.behind(step))
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
            self._admission.release(job, time.time(), observation)
            self._decide_soon()
            if self._lacking:
                # No job of StreamFlow has ended, so that nobody else tells them.
                self._wake()

    def decide(self) -> None:
        """Wake those who may start."""
        now = time.time()
        for grant in self._admission.decide(now):
            if grant.job in self._jobs:
                self._granted[grant.job] = grant
                # It is missing if the job was cancelled just now: it will be released.
                if (future := self._waiting.get(grant.job)) is not None and not future.done():
                    future.set_result(None)
            elif (granted := self._readers.get(grant.job)) is not None:
                granted(grant)
        for event in self._admission.drain():
            self._log.told(event, now)

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
        return node_name(location) in grant.locations and grant.placement == self._placement(job_name, target)

    # What a job needs

    def behind(self, step: str) -> int:
        """How many jobs have all their input, and wait until StreamFlow has started the one before them."""
        return max(0, self._arrived(step) - self._submitted.get(step, 0))

    def capacity(self, place: Place, way: Way) -> Capacity | None:
        """What a storage, and a location, has for those that hold nothing of it; None: there is no storage."""
        storage = self._by_name.get(place.storage or "")
        return None if storage is None else self._admission.capacity(storage, way, place.location)

    def _demand(self, job: Job, targets: Sequence[Target]) -> Demand:
        step = get_job_step_name(job.name)
        for target in targets:
            if (key := _placement_key(step, target)) not in self._placements:
                self._placements[key] = Placement(_pool(target), self._storage(job, step, target))
        annotations = self._annotations[step]
        placements = tuple(dict.fromkeys(self._placement(job.name, target) for target in targets))
        return Demand(
            step=step,
            io_task=annotations.io_task is not None,
            constraint=self._constraint(job, annotations, placements),
            direction=annotations.direction,
            placements=placements,
            locations=min(targets[0].locations, self._most_nodes[_pool(targets[0])]),
        )

    def _constraint(
        self, job: Job, annotations: StepAnnotations, placements: Sequence[Placement]
    ) -> StaticConstraint | AutoConstraint | None:
        """What a job is admitted with; one that is kept to what is required takes no bandwidth, unless it is small."""
        if not isinstance(annotations.storage_bw, RequiredConstraint):
            return annotations.storage_bw
        if self._required is None:
            return None
        spaced = [
            self._required.spacing(job, one.storage.bandwidth(annotations.direction), self._admission.executors(one))
            for one in placements
            if one.storage is not None
        ]
        return min((one for one in spaced if one is not None), key=lambda one: one.value, default=None)

    def _placement(self, job_name: str, target: Target) -> Placement:
        return self._placements[_placement_key(get_job_step_name(job_name), target)]

    def _storage(self, job: Job, step: str, target: Target) -> StorageConfig | None:
        bandwidth = self._annotations[step].storage_bandwidth
        if bandwidth is None:
            return None
        name, path = bandwidth.value.storage, job.output_directory or target.workdir
        storage = self._storages.of(name, target, path)
        if storage is None:
            where, what = self._storages.missing(name, target, path)
            not_done = "shared with others" if self._annotations[step].required is not None else "applied"
            logger.warning(
                f"The storageBW of {step} is not {not_done} on {where}: the StreamFlow file has no {what} there"
            )
        return storage

    async def locate(self, target: Target, node: str | None = None) -> str:
        """Make the locations of a target known.

        :param node: only those on this node
        :return: the pool that they are
        """
        connector = self._context.deployment_manager.get_connector(target.deployment.name)
        available: Mapping[str, AvailableLocation] = await connector.get_available_locations(service=target.service)
        pool = _pool(target)
        if node is not None:
            pool = f"{pool}@{node}"
            available = {name: each for name, each in available.items() if node_name(each) == node}
        # They are asked for with each job; of thousands only the names are looked at, unless there are others.
        if self._names.get(pool) == (names := tuple(available)):
            return pool
        self._names[pool] = names
        # For the admission the containers of a node are one location: they have its cores and storages together.
        nodes = {node_name(location): innermost(location) for location in available.values()}
        cores = {name: _cores(node) for name, node in nodes.items()}
        slots = {name: node.slots or 1 for name, node in nodes.items() if node.hardware is None}
        self._admission.set_locations(pool, cores, slots)
        self._most_nodes[pool] = len(nodes) if len(nodes) < len(available) else sys.maxsize
        return pool

    def _has_choice(self, targets: Sequence[Target]) -> bool:
        return sum(len(self._names[pool]) for pool in set(map(_pool, targets))) > 1

    async def _preferred(self, job: Job) -> tuple[str, ...]:
        """The locations of those that a job streams with, then those that hold most of its input."""
        partners = [
            node_name(location)
            for token in streams_of(job.inputs)
            for location in self._context.scheduler.get_locations(token.source.job)
        ]
        held: dict[str, int] = {}
        for token in job.inputs.values():
            if isinstance(token, FileToken):
                weight = await token.get_weight(self._context)
                for path in await token.get_paths(self._context):
                    for location in self._context.data_manager.get_data_locations(path):
                        key = node_name(location.location)
                        held[key] = held.get(key, 0) + weight
        return (*partners, *sorted(held, key=lambda key: -held[key]))


def _pool(target: Target) -> str:
    return posixpath.join(str(target.deployment.name), str(target.service or ""))


def _placement_key(step: str, target: Target) -> tuple[str, str, str]:
    return step, _pool(target), str(target.workdir)


def _cores(location: AvailableLocation) -> float:
    if location.hardware is not None:
        return float(location.hardware.cores)
    return float(location.slots or 1)
