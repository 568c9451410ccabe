"""Small jobs that show what works at a location: on this machine, or of a deployment."""

from __future__ import annotations

import asyncio
import shlex
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import aiofiles.os
from msgspec import Struct
from msgspec.structs import asdict, replace

from streamflow_io.processes import start_process

from .node_commands import NodeRuntimeError
from .node_runtime import NodeJob, NodeRuntime
from .protocol import (
    CommittedEvent,
    GatedInput,
    InputStream,
    JobSpec,
    OutputRule,
    RateLimit,
    StreamEvent,
    WarningEvent,
    WatchedOutput,
)

if TYPE_CHECKING:
    from streamflow.core.deployment import Connector, ExecutionLocation

    from .access import Access

_TEXT = "what a producer writes"
_SLOWLY = f"(printf '%s' '{_TEXT[:7]}'; sleep 0.2; echo '{_TEXT[7:]}') > file"
_AT_COMMIT = "consumers start at commit"
_NO_GATE = "`start: producer` waits before the command, not inside it"
_OPENINGS = 5  # each may be seen by chance
_CALL_SECONDS = 15.0
_SENT = 1 << 26
_MB = 10**6
# A job that is limited to this many bytes per second writes for 2 s.
_RATE = 20 * _MB
_WRITTEN = 2 * _RATE
#: The consequence if the kernel refuses a system call.
INSTEAD = {
    "kcmp": "openings of a stream are counted by their notices",
    "pidfd_getfd": "a listing under `no_update` waits until the Directory is complete",
    "process_vm_readv": "the gate reads paths in /proc/PID/mem",
    "seccomp": "there is no gate: commands that look at a stream by its name get whole files",
}


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


async def self_test(location: TriedLocation) -> list[LocationFinding]:
    """Try everything that jobs need of a node runtime."""
    jobs = _SelfTest(location)
    findings = [
        await _try(location, "commit tokens", jobs.commit, "consumers start when the producer has ended"),
        await _try(location, "byte streams", jobs.stream, _AT_COMMIT),
        await _try(location, "gate", jobs.gate, _NO_GATE),
    ]
    if location.runtime.unlimited is None:
        findings.append(
            await _try(location, "limits", jobs.limit, "`limited` and `required` do not hold I/O tasks back")
        )
    return findings


async def contained_test(location: TriedLocation) -> list[LocationFinding]:
    """Try what containers are known to refuse, and report what is done instead."""
    jobs = _SelfTest(location)
    fails = "a reader that opens its input twice may get a part of it: remove `streamable` from such inputs"
    return [
        await _try(location, "gate, Directory", jobs.directory_gate, _NO_GATE),
        await _try(location, "second opening", jobs.second_opening, fails),
        await _try_calls(location.runtime),
    ]


async def pair_test(location: TriedLocation, reader: TriedLocation) -> list[LocationFinding]:
    """Try whether jobs at one location can read of jobs at another, on the same host."""
    jobs = _SelfTest(location, reader)
    return [
        await _try(location, "byte streams between two", jobs.stream, _AT_COMMIT),
        await _try(location, "gate between two", jobs.gate, _AT_COMMIT),
    ]


async def link_rate(location: TriedLocation, reader: TriedLocation) -> float:
    """Return the bytes per second of a byte stream by TCP, from a file in the page cache of a location.

    :param reader: the location of the consumer, which has reached the other location before
    :raises BrokenError: if the stream fails, or takes too long
    """
    try:
        return await asyncio.wait_for(_SelfTest(location, reader).send(), location.seconds)
    except asyncio.TimeoutError:
        raise BrokenError(f"nothing came within {location.seconds:.0f} s") from None
    except (OSError, NodeRuntimeError) as error:
        raise BrokenError(str(error)) from None


async def _try_calls(runtime: NodeRuntime) -> LocationFinding:
    """Try the system calls that help `sfio-node`, and that the profile of a container may refuse."""
    name = "system calls"
    try:
        said, code = await runtime.run([runtime.binary, "refused"], _CALL_SECONDS)
    except NodeRuntimeError as error:
        return LocationFinding(name, None, str(error))
    if code != 0:
        return LocationFinding(name, None, said)
    refused = said.split()
    if not refused:
        return LocationFinding(name, True, "none is refused that helps")
    otherwise = "; ".join(INSTEAD[call] for call in refused if call in INSTEAD)
    return LocationFinding(name, None, f"refused: {', '.join(refused)}", otherwise)


async def _try(
    location: TriedLocation, name: str, attempt: Callable[[], Awaitable[str]], otherwise: str
) -> LocationFinding:
    try:
        return LocationFinding(name, True, await asyncio.wait_for(attempt(), location.seconds))
    except asyncio.TimeoutError:
        return LocationFinding(name, False, f"nothing came within {location.seconds:.0f} s", otherwise)
    except (BrokenError, OSError, NodeRuntimeError) as error:
        return LocationFinding(name, False, str(error), otherwise)


