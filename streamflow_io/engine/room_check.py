"""Finds jobs that plain StreamFlow would let wait for ever, without a message: for a location, or for a disk.

Jobs of runs without hints are checked, too. So the code that names deployments is imported only if no location will do.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import ExecutionLocation, Target
from streamflow.core.scheduling import AvailableLocation, Hardware, HardwareRequirement, Storage
from streamflow.core.utils import get_job_step_name
from streamflow.core.workflow import Job, Status
from streamflow.log_handler import logger

from streamflow_io._streamflow import HostJobs, NoHostsError, own_hosts
from streamflow_io.capacity import Room, too_large
from streamflow_io.messages import Code, coded

#: A job with this status has a place.
BUSY = (Status.FIREABLE, Status.RUNNING)
#: The seconds after which a waiting job is reported: before, other jobs that have reserved the space may end.
PATIENCE_SECONDS = 10.0
# The number of looks that see no job run before the run ends. Between two jobs, StreamFlow may read a file for long.
_HOPELESS = 4


class HostUse:
    """Counts the jobs that need each location, and knows the jobs that wait for one."""

    def __init__(self) -> None:
        self._needed: dict[str, list[ExecutionLocation]] = {}
        self._busy: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._waiting: defaultdict[str, set[str]] = defaultdict(set)
        self._lacking: defaultdict[str, set[str]] = defaultdict(set)

    def of(self, deployment: str) -> HostJobs:
        """The jobs of a deployment."""
        busy = frozenset(name for name, count in self._busy[deployment].items() if count > 0)
        return HostJobs(busy, bool(self._waiting[deployment]), bool(self._lacking[deployment]))

    @contextmanager
    def waiting(self, deployment: str, job: str) -> Iterator[None]:
        """Note that a job waits for a location of a deployment."""
        self._waiting[deployment].add(job)
        try:
            yield
        finally:
            self._waiting[deployment].discard(job)
            self._lacking[deployment].discard(job)

    def lacks(self, deployment: str, job: str) -> None:
        """Note that a waiting job needs more than a location has free."""
        if job in self._waiting[deployment]:
            self._lacking[deployment].add(job)

    def placed(self, job: str, locations: Iterable[ExecutionLocation]) -> None:
        """Note that a job needs locations from now on: its own, and those from which it reads."""
        self._needed[job] = list(locations)
        self._count(job, 1)

    def freed(self, job: str) -> None:
        """Note that a job has ended."""
        self._count(job, -1)
        self._needed.pop(job, None)

    def _count(self, job: str, change: int) -> None:
        for location in self._needed.get(job, ()):
            self._busy[location.deployment][location.name] += change


_Location = TypeVar("_Location", AvailableLocation, ExecutionLocation)


def with_inner(locations: Iterable[_Location]) -> Iterator[_Location]:
    """Locations, with the hosts of containers."""
    for location in locations:
        yield location
        if location.stacked and location.wraps is not None:
            yield from with_inner([location.wraps])


async def check_room(
    context: StreamFlowContext,
    known: set[tuple[str, bool]],
    job: Job,
    targets: Sequence[Target],
    requirement: HardwareRequirement | None,
    coreless: bool,
) -> None:
    """Find a job that waits for room that no location has: plain StreamFlow would wait for ever, and say nothing.

    :param known: steps that need not be looked at again, each with and without cores
    :param coreless: whether the job is admitted without cores
    :raises NeverStartsError: if no location will ever do. A warning is logged instead if others may come
        later
    """
    step = get_job_step_name(job.name)
    if requirement is None or (step, coreless) in known:
        return
    if not any(isinstance(getattr(requirement, name, ""), str) for name in ("cores", "memory")):
        known.add((step, coreless))
    hardware = requirement.eval(job)
    asked = Room(None if coreless else float(hardware.cores), float(hardware.memory))
    # Why each target will not do. The reason of an allocation that has ended names the allocation.
    reasons: list[tuple[str, Target, bool]] = []
    for target in targets:
        connector = context.deployment_manager.get_connector(target.deployment.name)
        try:
            locations = await connector.get_available_locations(service=target.service)
        except NoHostsError as error:
            if len(targets) == 1:
                raise
            reasons.append((str(error), target, False))
            continue
        if too_large(asked, _rooms(locations, target), target.locations) is not None:
            if (hosts := own_hosts(connector)) is not None:
                await hosts.all_known()
            locations = await connector.get_available_locations(service=target.service)
        if (why := too_large(asked, _rooms(locations, target), target.locations)) is None:
            return
        reasons.append((why, target, target.deployment.type != "local"))
    from streamflow_io.adapters.deployment_sites import are_fixed, deployment_name

    whys = (f"{why} ({deployment_name(target.deployment)})" if named else why for why, target, named in reasons)
    message = f"No job of {step} can start: {'; '.join(whys)}"
    if are_fixed(str(target.deployment.type) for _, target, _ in reasons):
        from streamflow_io.adapters.jobs import NeverStartsError

        raise NeverStartsError(coded(message, Code.NEVER_STARTS))
    known.add((step, coreless))
    logger.warning(coded(f"{message}; job {job.name} waits for a location that has as much", Code.NEVER_STARTS))


def _rooms(locations: Mapping[str, AvailableLocation], target: Target) -> dict[str, Room]:
    return {_name(location, target): _room(location) for location in locations.values()}


def _name(location: AvailableLocation, target: Target) -> str:
    if not location.stacked:
        return "the driver's node" if location.local else str(location.name)
    from streamflow_io.adapters.deployment_sites import location_shown

    return location_shown(location, target)


def _room(location: AvailableLocation) -> Room:
    """The room of a location. A job in a container also takes cores and memory of the container's host."""
    room = Room(None, None)
    inner: AvailableLocation | None = location
    while inner is not None:
        if inner.hardware is not None:
            room = room.within(Room(float(inner.hardware.cores), float(inner.hardware.memory)))
        inner = inner.wraps if inner.stacked else None
    return room


