"""Lets jobs write into memory, on their node, what is removed before the run ends."""

from __future__ import annotations

import asyncio
import json
import math
import posixpath
import subprocess
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping

from msgspec import Struct, convert
from streamflow.core.scheduling import Hardware
from streamflow.core.utils import random_name
from streamflow.log_handler import logger

from streamflow_io.adapters.jobs import JobState
from streamflow_io.graph.memory_steps import MemoryPlan
from streamflow_io.runtime.embedded import find_sfio_node
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import Memory

from .disk_ledger import StepSizes
from .job_in_memory import JobInMemory, is_full
from .learned_sizes import JobSize
from .space_watcher import SpaceWatcher

# Jobs with equal input may write different amounts.
_MARGIN = 2
# Bytes of an output directory that is empty, with its few small files.
_LEAST = 2**20
_MEBIBYTE = 2**20
# Seconds between two looks at what running jobs have written, and the part of the time that a look may take.
_PERIOD, _SHARE = 0.5, 0.1
_ANSWER_SECONDS = 10.0
# The part of the free memory that no file gets: programs that are no jobs need memory, too.
_RESERVE = 0.1


class FreeMemory(Struct, frozen=True):
    """The memory of a node at one moment, in bytes.

    :ivar free: what is free there, of the memory and of the file system in memory
    :ivar all: what jobs may ask for together
    :ivar asked: what running jobs have asked for, with all that files have been granted
    """

    free: int
    all: int
    asked: int


class _MemoryGrant(Struct):
    bytes: int
    runs: bool = True


class MemoryLedger:
    """The memory that files of jobs have been granted.

    Guarantee: a job that runs alone finds the memory that the job asks for, whatever files stay.

    :param limit: the most bytes of all files
    :param largest: the most bytes that a job asks for
    """

    def __init__(self, limit: int, largest: int) -> None:
        self._limit = limit
        self._largest = largest
        self._grants: dict[str, _MemoryGrant] = {}

    @property
    def granted(self) -> int:
        """The bytes of all files."""
        return sum(grant.bytes for grant in self._grants.values())

    def grant(self, job: str, size: int, there: FreeMemory) -> bool:
        """Grant memory to a job if there is enough.

        :param size: the bytes of its files
        """
        # What running jobs have written already is neither free nor counted as written: the sum is on the safe side.
        unwritten = sum(grant.bytes for grant in self._grants.values() if grant.runs)
        most = min(self._limit, there.all - self._largest)
        fits = self.granted + size <= most and there.asked + size <= there.all
        if not fits or unwritten + size > there.free * (1 - _RESERVE) or job in self._grants:
            return False
        self._grants[job] = _MemoryGrant(size)
        return True

    def ended(self, job: str, size: int) -> int:
        """Take back what a job has not used.

        :param size: the bytes that lie there
        :return: the bytes that are taken back
        """
        if (grant := self._grants.get(job)) is None:
            return 0
        left, grant.runs = max(0, grant.bytes - size), False
        grant.bytes -= left
        return left

    def removed(self, job: str) -> int:
        """Take back all that a job has been granted, and return these bytes."""
        grant = self._grants.pop(job, None)
        return 0 if grant is None else grant.bytes


def memory_here() -> Memory:
    """How much memory the files of jobs can take on this node, or why no file can lie there."""
    try:
        said = subprocess.run([find_sfio_node(), "memory"], check=True, capture_output=True, timeout=_ANSWER_SECONDS)
        return convert(json.loads(said.stdout), Memory)
    except (OSError, ValueError, subprocess.SubprocessError, NodeRuntimeError) as error:
        return Memory(why=str(error))