class _ScriptJob(Struct, frozen=True):
    """A script that runs as a job, in a directory."""

    job: NodeJob
    spec: JobSpec
    script: str
    directory: PurePosixPath


class _SelfTest:
    """Small jobs. Each shows that one thing works.

    :param reader: the location of consumers; None: the location of the producers
    """

    def __init__(self, location: TriedLocation, reader: TriedLocation | None = None) -> None:
        self._location = location
        self._reader = reader or location

    async def commit(self) -> str:
        """Show that a file is known to be committed while its job goes on."""
        directory = await self._location.make("commit")
        producer = await self._location.runtime.create_job("commit")
        script = f"echo '{_TEXT}' > file; sleep {self._location.seconds:.0f}"
        running = asyncio.ensure_future(
            self._run(self._location, _ScriptJob(producer, _writer(directory), script, directory))
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
        """Show that a file is read while it is written."""
        directory, there, producer, consumer = await self._pair("stream")
        stream = self._stream(producer, directory, there)
        await self._finish(
            _ScriptJob(producer, _writer(directory), _SLOWLY, directory),
            _ScriptJob(consumer, JobSpec(name="consumer", streams=(stream,)), "cat fifo > copy", there),
        )
        return "a reader got every byte, and the end"

    async def send(self) -> float:
        """Send a file to the reader by a link; return the bytes per second."""
        here, there = await self._location.make("sent"), await self._reader.make("received")
        writer, reader = self._location.runtime, self._reader.runtime
        producer, consumer = await writer.create_job("producer"), await reader.create_job("consumer")
        stream = InputStream(
            name="producer",
            port="file",
            path=str(here / "file"),
            link=writer.link(producer.identifier, reader),
            target={"fifo": str(there / "fifo")},
        )
        sends = _ScriptJob(
            producer, _writer(here), f"head -c {_SENT} /dev/zero > file; sleep {self._location.seconds:.0f}", here
        )
        receives = _ScriptJob(consumer, JobSpec(name="consumer", streams=(stream,)), "cat fifo > /dev/null", there)
        sending = asyncio.ensure_future(self._run(self._location, sends))
        try:
            # From then on, only the network is waited for.
            await _wait_for_commit(producer)
            await self._run(self._reader, receives)
        finally:
            await asyncio.gather(producer.cancel(), consumer.cancel())
            await asyncio.gather(sending, return_exceptions=True)
        async for event in consumer.events():
            if isinstance(event, StreamEvent) and event.bytes == _SENT:
                return event.bytes / max(event.last - event.first, 1e-3)
        raise BrokenError("the reader did not get every byte")

    async def limit(self) -> str:
        """Show that a job moves its data no faster than its limit."""
        directory = await self._location.make("limit")
        job = await self._location.runtime.create_job("limit")
        limit = RateLimit(rate=_RATE, direction="write", path=str(directory))
        command = _ScriptJob(job, JobSpec(name="limit", limit=limit), f"head -c {_WRITTEN} /dev/zero > file", directory)
        try:
            await self._run(self._location, command)
        finally:
            await job.cancel()
        async for event in job.events():
            if isinstance(event, WarningEvent):
                raise BrokenError(event.message)
        ended = await job.exit
        seconds = (ended.ended or 0.0) - (ended.started or 0.0)
        found = f"a job that may write {_RATE / _MB:.0f} MB/s has written {_WRITTEN / max(seconds, 1e-3) / _MB:.0f}"
        if not ended.usage.paused and seconds < _WRITTEN / _RATE / 2:
            raise BrokenError(found)
        return found

    async def second_opening(self) -> str:
        """Show that a stream that is opened twice ends the job, before its results are taken for whole."""
        for number in range(_OPENINGS):
            directory, there, producer, consumer = await self._pair(f"twice{number}")
            stream = self._stream(producer, directory, there)
            script = "cat fifo > one & cat fifo > copy & wait"
            try:
                await self._finish(
                    _ScriptJob(producer, _writer(directory), _SLOWLY, directory),
                    _ScriptJob(consumer, JobSpec(name="consumer", streams=(stream,)), script, there),
                )
            except BrokenError:
                exit_event = await consumer.exit
                if not exit_event.success and "opened again" in str(exit_event.message):
                    continue
            raise BrokenError("two programs have opened a stream, and only one of them was seen")
        return "was seen each time, and has ended the job: a part of a stream never counts as all of it"

    async def gate(self) -> str:
        """Show that a command runs, and waits for a missing file."""
        directory, there, producer, consumer = await self._pair("gate")
        gate = GatedInput(**self._shared(producer, directory), target=str(there / "gated"), kind="file")
        await self._pass_gate(
            _ScriptJob(producer, _writer(directory), f"echo '{_TEXT}' > file", directory),
            _ScriptJob(consumer, JobSpec(name="consumer", gates=(gate,)), "cat gated > copy", there),
        )
        return "a command was held at a file until that was committed"

    async def directory_gate(self) -> str:
        """Show that a command lists a directory while it is filled."""
        directory, there, producer, consumer = await self._pair("directory")
        rule = OutputRule(globs=(), committed="on_n_files", n_files=2)
        output = WatchedOutput(port="file", root=str(directory), globs=("file",), kind="directory", rules=(rule,))
        gate = GatedInput(
            **self._shared(producer, directory),
            target=str(there / "gated"),
            kind="directory",
            mode="no_update",
        )
        script = f"mkdir file; printf '%s' '{_TEXT[:7]}' > file/1; sleep 0.2; echo '{_TEXT[7:]}' > file/2"
        await self._pass_gate(
            _ScriptJob(producer, JobSpec(name="producer", outputs=(output,)), script, directory),
            _ScriptJob(consumer, JobSpec(name="consumer", gates=(gate,)), "cat gated/* > copy", there),
        )
        return "a command that lists a directory was held until its files were committed"

    async def _pair(self, name: str) -> tuple[PurePosixPath, PurePosixPath, NodeJob, NodeJob]:
        """Return a directory, as the producer has it and as the consumer has it, and both jobs."""
        directory = await self._location.make(name if self._reader is self._location else f"{name}-between")
        writer, reader = self._location.runtime, self._reader.runtime
        if (obstacle := await reader.obstacle(writer, directory, gate=True)) is not None:
            raise BrokenError(obstacle)
        there = reader.path_of(writer, directory)
        assert there is not None, "what is no obstacle is seen"
        return directory, there, await writer.create_job("producer"), await reader.create_job("consumer")

    def _shared(self, producer: NodeJob, directory: PurePosixPath) -> dict[str, Any]:
        """The common fields of a consumer's input, which the producer writes."""
        shared = producer.shared_with(self._reader.runtime, directory / "file")
        assert shared is not None, "what is no obstacle is shared"
        return {**asdict(shared), "name": "producer", "port": "file"}

    def _stream(self, producer: NodeJob, directory: PurePosixPath, there: PurePosixPath) -> InputStream:
        return InputStream(**self._shared(producer, directory), target={"fifo": str(there / "fifo")})

    async def _pass_gate(self, producer: _ScriptJob, consumer: _ScriptJob) -> None:
        """Run a producer once its consumer runs, which is then held at the gate."""
        # Without a gate, or with few slots in a queue, the consumer does not begin before the file exists.
        wait = f"for i in $(seq {self._location.seconds:.0f}); do test -e begun && break; sleep 0.1; done; sleep 0.2"
        producer = replace(producer, script=f"{wait}; {producer.script}")
        await self._finish(producer, replace(consumer, script=f"echo > begun; {consumer.script}"))
        async for event in consumer.job.events():
            if isinstance(event, WarningEvent):
                raise BrokenError(event.message)

    async def _run(self, location: TriedLocation, command: _ScriptJob) -> None:
        try:
            await location.run(command.job, command.spec, command.script, command.directory)
        except BrokenError:
            if not await command.job.has_started():
                command.job.abandon()
            raise

    async def _finish(self, producer: _ScriptJob, consumer: _ScriptJob) -> None:
        """Run both until they end. The consumer must have copied what the producer wrote."""
        there = ((self._location, producer), (self._reader, consumer))
        running = [asyncio.ensure_future(self._run(*command)) for command in there]
        try:
            await asyncio.gather(*running)
        finally:
            await asyncio.gather(producer.job.cancel(), consumer.job.cancel())
            await asyncio.gather(*running, return_exceptions=True)
        if (found := (await self._reader.read(consumer.directory / "copy")).strip()) != _TEXT:
            raise BrokenError(f"the reader got {found!r}")


async def _wait_for_commit(job: NodeJob) -> None:
    async for event in job.events():
        if isinstance(event, WarningEvent):
            raise BrokenError(event.message)
        if isinstance(event, CommittedEvent):
            return
    raise BrokenError("the job ended without a commit")


def _writer(directory: PurePosixPath) -> JobSpec:
    """A job that writes `file`, which is committed when it is closed."""
    rule = OutputRule(globs=(), committed="on_close")
    output = WatchedOutput(port="file", root=str(directory), globs=("file",), kind="file", rules=(rule,))
    return JobSpec(name="producer", outputs=(output,))
