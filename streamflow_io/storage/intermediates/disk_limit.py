"""Keeps the directories of jobs within the `diskLimit` of the StreamFlow file.

:mod:`.disk_ledger` decides. This module translates StreamFlow's jobs and locations, and finds runs that cannot go on.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.scheduling import AvailableLocation
from streamflow.core.workflow import Status
from streamflow.log_handler import logger
from streamflow.scheduling.scheduler import JobAllocation

from streamflow_io.adapters.jobs import JobState, NeverStartsError
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
from .work_directories import WorkDirectory

#: Returns pairs of nodes that share a work directory: of new ones with each other, and with known ones.
FindShared = Callable[
    [Mapping[WorkDirectory, ExecutionLocation], Mapping[WorkDirectory, ExecutionLocation]],
    Awaitable[Collection[tuple[str, str]]],
]

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
    :ivar spared: bytes of the free space that the job leaves to others; None: the job goes before them
    """

    gang: tuple[int, str] | None
    frees: int
    together: Collection[str] = ()
    demand: DiskDemand[JobState | str] | None = None
    spared: int | None = 0


class _LentSpace(Struct):
    """Space that files have which are no job's.

    :ivar end: lets the files go soon
    """

    node: str
    size: int
    end: Callable[[], None]


class DiskLimit(SpaceWatcher):
    """Lets a job start on a location when its files have space there.

    - Nodes that share a work directory have one limit together. A job that could start on another node than those
      before waits until that node has said what it shares.
    - The size of a job is known from earlier jobs of its step, also in earlier runs. A job of unknown size gets all
      space that is free.
    - A job that reads from a running job, or is read by one, starts together with it.
    - The space of a job that has failed is for its next attempt, and for jobs that run again for that attempt.
    - If nothing can go on, jobs of unknown size exceed the limit, with a warning. If all sizes are known, the run ends.

    :param limit: bytes on each node, or on all nodes that share a work directory
    :param routes: how outputs reach inputs
    :param gangs: steps that run at the same time because of streams
    :param sizes: of earlier jobs
    :param wake: lets StreamFlow ask again for the jobs that wait
    :param placed: the jobs that StreamFlow's scheduler has placed, by name
    :param shared: finds out which nodes share a work directory
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
        shared: FindShared,
        read_once: Collection[tuple[str, str]] = (),
    ) -> None:
        super().__init__()
        self.limit: int = limit
        self._space = SpaceGraph(routes, gangs, sizes, read_once)
        self._wake = wake
        self._placed = placed
        # The jobs of workflows that have run before in the same context, maybe with the same names.
        self._earlier = dict(placed)
        # By node. Nodes that share a work directory have one ledger.
        self._ledgers: dict[str, DiskLedger[JobState | str]] = {}
        self._shared = shared
        # Where jobs could start; of these, what is known to be shared, or not.
        self._places: dict[WorkDirectory, ExecutionLocation] = {}
        self._known: set[WorkDirectory] = set()
        self._asking: asyncio.Task[None] | None = None
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
        # By name: the jobs that have failed, and whose next attempts have no places yet. Their nodes, with the space
        # that they had.
        self._failed: dict[str, JobState] = {}
        self._spared: dict[str, tuple[str, int]] = {}
        self._lent: dict[str, _LentSpace] = {}
        self._is_measured = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        # How often nothing had happened since the last look.
        self._quiet = 0
        self._stuck: str | None = None
        self._is_kept = True

    @property
    def is_short(self) -> bool:
        """Whether a job waits for space."""
        return bool(self._refused)

    @property
    def locations(self) -> Collection[ExecutionLocation]:
        return self._places.values()

    def may_start(self, job: JobState, location: AvailableLocation, directory: str) -> bool:
        """Whether a job has space on a location.

        :param directory: the work directory that the job would have there
        :raises NeverStartsError: if the run cannot go on
        """
        if (request := job.kept(_SpaceRequest)) is None or not self._is_kept:
            return True
        ledger, is_known = self._ledger(node_name(location)), self._is_known(location, directory)
        request.demand, request.spared = self._demand(job, request), self._spared_from(job, ledger)
        if self._leader(job, request) is not None or (is_known and ledger.may_start(request.demand, request.spared)):
            self._refused.discard(job)
            return True
        self.check()
        if is_known:
            self._refused.add(job)
            self._ask_back(ledger, request.demand)
            self._watch()
        return False

    def check(self) -> None:
        """Raise an error if the run cannot go on.

        :raises NeverStartsError: then
        """
        if self._stuck is not None:
            raise NeverStartsError(self._stuck)

    def submitted(self, job: JobState) -> None:
        if job.kept(JobSize) is not None:
            self._happened()
            self._open[job.name] = job
            gang = self._space.gang(job.step)
            place = None if gang is None else (gang, job.tag)
            goes = {port: token for port, token in job.job.inputs.items() if self._space.goes(job.step, port)}
            job.keep(_SpaceRequest(place, file_bytes(goes)))

    def placed(self, job: JobState) -> None:
        if (request := job.kept(_SpaceRequest)) is None:
            return
        self._happened()
        demand = request.demand or self._demand(job, request)
        node = self._nodes[job] = node_name(job.places[0])
        leader = self._leader(job, request)
        for other in self._disks():
            other.withdraw(job)
        ledger = self._ledger(node)
        if leader is not None:
            ledger.join(demand, leader)
        else:
            ledger.start(demand, request.spared or 0)
        for of_failed in (self._failed, self._spared):
            of_failed.pop(job.name, None)
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
        for ledger in self._disks():
            ledger.withdraw(job)
        if (node := self._nodes.pop(job, None)) is not None:
            self._ended[job] = node
            # A job of a gang is tried again in its place, with its space.
            if job.status is Status.RECOVERY and request.gang is None:
                self._failed[job.name] = job
        self._watch()

    async def run_closed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def unmeasured(self) -> list[JobState]:
        return [*self._ended]

    def measured(self, held: Mapping[str, int], written: Mapping[JobState, int | None]) -> None:
        for job, size in written.items():
            if (node := self._ended.pop(job, None)) is None:
                continue
            request = job.kept(_SpaceRequest)
            if size is None and request is not None and request.demand is not None:
                self._unseen[node] = self._unseen.get(node, 0) + request.demand.own
            had = self._ledger(node).end(job)
            if self._is_tried_again(job):
                self._spared[job.name] = node, had
        for ledger, nodes in self._disks().items():
            ledger.measured(sum(held.get(node, 0) + self._unseen.get(node, 0) for node in nodes))
        if written:
            self._happened()
            self._is_measured.set()
        if self._refused:
            self._wake()
            self._watch()

    async def lend(
        self, name: str, location: AvailableLocation, size: int, end: Callable[[], None] = lambda: None
    ) -> bool:
        """Reserve space for files that are no job's, until :meth:`give_back`. Waits until ended jobs are measured.

        :param end: called when a job could start with the space
        :return: whether there is space, and no job waits for it
        """
        if self._ended and self._is_kept:
            self._is_measured.clear()
            await self._is_measured.wait()
        node = node_name(location)
        ledger = self._ledger(node)
        if self._is_kept and (ledger.waiting or ledger.free < size + self._spared_of(ledger)):
            return False
        ledger.start(DiskDemand(name, size))
        self._lent[name] = _LentSpace(node, size, end)
        return True

    def give_back(self, name: str) -> None:
        """Take back lent space. The files are gone."""
        if self._lent.pop(name, None) is not None:
            for ledger in self._disks():
                ledger.end(name)
            self._happened()
            if self._refused:
                self._wake()
                self._watch()

    def _ask_back(self, ledger: DiskLedger[JobState | str], demand: DiskDemand[JobState | str]) -> None:
        lent = [each for each in self._lent.values() if self._ledger(each.node) is ledger]
        if demand.size <= ledger.free + sum(each.size for each in lent):
            for each in lent:
                each.end()

    def give_up(self) -> None:
        self._is_kept = False
        self._is_measured.set()
        self._wake()

    def _ledger(self, node: str) -> DiskLedger[JobState | str]:
        return self._ledgers.setdefault(node, DiskLedger(self.limit))

    def _disks(self) -> dict[DiskLedger[JobState | str], list[str]]:
        """The ledgers, with their nodes."""
        found: dict[DiskLedger[JobState | str], list[str]] = {}
        for node, ledger in self._ledgers.items():
            found.setdefault(ledger, []).append(node)
        return found

    def _is_known(self, location: AvailableLocation, directory: str) -> bool:
        """Whether it is known with which nodes a work directory would be shared. If not, the nodes are asked."""
        here = node, _ = node_name(location), directory
        self._places.setdefault(here, location.location)
        if here in self._known or all(place[0] == node for place in self._places):
            return True
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_nodes())
            self._asking.add_done_callback(lambda _: self._wake())
        elif self._asking.done() and not self._asking.cancelled():
            self._asking.result()  # Raises the error for which the jobs would wait for ever.
        return False

    async def _ask_nodes(self) -> None:
        while new := {place: at for place, at in self._places.items() if place not in self._known}:
            known = {place: self._places[place] for place in self._known}
            for one, other in await self._shared(new, known):
                kept, gone = self._ledger(one), self._ledger(other)
                if kept is not gone:
                    kept.merge(gone)
                    self._ledgers = {node: kept if each is gone else each for node, each in self._ledgers.items()}
            self._known.update(new)
        self._asking = None

    def _demand(self, job: JobState, request: _SpaceRequest) -> DiskDemand[JobState | str]:
        size = job.kept(JobSize)
        if request.gang is not None:
            _, tag = request.gang
            request.together = self._space.together(job.step, lambda step: self._has_ended(posixpath.join(step, tag)))
        return self._space.demand(job, job.step, 0 if size is None else size.inputs, request.together, request.frees)

    def _has_run(self, name: str) -> bool:
        """Whether a job has got a place in this run."""
        placed = self._placed.get(name)
        return placed is not None and placed is not self._earlier.get(name)

    def _has_ended(self, name: str) -> bool:
        """Whether a job has run and ended, and is not to run again."""
        # A job that moves has no place, and asks for another one when those from which it reads have theirs.
        return self._has_run(name) and name not in self._open and self._placed[name].status is not Status.ROLLBACK

    def _is_tried_again(self, job: JobState) -> bool:
        """Whether a job that has ended has failed, and its next attempt has no place yet."""
        again = self._open.get(job.name)
        return self._failed.get(job.name) is job and (again is None or again not in self._nodes)

    def _spared_from(self, job: JobState, ledger: DiskLedger[JobState | str]) -> int | None:
        """The bytes that a job leaves to the next attempts of others; None: the job goes before all others."""
        # Without a job that runs again, these attempts may lack files.
        return None if self._has_run(job.name) else self._spared_of(ledger)

    def _spared_of(self, ledger: DiskLedger[JobState | str]) -> int:
        """The bytes that are kept for the next attempts of jobs that have failed."""
        return sum(size for node, size in self._spared.values() if self._ledger(node) is ledger)

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
        # A job that has failed is submitted again, unless jobs wait that have to run again before.
        waits = waits and (self._failed.keys() <= self._open.keys() or any(map(self._has_run, self._open)))
        return waits and not self._ended and not self._lent and self._asking is None and not self.is_removing()

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
        can_go_on = [ledger.allow(self._quiet - 1) for ledger in self._disks()]
        if not any(can_go_on) and self._quiet >= _EXCEEDS:
            asked = [(ledger, ledger.exceed()) for ledger in self._disks()]
            # A job may wait for several disks.
            exceeding = {demand.job: _exceeds(demand, ledger) for ledger, demand in asked if demand is not None}
            for text in exceeding.values():
                logger.warning(coded(text, Code.DISK_LIMIT))
            if not exceeding and self._quiet >= _ENDS:
                self._stuck = coded("; ".join(self._why()), Code.DISK_LIMIT)
        self._wake()

    def _why(self) -> Iterator[str]:
        """Say for each disk why nothing can go on."""
        for ledger, nodes in self._disks().items():
            for demand in ledger.waiting[:1]:
                found = [f"{path} ({size_text(size)})" for path, size in self.holders(nodes)]
                files = f"; the space is held by {', '.join(found)}" if found else ""
                yield (
                    f"Nothing can go on within the diskLimit of {size_text(ledger.limit)} on {' and '.join(nodes)}: "
                    f"job {demand.job} writes {size_text(demand.size)}, {size_text(max(ledger.free, 0))} are free, "
                    f"and {size_text(demand.size - ledger.free)} are missing{files}"
                )


def _exceeds(demand: DiskDemand[JobState | str], ledger: DiskLedger[JobState | str]) -> str:
    return (
        f"Job {demand.job} may exceed the diskLimit of {size_text(ledger.limit)}: its size is not known, nothing else "
        f"can go on, and {size_text(ledger.free)} are free"
    )