class OutputsInMemory(SpaceWatcher):
    """Gives jobs an output directory in the memory of their node, as far as that fits.

    - The size of a job is known from earlier jobs of its step. A job of unknown size writes to the disk.
    - What is granted counts as memory that a job asks for, until the files are removed.
    - A job that writes more than was granted is ended. The next attempt of any job writes to the disk.
    - Nothing is left in memory when the node runtime has ended, however. The node runtime ends with the driver.

    :param plan: which steps may use how much
    :param sizes: of earlier jobs
    :param used: the resources of running jobs as StreamFlow counts them, by location
    :param wake: lets StreamFlow ask again for the jobs that wait
    :param runtime_of: returns the node runtime at the location of a job; None: the job runs without one
    """

    def __init__(
        self,
        plan: MemoryPlan,
        sizes: StepSizes,
        used: MutableMapping[str, Hardware],
        wake: Callable[[], None],
        runtime_of: Callable[[JobState], Awaitable[NodeRuntime | None]],
    ) -> None:
        super().__init__()
        self._plan = plan
        self._sizes = sizes
        self._used = used
        self._wake = wake
        self._runtime_of = runtime_of
        largest = math.ceil(plan.largest) * _MEBIBYTE
        # By location.
        self._ledgers: dict[str, MemoryLedger] = defaultdict(lambda: MemoryLedger(plan.limit, largest))
        self._open: dict[str, JobState] = {}
        self._granted: dict[str, JobInMemory] = {}
        self._gone: set[str] = set()
        # Node runtimes where no file can lie in memory.
        self._without: set[NodeRuntime] = set()
        self._asking: dict[NodeRuntime, asyncio.Task[Memory]] = {}
        self._writing: dict[NodeRuntime, set[JobState]] = defaultdict(set)
        # A node that answers late delays no look at the others.
        self._watching: dict[NodeRuntime, asyncio.Task[None]] = {}
        self._is_measured = True

    def submitted(self, job: JobState) -> None:
        if job.step in self._plan.steps:
            self._open[job.name] = job

    async def choose_directory(self, job: JobState) -> None:
        """Give a job that has its place an output directory in memory, if its files fit."""
        size, place = self._needed(job), job.places[0] if job.places else None
        if size is None or place is None or place.hardware is None:
            return
        runtime = await self._runtime_of(job)
        if runtime is None or runtime in self._without:
            return
        # Jobs of a scatter are placed at the same time, and ask once.
        asking = self._asking.get(runtime)
        if asking is None or asking.done():
            asking = self._asking[runtime] = asyncio.create_task(memory_at(runtime))
        found = await asyncio.shield(asking)
        if runtime in self._without:
            return
        if found.directory is None:
            self._without.add(runtime)
            logger.info(f"No file lies in memory on {runtime.location}: {found.why}")
            return
        # Files of the attempt before may still lie there.
        if job.name not in self._open or job.name in self._granted or not self._is_measured:
            return
        used, all_memory = self._used[place.name], int(place.hardware.memory) * _MEBIBYTE
        there = FreeMemory(found.free, all_memory, int(used.memory * _MEBIBYTE))
        if not self._ledgers[place.name].grant(job.name, size, there):
            return
        used.memory += size / _MEBIBYTE
        path = posixpath.join(str(found.directory), random_name())
        on_disk = posixpath.join(job.target.workdir, random_name())
        job.job.output_directory = path
        self._granted[job.name] = grant = JobInMemory(path, on_disk, size, place.name, runtime)
        job.keep(grant)
        self._writing[runtime].add(job)
        if runtime not in self._watching:
            self._watching[runtime] = asyncio.create_task(self._watch(runtime))

    def ended(self, job: JobState) -> None:
        self._open.pop(job.name, None)
        if (grant := job.kept(JobInMemory)) is not None:
            self._writing[grant.runtime].discard(job)

    def removed(self, directories: Collection[str]) -> None:
        self._gone.update(grant.directory for grant in self._granted.values() if grant.directory in directories)

    def measured(self, held: Mapping[str, int], written: Mapping[JobState, int | None]) -> None:
        for job, size in written.items():
            grant = job.kept(JobInMemory)
            if size is not None and grant is not None and self._granted.get(job.name) is grant:
                self._take_back(job.name, self._ledger(job.name).ended(job.name, size))
        for name in [name for name, grant in self._granted.items() if grant.directory in self._gone]:
            self._take_back(name, self._ledger(name).removed(name))
            self._gone.discard(self._granted.pop(name).directory)

    def give_up(self) -> None:
        self._is_measured = False

    async def run_closed(self) -> None:
        for runtime, watching in self._watching.items():
            self._tell_if_lost(runtime)
            watching.cancel()
        await asyncio.gather(*self._watching.values(), return_exceptions=True)

    def _needed(self, job: JobState) -> int | None:
        """The bytes in memory that the files of a job may need; None: the files go to the disk."""
        known = job.kept(JobSize)
        if known is None or job.name not in self._open or not self._is_measured:
            return None
        if len(job.places) != 1 or job.places[0].stacked or job.job.output_directory is not None:
            return None
        expected = self._sizes.expect(job.step, known.inputs)
        if expected.certainty == "unknown":
            return None
        size = _MARGIN * expected.bytes + self._plan.steps[job.step] + _LEAST
        return size if size <= self._plan.limit else None

    def _ledger(self, name: str) -> MemoryLedger:
        return self._ledgers[self._granted[name].location]

    def _take_back(self, name: str, size: int) -> None:
        if size and (used := self._used.get(self._granted[name].location)) is not None:
            used.memory -= size / _MEBIBYTE
            self._wake()

    async def _watch(self, runtime: NodeRuntime) -> None:
        """End the jobs on a node that write more than they were granted, and all of them where memory is full."""
        took = 0.0
        while True:
            await asyncio.sleep(max(_PERIOD, took / _SHARE))
            self._tell_if_lost(runtime)
            began = time.monotonic()
            await self._look(runtime)
            took = time.monotonic() - began

    def _tell_if_lost(self, runtime: NodeRuntime) -> None:
        """Say that files were lost with their node runtime, once."""
        try:
            runtime.check()
        except NodeRuntimeError as error:
            if runtime not in self._without and any(grant.runtime is runtime for grant in self._granted.values()):
                self._without.add(runtime)
                logger.error(f"Files of jobs in memory on {runtime.location} are lost: {error}")

    async def _look(self, runtime: NodeRuntime) -> None:
        kept = ((job, job.kept(JobInMemory)) for job in self._writing[runtime] if job.node_job is not None)
        running = [(job, grant) for job, grant in kept if grant is not None and not grant.has_outgrown]
        if not running:
            return
        try:
            found = await runtime.memory_of_run([grant.name for _, grant in running])
        except NodeRuntimeError as error:
            logger.debug(f"What lies in memory on {runtime.location} is not known: {error}")
            return
        for (job, grant), size in zip(running, found.held, strict=False):
            if (is_full(found) or size > grant.size) and job.name in self._open and job.node_job is not None:
                grant.has_outgrown = True
                await job.node_job.cancel()


async def memory_at(runtime: NodeRuntime) -> Memory:
    """How much memory the files of jobs can take at a location, or why no file can lie there."""
    try:
        return await runtime.memory_of_run()
    except NodeRuntimeError as error:
        return Memory(why=str(error))
