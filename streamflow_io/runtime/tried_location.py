"""The location where small jobs show what works: this machine, or a location of a deployment."""

from __future__ import annotations

import asyncio
import shlex
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import aiofiles.os
from msgspec import Struct

from streamflow_io.processes import start_process

from .node_runtime import NodeJob, NodeRuntime
from .protocol import JobSpec

if TYPE_CHECKING:
    from streamflow.core.deployment import Connector, ExecutionLocation

    from .access import Access


class LocationFinding(Struct, frozen=True):
    """The result of one trial.

    :ivar works: None: a failure without loss, but for what `otherwise` says
    :ivar detail: what was found, or why it does not work
    :ivar otherwise: what happens without it
    """

    name: str
    works: bool | None
    detail: str
    otherwise: str = ""


class BrokenError(Exception):
    """A trial has failed; the message says why."""


@dataclass
class TriedLocation(ABC):
    """The location where the jobs run.

    :ivar directory: at the location; removed by the code that has made it
    :ivar seconds: how long a job may take to run
    """

    runtime: NodeRuntime
    directory: PurePosixPath
    seconds: float

    @abstractmethod
    async def make(self, name: str) -> PurePosixPath:
        """Make a directory."""

    @abstractmethod
    async def run(self, job: NodeJob, spec: JobSpec, script: str, directory: PurePosixPath) -> None:
        """Run a shell script as a job.

        :raises BrokenError: if the script fails, with its output
        """

    @abstractmethod
    async def read(self, path: PurePosixPath) -> str:
        """Return the content of a file.

        :raises BrokenError: if the file cannot be read
        """


class ThisMachine(TriedLocation):
    """The local machine, without StreamFlow."""

    async def make(self, name: str) -> PurePosixPath:
        directory = self.directory / name
        await aiofiles.os.mkdir(directory)
        return directory

    async def run(self, job: NodeJob, spec: JobSpec, script: str, directory: PurePosixPath) -> None:
        words = [*await job.wrap(spec), "sh", "-c", script]
        process = await start_process(words, asyncio.subprocess.DEVNULL, None, asyncio.subprocess.PIPE, cwd=directory)
        _, errors = await process.communicate()
        if process.returncode != 0:
            raise BrokenError(errors.decode(errors="replace").strip() or f"exit code {process.returncode}")

    async def read(self, path: PurePosixPath) -> str:
        async with aiofiles.open(path, encoding="utf-8") as file:
            return await file.read()


@dataclass
class DeployedLocation(TriedLocation):
    """A location of a deployment. Jobs run as StreamFlow runs them."""

    connector: Connector
    location: ExecutionLocation
    access: Access

    async def make(self, name: str) -> PurePosixPath:
        directory = self.directory / name
        await self._said(f"mkdir -p {shlex.quote(str(directory))}")
        return directory

    async def run(self, job: NodeJob, spec: JobSpec, script: str, directory: PurePosixPath) -> None:
        command = ["exec", *map(shlex.quote, await job.wrap(spec)), "sh", "-c", shlex.quote(script)]
        try:
            result = await self.connector.run(
                self.location,
                command,
                workdir=shlex.quote(str(directory)),
                capture_output=True,
                job_name=job.identifier,
            )
        except Exception as error:  # each connector raises errors of its own
            raise BrokenError(str(error) or type(error).__name__) from error
        if result is not None and result[1] != 0:
            raise BrokenError(f"{result[0] or 'there is no output'} (exit code {result[1]})")

    async def read(self, path: PurePosixPath) -> str:
        return await self._said(f"cat {shlex.quote(str(path))}")

    async def _said(self, command: str) -> str:
        said, code = await self.access.run(command)
        if code != 0:
            raise BrokenError(said)
        return said
