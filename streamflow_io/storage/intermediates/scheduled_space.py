"""Gives StreamFlow's scheduler back the disk space of removed files, and what StreamFlow counts too much.

StreamFlow looks once how much is free on a disk. From then on, the files of a job count as used until the run ends.
Holes count as bytes, a file with several names counts several times, and so may files behind links.
"""

from __future__ import annotations

import contextlib
import math
import posixpath
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, MutableMapping

from msgspec import Struct, field
from streamflow.core.scheduling import Hardware, Storage

from streamflow_io.adapters.jobs import JobState
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import CommittedEvent, Event, JobSpec

from .disk_forecast import free_bytes
from .space_watcher import SpaceWatcher

#: The name of a location, and the mount point of a disk there.
_Disk = tuple[str, str]
_MIB = 2**20


class _JobSpace(Struct):
    """The space of all attempts of a job.

    :ivar reserved: in MiB, by disk; empty when the job has ended
    :ivar counted: what its files have, as StreamFlow has measured, in MiB by disk, without what was given back
    :ivar compared: what StreamFlow has measured, without holes, in MiB by disk, and not yet compared with
    :ivar written: what the run has measured, in MiB
    :ivar unmeasured: the number of attempts that StreamFlow has measured, less those that the run has measured;
        infinite: the run cannot measure all
    :ivar directories: the names of those that are left
    :ivar holes: what windows have removed from the files of the last attempt, in MiB
    """

    reserved: dict[_Disk, float] = field(default_factory=dict)
    counted: dict[_Disk, float] = field(default_factory=dict)
    compared: dict[_Disk, float] = field(default_factory=dict)
    written: float = 0.0
    unmeasured: float = 0
    directories: set[str] = field(default_factory=set)
    holes: float = 0.0