class DiskWaits:
    """Warns of jobs that wait for free space, once for each step, and finds those that would wait for ever.

    :param scheduled: by name: the last place of each job that has been scheduled
    :param is_idle: whether no job runs, or is about to run: none can make space for a job with this name
    :param wake: lets StreamFlow look again whether jobs can start
    """

    def __init__(
        self, scheduled: Mapping[str, object], is_idle: Callable[[str], bool], wake: Callable[[], None]
    ) -> None:
        self._scheduled = scheduled
        self._is_idle = is_idle
        self._wake = wake
        # By step: the job that is watched.
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._told: set[str] = set()
        self._hopeless: dict[str, str] = {}

    def look(
        self, job_name: str, location: AvailableLocation, used: Hardware, asked: Hardware, where: Callable[[], str]
    ) -> None:
        """Note that a job cannot start at a location now.

        :param used: what other jobs have reserved there
        :param where: returns the location, for people
        :raises NeverStartsError: if the job would wait for ever
        """
        if job_name in self._hopeless:
            from streamflow_io.adapters.jobs import NeverStartsError

            raise NeverStartsError(self._hopeless[job_name])
        if (step := get_job_step_name(job_name)) in self._timers or location.hardware is None:
            return
        if (why := _lack(location.hardware, used, asked)) is not None:
            self._watch(step, job_name, f"{where()}: {why}", self._scheduled.get(job_name))

    def close(self) -> None:
        """Warn of nothing any more."""
        for timer in self._timers.values():
            timer.cancel()

    def _watch(self, step: str, job_name: str, why: str, before: object | None, idle: int = 0) -> None:
        """Look at a waiting job after a while.

        :param before: the place of its last attempt; None: the job has had no place
        :param idle: how many times in a row no job ran
        """
        loop = asyncio.get_running_loop()
        self._timers[step] = loop.call_later(PATIENCE_SECONDS, self._tell, step, job_name, why, before, idle)

    def _tell(self, step: str, job_name: str, why: str, before: object | None, idle: int) -> None:
        if self._scheduled.get(job_name) is not before:
            # Another job of the step may wait longer.
            del self._timers[step]
            return
        if step not in self._told:
            self._told.add(step)
            logger.warning(coded(f"Job {job_name} waits for free space on {why}", Code.NO_SPACE))
        idle = idle + 1 if self._is_idle(job_name) else 0
        if idle < _HOPELESS:
            self._watch(step, job_name, why, before, idle)
            return
        message = f"Job {job_name} cannot start, and no job runs that could make space on {why}"
        self._hopeless[job_name] = coded(message, Code.NO_SPACE)
        self._wake()


def _lack(has: Hardware, used: Hardware, asked: Hardware) -> str | None:
    """The disk that has too little space left for a job, in words; None: all disks have enough."""
    there, reserved, wanted = map(by_disk, (has, used, asked))
    for disk, size in wanted.items():
        if disk not in there:
            continue
        left = max(there[disk] - reserved[disk], 0.0)
        if size > left:
            return (
                f"it asks for {size:,.0f} MiB on {disk} (`outdirMin` and `tmpdirMin` of a "
                f"ResourceRequirement, 1,024 each by default). {left:,.0f} are left of {there[disk]:,.0f} MiB "
                "that were free when the run began, and StreamFlow does not look again"
            )
    return None


def within(has: Hardware, used: Hardware) -> Hardware:
    """The hardware in use, without what jobs use beyond the hardware that exists."""
    there, taken = by_disk(has), by_disk(used)
    fits = used.cores <= has.cores and used.memory <= has.memory
    if fits and all(size <= there[disk] for disk, size in taken.items() if disk in there):
        return used
    disks = {disk: Storage(disk, min(size, there.get(disk, size))) for disk, size in taken.items()}
    return Hardware(min(used.cores, has.cores), min(used.memory, has.memory), disks)


def by_disk(hardware: Hardware) -> defaultdict[str, float]:
    """The sizes of disks by mount point, in MiB."""
    sizes: defaultdict[str, float] = defaultdict(float)
    for disk in hardware.storage.values():
        sizes[disk.mount_point] += disk.size
    return sizes
