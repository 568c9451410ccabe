"""A node runtime as the driver sees it, at any location: its jobs, their events, and which jobs can read each other."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from abc import abstractmethod
from asyncio import FIRST_COMPLETED
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial
from pathlib import PurePath, PurePosixPath
from typing import Literal, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from .locations import Place
from .node_commands import NodeCommands, NodeRuntimeError
from .protocol import CommittedEvent, Event, ExitEvent, JobLimits, JobSpec, Link, StartedEvent
from .wire import job_of, parse_event, text_of

logger = logging.getLogger("streamflow")

ENDED = "sfio-node serve has ended"
# Seconds in which a silent wrapper may begin, and seconds between two looks for it.
_START_SECONDS = 1.0
_LOOK_SECONDS = 0.05
# The bytes of a line that a message shows.
_SHOWN = 1000

Waiting = Callable[[], Awaitable[object]]
Globs = Callable[[str], Sequence[str]]
Made = TypeVar("Made", bound="NodeJob")

# Seconds between two tries to tell a job its limit.
_RETRY_SECONDS = 2.0
#: A larger limit is no limit.
_MOST = 2**62


class NewLimits:
    """The limit of one job that has changed since its start.

    Only the latest value is told, in one message after the other. A message that fails is tried again until the job
    has ended.

    :param tell: tells the job its limit, as JSON; may raise any exception
    :param ended: is done when the job has ended
    :param seconds: the shortest time between two messages; the end of a limit is told at once, because the job waits
    """

    def __init__(
        self, tell: Callable[[str], Awaitable[None]], ended: asyncio.Future[ExitEvent], seconds: float
    ) -> None:
        self._tell = tell
        self._ended = ended
        self._seconds = seconds
        self._limits = JobLimits(rate=None)
        self._has_begun = False
        self._untold = False
        # Set only while limits are told: most jobs have none.
        self._ends: asyncio.Event | None = None
        self._telling: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Note that the job can be told its limits from now on."""
        self._has_begun = True
        self._go_on()

    def change(self, rate: float | None) -> None:
        """Change the limit; see :meth:`NodeJob.limit`."""
        limit = None if rate is None or rate > _MOST else max(1, round(rate))
        self._limits = JobLimits(rate=limit)
        self._untold = True
        if limit is None and self._ends is not None:
            self._ends.set()
        self._go_on()

    def _go_on(self) -> None:
        if self._untold and self._has_begun and (self._telling is None or self._telling.done()):
            self._telling = asyncio.create_task(self._tell_all())

    async def _tell_all(self) -> None:
        while self._untold and not self._ended.done():
            self._untold, pause = False, self._seconds
            ends = self._ends = asyncio.Event()
            try:
                await self._tell(text_of(self._limits))
            except Exception as error:  # each connector raises errors of its own
                logger.debug(f"A job did not get its limits: {error}")
                self._untold, pause = True, _RETRY_SECONDS
            await self._rest(pause, ends)

    async def _rest(self, seconds: float, ended: asyncio.Event) -> None:
        ends = asyncio.create_task(ended.wait())
        try:
            either = cast("set[asyncio.Future[object]]", {ends, self._ended})
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ends.cancel()


class SharedFile(Struct, frozen=True):
    """A file of a producer as its reader has it; for the fields of these names, see :class:`InputStream`."""

    path: str
    named: str | None
    events: str
    lock: bool


