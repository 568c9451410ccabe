"""The files in the directories of a job, at the location where the job runs."""

from __future__ import annotations

import asyncio
import hashlib
import os
import posixpath
import re
import shlex
from pathlib import Path
from threading import Event

from streamflow.core.context import StreamFlowContext
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.workflow import Job
from streamflow.data.remotepath import RemoteStreamFlowPath, StreamFlowPath, get_inner_path

# As `Path.rglob` and `Path.is_file`: links to files count, links to directories are not followed.
_FILES = "\\( -type f -o -type l -exec test -f {} \\; \\)"
# The kernel reads as many bytes at once as are asked for. Larger blocks are not read faster.
_BLOCK = 1 << 20
#: StreamFlow's checksum of a file. Where `sha1sum` is missing, the checksums of all files have one other form.
CHECKSUM = re.compile(r"sha1\$[0-9a-f]{40}")
#: The largest size, in bytes, of a file that may be a script or a configuration, whatever its name.
SMALL_FILE = 2**18
_ESCAPES = {b"\\": b"\\", b"n": b"\n", b"r": b"\r"}


class NoChecksumsError(Exception):
    """A location has no sha1sum, by which StreamFlow makes its checksums, too."""


def job_path(context: StreamFlowContext, job: Job, path: str) -> StreamFlowPath:
    """A path at the location of a job that has been scheduled."""
    return StreamFlowPath(path, context=context, location=context.scheduler.get_locations(job.name)[0])


async def checksums_below(directory: StreamFlowPath) -> dict[str, str]:
    """Return the checksums of the files below a directory, by path relative to it. Reads all files, at their location.

    :raises NoChecksumsError: if the location has no sha1sum
    """
    root = innermost(directory)
    if isinstance(root, RemoteStreamFlowPath):
        sums = dict(map(_named, filter(None, (await _sums(root)).split(b"\n"))))
        return {posixpath.relpath(path, root): checksum for path, checksum in sums.items()}
    return await asyncio.to_thread(_checksums_below, Path(root))


def innermost(path: StreamFlowPath) -> StreamFlowPath:
    """Return the same path as near to the driver as possible.

    A path on the driver's own file system, as of a queue manager, is read without a command.
    """
    return get_inner_path(path, recursive=True) or path


async def _sums(root: RemoteStreamFlowPath) -> bytes:
    """Return what sha1sum prints of all files below a directory.

    :raises NoChecksumsError: if the location has no sha1sum
    """
    # In hexadecimal digits: connectors decode printed text as UTF-8, and strip it.
    sums = f"find {shlex.quote(str(root))}/ {_FILES} -exec sha1sum {{}} + 2>/dev/null | od -An -v -tx1"
    script = f"if command -v sha1sum > /dev/null; then {sums}; else echo none; fi"
    # Connectors append the redirection of the standard error to a command.
    command = ["sh", "-c", shlex.quote(script)]
    result, _ = await root.connector.run(location=root.location, command=command, capture_output=True)
    if str(result).strip() == "none":
        raise NoChecksumsError(f"{root.location} has no sha1sum")
    try:
        return bytes.fromhex(str(result))
    except ValueError:
        raise WorkflowExecutionException(f"The files in {root} cannot be listed: {str(result)[:200]}") from None


def _named(line: bytes) -> tuple[str, str]:
    """Return the path and the checksum in a line of sha1sum.

    A line with a backslash in front has odd characters of the path escaped as in C.
    """
    if not line.startswith(b"\\"):
        return os.fsdecode(line[42:]), line[:40].decode()
    path = re.sub(rb"\\([\\nr])", lambda odd: _ESCAPES[odd[1]], line[43:])
    return os.fsdecode(path), line[1:41].decode()


def _checksums_below(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): sha1_of(path) for path in root.rglob("*") if path.is_file()}


def sha1_of(path: str | Path, cancelled: Event | None = None) -> str:
    """Return the checksum of a file on the driver's own file system, as StreamFlow makes it.

    :param cancelled: ends the reading when set; the checksum means nothing then
    """
    digest = hashlib.sha1(usedforsecurity=False)
    with open(path, "rb", buffering=0) as file:
        while not (cancelled is not None and cancelled.is_set()) and (block := file.read(_BLOCK)):
            digest.update(block)
    return digest.hexdigest()
