"""Full disks: what is said of them, and where a job runs next that has failed on one."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from streamflow.core.deployment import Connector, ExecutionLocation, Target
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.scheduling import AvailableLocation
from streamflow.log_handler import logger

from streamflow_io.adapters.jobs import JobState
from streamflow_io.messages import Code, coded
from streamflow_io.runtime.locations import node_name
from streamflow_io.wording import size_text

#: Bytes. With less free space, a tool may have failed because of that.
LITTLE = 1_000_000
_FREE_SECONDS = 30.0
# A work directory may not be there before the first job.
_ASK = 'd=$1; until test -d "$d"; do d=$(dirname "$d"); done; df -Pk "$d"; df -Pi "$d" 2> /dev/null; true'
# The columns of `df -P` after the name of the file system: size, used, available, capacity.
_COLUMNS = re.compile(r"\s(\d+)\s+\d+\s+(-?\d+)\s+(?:\d+%|-)\s")


async def told_if_full(connector: Connector, location: ExecutionLocation, directory: str) -> str:
    """Return what is full and what to do, if nearly no space is left in a directory at a location. Raises nothing.

    :return: an empty text if there is space, or if nothing is known
    """
    try:
        free, files = await _free(connector, location, directory)
    except Exception as error:
        # A connector may raise anything: the job has ended all the same.
        logger.debug(f"The free space of {directory} is not known: {error}")
        return ""
    if free >= LITTLE and files:
        return ""
    where = f"{directory} on {node_name(location)}"
    full = f"full: {size_text(max(free, 0))} are left for {where}" if free < LITTLE else f"out of inodes: {where}"
    return f"Its file system is {full}. Remove files, as with `streamflow-io clean`, or set another `workdir`"


async def _free(connector: Connector, location: ExecutionLocation, directory: str) -> tuple[int, int]:
    """Return the bytes and the files that a file system can still hold, as :func:`free_of` does."""
    if location.local and not location.wraps:
        found = os.statvfs(next(path for path in (Path(directory), *Path(directory).parents) if path.is_dir()))
        return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else 1
    command = ["sh", "-c", shlex.quote(_ASK), "sh", shlex.quote(directory)]
    asked = connector.run(location=location, command=command, capture_output=True)
    said, _ = await asyncio.wait_for(asked, _FREE_SECONDS) or ("", 0)
    return free_of(said)


def free_of(said: str) -> tuple[int, int]:
    """Return the bytes and the files that are free, from what `df -Pk` and `df -Pi` have printed.

    A file system that counts no files has space for one more.

    :raises ValueError: if the text has another form
    """
    free = [(int(found[1]), int(found[2])) for line in said.splitlines() if (found := _COLUMNS.search(line))]
    if not free:
        raise ValueError(f"df has printed {said[:200]!r}")
    (_, blocks), *rest = free
    files = rest[0][1] if rest and rest[0][0] else 1
    return blocks * 1024, files


class FullDisks:
    """Lets a job that has failed where the disk was full start again where there is space, if there is any.

    :param connector_of: returns the connector of a deployment
    """

    def __init__(self, connector_of: Callable[[str], Connector | None]) -> None:
        self._connector_of = connector_of
        # By job, and by the location where it has failed: what was full.
        self._full: dict[str, dict[tuple[str, str], str]] = {}
        # By job: the locations that have space.
        self._roomy: dict[str, list[AvailableLocation]] = {}
        self._told: set[str] = set()

    async def failed(self, job: JobState, full: str | None) -> None:
        """Note that an attempt of a job has failed that may be tried again.

        :param full: what :func:`told_if_full` has said then; None: the disk is looked at now
        """
        if job.allocation is None or not job.allocation.locations:
            return
        location = job.location
        if full is None and (connector := self._connector_of(location.deployment)) is not None:
            full = await told_if_full(connector, location, job.target.workdir)
        if full:
            self._full.setdefault(job.name, {})[location.deployment, location.name] = full

    async def look(self, job: str, targets: Sequence[Target]) -> bool:
        """Look for the locations with space for a job. Does nothing for a job that no full disk has let fail.

        :param targets: where the job may run
        :return: whether there is such a location
        """
        if (full := self._full.get(job)) is None:
            return False
        there = [(target, location) for target in targets for location in await self._locations(target)]
        others = [each for each in there if (each[1].deployment, each[1].name) not in full]
        free = await asyncio.gather(*(self._free(target, location) for target, location in others))
        # A node with hardly more space than the one before would cost one more attempt.
        least = max(LITTLE, max(free, default=0) / 2)
        self._roomy[job] = [location for (_, location), space in zip(others, free, strict=True) if space >= least]
        return bool(self._roomy[job])

    def elsewhere(self, job: str, location: AvailableLocation) -> Sequence[AvailableLocation]:
        """The locations where a job has space, if it should not start at this one; otherwise empty."""
        roomy = self._roomy.get(job, ())
        names = {(each.deployment, each.name) for each in roomy}
        return () if (location.deployment, location.name) in names else roomy

    def tell(self, job: str) -> None:
        """Warn, once for each job, that it starts elsewhere."""
        if job not in self._told:
            self._told.add(job)
            *_, last = self._full[job].values()
            logger.warning(coded(f"Job {job} is tried again on another location. {last}", Code.NO_SPACE))

    async def _locations(self, target: Target) -> Sequence[AvailableLocation]:
        if (connector := self._connector_of(target.deployment.name)) is None:
            return ()
        try:
            return [*(await connector.get_available_locations(service=target.service)).values()]
        except WorkflowExecutionException:
            return ()

    async def _free(self, target: Target, location: AvailableLocation) -> int:
        """The bytes that are free in the work directory of a location; 0 if that is not known. Raises nothing."""
        try:
            connector = self._connector_of(target.deployment.name)
            free, files = (0, 0) if connector is None else await _free(connector, location.location, target.workdir)
        except Exception as error:
            # A connector may raise anything: the job runs again all the same.
            logger.debug(f"The free space of {target.workdir} on {location.name} is not known: {error}")
            return 0
        return free if files else 0