class NodeJob:
    """A job under `sfio-node`, as the driver sees it.

    :ivar directory: its directory in the run directory; at the location of the runtime, as all paths here
    :ivar waiting: returns when every input of the job is there; None: every input is there from the start
    :ivar exit: its last event, when it has come
    :ivar fifos: the paths at which the command finds its streams
    :ivar discarded: by output: the commit of a file that is not there as a whole any more
    """

    def __init__(self, runtime: NodeRuntime, identifier: str, waiting: Waiting | None = None) -> None:
        self.runtime = runtime
        self.identifier = identifier
        self.waiting = waiting
        self.directory = PurePosixPath(runtime.directory, "jobs", identifier)
        self.exit: asyncio.Future[ExitEvent] = asyncio.get_running_loop().create_future()
        self.fifos: list[str] = []
        self.discarded: dict[str, CommittedEvent] = {}
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
        """The process of its `sfio-node exec` on its node; None: no start was reported."""
        return self._pid

    def shared_with(self, consumer: NodeRuntime, path: PurePath) -> SharedFile | None:
        """A file of this job as a job under another runtime has it; None: the other job does not have the file.

        :meth:`NodeRuntime.obstacle` has to be called before.

        :param path: absolute, as this job has it
        """
        here, events = (consumer.path_of(self.runtime, file) for file in (path, self.events_path))
        if here is None or events is None or not consumer.shares_files(self.runtime):
            return None
        is_own = consumer is self.runtime
        return SharedFile(str(here), None if here == path else str(path), str(events), not is_own)

    def link_to(self, consumer: NodeRuntime) -> Link | None:
        """The link by which a job under another runtime reads streams of this one; None: the other job has the files.

        :raises NodeRuntimeError: if this job's runtime has no address; see :meth:`NodeRuntime.obstacle`
        """
        return None if consumer.shares_files(self.runtime) else self.runtime.link(self.identifier, consumer)

    def held(self, port: str, path: str) -> PurePosixPath | None:
        """The path where an output is held until the job has succeeded; then it is in the output directory, too.

        Only a job that :meth:`sees` the path can read it there.

        :param path: relative to the output directory
        :return: None: the output is only in the output directory, where it is written
        """
        return None

    def sees(self, path: PurePosixPath) -> bool:
        """Whether other jobs hold outputs at this path, and the command of this job can read them there.

        No other process can open the path.
        """
        return False

    def fed(self, path: str) -> list[str]:
        """The words before a command that let it open a file as standard input once it runs.

        :param path: relative to its working directory, or absolute
        """
        return ["/bin/sh", "-c", 'exec "$@" < "$0"', path]

    async def wrap(self, spec: JobSpec) -> list[str]:
        """Write `job.json`, and return the words to put before the command that is to run as this job.

        :raises NodeRuntimeError: if `job.json` cannot be written
        """
        self._launched = True
        targets = [*(stream.target for stream in spec.streams), *(part.target for part in spec.parts)]
        self.fifos = [str(target["fifo"]) for target in targets if "fifo" in target]
        await self.runtime.write_spec(self, text_of(spec))
        self._limits.begin()
        return [self.runtime.binary, self.runtime.wrapper, "--job", str(self.directory), "--"]

    async def events(self) -> AsyncIterator[Event]:
        """Yield the events of the job in order, up to the exit event. For one reader.

        :raises NodeRuntimeError: if the node runtime ends before the job
        """
        while True:
            event = await self._events.get()
            if isinstance(event, NodeRuntimeError):
                raise event
            yield event
            if isinstance(event, ExitEvent):
                # Other jobs may read its streams for a long time yet.
                del self._events
                return

    async def has_started(self) -> bool:
        """Whether the wrapper of the job has begun to run.

        :raises NodeRuntimeError: if the node runtime has ended, and its files are gone
        """
        return self._has_spoken or await self.runtime.has_events(self)

    async def collected(self) -> None:
        """Wait until the outputs of a successful command are in its output directory. Does nothing if none is held."""

    def blame(self, failure: str) -> None:
        """Check that the runtime has no part in the failure of the job.

        :raises AttemptLostError: if the runtime may have a part in it
        """

    def limit(self, rate: float | None) -> None:
        """Limit the rate at which the job moves bytes from now on. May be called at any time, never waits or fails.

        The job is told soon; elsewhere than on the driver's node at most every 2 s, but at once if a limit ends. This
        has no effect if the job has ended, has no :attr:`~.protocol.JobSpec.limit`, or cannot be paused (see
        :attr:`NodeRuntime.unlimited`).

        :param rate: bytes per second; None: no limit
        """
        if self.runtime.unlimited is None:
            self._limits.change(rate)

    def abandon(self) -> None:
        """Note that the command has ended without the wrapper, or will never be started."""
        self._launched = False

    async def cancel(self) -> None:
        """End the job's process tree; returns when it has ended. Does nothing for a job that does not run.

        A job that is not started yet, or still waits in a queue, ends when it is started, before its command.
        """
        if self.exit.done() or not self._launched:
            return
        # The job may end before it could be told.
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
        """Return whether the wrapper runs. If not, it ends by itself should it still be started, as from a queue."""
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
            event = replace(event, success=False, reason="error", message=self._trouble)
        if isinstance(event, StartedEvent):
            self._pid = event.pid
        if isinstance(event, CommittedEvent) and event.discarded:
            self.discarded[event.port] = event
        self._events.put_nowait(event)
        if isinstance(event, ExitEvent) and not self.exit.done():
            self.exit.set_result(event)

    def refuse(self, reason: str) -> None:
        """End the job, and let it fail: one of its events is not understood. No event is ever left out."""
        if self._trouble is None:
            self._trouble = reason
            self._ending = asyncio.ensure_future(self.cancel())

    def lose(self, error: NodeRuntimeError) -> None:
        """Note that no more events of the job come."""
        self._events.put_nowait(error)
        if not self.exit.done():
            self.exit.set_exception(error)
            self.exit.exception()  # perhaps no code awaits it


