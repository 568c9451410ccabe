"""Keeps the directories of jobs within the `diskLimit` of the StreamFlow file.

:mod:`.disk_ledger` decides. This module translates StreamFlow's jobs and locations, and finds runs that cannot go on.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.scheduling import AvailableLocation
from streamflow.core.utils import get_job_tag
from streamflow.log_handler import logger
from streamflow.scheduling.scheduler import JobAllocation

from streamflow_io.adapters.jobs import JobState
from streamflow_io.adapters.tokens import file_bytes
from streamflow_io.graph.gangs import Gang
from streamflow_io.graph.io_graph import Route
from streamflow_io.messages import Code, coded
from streamflow_io.runtime.locations import node_name
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import JobSpec
from streamflow_io.wording import size_text

from .disk_ledger import DiskDemand, DiskLedger, SpaceGraph, StepSizes
from .learned_sizes import JobSize
from .space_watcher import SpaceWatcher

# Seconds. StreamFlow works on tokens between jobs, and a job may be submitted meanwhile.
_QUIET = 0.5
# The number of looks that see nothing happen before the run exceeds the limit, and before the run ends. Between two
# jobs, StreamFlow may evaluate an expression for long.
_EXCEEDS, _ENDS = 10, 40


class _SpaceRequest(Struct):
    """The request of a job for space.

    :ivar gang: the gang and the tag of the job; None: no other job runs at the same time because of streams
    :ivar frees: bytes of input files that go when the job has ended
    :ivar together: the steps whose jobs start with this one, and have their space from its demand
    :ivar demand: the last one; None: the job has not asked yet
    """

    gang: tuple[int, str] | None
    frees: int
    together: Collection[str] = ()
    demand: DiskDemand[JobState | str] | None = None


class DiskLimit(SpaceWatcher):
    """Lets a job start on a location when its files have space there.

    - The size of a job is known from earlier jobs of its step, also in earlier runs. A job of unknown size gets all
      space that is free.
    - A job that reads from a running job, or is read by one, starts together with it.
    - If nothing can go on, jobs of unknown size exceed the limit, with a warning. If all sizes are known, the run ends.

    :param limit: bytes on each location
    :param routes: how outputs reach inputs
    :param gangs: steps that run at the same time because of streams
    :param sizes: of earlier jobs
    :param wake: lets StreamFlow ask again for the jobs that wait
    :param placed: the jobs that StreamFlow's scheduler has placed, by name
    :param read_once: the outputs whose files go, each when the only job that reads the file has ended
    """

    def __init__(
        self,
        limit: int,
        routes: Collection[Route],
        gangs: Sequence[Gang],
        sizes: StepSizes,
        wake: Callable[[], None],
        placed: Mapping[str, JobAllocation],
        read_once: Collection[tuple[str, str]] = (),
    ) -> None:
        self.limit: int = limit
        self._space = SpaceGraph(routes, gangs, sizes, read_once)
        self._wake = wake
        self._placed = placed
        # Those of workflows that have run before, in the same context, maybe of the same names.
        self._earlier = dict(placed)
        self._ledgers: dict[str, DiskLedger[JobState | str]] = {}
        # The jobs that have been submitted and have not ended; of these, the ones that wait for space.
        self._open: dict[str, JobState] = {}
        self._refused: set[JobState] = set()
        # The jobs that have ended, and whose files are not measured yet, with their nodes.
        self._ended: dict[JobState, str] = {}
        self._nodes: dict[JobState, str] = {}
        # By node: bytes of jobs whose directories could not be measured.
        self._unseen: dict[str, int] = {}
        # By gang and tag: the jobs that run.
        self._running: dict[tuple[int, str], dict[JobState, None]] = {}
        self._lent: set[str] = set()
        self._is_measured = asyncio.Event()
        self._is_removing: Callable[[], bool] = lambda: False
        self._holders: Callable[[str], Sequence[tuple[str, int]]] = lambda node: ()
        self._timer: asyncio.TimerHandle | None = None
        # How often nothing had happened since the last look.
        self._quiet = 0
        self._stuck: str | None = None
        self._is_kept = True

    @property
    def is_short(self) -> bool:
        """Whether a job waits for space."""
        return bool(self._refused)

    def removes(self, is_removing: Callable[[], bool], holders: Callable[[str], Sequence[tuple[str, int]]]) -> None:
        self._is_removing, self._holders = is_removing, holders

    def may_start(self, job: JobState, location: AvailableLocation) -> bool:
        """Whether a job has space on a location.

        :raises WorkflowExecutionException: if the run cannot go on
        """
        if (request := job.kept(_SpaceRequest)) is None or not self._is_kept:
            return True
        ledger = self._ledger(node_name(location))
        request.demand = self._demand(job, request)
        if self._leader(job, request) is not None or ledger.may_start(request.demand):
            self._refused.discard(job)
            return True
        if self._stuck is not None:
            raise WorkflowExecutionException(self._stuck)
        self._refused.add(job)
        self._watch()
        return False

    def submitted(self, job: JobState) -> None:
        if job.kept(JobSize) is not None:
            self._happened()
            self._open[job.name] = job
            gang = self._space.gang(job.step)
            place = None if gang is None else (gang, str(get_job_tag(job.name)))
            goes = {port: token for port, token in job.job.inputs.items() if self._space.goes(job.step, port)}
            job.keep(_SpaceRequest(place, file_bytes(goes)))

    def placed(self, job: JobState) -> None:
        if (request := job.kept(_SpaceRequest)) is None:
            return
        self._happened()
        demand = request.demand or self._demand(job, request)
        node = self._nodes[job] = node_name(job.places[0])
        leader = self._leader(job, request)
        for other in self._ledgers.values():
            other.withdraw(job)
        ledger = self._ledger(node)
        if leader is not None:
            ledger.join(demand, leader)
        else:
            ledger.start(demand)
        self._refused.discard(job)
        if request.gang is not None:
            self._running.setdefault(request.gang, {})[job] = None

    def starting(self, job: JobState, spec: JobSpec, runtime: NodeRuntime) -> JobSpec:
        request, node = job.kept(_SpaceRequest), self._nodes.get(job)
        if request is not None and request.demand is not None and node is not None and job.attempts > 1:
            # What the attempt before has written stays, because other jobs may read it.
            self._ledger(node).extend(job, request.demand.own)
        return spec

    def ended(self, job: JobState) -> None:
        if (request := job.kept(_SpaceRequest)) is None:
            return
        self._happened()
        if self._open.get(job.name) is job:
            del self._open[job.name]
        self._refused.discard(job)
        if request.gang is not None and (running := self._running.get(request.gang)) is not None:
            running.pop(job, None)
            if not running:
                del self._running[request.gang]
        for ledger in self._ledgers.values():
            ledger.withdraw(job)
        if (node := self._nodes.pop(job, None)) is not None:
            self._ended[job] = node
        self._watch()

    async def run_closed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def unmeasured(self) -> list[JobState]:
        return [*self._ended]

    def measured(self, held: Mapping[str, int], written: Mapping[JobState, int | None]) -> None:
        for job, size in written.items():
            if (node := self._ended.pop(job, None)) is None:
                continue
            request = job.kept(_SpaceRequest)
            if size is None and request is not None and request.demand is not None:
                self._unseen[node] = self._unseen.get(node, 0) + request.demand.own
            self._ledger(node).end(job)
        for node, ledger in self._ledgers.items():
            ledger.measured(held.get(node, 0) + self._unseen.get(node, 0))
        if written:
            self._happened()
            self._is_measured.set()
        if self._refused:
            self._wake()
            self._watch()

    async def lend(self, name: str, location: AvailableLocation, size: int) -> bool:
        """Reserve space for files that are no job's, until :meth:`give_back`. Waits until ended jobs are measured.

        :return: whether there is space, and no job waits for it
        """
        if self._ended and self._is_kept:
            self._is_measured.clear()
            await self._is_measured.wait()
        ledger = self._ledger(node_name(location))
        if self._is_kept and (ledger.waiting or ledger.free < size):
            return False
        ledger.start(DiskDemand(name, size))
        self._lent.add(name)
        return True

    def give_back(self, name: str) -> None:
        """Take back lent space. The files are gone."""
        if name in self._lent:
            self._lent.remove(name)
            for ledger in self._ledgers.values():
                ledger.end(name)
            self._happened()
            if self._refused:
                self._wake()
                self._watch()

    def give_up(self) -> None:
        self._is_kept = False
        self._is_measured.set()
        self._wake()

    def _ledger(self, node: str) -> DiskLedger[JobState | str]:
        return self._ledgers.setdefault(node, DiskLedger(self.limit))

    def _demand(self, job: JobState, request: _SpaceRequest) -> DiskDemand[JobState | str]:
        size = job.kept(JobSize)
        if request.gang is not None:
            _, tag = request.gang
            request.together = self._space.together(job.step, lambda step: self._has_ended(posixpath.join(step, tag)))
        return self._space.demand(job, job.step, 0 if size is None else size.inputs, request.together, request.frees)

    def _has_ended(self, name: str) -> bool:
        """Whether a job has run and ended, and is not to run again."""
        placed = self._placed.get(name)
        return placed is not None and placed is not self._earlier.get(name) and name not in self._open

    def _leader(self, job: JobState, request: _SpaceRequest) -> JobState | None:
        """A running job that a job has to run together with; None: the job may wait."""
        for name in job.sources:
            if (source := self._open.get(name)) is not None and source in self._nodes:
                return source
        running = self._running.get(request.gang, ()) if request.gang is not None else ()
        others = ((other, other.kept(_SpaceRequest)) for other in running)
        return next((other for other, of in others if of is not None and job.step in of.together), None)

    # Progress

    def _happened(self) -> None:
        self._quiet = 0

    @property
    def _is_quiet(self) -> bool:
        """Whether no job can go on before one that waits gets space."""
        waits = bool(self._open) and self._refused.issuperset(self._open.values())
        return waits and not self._ended and not self._lent and not self._is_removing()

    def _watch(self) -> None:
        if self._timer is None and self._refused and self._stuck is None:
            self._timer = asyncio.get_running_loop().call_later(_QUIET, self._look)

    def _look(self) -> None:
        self._timer = None
        self._quiet = self._quiet + 1 if self._is_quiet else 0
        # The first look may come just after something has happened.
        if self._quiet > 1:
            self._go_on()
        self._watch()

    def _go_on(self) -> None:
        """Let a job start though others will lack space, or end the run."""
        # Each ledger is asked: jobs of several locations may go on.
        can_go_on = [ledger.allow(self._quiet - 1) for ledger in self._ledgers.values()]
        if not any(can_go_on) and self._quiet >= _EXCEEDS:
            exceeding = [(ledger, job) for ledger in self._ledgers.values() if (job := ledger.exceed()) is not None]
            for ledger, demand in exceeding:
                logger.warning(coded(_exceeds(demand, ledger), Code.DISK_LIMIT))
            if not exceeding and self._quiet >= _ENDS:
                self._stuck = coded("; ".join(self._why()), Code.DISK_LIMIT)
        self._wake()

    def _why(self) -> Iterator[str]:
        """Say for each location why nothing can go on."""
        for node, ledger in self._ledgers.items():
            for demand in ledger.waiting[:1]:
                found = [f"{path} ({size_text(size)})" for path, size in self._holders(node)]
                files = f"; the space is held by {', '.join(found)}" if found else ""
                yield (
                    f"Nothing can go on within the diskLimit of {size_text(ledger.limit)} on {node}: job {demand.job} "
                    f"writes {size_text(demand.size)}, {size_text(max(ledger.free, 0))} are free, and "
                    f"{size_text(demand.size - ledger.free)} are missing{files}"
                )


def _exceeds(demand: DiskDemand[JobState | str], ledger: DiskLedger[JobState | str]) -> str:
    return (
        f"Job {demand.job} may exceed the diskLimit of {size_text(ledger.limit)}: its size is not known, nothing else "
        f"can go on, and {size_text(ledger.free)} are free"
    )
