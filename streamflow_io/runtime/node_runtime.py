"""A node runtime as the driver sees it, wherever it runs: jobs, their events, and what reads streams of what."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from abc import ABC, abstractmethod
from asyncio import FIRST_COMPLETED
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath, PurePosixPath
from typing import Literal, TypeVar, cast

from streamflow_io.messages import Code, coded

from .new_limits import NewLimits
from .place import Place
from .protocol import Event, ExitEvent, FoundFile, JobSpec, Link, Memory, StartedEvent, StreamPart
from .wire import job_of, parse_event, text_of

logger = logging.getLogger("streamflow")

ENDED = "sfio-node serve has ended"
_REACH_SECONDS = 60.0
# How long a wrapper that nobody has heard of may take to begin, and how often it is looked for.
_START_SECONDS = 1.0
_LOOK_SECONDS = 0.05
_ANSWER_SECONDS = 10.0
# Jobs of a `serve` that was killed alone end within 10 s.
_CLEAR_SECONDS = 20.0
# How long a comparison may take: to begin, and in bytes per second.
_COMPARE_SECONDS = 600.0
_UNLIKE_SECONDS = 600.0
_SLOWEST = 10_000_000
# Bytes of a line that a message shows.
_SHOWN = 1000

Waiting = Callable[[], Awaitable[object]]
Globs = Callable[[str], Sequence[str]]
Made = TypeVar("Made", bound="NodeJob")


class NodeRuntimeError(Exception):
    """The node runtime cannot be used; says why."""


def unsafe_workdir(workdir: str, why: str) -> NodeRuntimeError:
    """The error of a work directory in which another user could put files in the place of what streams.

    :param why: as :func:`streamflow_io.files.stranger` says it
    """
    choose = "set another `workdir` for the deployment, or another TMPDIR where it has no `workdir`"
    return NodeRuntimeError(coded(f"the work directory {workdir} is not safe: {why}: {choose}", Code.UNSAFE_WORKDIR))


class AttemptLostError(NodeRuntimeError):
    """A job was in vain because of what its runtime did for it, which it will not do again; says why.

    The same attempt is to be made once more: the job has not failed.

    :ivar without: what it will be done without
    """

    def __init__(self, without: str, reason: str) -> None:
        super().__init__(reason)
        self.without = without


@dataclass(frozen=True)
class SharedFile:
    """A file of a producer as its reader has it; for the fields of these names, see :class:`InputStream`."""

    path: str
    named: str | None
    events: str
    lock: bool


def seconds_to_compare(size: int) -> float:
    """How long a command may take that compares so many bytes."""
    return _COMPARE_SECONDS + size / _SLOWEST


class NodeJob:
    """A job under `sfio-node`, as the driver sees it.

    :ivar runtime: where it runs
    :ivar directory: its directory in the run directory; at the location of the runtime, as all paths here
    :ivar waiting: returns when nothing that it reads is missing any more; None: nothing ever is
    :ivar exit: its last event, when it has come
    """

    def __init__(self, runtime: NodeRuntime, identifier: str, waiting: Waiting | None = None) -> None:
        self.runtime = runtime
        self.identifier = identifier
        self.waiting = waiting
        self.directory = PurePosixPath(runtime.directory, "jobs", identifier)
        self.exit: asyncio.Future[ExitEvent] = asyncio.get_running_loop().create_future()
        self._limits = NewLimits(partial(runtime.write_limits, self), self.exit, runtime.limit_seconds)
        self._launched = False
        self._has_spoken = False
        self._pid: int | None = None
        self._trouble: str | None = None
        self._ending: asyncio.Task[None] | None = None
        self._events: asyncio.Queue[Event | NodeRuntimeError] = asyncio.Queue()

    @property
    def events_path(self) -> PurePosixPath:
        return self.directory / "events.jsonl"

    @property
    def pid(self) -> int | None:
        """The process of its `sfio-node exec`, when it runs; on the node where it runs."""
        return self._pid

    def shared_with(self, consumer: NodeRuntime, path: PurePath) -> SharedFile | None:
        """How a job under a runtime has a file of this one; None: it has not. :meth:`NodeRuntime.obstacle` comes first.

        :param path: absolute, as this job has it
        """
        here, events = (consumer.path_of(self.runtime, file) for file in (path, self.events_path))
        if here is None or events is None or not consumer.shares_files(self.runtime):
            return None
        is_own = consumer is self.runtime
        return SharedFile(str(here), None if here == path else str(path), str(events), not is_own)

    def link_to(self, consumer: NodeRuntime) -> Link | None:
        """How a job under another runtime reads the streams of this one; None: it has its files.

        :raises NodeRuntimeError: if this job's runtime has no address; see :meth:`NodeRuntime.obstacle`
        """
        return None if consumer.shares_files(self.runtime) else self.runtime.link(self.identifier, consumer)

    def held(self, port: str, path: str) -> PurePosixPath | None:
        """Where an output is held until the job has succeeded, and then is in its output directory, too.

        Only a job that :meth:`sees` it can read it there.

        :param path: relative to the output directory
        :return: None: it is nowhere but in the output directory, as it is written
        """
        return None

    def sees(self, path: PurePosixPath) -> bool:
        """Whether a path is one where others hold what they write, and the command of this job can read it.

        Nobody else can open it.
        """
        return False

    def fed(self, path: str) -> list[str]:
        """The words before a command that opens a file as its standard input when it runs already.

        :param path: relative to its working directory, or absolute
        """
        return ["/bin/sh", "-c", 'exec "$@" < "$0"', path]

    async def wrap(self, spec: JobSpec) -> list[str]:
        """Write `job.json` and give the words to put before the command that shall run as this job.

        :raises NodeRuntimeError: if it cannot be written
        """
        self._launched = True
        await self.runtime.write_spec(self, text_of(spec))
        self._limits.begin()
        return [self.runtime.binary, self.runtime.wrapper, "--job", str(self.directory), "--"]

    async def events(self) -> AsyncIterator[Event]:
        """The events of the job, in order; ends after the exit event. For one reader.

        :raises NodeRuntimeError: if the node runtime ends before the job
        """
        while True:
            event = await self._events.get()
            if isinstance(event, NodeRuntimeError):
                raise event
            yield event
            if isinstance(event, ExitEvent):
                # Others may read its streams for a long time yet.
                del self._events
                return

    async def has_started(self) -> bool:
        """Whether the wrapper of the job has come to run.

        :raises NodeRuntimeError: if the node runtime has ended, and what tells is gone
        """
        return self._has_spoken or await self.runtime.has_events(self)

    async def collected(self) -> None:
        """Wait until what a command has written that has ended well is in its output directory, if it can be."""

    def blame(self, failure: str) -> None:
        """The job has failed; return if its runtime has no part in that.

        :raises AttemptLostError: if it may have
        """

    def limit(self, rate: float | None, input_name: str | None = None) -> None:
        """Let it move bytes no faster from now on. At any time, also before it runs; never waits, and never fails.

        It is told soon; where it runs elsewhere at most every 2 s, but for the end of a limit. Nothing happens where
        the job has ended, has no :attr:`~.protocol.JobSpec.limit`, or cannot be paused (see
        :attr:`NodeRuntime.unlimited`).

        :param rate: bytes per second; None: as fast as it can
        :param input_name: the bytes that are fed to it as this byte stream, see :attr:`~.protocol.InputStream.id`;
            None: those that its processes move
        """
        if input_name is not None or self.runtime.unlimited is None:
            self._limits.change(rate, input_name)

    def abandon(self) -> None:
        """Its command has ended without the wrapper, or will never be started."""
        self._launched = False

    async def cancel(self) -> None:
        """End the job's process tree; returns when it has ended. Does nothing for a job that does not run.

        One that is not started yet, or still waits in a queue, ends when it is started, before its command.
        """
        if self.exit.done() or not self._launched:
            return
        # It may end before it could be told.
        telling = asyncio.ensure_future(self.runtime.request_cancel(self))
        try:
            either = cast("set[asyncio.Future[object]]", {telling, self.exit})
            await asyncio.wait(either, timeout=self.runtime.stop_seconds, return_when=FIRST_COMPLETED)
            if telling.done():
                telling.result()
                if not await self._comes_to_run():
                    return
            await asyncio.wait({self.exit}, timeout=self.runtime.stop_seconds)
        except NodeRuntimeError as error:
            logger.debug(f"Job {self.identifier} could not be cancelled: {error}")
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _comes_to_run(self) -> bool:
        """Whether its wrapper runs; false: it ends by itself, should it ever be started, as it may be in a queue."""
        patience = 0.0 if self.runtime.wrapper == "run" else _START_SECONDS
        deadline = time.monotonic() + patience
        while not await self.has_started():
            if time.monotonic() >= deadline:
                return False
            await asyncio.wait({self.exit}, timeout=_LOOK_SECONDS)
        return True

    def receive(self, event: Event) -> None:
        self._has_spoken = True
        if isinstance(event, ExitEvent) and self._trouble is not None:
            event = event.model_copy(update={"success": False, "reason": "error", "message": self._trouble})
        if isinstance(event, StartedEvent):
            self._pid = event.pid
        self._events.put_nowait(event)
        if isinstance(event, ExitEvent) and not self.exit.done():
            self.exit.set_result(event)

    def refuse(self, reason: str) -> None:
        """Something that was told of it is not understood: it is ended, and fails. An event is never left out."""
        if self._trouble is None:
            self._trouble = reason
            self._ending = asyncio.ensure_future(self.cancel())

    def lose(self, error: NodeRuntimeError) -> None:
        """Nothing more will be told of it."""
        self._events.put_nowait(error)
        if not self.exit.done():
            self.exit.set_exception(error)
            self.exit.exception()  # It may be that nobody waits for it.


class NodeRuntime(ABC):
    """`sfio-node serve` at one location, for as long as the driver wants it.

    Guarantee: when the driver is gone, however it ended, all jobs of the runtime end, and nothing of it is left there.

    :ivar location: what it is called in messages
    :ivar binary: `sfio-node` at the location
    :ivar directory: the run directory, at the location
    :ivar address: where its links listen; None: its streams are not read from elsewhere
    :ivar tls: what its links bring is encrypted, and what those of its jobs do
    :ivar place: what it sees of the files of its host; None: nobody else sees its run directory
    :ivar is_here: it is on the driver's node, and sees all that the driver does
    :ivar wrapper: the command of `sfio-node` that runs a job; `run`: on a node that a queue manager chooses
    :ivar unlimited: why its jobs are not paused to keep them to a rate; None: they are
    :ivar limit_seconds: at most so often a job is told its limits
    :ivar starts_commands: `serve` starts the commands of jobs; else a connector of StreamFlow does
    :ivar stop_seconds: how long a job may take to end when it is cancelled
    """

    is_here = False
    wrapper: Literal["exec", "run"] = "exec"
    starts_commands = False
    stop_seconds = 15.0
    tls = False
    place: Place | None = None
    unlimited: str | None = None
    limit_seconds = 0.0

    def __init__(self, location: str, binary: str, directory: PurePath, address: str | None = None) -> None:
        self.location = location
        self.binary = binary
        self.directory = directory
        self.address = address
        self._jobs: dict[str, NodeJob] = {}
        self._count = 0
        self._lost: str | None = None
        self._tried: dict[tuple[NodeRuntime, str], asyncio.Task[str | None]] = {}
        self._neighbours: set[NodeRuntime] = {self}

    @property
    def program(self) -> str:
        """Its `serve`, as it is called in messages."""
        return f"sfio-node at {self.location}"

    @property
    def ended(self) -> str:
        """Why nothing can be asked of it any more when it has ended."""
        return f"{ENDED} at {self.location}"

    @property
    def certificate_path(self) -> PurePosixPath:
        """The file with the certificate of the run; there is one where there is an address."""
        return PurePosixPath(self.directory, "certificate.pem")

    @abstractmethod
    async def check_workdir(self, workdir: str) -> None:
        """Make a work directory of jobs if it is missing, and look who could replace what is in it.

        :raises NodeRuntimeError: if another user could, with the reason, or if that cannot be told
        """

    async def create_job(
        self,
        name: str,
        reads: Collection[PurePosixPath] = (),
        waiting: Waiting | None = None,
        globs: Globs | None = None,
    ) -> NodeJob:
        """Begin a new job.

        :param name: that of the job in the workflow, or another for people who read it; need not be unique
        :param reads: where others hold what it is to read, if it can: see :meth:`NodeJob.held`
        :param waiting: see :class:`NodeJob`
        :param globs: gives those of an output, relative to its output directory; None: nobody reads its outputs early
        :raises NodeRuntimeError: if the runtime has ended
        """
        return self._add(name, partial(NodeJob, self, waiting=waiting))

    def _add(self, name: str, make: Callable[[str], Made]) -> Made:
        """A new job, by its identifier."""
        self.check()
        self._count += 1
        readable = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.")[:80]
        identifier = f"{self._count:06d}-{readable}"
        job = make(identifier)
        self._jobs[identifier] = job
        return job

    async def obstacle(
        self, other: NodeRuntime, directory: PurePath | None = None, *, gate: bool = False
    ) -> str | None:
        """Why a job here cannot read what a job there writes while it does; None: it can. Tried once, and remembered.

        :param directory: the output directory of the job there; None: of any
        :param gate: whether it is to be held at the gate; else it reads bytes
        """
        if other is self:
            return None
        why: str | None = None
        if self.place is not None and other.place is not None:
            why = "they share no directory of one host"
            if all(self.path_of(other, path) is not None for path in (other.directory, directory or other.directory)):
                why = await self._once(other, self._try_files)
                if why is None:
                    self._neighbours.add(other)
                    return None
        if gate:
            return why or "files at the gate do not leave it"
        return await self._obstacle_of_link(other, why)

    async def no_link(self, other: NodeRuntime) -> str | None:
        """Why a job here has no link to those there; None: it has. Tried once, and remembered."""
        return await self._obstacle_of_link(other, None)

    def link(self, job: str, consumer: NodeRuntime) -> Link:
        """How a job under another runtime reads of one of this.

        :param job: the identifier of that
        :raises NodeRuntimeError: if this runtime has no address
        """
        if self.address is None:
            raise NodeRuntimeError(f"sfio-node at {self.location} cannot be reached from elsewhere")
        tls = self.tls or consumer.tls
        return Link(address=self.address, job=job, certificate=str(consumer.certificate_path), tls=tls)

    def shares_files(self, other: NodeRuntime) -> bool:
        """Whether jobs here have the files of jobs there, and their events; :meth:`obstacle` finds out."""
        return other in self._neighbours

    def path_of(self, other: NodeRuntime, path: PurePath) -> PurePosixPath | None:
        """Where a file of another runtime is here; None: it is not."""
        if other is self:
            return PurePosixPath(path)
        if self.place is None or other.place is None:
            return None
        return self.place.path_of(other.place, PurePosixPath(path))

    async def _obstacle_of_link(self, other: NodeRuntime, why: str | None) -> str | None:
        """Why a job here cannot read streams of a job there through a link; None: it can.

        :param why: it cannot without one, if that is known
        """
        return why or f"{self.location} and {other.location} have no link"

    async def _once(
        self, other: NodeRuntime, attempt: Callable[[NodeRuntime], Coroutine[None, None, str | None]]
    ) -> str | None:
        # What was found of the files says nothing of a link, nor this of them.
        if (key := (other, attempt.__name__)) not in self._tried:
            self._tried[key] = asyncio.create_task(attempt(other))
        return await asyncio.shield(self._tried[key])

    async def _try_files(self, other: NodeRuntime) -> str | None:
        directory = self.path_of(other, other.directory)
        return await self._reaches([self.binary, "reach", "--run", str(directory)], str(directory))

    async def _reaches(self, words: list[str], what: str) -> str | None:
        """Why a command that tries something does not succeed; None: it does."""
        try:
            said, code = await self.run(words, _REACH_SECONDS)
        except NodeRuntimeError as error:
            return str(error)
        return None if code == 0 else (said.splitlines() or [f"{what}: exit code {code}"])[-1]

    def check(self) -> None:
        """:raises NodeRuntimeError: if it has ended"""
        if self._lost is not None:
            raise NodeRuntimeError(self._lost)

    @abstractmethod
    async def close(self) -> None:
        """End all jobs and the runtime; nothing is left. May be called twice."""

    @abstractmethod
    async def write_spec(self, job: NodeJob, text: str) -> None:
        """Write its `job.json`.

        :raises NodeRuntimeError: if that cannot be done
        """

    async def run_command(self, job: NodeJob, script: str) -> tuple[str, int]:
        """Run the command of a job, where :attr:`starts_commands`; like :meth:`StreamFlow's <Connector.run>`.

        :param script: for the POSIX shell
        :return: what it printed on either stream, and its exit code
        :raises NodeRuntimeError: if the runtime ends before it
        """
        raise NotImplementedError(f"{self.program} starts no commands")

    @abstractmethod
    async def has_events(self, job: NodeJob) -> bool:
        """Whether there is a file with its events.

        :raises NodeRuntimeError: if that cannot be told
        """

    @abstractmethod
    async def request_cancel(self, job: NodeJob) -> None:
        """Tell its wrapper to end it; returns when that has been told.

        :raises NodeRuntimeError: if that cannot be done
        """

    @abstractmethod
    async def write_limits(self, job: NodeJob, text: str) -> None:
        """Replace the limits of a job that runs, or may run.

        :raises NodeRuntimeError: if that cannot be done
        """

    async def begins_with(self, part: StreamPart) -> bool:
        """Whether a file begins with bytes that were read of it. Reads so many.

        :raises NodeRuntimeError: if that cannot be told
        """
        text = part.model_dump_json(exclude={"path"}, exclude_defaults=True)
        words = [self.binary, "compare", "--file", part.path, "--part", text]
        said, code = await self.run(words, seconds_to_compare(part.bytes))
        if code not in (0, 1):
            raise NodeRuntimeError(
                f"{part.path} at {self.location} cannot be compared with what was read of it: {said}"
            )
        return code == 0

    async def unlike(self, one: str, other: str) -> list[tuple[str, str, str]] | None:
        """In which lines two files differ: where each is, and both.

        :return: None: in something else, or too much of them differs
        :raises NodeRuntimeError: if that cannot be told
        """
        words = [self.binary, "unlike", "--one", one, "--other", other]
        said, code = await self.run(words, _UNLIKE_SECONDS)
        if code not in (0, 1):
            raise NodeRuntimeError(f"{self.location}: {one} cannot be compared with {other}: {said}")
        lines = json.loads(said) if code == 0 else []
        return [(line["at"], line["one"], line["other"]) for line in lines] if code == 0 else None

    async def find(self, path: PurePath | str) -> FoundFile:
        """Which file a path is.

        :raises NodeRuntimeError: if it cannot be read there, or that cannot be told
        """
        said, code = await self.run([self.binary, "identity", "--of", str(path)], _REACH_SECONDS)
        if code != 0:
            raise NodeRuntimeError(f"{self.location}: {said}")
        try:
            return FoundFile.model_validate(json.loads(said))
        except ValueError:
            raise NodeRuntimeError(f"{self.location}: of {path} is not told which file it is: {said}") from None

    async def memory(self) -> Memory:
        """How much memory there is.

        :raises NodeRuntimeError: if that cannot be told
        """
        said, _ = await self.run([self.binary, "memory"], _ANSWER_SECONDS)
        try:
            return Memory.model_validate_json(said)
        except ValueError:
            raise NodeRuntimeError(f"{self.location}: how much memory there is is not told: {said}") from None

    async def why_not(self, file: FoundFile) -> str | None:
        """Why a file that was found elsewhere is not by the same path here; None: it is.

        :raises NodeRuntimeError: if that cannot be told
        """
        identity = file.identity.model_copy(update={"device": None}).model_dump_json()
        words = [self.binary, "identity", "--of", str(file.path), "--is", identity]
        return await self._reaches(words, str(file.path))

    @abstractmethod
    async def run(self, words: list[str], seconds: float) -> tuple[str, int]:
        """Run a command at the location.

        :return: what it says, and its exit code
        :raises NodeRuntimeError: if it cannot be run, or takes longer
        """

    def receive(self, line: bytes) -> None:
        """Hand one line of what `serve` prints to its job."""
        try:
            event = parse_event(line)
        except ValueError as error:
            reason = f"sfio-node at {self.location} says what is not understood: {line[:_SHOWN]!r}: {error}"
            if (job := self._jobs.get(job_of(line) or "")) is not None:
                job.refuse(reason)
            else:
                logger.error(reason)
            return
        if (job := self._jobs.get(event.job)) is not None:
            job.receive(event)
            if isinstance(event, ExitEvent):
                del self._jobs[event.job]

    async def _clear(self) -> None:
        """End what is left of jobs when `serve` and all of `exec` were killed: nobody else can.

        Where a container or a machine is gone, nothing is left.
        """
        words = [self.binary, "clear", "--directory", str(self.directory)]
        try:
            said, _ = await self.run(words, _CLEAR_SECONDS)
        except NodeRuntimeError as error:
            logger.debug(f"{self.directory} at {self.location} cannot be cleared: {error}")
        else:
            if said.startswith("sfio-node: "):
                logger.warning(f"{self.location}: processes of jobs may be left: {said.removeprefix('sfio-node: ')}")

    def lose(self, reason: str) -> None:
        """Nothing more will come; no job can be created any more."""
        if self._lost is None:
            self._lost = reason
        for job in self._jobs.values():
            job.lose(NodeRuntimeError(reason))
        self._jobs.clear()