class NodeRuntime(NodeCommands):
    """`sfio-node serve` at one location, for as long as the driver wants it.

    Guarantee: when the driver is gone, in whatever way, all jobs of the runtime end, and leave nothing at the location.

    :ivar address: where its links listen; None: other locations cannot read its streams
    :ivar tls: whether its links, in both directions, are encrypted
    :ivar place: the files of its host that it sees; None: no other runtime sees its run directory
    :ivar is_here: whether it is on the driver's node, and sees all files that the driver sees
    :ivar wrapper: the command of `sfio-node` that runs a job; `run`: on a node that a queue manager chooses
    :ivar unlimited: why its jobs cannot be paused to keep them to a rate; None: no obstacle
    :ivar limit_seconds: the least time between two messages to a job about its limits
    :ivar starts_commands: whether `serve` starts the commands of jobs; else a connector of StreamFlow does
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
        super().__init__(location, binary, directory)
        self.address = address
        self._jobs: dict[str, NodeJob] = {}
        self._count = 0
        self._lost: str | None = None
        self._tried: dict[tuple[NodeRuntime, str], asyncio.Task[str | None]] = {}
        self._neighbours: set[NodeRuntime] = {self}

    @property
    def program(self) -> str:
        """The name of its `serve` in messages."""
        return f"sfio-node at {self.location}"

    @property
    def ended(self) -> str:
        """The reason why it does not answer any more when it has ended."""
        return f"{ENDED} at {self.location}"

    @property
    def is_ending(self) -> bool:
        """Whether it has ended, or is about to."""
        return self._lost is not None

    @property
    def certificate_path(self) -> PurePosixPath:
        """The file with the certificate of the run, which exists if there is an address."""
        return PurePosixPath(self.directory, "certificate.pem")

    @abstractmethod
    async def check_workdir(self, workdir: str) -> None:
        """Make a work directory of jobs if it is missing, and check which users could replace files in it.

        :raises NodeRuntimeError: if another user could, with the reason, or if that cannot be found out
        """

    async def create_job(
        self,
        name: str,
        reads: Collection[PurePosixPath] = (),
        waiting: Waiting | None = None,
        globs: Globs | None = None,
    ) -> NodeJob:
        """Begin a new job.

        :param name: of the job in the workflow, or another name for people; need not be unique
        :param reads: paths where other jobs hold its inputs, if it can read them there: see :meth:`NodeJob.held`
        :param waiting: see :class:`NodeJob`
        :param globs: returns the globs of an output, relative to its output directory; None: no job reads its outputs
            early
        :raises NodeRuntimeError: if the runtime has ended
        """
        return self._add(name, partial(NodeJob, self, waiting=waiting))

    def _add(self, name: str, make: Callable[[str], Made]) -> Made:
        """Register a new job."""
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
        """Return why a job here cannot read a job's output there while it is written; None: no obstacle.

        This is tried once, and remembered.

        :param directory: the output directory of the job there; None: any directory
        :param gate: whether the job here is to be held at the gate; else it reads bytes
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
        """Return why a job here has no link to jobs there; None: no obstacle. Tried once, and remembered."""
        return await self._obstacle_of_link(other, None)

    def link(self, identifier: str, consumer: NodeRuntime) -> Link:
        """The link by which a job under another runtime reads of a job of this one.

        :raises NodeRuntimeError: if this runtime has no address
        """
        if self.address is None:
            raise NodeRuntimeError(f"sfio-node at {self.location} cannot be reached from elsewhere")
        tls = self.tls or consumer.tls
        return Link(address=self.address, job=identifier, certificate=str(consumer.certificate_path), tls=tls)

    def shares_files(self, other: NodeRuntime) -> bool:
        """Whether jobs here have the files and the events of jobs there, as :meth:`obstacle` has found out."""
        return other in self._neighbours

    def path_of(self, other: NodeRuntime, path: PurePath) -> PurePosixPath | None:
        """The path here of a file of another runtime; None: the file is not here."""
        if other is self:
            return PurePosixPath(path)
        if self.place is None or other.place is None:
            return None
        return self.place.path_of(other.place, PurePosixPath(path))

    async def _obstacle_of_link(self, other: NodeRuntime, why: str | None) -> str | None:
        """Return why a job here cannot read streams of a job there through a link; None: no obstacle.

        :param why: why it cannot read them without a link; None: unknown
        """
        return why or f"{self.location} and {other.location} have no link"

    async def _once(
        self, other: NodeRuntime, attempt: Callable[[NodeRuntime], Coroutine[None, None, str | None]]
    ) -> str | None:
        # A trial of the files says nothing about a link, and the other way round.
        if (key := (other, attempt.__name__)) not in self._tried:
            self._tried[key] = asyncio.create_task(attempt(other))
        return await asyncio.shield(self._tried[key])

    async def _try_files(self, other: NodeRuntime) -> str | None:
        directory = self.path_of(other, other.directory)
        return await self.reaches([self.binary, "reach", "--run", str(directory)], str(directory))

    def check(self) -> None:
        """Check that the runtime has not ended.

        :raises NodeRuntimeError: if it has ended
        """
        if self._lost is not None:
            raise NodeRuntimeError(self._lost)

    @abstractmethod
    async def close(self) -> None:
        """End all jobs and the runtime; nothing is left. May be called twice."""

    @abstractmethod
    async def write_spec(self, job: NodeJob, text: str) -> None:
        """Write the `job.json` of a job.

        :raises NodeRuntimeError: if it cannot be written
        """

    async def run_command(self, job: NodeJob, script: str) -> tuple[str, int]:
        """Run the command of a job, where :attr:`starts_commands`; like :meth:`StreamFlow's <Connector.run>`.

        :param script: for the POSIX shell
        :return: its output on both streams, and its exit code
        :raises NodeRuntimeError: if the runtime ends before the command
        """
        raise NotImplementedError(f"{self.program} starts no commands")

    @abstractmethod
    async def has_events(self, job: NodeJob) -> bool:
        """Whether a job has a file of events.

        :raises NodeRuntimeError: if that cannot be found out
        """

    @abstractmethod
    async def request_cancel(self, job: NodeJob) -> None:
        """Tell the wrapper of a job to end it; returns when the wrapper has been told.

        :raises NodeRuntimeError: if the wrapper cannot be told
        """

    @abstractmethod
    async def write_limits(self, job: NodeJob, text: str) -> None:
        """Replace the limits of a job that runs, or may run.

        :raises NodeRuntimeError: if they cannot be written
        """

    def receive(self, line: bytes) -> None:
        """Pass one line that `serve` prints to the job that it is about."""
        try:
            event = parse_event(line)
        except ValueError as error:
            reason = f"sfio-node at {self.location} has sent an unknown message: {line[:_SHOWN]!r}: {error}"
            if (job := self._jobs.get(job_of(line) or "")) is not None:
                job.refuse(reason)
            else:
                logger.error(reason)
            return
        if (job := self._jobs.get(event.job)) is not None:
            self._pass_on(job, event)

    def _pass_on(self, job: NodeJob, event: Event) -> None:
        job.receive(event)
        if isinstance(event, ExitEvent):
            del self._jobs[event.job]

    def note_silence(self) -> None:
        """Note that `serve` has said nothing for so long that it counts as lost; :meth:`lose` follows."""

    def lose(self, reason: str) -> None:
        """Note that no more events come, and no job can be created any more."""
        if self._lost is None:
            self._lost = reason
        for job in self._jobs.values():
            job.lose(NodeRuntimeError(reason))
        self._jobs.clear()
