"""Whether the file system of a failed job is full."""

from __future__ import annotations

import asyncio
import os
import re
import shlex

from streamflow.core.deployment import Connector, ExecutionLocation
from streamflow.log_handler import logger

from streamflow_io.runtime.locations import node_name
from streamflow_io.wording import size_text

#: Bytes. With less free space, a tool may have failed because of that.
LITTLE = 1_000_000
_SECONDS = 30.0
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
        found = os.statvfs(directory)
        return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else 1
    command = ["sh", "-c", shlex.quote('df -Pk "$1"; df -Pi "$1" 2> /dev/null; true'), "sh", shlex.quote(directory)]
    asked = connector.run(location=location, command=command, capture_output=True)
    said, _ = await asyncio.wait_for(asked, _SECONDS) or ("", 0)
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
