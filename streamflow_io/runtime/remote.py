"""The node runtime at a location that is not the driver's: on a host, or of a queue manager."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path, PurePath, PurePosixPath

from streamflow_io._streamflow import NOT_WRITTEN

from .access import Access
from .binary import Binary, Delivered, Neighbours, deliver
from .conversation import Conversation
from .conversing import ConversingRuntime, Links, begin, serve
from .locations import Place
from .node_commands import CannotWriteError, NodeRuntimeError
from .node_runtime import NodeJob, NodeRuntime
from .protocol import Event, ExitEvent
from .session_job import RemoteSessionJob

logger = logging.getLogger("streamflow")

_ANSWER_SECONDS = 10.0
# Seconds between two answers to what `serve` says.
_CONFIRM_SECONDS = 0.005
_ROOT = 0


class RemoteRuntime(ConversingRuntime):
    """The `serve` on a host, driven through a connector."""

    def __init__(
        self,
        access: Access,
        binary: str,
        directory: PurePosixPath,
        shared: bool,
        links: Links | None,
        place: Place | None,
        conversation: Conversation,
        process: int | None,
    ) -> None:
        super().__init__(access, binary, directory, links, conversation)
        self.place = place
        if shared:
            self.wrapper = "run"
            self.stop_seconds = 30.0  # orders are files, which are looked at now and then
        self._shared = shared
        self._process = process
        self._confirming: asyncio.Task[None] | None = None
        self._is_unconfirmed = False

    @classmethod
    async def start(
        cls,
        access: Access,
        workdir: str,
        binary: Binary,
        shared: bool = False,
        links: Links | None = None,
        place: Place | None = None,
        starts_commands: bool = False,
    ) -> RemoteRuntime:
        """Deliver `sfio-node` and start `serve`.

        :param shared: whether jobs run on other nodes than `serve`, which share the work directory with it
        :param links: None: the runtime has no links
        :param place: its host, if jobs in containers of that host and jobs beside them read of each other. None: no
            container needs the run directory
        :param starts_commands: see :attr:`NodeRuntime.starts_commands`
        :raises NodeRuntimeError: if it cannot be started, with one reason; only the binary is left then
        """
        neighbours = None if place is None else Neighbours(_ROOT)
        # Jobs of other users must not guess the name.
        name = f"streamflow-io-{os.getpid()}-{os.urandom(4 if place is None else 16).hex()}"
        shown = [] if place is None else ["--readable"]
        options = [*(["--shared"] if shared else []), *shown, *(links.serve_options if links else [])]

        def directory(delivered: Delivered) -> PurePosixPath:
            return (delivered.directory if shared or place is not None else delivered.temporary) / name

        def script(delivered: Delivered) -> str:
            tried.append(directory(delivered))
            return serve(delivered.binary, tried[0], options)

        tried: list[PurePosixPath] = []
        # Jobs of a queue manager run on nodes with other directories for temporary files.
        delivering = deliver(access, workdir, binary, neighbours, is_apart=not shared)
        try:
            delivered, conversation, event = await begin(access, delivering, script, cls.stop_seconds)
        except BaseException:
            # `serve` may have been killed when its directory was there.
            for left in tried:
                with contextlib.suppress(NodeRuntimeError):
                    await asyncio.shield(_remove_directory(access, left))
            raise
        run = directory(delivered)
        runtime = cls(access, str(delivered.binary), run, shared, links, place, conversation, event.pid)
        runtime._workdir = workdir, neighbours
        runtime._listens(event)
        runtime.starts_commands = starts_commands
        if starts_commands:
            # No job takes a session that this needs: the first job does not wait.
            runtime._begin_to_admit()
            return runtime
        try:
            await runtime._admit()
        except BaseException:
            await asyncio.shield(runtime.close())
            raise
        return runtime

    def _heard(self) -> None:
        self._is_unconfirmed = self.starts_commands and not self.is_ending
        if self._is_unconfirmed and (self._confirming is None or self._confirming.done()):
            self._confirming = asyncio.create_task(self._confirm())

    async def _confirm(self) -> None:
        """Answer what `serve` has said, with a word that asks for nothing.

        A launcher sends what `serve` says next only when its last words are confirmed. TCP waits 40 ms for an answer
        that takes the confirmation along, and a short job ends meanwhile.
        """
        with contextlib.suppress(NodeRuntimeError):
            while self._is_unconfirmed:
                self._is_unconfirmed = False
                await self._say_alive()
                await asyncio.sleep(_CONFIRM_SECONDS)

    async def _close(self) -> None:
        if self._confirming is not None:
            self._confirming.cancel()
        await super()._close()

    def _pass_on(self, job: NodeJob, event: Event) -> None:
        # On nodes of an allocation, where `serve` starts commands, a job that ends with `serve` is lost with its node.
        is_loss = isinstance(event, ExitEvent) and event.reason == "driver" and not self.is_ending
        if not (is_loss and self.starts_commands):
            super()._pass_on(job, event)

    @property
    def has_sessions(self) -> bool:
        """Whether files can be read ahead for its jobs; not if these run on other machines."""
        return not self._shared

    def create_session(self, name: str) -> RemoteSessionJob:
        """Create a read session; see :attr:`has_sessions`.

        :param name: for people; need not be unique
        :raises NodeRuntimeError: if the runtime has ended
        """
        return self._add(name, lambda identifier: RemoteSessionJob(self, identifier, self._access))

    async def fetch(self, other: NodeRuntime, path: str, script: str) -> str | None:
        """Let a script read the archive of a file or directory of another node, as `tar` makes it, by a link.

        :param path: there, in the directory that the links of the other runtime hand out
        :param script: for the POSIX shell; ends with :data:`NOT_WRITTEN` if it cannot write
        :return: why it has failed; None: success. What the script has written until then is left
        :raises CannotWriteError: if the script cannot write
        """
        try:
            other.check()
            if (obstacle := await self.no_link(other)) is not None:
                return obstacle
            job = await self.create_job("archive")
            try:
                await self.write_spec(job, "{}")
                certificate = ["--certificate", str(self.certificate_path), *(["--tls"] if other.tls else [])]
                words = [
                    self.binary,
                    "receive",
                    str(other.address),
                    *certificate,
                    "--of",
                    path,
                    "--",
                    "sh",
                    "-c",
                    script,
                ]
                remove = f"rm -rf {shlex.quote(str(job.directory))}"
                said, code = await self.run_command(job, f"{remove}; exec {shlex.join(words)}")
            finally:
                self._jobs.pop(job.identifier, None)
        except NodeRuntimeError as error:
            return str(error)
        if code == NOT_WRITTEN:
            why = "; ".join(said.splitlines())
            raise CannotWriteError(f"{path} cannot be written at {self.location}: {why} (is the disk full?)")
        return None if code == 0 else said or f"exit code {code}"

    async def _remove(self, ended: bool) -> None:
        """End a `serve` that has not ended with its input, and remove what is left of it.

        A process with the same number is another program if its command line does not name the directory.
        """
        if ended:
            return
        directory = shlex.quote(str(self.directory))
        end = f"grep -qF {directory} /proc/{self._process}/cmdline 2>/dev/null && kill -KILL {self._process}; "
        try:
            said, code = await _remove_directory(self._access, self.directory, end if self._process else "")
        except NodeRuntimeError as error:
            said, code = str(error), 1
            self._access.abandon()
        if code != 0:
            # With an allocation all nodes are lost, and that is told. Each `serve` has removed its own, or is gone.
            is_told = self._lost is not None and said.removeprefix(f"{self.location}: ") in self._lost
            level = logging.DEBUG if is_told else logging.WARNING
            logger.log(level, f"{self.directory} at {self.location} could not be removed: {said}")


async def _remove_directory(access: Access, directory: PurePath, first: str = "") -> tuple[str, int]:
    """Remove a run directory, which `serve` may be removing itself.

    :param first: commands of a shell that are run before
    :return: what the commands said, and their exit code
    :raises NodeRuntimeError: if the location cannot be reached
    """
    quoted = shlex.quote(str(directory))
    return await access.run(f"{first}test -d {quoted} || exit 0; sleep 1; rm -rf {quoted}", _ANSWER_SECONDS)


class ContainerRuntime(ConversingRuntime):
    """The `serve` in a container: the engine ends its input when the driver is gone.

    Commands of jobs are its children: an engine takes long to start anything, and its client some 25 MB as long as that
    runs.
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
        super().__init__(access, str(delivered.binary), delivered.directory / name, links, conversation)
        self.place = place
        self._left: list[str] = []

    @classmethod
    async def start(
        cls, access: Access, workdir: str, binary: Binary, place: Place, links: Links | None = None, user: int = 0
    ) -> ContainerRuntime:
        """Deliver `sfio-node` and start `serve`.

        :param links: None: the runtime has no links
        :param user: may own directories above the runtime's own, as root may
        :raises NodeRuntimeError: if it cannot be started, with one reason; only the binary is left then
        """
        neighbours = Neighbours(user, place.volumes)
        # Jobs of other users must not guess the name.
        name = f"streamflow-io-{os.getpid()}-{os.urandom(16).hex()}"
        mounts = (word for mount in place.volumes for word in ("--within", mount))
        options = ["--readable", "--trust", str(user), *mounts, *(links.serve_options if links else [])]

        def script(delivered: Delivered) -> str:
            return serve(delivered.binary, delivered.directory / name, options)

        delivering = deliver(access, workdir, binary, neighbours)
        delivered, conversation, event = await begin(access, delivering, script, cls.stop_seconds)
        runtime = cls(access, delivered, name, place, conversation, links)
        runtime._workdir = workdir, neighbours
        runtime._listens(event)
        return runtime

    @property
    def ended(self) -> str:
        # In a container that was killed, no process is left that could tell which of the two has ended.
        return f"{self.location} has ended, or sfio-node serve in it"

    def lose(self, reason: str) -> None:
        self._left += [fifo for job in self._jobs.values() for fifo in job.fifos]
        super().lose(reason)

    async def _remove(self, ended: bool) -> None:
        directory, *fifos = map(self._here, (str(self.directory), *self._left))
        if directory is not None:
            await asyncio.to_thread(_remove, directory, filter(None, fifos))

    def _here(self, path: str) -> Path | None:
        """The path of a container's file on the driver's node; None: the driver does not see the file."""
        seen = None if self.place is None else Place().path_of(self.place, path)
        return None if seen is None else Path(seen)


def _remove(directory: Path, fifos: Iterable[Path]) -> None:
    """Remove the files that a killed container has left, because no process in it can; as far as permitted."""
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
