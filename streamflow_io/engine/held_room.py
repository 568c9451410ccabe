"""The room that jobs hold while they wait for the recovery of another job, in StreamFlow's accounts."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager

from streamflow.core.scheduling import AvailableLocation, Hardware, JobAllocation, Storage
from streamflow.core.utils import get_job_step_name
from streamflow.core.workflow import Status

from .room_check import BUSY, by_disk, with_inner, within


class HeldRoom:
    """The room that jobs hold while another job of their step is recovered, because its files could not be brought.

    StreamFlow 0.2.0rc3 brings files to one job of a step after the other. The next ones have their room already, and
    wait. For the recovery, jobs that have run before run again: they may take this room. Its holders start after them.

    :param placed: by name: the last place of each job
    :param used: the hardware in use, by the name of a location
    """

    def __init__(self, placed: Mapping[str, JobAllocation], used: MutableMapping[str, Hardware]) -> None:
        self._placed = placed
        self._used = used
        # The jobs that are recovered.
        self._without_files: set[str] = set()
        # The jobs that wait until others have given back their room.
        self._starting: set[str] = set()
        # By holder: the places of the jobs that have taken its room.
        self._takers: defaultdict[str, list[JobAllocation]] = defaultdict(list)

    def note(self, job: str, status: Status) -> None:
        """Note the new status of a job, before the job has it."""
        placed = self._placed.get(job)
        if status is Status.RECOVERY and placed is not None and placed.status is Status.FIREABLE:
            self._without_files.add(job)
        elif status is not Status.ROLLBACK:
            self._without_files.discard(job)
        if status is not Status.RUNNING:
            self._takers.pop(job, None)

    @property
    def is_any(self) -> bool:
        """Whether jobs may take room of others, or have taken some."""
        return bool(self._without_files or self._takers or self._starting)

    @contextmanager
    def uncounted(self, job: str, locations: Sequence[AvailableLocation], producers: Collection[str]) -> Iterator[None]:
        """Do not count, for a moment, the room at locations that a job may take, and all beyond what exists."""
        counted: dict[str, Hardware] = {}
        holders = [self._placed[holder] for holder in self.holders(job, producers)]
        for each in with_inner(locations):
            if each.hardware is None or (used := self._used.get(each.name)) is None:
                continue
            counted[each.name] = used
            for holder in holders:
                if each.name in _names_of(holder):
                    used = _less(used, holder.hardware)
            self._used[each.name] = within(each.hardware, used)
        try:
            yield
        finally:
            self._used.update(counted)

    def taken(self, job: str, locations: Iterable[AvailableLocation], holders: Iterable[str]) -> None:
        """Note that a job has got its place, with room that others may hold.

        :param holders: before the job had its place
        """
        names = {each.name for each in with_inner(locations) if _is_exceeded(each, self._used)}
        for holder in holders:
            if names & _names_of(self._placed[holder]):
                self._takers[holder].append(self._placed[job])

    async def until_given_back(self, job: str, changes: asyncio.Condition) -> None:
        """Wait until no other job has the room of a job that is about to start.

        :param changes: is notified of each change of a status
        """
        if job not in self._takers:
            return
        self._starting.add(job)
        try:
            async with changes:
                await changes.wait_for(lambda: not any(taker.status in BUSY for taker in self._takers[job]))
        finally:
            self._starting.discard(job)
            self._takers.pop(job, None)

    def holders(self, job: str, producers: Collection[str]) -> list[str]:
        """The jobs whose room a job may take. A job does not take that of its producers, which would wait for it."""
        if job not in self._placed:
            return []
        steps = {get_job_step_name(recovered) for recovered in self._without_files}
        return [
            name
            for name, placed in self._placed.items()
            if placed.status is Status.FIREABLE
            and (name in self._starting or get_job_step_name(name) in steps)
            and name != job
            and name not in producers
        ]


def _names_of(placed: JobAllocation) -> set[str]:
    """The locations of a job, with the hosts of containers."""
    return {location.name for location in with_inner(placed.locations)}


def _is_exceeded(location: AvailableLocation, used: Mapping[str, Hardware]) -> bool:
    """Whether the jobs of a location have more than it has."""
    if location.hardware is None or (taken := used.get(location.name)) is None:
        return False
    return within(location.hardware, taken) is not taken


def _less(used: Hardware, held: Hardware) -> Hardware:
    """The hardware in use, without that of a job. The host of a container may have other disks."""
    there, freed = by_disk(used), by_disk(held)
    disks = {disk: Storage(disk, max(size - freed[disk], 0.0)) for disk, size in there.items()}
    return Hardware(used.cores - held.cores, used.memory - held.memory, disks)
