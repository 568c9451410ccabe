"""Small jobs that show what works at a location: this machine, or a location of a deployment."""

from __future__ import annotations

import asyncio
import shlex
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import aiofiles.os

from . import (
    GatedInput,
    InputStream,
    JobSpec,
    NodeJob,
    NodeRuntime,
    NodeRuntimeError,
    OutputRule,
    WatchedOutput,
)
from .protocol import CommittedEvent, WarningEvent

if TYPE_CHECKING:
    from streamflow.core.deployment import Connector, ExecutionLocation

    from .access import Access

_TEXT = "what a producer writes"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    :ivar works: None: it does not, and nothing is missed but what `otherwise` says
    :ivar detail: what was found, or why it does not work
    :ivar otherwise: what happens without it
    """

    name: str
    works: bool | None
    detail: str
    otherwise: str = ""


class BrokenError(Exception):
    """Something does not work; says why."""


@dataclass
class TriedLocation(ABC):
    """Where jobs run.

    :ivar directory: there; is removed by who made it
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
        """Run a script of the shell as a job.

        :raises BrokenError: if it fails, with what it said
        """

    @abstractmethod
    async def read(self, path: PurePosixPath) -> str:
        """:raises BrokenError: if it cannot be read"""


class ThisMachine(TriedLocation):
    """Here, without StreamFlow."""

    async def make(self, name: str) -> PurePosixPath:
        directory = self.directory / name
        await aiofiles.os.mkdir(directory)
        return directory

    async def run(self, job: NodeJob, spec: JobSpec, script: str, directory: PurePosixPath) -> None:
        process = await asyncio.create_subprocess_exec(
            *await job.wrap(spec), "sh", "-c", script, cwd=directory, stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, errors = await process.communicate()
        if process.returncode != 0:
            raise BrokenError(errors.decode(errors="replace").strip() or f"exit code {process.returncode}")

    async def read(self, path: PurePosixPath) -> str:
        async with aiofiles.open(path, encoding="utf-8") as file:
            return await file.read()


@dataclass
class DeployedLocation(TriedLocation):
    """A location of a deployment: jobs are run as StreamFlow runs them."""

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
        except Exception as error:  # Each connector has its own.
            raise BrokenError(str(error) or type(error).__name__) from error
        if result is not None and result[1] != 0:
            raise BrokenError(f"{result[0] or 'it says nothing'} (exit code {result[1]})")

    async def read(self, path: PurePosixPath) -> str:
        return await self._said(f"cat {shlex.quote(str(path))}")

    async def _said(self, command: str) -> str:
        said, code = await self.access.run(command)
        if code != 0:
            raise BrokenError(said)
        return said


async def self_test(location: TriedLocation) -> list[Finding]:
    """Try what jobs need of a node runtime."""
    jobs = _SelfTest(location)
    return [
        await _try(location, "commit tokens", jobs.commit, "consumers start when the producer has ended"),
        await _try(location, "byte streams", jobs.stream, "consumers start at commit"),
        await _try(location, "gate", jobs.gate, "`start: producer` waits before the command, not inside it"),
    ]


async def _try(location: TriedLocation, name: str, attempt: Callable[[], Awaitable[str]], otherwise: str) -> Finding:
    try:
        return Finding(name, True, await asyncio.wait_for(attempt(), location.seconds))
    except asyncio.TimeoutError:
        return Finding(name, False, f"nothing came within {location.seconds:.0f} s", otherwise)
    except (BrokenError, OSError, NodeRuntimeError) as error:
        return Finding(name, False, str(error), otherwise)


class _SelfTest:
    """Small jobs, each of which shows that something works."""

    def __init__(self, location: TriedLocation) -> None:
        self._location = location

    async def commit(self) -> str:
        """A file is known to be committed while its job goes on."""
        directory = await self._location.make("commit")
        producer = await self._location.runtime.create_job("commit")
        spec = JobSpec(name="commit", outputs=(_output(directory),))
        running = asyncio.ensure_future(
            self._run(producer, spec, f"echo '{_TEXT}' > file; sleep {self._location.seconds:.0f}", directory)
        )
        committed = asyncio.ensure_future(_wait_for_commit(producer))
        try:
            await asyncio.wait({running, committed}, return_when=asyncio.FIRST_COMPLETED)
            if not committed.done():
                await running
                raise BrokenError("the job ended without a commit")
            await committed
            return f"a file was committed while its job went on, on {self._location.directory.parent}"
        finally:
            committed.cancel()
            await producer.cancel()
            await asyncio.gather(running, committed, return_exceptions=True)

    async def stream(self) -> str:
        """A file is read while it is written."""
        directory = await self._location.make("stream")
        producer, consumer = await self._jobs()
        fifo = directory / "fifo"
        stream = InputStream(
            name="producer", port="file", path=str(directory / "file"), events=str(producer.events_path),
            target={"fifo": str(fifo)},
        )  # fmt: skip
        script = f"(printf '%s' '{_TEXT[:7]}'; sleep 0.2; echo '{_TEXT[7:]}') > file"
        await self._finish(
            (producer, JobSpec(name="producer", outputs=(_output(directory),)), script),
            (consumer, JobSpec(name="consumer", inputs=(stream,)), f"cat {shlex.quote(str(fifo))} > copy"),
            directory,
        )
        return "a reader got every byte, and the end"

    async def gate(self) -> str:
        """A command runs, and waits for a file that is not there."""
        directory = await self._location.make("gate")
        producer, consumer = await self._jobs()
        target = directory / "gated"
        gate = GatedInput(
            name="producer", port="file", path=str(directory / "file"), events=str(producer.events_path),
            target=str(target), kind="file",
        )  # fmt: skip
        # Without a gate the consumer does not begin before there is a file; with few slots in a queue, not either.
        wait = f"for i in $(seq {self._location.seconds:.0f}); do test -e begun && break; sleep 0.1; done; sleep 0.2"
        await self._finish(
            (producer, JobSpec(name="producer", outputs=(_output(directory),)), f"{wait}; echo '{_TEXT}' > file"),
            (
                consumer,
                JobSpec(name="consumer", gates=(gate,)),
                f"echo > begun; cat {shlex.quote(str(target))} > copy",
            ),
            directory,
        )
        async for event in consumer.events():
            if isinstance(event, WarningEvent):
                raise BrokenError(event.message)
        return "a command was held at a file until that was committed"

    async def _jobs(self) -> tuple[NodeJob, NodeJob]:
        create = self._location.runtime.create_job
        return await create("producer"), await create("consumer")

    async def _run(self, job: NodeJob, spec: JobSpec, script: str, directory: PurePosixPath) -> None:
        try:
            await self._location.run(job, spec, script, directory)
        except BrokenError:
            if not await job.has_started():
                job.abandon()
            raise

    async def _finish(
        self, producer: tuple[NodeJob, JobSpec, str], consumer: tuple[NodeJob, JobSpec, str], directory: PurePosixPath
    ) -> None:
        """Run both until they end; the consumer is to have copied what the producer wrote."""
        running = [asyncio.ensure_future(self._run(*job, directory)) for job in (producer, consumer)]
        try:
            await asyncio.gather(*running)
        finally:
            await asyncio.gather(*(job.cancel() for job, *_ in (producer, consumer)))
            await asyncio.gather(*running, return_exceptions=True)
        if (found := (await self._location.read(directory / "copy")).strip()) != _TEXT:
            raise BrokenError(f"the reader got {found!r}")


async def _wait_for_commit(job: NodeJob) -> None:
    async for event in job.events():
        if isinstance(event, WarningEvent):
            raise BrokenError(event.message)
        if isinstance(event, CommittedEvent):
            return
    raise BrokenError("the job ended without a commit")


def _output(directory: PurePosixPath) -> WatchedOutput:
    rule = OutputRule(globs=(), committed="on_close")
    return WatchedOutput(port="file", root=str(directory), globs=("file",), kind="file", rules=(rule,))