class ScheduledSpace(SpaceWatcher):
    """Keeps account of the space that StreamFlow's scheduler counts as used, by job.

    Never gives back more than StreamFlow has counted for a job.

    :param used: the hardware in use, by the name of a location
    :param wake: lets StreamFlow call :meth:`give_back`, and look again whether jobs can start
    :param free: returns the bytes that are free on the disk of a directory
    """

    def __init__(
        self,
        used: MutableMapping[str, Hardware],
        wake: Callable[[], None],
        free: Callable[[str], float] = free_bytes,
    ) -> None:
        super().__init__()
        self._used = used
        self._wake = wake
        self._free = free
        self._jobs: dict[str, _JobSpace] = {}
        # The job of each directory, by name: the names are random.
        self._owners: dict[str, str] = {}
        # In MiB.
        self._due: dict[_Disk, float] = {}
        self._waiting: set[str] = set()
        # The jobs that have ended, and that the run has not measured.
        self._ended: dict[JobState, None] = {}
        # The most that StreamFlow has measured of a job, in MiB.
        self._largest = 0.0
        self._is_held_back = False

    @property
    def is_short(self) -> bool:
        return bool(self._waiting)

    def may_start(self, directory: str) -> bool:
        """Whether a job may start. If not, it waits until those files of ended jobs are gone that no job needs.

        The job waits if the free space is too little for it and the running jobs, each as large as the largest so far.

        :param directory: on the disk of the job
        """
        if not self._ended or not self.is_removing():
            return True
        running = sum(bool(space.reserved) for space in self._jobs.values())
        if self._free(directory) >= (running + 1) * self._largest * _MIB:
            return True
        self._is_held_back = True
        self.hurry()
        return False

    def waits(self, job: str, is_for_space: bool) -> None:
        """Note whether a job that cannot start now lacks disk space."""
        if is_for_space:
            self._waiting.add(job)
        else:
            self._waiting.discard(job)

    @contextlib.contextmanager
    def reserving(self, job: str, locations: Collection[str]) -> Iterator[None]:
        """Note what the scheduler reserves meanwhile for a job, at these locations and those that they are on."""
        self._waiting.discard(job)
        before = self._sizes(locations)
        yield
        space = self._jobs.setdefault(job, _JobSpace())
        space.reserved = {disk: size - before.get(disk, 0.0) for disk, size in self._sizes(locations).items()}

    @contextlib.asynccontextmanager
    async def counting(self, job: str) -> AsyncIterator[None]:
        """Note the space that the scheduler counts for the files of a job that has ended."""
        space = self._jobs.get(job, _JobSpace())
        locations = {location for location, _ in space.reserved}
        before = self._sizes(locations)
        yield
        for disk, size in self._sizes(locations).items():
            counted = space.reserved.get(disk, 0.0) + size - before.get(disk, 0.0)
            counted = max(counted, 0.0)
            self._largest = max(self._largest, counted - space.holes)
            space.counted[disk] = space.counted.get(disk, 0.0) + counted
            space.compared[disk] = space.compared.get(disk, 0.0) + counted - space.holes
        space.reserved = {}
        space.unmeasured += 1
        self._take(space, dict.fromkeys(space.counted, space.holes))
        self._give_surplus_back(space)
        self._give_back_all(job)
        # The scheduler waits meanwhile, so that its figures can be changed at once.
        self.give_back()

    def starting(self, job: JobState, spec: JobSpec, runtime: NodeRuntime) -> JobSpec:
        if (space := self._jobs.get(job.name)) is not None:
            space.holes = 0.0
        return spec

    def event(self, job: JobState, event: Event) -> None:
        if isinstance(event, CommittedEvent) and event.discarded and (space := self._jobs.get(job.name)) is not None:
            space.holes += event.discarded / _MIB

    def ended(self, job: JobState) -> None:
        self._waiting.discard(job.name)
        if (space := self._jobs.get(job.name)) is None:
            return
        for path in filter(None, (job.job.output_directory, job.job.tmp_directory)):
            space.directories.add(name := posixpath.basename(path))
            self._owners[name] = job.name
        self._ended[job] = None

    def unmeasured(self) -> list[JobState]:
        return [*self._ended]

    def measured(self, held: Mapping[str, int], written: Mapping[JobState, int | None]) -> None:
        for job, size in written.items():
            if job not in self._ended:
                continue
            del self._ended[job]
            if (space := self._jobs.get(job.name)) is not None:
                space.unmeasured -= 1 if size is not None else -math.inf
                space.written += (size or 0) / _MIB
                self._give_surplus_back(space)
        self._wake_held_back()

    def give_up(self) -> None:
        self.is_removing = lambda: False
        self._wake_held_back()

    def freed(self, sizes: Mapping[str, int]) -> None:
        for path, size in sizes.items():
            if (job := self._owners.get(posixpath.basename(path))) is not None:
                space = self._jobs[job]
                self._take(space, dict.fromkeys(space.counted, size / _MIB))

    def removed(self, directories: Collection[str]) -> None:
        for path in directories:
            if (job := self._owners.pop(name := posixpath.basename(path), None)) is not None:
                self._jobs[job].directories.discard(name)
                self._give_back_all(job)

    def give_back(self) -> None:
        """Let the scheduler count as free what was removed. No other task may change its figures meanwhile."""
        for (location, mount), size in self._due.items():
            used = self._used[location]
            if (counted := self._sizes([location]).get((location, mount))) is not None:
                given = Storage(mount, min(size, counted))
                self._used[location] = used - Hardware(storage={mount: given})
        self._due.clear()

    def _wake_held_back(self) -> None:
        if self._is_held_back:
            self._is_held_back = False
            self._wake()

    def _give_back_all(self, job: str) -> None:
        """Give back all of a job that has ended, if nothing is left of the job: files have holes, and blocks."""
        space = self._jobs.get(job)
        if space is not None and not space.reserved and not space.directories:
            self._take(space, {**space.counted})
            del self._jobs[job]

    def _give_surplus_back(self, space: _JobSpace) -> None:
        """Give back what StreamFlow has counted too much for the attempts of a job, if all of them are measured."""
        if space.unmeasured == 0:
            self._take(space, {disk: size - space.written for disk, size in space.compared.items()})
            space.compared, space.written = {}, 0.0

    def _take(self, space: _JobSpace, sizes: Mapping[_Disk, float]) -> None:
        """Give back some MiB of a job, by disk: a container's directory is also on a disk of its host."""
        for disk, size in sizes.items():
            counted = space.counted.get(disk, 0.0)
            if (taken := min(size, counted)) > 0:
                space.counted[disk] -= taken
                self._due[disk] = self._due.get(disk, 0.0) + taken
        if self._due:
            self._wake()

    def _sizes(self, locations: Collection[str]) -> dict[_Disk, float]:
        sizes: dict[_Disk, float] = {}
        for location in locations:
            if (used := self._used.get(location)) is not None:
                for disk in used.storage.values():
                    key = location, str(disk.mount_point)
                    sizes[key] = sizes.get(key, 0.0) + float(disk.size)
        return sizes
