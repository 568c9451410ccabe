"""The commands of `sfio-node` that the driver has run at a location, each with its answer."""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import PurePath

from msgspec import convert
from msgspec.structs import replace
from streamflow.core.exception import WorkflowExecutionException

from streamflow_io.messages import Code, coded

from .protocol import FoundFile, Memory, StreamPart
from .wire import text_of

logger = logging.getLogger("streamflow")

_REACH_SECONDS = 60.0
_ANSWER_SECONDS = 10.0
# Jobs of a `serve` that was killed alone end within 10 s.
_CLEAR_SECONDS = 20.0
# Limits for a comparison: seconds, and the least bytes per second.
_COMPARE_SECONDS = 600.0
_UNLIKE_SECONDS = 600.0
_SLOWEST = 10_000_000


class NodeRuntimeError(Exception):
    """The node runtime cannot be used; the message says why."""


class CannotWriteError(WorkflowExecutionException):  # type: ignore[misc]
    """No file can be written at a location, or no more of it; the message names the location, and says why."""


def unsafe_workdir(workdir: str, why: str) -> NodeRuntimeError:
    """The error for a work directory in which another user could replace files that stream.

    :param why: as :func:`streamflow_io.files.stranger` says it
    """
    choose = "set another `workdir` for the deployment, or another TMPDIR where it has no `workdir`"
    return NodeRuntimeError(coded(f"the work directory {workdir} is not safe: {why}: {choose}", Code.UNSAFE_WORKDIR))


class AttemptLostError(NodeRuntimeError):
    """An attempt was lost to a fault of the runtime, not of the job. Retry it without the feature named in `without`.

    The job has not failed. The message says why the attempt was lost.
    """

    def __init__(self, without: str, reason: str) -> None:
        super().__init__(reason)
        self.without = without


def seconds_to_compare(size: int) -> float:
    """The most seconds for a command that compares this many bytes."""
    return _COMPARE_SECONDS + size / _SLOWEST


class NodeCommands(ABC):
    """`sfio-node` at one location, for commands that end at once.

    :ivar location: its name in messages
    :ivar directory: the run directory, at the location
    """

    def __init__(self, location: str, binary: str, directory: PurePath) -> None:
        self.location = location
        self.binary = binary
        self.directory = directory

    @abstractmethod
    async def run(self, words: list[str], seconds: float) -> tuple[str, int]:
        """Run a command at the location.

        :return: its output, and its exit code
        :raises NodeRuntimeError: if it cannot be run, or takes longer
        """

    async def reaches(self, words: list[str], what: str) -> str | None:
        """Run a command that tries something, and return why it fails; None: success."""
        try:
            said, code = await self.run(words, _REACH_SECONDS)
        except NodeRuntimeError as error:
            return str(error)
        return None if code == 0 else (said.splitlines() or [f"{what}: exit code {code}"])[-1]

    async def begins_with(self, part: StreamPart) -> bool:
        """Whether a file begins with the bytes that were read of it. Reads this many bytes.

        :raises NodeRuntimeError: if the file cannot be compared
        """
        words = [self.binary, "compare", "--file", part.path, "--first", text_of(part.first)]
        said, code = await self.run(words, seconds_to_compare(part.first.bytes))
        if code not in (0, 1):
            raise NodeRuntimeError(
                f"{part.path} at {self.location} cannot be compared with what was read of it: {said}"
            )
        return code == 0

    async def unlike(self, one: str, other: str) -> list[tuple[str, str, str]] | None:
        """Return the lines in which two files differ, each as its place, the one text and the other.

        :return: None: something else than lines differs, or too much
        :raises NodeRuntimeError: if the files cannot be compared
        """
        words = [self.binary, "unlike", "--one", one, "--other", other]
        said, code = await self.run(words, _UNLIKE_SECONDS)
        if code not in (0, 1):
            raise NodeRuntimeError(f"{self.location}: {one} cannot be compared with {other}: {said}")
        lines = json.loads(said) if code == 0 else []
        return [(line["at"], line["one"], line["other"]) for line in lines] if code == 0 else None

    async def find(self, path: PurePath | str) -> FoundFile:
        """Return the file at a path.

        :raises NodeRuntimeError: if the file cannot be read there, or there is no answer
        """
        said, code = await self.run([self.binary, "identity", "--of", str(path)], _REACH_SECONDS)
        if code != 0:
            raise NodeRuntimeError(f"{self.location}: {said}")
        try:
            return convert(json.loads(said), FoundFile)
        except ValueError:
            raise NodeRuntimeError(f"{self.location}: the identity of {path} is not known: {said}") from None

    async def memory(self) -> Memory:
        """Return how much memory the node has.

        :raises NodeRuntimeError: if there is no answer
        """
        return await self._memory()

    async def memory_of_run(self, names: Sequence[str] = ()) -> Memory:
        """Return how much memory there is for outputs, in a directory that is made if need be.

        :param names: of directories there that are measured, too
        :raises NodeRuntimeError: if there is no answer
        """
        measured = (word for name in names for word in ("--of", name))
        return await self._memory("--directory", str(self.directory), *measured)

    async def _memory(self, *words: str) -> Memory:
        said, _ = await self.run([self.binary, "memory", *words], _ANSWER_SECONDS)
        try:
            return convert(json.loads(said), Memory)
        except ValueError:
            raise NodeRuntimeError(f"{self.location}: the size of the memory is not known: {said}") from None

    async def why_not(self, file: FoundFile) -> str | None:
        """Return why the path of a file that was found elsewhere leads to another file here; None: the same file.

        :raises NodeRuntimeError: if there is no answer
        """
        identity = text_of(replace(file.identity, device=None))
        words = [self.binary, "identity", "--of", str(file.path), "--is", identity]
        return await self.reaches(words, str(file.path))

    async def clear(self) -> None:
        """End the remaining processes of jobs if `serve` and all of `exec` were killed, which would have done it.

        If a container or a machine is gone, nothing is left.
        """
        words = [self.binary, "clear", "--directory", str(self.directory)]
        try:
            said, _ = await self.run(words, _CLEAR_SECONDS)
        except NodeRuntimeError as error:
            logger.debug(f"{self.directory} at {self.location} cannot be cleared: {error}")
        else:
            if said.startswith("sfio-node: "):
                logger.warning(f"{self.location}: processes of jobs may be left: {said.removeprefix('sfio-node: ')}")
