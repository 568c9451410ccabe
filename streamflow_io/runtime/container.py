"""The node runtime in a container: `sfio-node serve` and `exec` run in it, and shared files are in its volumes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from .access import Access
from .binary import Binary, Delivered, Neighbours, deliver
from .conversation import LINE_LIMIT, Conversation, follow, ready
from .links import LinkedRuntime, Links
from .node_runtime import NodeJob, NodeRuntimeError
from .place import Place
from .protocol import PrintedEvent, ReturnedEvent, SpecAnswer
from .wire import parse_said

_START_SECONDS = 30.0
_ALIVE_SECONDS = 15.0
_SILENCE_SECONDS = 60.0


class _Command:
    """A command that `serve` has started.

    :ivar printed: its output so far
    :ivar code: its exit code
    """

    def __init__(self) -> None:
        self.printed = bytearray()
        self.code: asyncio.Future[int] = asyncio.get_running_loop().create_future()


class ContainerRuntime(LinkedRuntime):
    """`sfio-node serve --converse`: ends at the end of its input, which the engine closes when the driver is gone.

    A process in a container does not notice that its output has no reader any more. Commands of jobs are its children:
    an engine takes long to start anything, and its client needs some 25 MB as long as that runs.
    """

    unlimited = "jobs in containers are not paused"
    starts_commands = True

    def __init__(
        self,
        access: Access,
        delivered: Delivered,
        name: str,
        place: Place,
        conversation: Conversation,
        links: Links | None,
    ) -> None:
        super().__init__(access, str(delivered.binary), delivered.directory / name, links)
        self.place = place
        self._conversation = conversation
        self._asked: dict[str, asyncio.Future[None]] = {}
        self._commands: dict[str, _Command] = {}
        self._sending = asyncio.Lock()
        self._fifos: WeakKeyDictionary[NodeJob, list[str]] = WeakKeyDictionary()
        self._left: list[str] = []
        self._following = asyncio.create_task(follow(conversation, self, self.program, self.ended, _SILENCE_SECONDS))
        self._reassuring = asyncio.create_task(self._reassure())

    @classmethod
    async def start(
        cls, access: Access, workdir: str, binary: Binary, place: Place, links: Links | None = None, user: int = 0
    ) -> ContainerRuntime:
        """Deliver `sfio-node` and start `serve`.

        :param workdir: of the deployment
        :param links: None: the runtime has no links
        :param user: may own directories above the runtime's own, as root may
        :raises NodeRuntimeError: if it cannot be started, with one reason; only the binary is left then
        """
        # The engine takes long to start anything: files are brought there meanwhile.
        opening = asyncio.create_task(access.converse())
        try:
            neighbours = Neighbours(user, place.volumes)
            delivered = await deliver(access, workdir, binary, neighbours)
            # Other users, as in other containers, must not guess the name.
            name = f"streamflow-io-{os.getpid()}-{os.urandom(16).hex()}"
            conversation = await opening
            with contextlib.suppress(Exception):  # the lines that it has printed say more
                await conversation.send(f"exec {shlex.join(_serve(delivered, name, user, place, links))} 2>&1")
            event = await ready(conversation, f"{access.name}: sfio-node serve", _START_SECONDS)
        except BaseException:
            await asyncio.shield(_abandon(opening, cls.stop_seconds))
            raise
        runtime = cls(access, delivered, name, place, conversation, links)
        runtime._workdir = workdir, neighbours
        runtime._listens(event)
        return runtime

    @property
    def ended(self) -> str:
        # In a container that was killed, no process is left that could tell which of the two has ended.
        return f"{self.location} has ended, or sfio-node serve in it"

    async def write_spec(self, job: NodeJob, text: str) -> None:
        self.check()
        if job.identifier in self._asked:  # now and then StreamFlow executes a job twice at the same time
            raise NodeRuntimeError(f"{self.location}: {job.identifier} has been asked for")
        answer = self._asked[job.identifier] = asyncio.get_running_loop().create_future()
        try:
            spec = json.loads(text)
            targets = (stream["target"] for stream in spec.get("inputs", ()))
            self._fifos[job] = [target["fifo"] for target in targets if "fifo" in target]
            await self._send({"job": job.identifier, "spec": spec})
            await answer
        finally:
            del self._asked[job.identifier]

    async def run_command(self, job: NodeJob, script: str) -> tuple[str, int]:
        self.check()
        command = self._commands[job.identifier] = _Command()
        try:
            await self._send({"run": job.identifier, "command": script})
            code = await command.code
        finally:
            del self._commands[job.identifier]
        return command.printed.decode(errors="replace").strip(), code

    async def request_cancel(self, job: NodeJob) -> None:
        await self._send({"cancel": job.identifier})

    async def write_limits(self, job: NodeJob, text: str) -> None:
        await self._send({"limit": job.identifier, "spec": json.loads(text)})

    async def close(self) -> None:
        self._ends = True
        self._reassuring.cancel()
        if self._clearing is not None:
            await self._clearing
        await asyncio.shield(self._conversation.close(self.stop_seconds))
        await asyncio.wait({self._following}, timeout=self.stop_seconds)
        self._following.cancel()
        self.lose(self.ended)
        directory, *fifos = map(self._here, (str(self.directory), *self._left))
        if directory is not None:
            await asyncio.to_thread(_remove, directory, filter(None, fifos))

    def _here(self, path: str) -> Path | None:
        """The path of a container's file on the driver's node; None: the driver does not see the file."""
        seen = None if self.place is None else Place().path_of(self.place, path)
        return None if seen is None else Path(seen)

    def receive(self, line: bytes) -> None:
        said = parse_said(line)
        if said is None:
            super().receive(line)
        elif isinstance(said, SpecAnswer):
            self._answer(said)
        elif (command := self._commands.get(said.job)) is not None:
            _hear(command, said)

    def lose(self, reason: str) -> None:
        self._left += [fifo for job in self._jobs.values() for fifo in self._fifos.get(job, ())]
        super().lose(reason)
        waiting: list[asyncio.Future[Any]] = [*self._asked.values()]
        waiting += (command.code for command in self._commands.values())
        for answer in waiting:
            if not answer.done():
                answer.set_exception(NodeRuntimeError(reason))

    def _answer(self, said: SpecAnswer) -> None:
        if (answer := self._asked.get(said.job)) is None or answer.done():
            return
        if said.event == "ready":
            answer.set_result(None)
        else:
            answer.set_exception(NodeRuntimeError(f"{self.location}: {said.message}"))

    async def _send(self, request: dict[str, object]) -> None:
        line = json.dumps(request, separators=(",", ":"))
        if len(line) >= LINE_LIMIT:
            raise NodeRuntimeError(
                f"{self.location} cannot get the description of a job with too many inputs: {len(line):,} bytes"
            )
        try:
            # In Python 3.10 only one writer at a time may wait for a full pipe.
            async with self._sending:
                await self._conversation.send(line)
        except Exception as error:  # each connector raises errors of its own
            raise NodeRuntimeError(self._lost or f"{self.ended}: {error or type(error).__name__}") from error

    async def _reassure(self) -> None:
        """Report that the driver is alive: `serve` may not see the end of the connection."""
        with contextlib.suppress(NodeRuntimeError):
            while True:
                await asyncio.sleep(_ALIVE_SECONDS)
                await self._send({"alive": 1})


def _hear(command: _Command, said: PrintedEvent | ReturnedEvent) -> None:
    if isinstance(said, PrintedEvent):
        command.printed += said.text.encode(errors="surrogateescape")
    elif not command.code.done():
        command.code.set_result(said.code)


def _serve(delivered: Delivered, name: str, user: int, place: Place, links: Links | None) -> list[str]:
    """The words that start `serve`.

    :param name: of the run directory
    :param user: see :meth:`ContainerRuntime.start`
    """
    mounts = (word for mount in place.volumes for word in ("--within", mount))
    options = ["--converse", "--readable", "--trust", str(user), *mounts, *(links.serve_options if links else [])]
    return [str(delivered.binary), "serve", "--directory", str(delivered.directory / name), *options]


async def _abandon(opening: asyncio.Task[Conversation], seconds: float) -> None:
    """End a conversation that has brought nothing, even if it is still being opened."""
    await asyncio.wait({opening}, timeout=seconds)
    if opening.cancel() or opening.cancelled() or opening.exception() is not None:
        return
    conversation = opening.result()
    reading = asyncio.create_task(_read_all(conversation))
    await conversation.close(seconds)
    reading.cancel()


async def _read_all(conversation: Conversation) -> None:
    """Read to the end: without a reader, the end of a conversation is not seen."""
    with contextlib.suppress(Exception):
        while await conversation.line() is not None:
            pass


def _remove(directory: Path, fifos: Iterable[Path]) -> None:
    """Remove the files that a killed container has left, because no process in it can; as far as permitted.

    :param directory: the run directory
    """
    try:
        alive = os.open(directory / "alive", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:  # `serve` has removed all itself
        return
    try:
        if os.read(alive, 1) != b"":
            return
    except BlockingIOError:  # `serve` is alive, and removes all itself
        return
    finally:
        os.close(alive)
    for fifo in fifos:
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(fifo.lstat().st_mode):
                fifo.unlink()
    shutil.rmtree(directory, ignore_errors=True)
