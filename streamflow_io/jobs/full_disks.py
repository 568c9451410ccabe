"""Full disks: what is said of them, and where a job runs next that has failed on one."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shlex
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from streamflow.core.deployment import Connector, ExecutionLocation, Target
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.scheduling import AvailableLocation
from streamflow.log_handler import logger

from streamflow_io.adapters.jobs import JobState
from streamflow_io.messages import Code, coded
from streamflow_io.runtime.locations import node_name
from streamflow_io.tasks import FileThread
from streamflow_io.wording import size_text

#: Bytes. With less free space, a tool may have failed because of that.
LITTLE = 1_000_000
_FREE_SECONDS = 30.0
# What begins the lines of the probe: in the work directory, or above a work directory that is not there.
_PROBE, _PROBE_ABOVE = "probe: ", "probe above: "
# A work directory may not be there before the first job, or because it cannot be made. Quotas are not among the
# answers of `df`: only a file shows them. Its content is random, because some file systems compress. The file has no
# name while it is written: an end of the driver, or of the connection, leaves nothing.
_ASK = f"""d=$1; until test -d "$d"; do d=$(dirname "$d"); done; df -Pk "$d"; df -Pi "$d" 2> /dev/null
p='{_PROBE}'; test "$d" = "$1" || p='{_PROBE_ABOVE}'; LC_ALL=C; export LC_ALL
{{ {{ rm -f "$d/$2"; dd if=/dev/urandom bs={LITTLE // 20} count=20 conv=fsync 2>&1 >&3; }} 3> "$d/$2"; }} 2>&1 |
sed 's/^/'"$p"'/'"""
# The columns of `df -P` after the name of the file system: size, used, available, capacity.
_COLUMNS = re.compile(r"\s(\d+)\s+\d+\s+(-?\d+)\s+(?:\d+%|-)\s")
# What the C libraries say of errors that hold for all files of a file system.
_REFUSALS = {
    errno.EDQUOT: "quota exceeded",
    errno.ENOSPC: "no space left on device",
    errno.EROFS: "read-only file system",
    errno.EIO: "input/output error|i/o error",
}
# And what keeps a work directory from being made.
_REFUSALS_ABOVE = {**_REFUSALS, errno.EACCES: "permission denied"}
_PROBES = {_PROBE: _REFUSALS, _PROBE_ABOVE: _REFUSALS_ABOVE}
_thread = FileThread()


class _FreeSpace(Struct, frozen=True):
    """The space that a file system has.

    :ivar bytes: those that are free
    :ivar files: how many more it can hold; one if it does not count them
    :ivar refusal: why a small file cannot be written all the same; None: no obstacle, or nothing is known
    """

    bytes: int
    files: int
    refusal: str | None = None


async def told_if_full(connector: Connector, location: ExecutionLocation, directory: str, on_node: str) -> str:
    """Return what is full and what to do, if nearly no space is left in a directory at a location. Raises nothing.

    :param on_node: the directory as the node has it, for the message
    :return: an empty text if there is space, or if nothing is known
    """
    try:
        space = await _space(connector, location, directory)
    except Exception as error:
        # A connector may raise anything: the job has ended all the same.
        logger.debug(f"The free space of {directory} is not known: {error}")
        return ""
    where = f"{on_node} on {node_name(location)}"
    if space.bytes < LITTLE:
        why = f"Its file system is full: {size_text(max(space.bytes, 0))} are left for {where}"
    elif not space.files:
        why = f"Its file system is out of inodes: {where}"
    elif space.refusal is not None:
        why = f"Its file system takes no more files ({space.refusal}): {where}"
    else:
        return ""
    return f"{why}. Remove files, as with `streamflow-io clean`, or set another `workdir`"


async def _space(connector: Connector, location: ExecutionLocation, directory: str) -> _FreeSpace:
    probe = f".sfio-{os.urandom(8).hex()}"
    if location.local and not location.wraps:
        return await _thread.run(lambda: _space_here(Path(directory), probe), _FREE_SECONDS)
    command = ["sh", "-c", shlex.quote(_ASK), "sh", shlex.quote(directory), probe]
    asked = connector.run(location=location, command=command, capture_output=True)
    said, _ = await asyncio.wait_for(asked, _FREE_SECONDS) or ("", 0)
    return space_of(said)


def _space_here(directory: Path, probe: str) -> _FreeSpace:
    place = next(path for path in (directory, *directory.parents) if path.is_dir())
    found = os.statvfs(place)
    refusal = _refusal_here(place / probe, _REFUSALS if place == directory else _REFUSALS_ABOVE)
    return _FreeSpace(found.f_bavail * found.f_frsize, found.f_favail if found.f_files else 1, refusal)


def _refusal_here(file: Path, refusals: Container[int]) -> str | None:
    try:
        with file.open("xb") as stream:
            file.unlink()
            stream.write(os.urandom(LITTLE))
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        return error.strerror if error.errno in refusals else None
    return None


def space_of(said: str) -> _FreeSpace:
    """Return the space of a file system, from what `df -Pk`, `df -Pi` and the probe have printed.

    :raises ValueError: if the text has another form
    """
    lines = said.splitlines()
    free = [(int(found[1]), int(found[2])) for line in lines if (found := _COLUMNS.search(line))]
    if not free:
        raise ValueError(f"df has printed {said[:200]!r}")
    (_, blocks), *rest = free
    files = rest[0][1] if rest and rest[0][0] else 1
    refused = (_refusal(line, begin, known) for line in lines for begin, known in _PROBES.items())
    return _FreeSpace(blocks * 1024, files, next(filter(None, refused), None))


def _refusal(line: str, begin: str, refusals: Mapping[int, str]) -> str | None:
    text = line.rpartition(": ")[2]
    is_one = line.startswith(begin) and re.search("|".join(refusals.values()), text, re.IGNORECASE)
    return text if is_one else None


class FullDisks:
    """Lets a job that has failed where the disk was full start again where there is space, if there is any.

    :param connector_of: returns the connector of a deployment
    :param on_node: returns a path at a location as its node has the path
    """

    def __init__(
        self, connector_of: Callable[[str], Connector | None], on_node: Callable[[ExecutionLocation, str], str]
    ) -> None:
        self._connector_of = connector_of
        self._on_node = on_node
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
            workdir = job.target.workdir
            full = await told_if_full(connector, location, workdir, self._on_node(location, workdir))
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
            space = None if connector is None else await _space(connector, location.location, target.workdir)
        except Exception as error:
            # A connector may raise anything: the job runs again all the same.
            logger.debug(f"The free space of {target.workdir} on {location.name} is not known: {error}")
            return 0
        return space.bytes if space is not None and space.files and space.refusal is None else 0
