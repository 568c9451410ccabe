"""The node runtime at a location that is not the driver's: on a host, or of a queue manager."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
from pathlib import PurePosixPath

from .access import Access, PrintedLines
from .binary import Binary, Neighbours, deliver
from .conversation import MARK, follow, ready
from .links import LinkedRuntime, Links
from .node_runtime import NodeJob, NodeRuntimeError
from .place import Place
from .protocol import ReadyEvent
from .session_job import RemoteSessionJob

logger = logging.getLogger("streamflow")

#: `serve` reports every 15 s that it is alive.
SILENCE_SECONDS = 60.0
_START_SECONDS = 30.0
_ANSWER_SECONDS = 10.0
_ROOT = 0
_PROCESS = MARK + b"process="


class RemoteRuntime(LinkedRuntime):
    """`sfio-node serve --remote`, through a connector: one call brings its output as it is printed.

    It ends when the driver ends, in whatever way, because its output has no reader then.
    """

    limit_seconds = 2.0

    def __init__(
        self,
        access: Access,
        binary: PurePosixPath,
        directory: PurePosixPath,
        shared: bool,
        links: Links | None,
        place: Place | None,
    ) -> None:
        super().__init__(access, str(binary), directory, links)
        self.place = place
        if shared:
            self.wrapper = "run"
            self.stop_seconds = 30.0  # orders are files, which are looked at now and then
        self._shared = shared
        self._output: PrintedLines | None = None
        self._process: int | None = None
        self._following: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        access: Access,
        workdir: str,
        binary: Binary,
        shared: bool = False,
        links: Links | None = None,
        place: Place | None = None,
    ) -> RemoteRuntime:
        """Deliver `sfio-node` and start `serve`.

        :param workdir: of the deployment
        :param shared: whether jobs run on other nodes than `serve`, which share the work directory with it
        :param links: None: the runtime has no links
        :param place: its host, if jobs in containers of that host and jobs beside them read of each other. None: no
            container needs the run directory
        :raises NodeRuntimeError: if it cannot be started, with one reason; only the binary is left then
        """
        neighbours = None if place is None else Neighbours(_ROOT)
        delivered = await deliver(access, workdir, binary, neighbours)
        parent = delivered.directory if shared or place is not None else delivered.temporary
        # Other users, as in containers, must not guess the name.
        directory = parent / f"streamflow-io-{os.getpid()}-{os.urandom(4 if place is None else 16).hex()}"
        runtime = cls(access, delivered.binary, directory, shared, links, place)
        runtime._workdir = workdir, neighbours
        try:
            runtime._listens(await runtime._serve())
            await runtime._admit()
        except BaseException:
            await asyncio.shield(runtime.close())
            raise
        return runtime

    async def write_spec(self, job: NodeJob, text: str) -> None:
        mode = 0o700 if self.place is None else 0o711
        writing = asyncio.ensure_future(self._access.write(job.directory / "job.json", text.encode(), parent=mode))
        assert self._following is not None
        try:
            await asyncio.wait({writing, self._following}, return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                raise NodeRuntimeError(self._lost or self.ended)
            await writing
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def request_cancel(self, job: NodeJob) -> None:
        script = f": > {shlex.quote(str(job.directory / 'cancel'))}"
        if job.pid is not None and not self._shared:
            script = f"( {script} ) || kill -TERM {job.pid}"  # on a full disk
        try:
            await self._access.run(script, _ANSWER_SECONDS)
        except NodeRuntimeError:
            await self._access.pour(script, b"")

    async def write_limits(self, job: NodeJob, text: str) -> None:
        # A job must read a whole file. The limits need not be kept off the command line.
        directory, said = shlex.quote(str(job.directory)), shlex.quote(text)
        script = f"cd {directory} && umask 077 && printf %s {said} > limit.new && mv -f limit.new limit"
        printed, code = await self._access.run(script, _ANSWER_SECONDS)
        if code != 0:
            raise NodeRuntimeError(f"limit cannot be written: {self.location}: {printed.strip()}")

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

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _serve(self) -> ReadyEvent:
        shown = [] if self.place is None else ["--readable"]
        options = [*(["--shared"] if self._shared else []), *shown, *(self._links.serve_options if self._links else [])]
        words = [self.binary, "serve", "--directory", str(self.directory), "--remote", *options]
        script = f"echo {_PROCESS.decode()}$$; exec {shlex.join(words)} 2>&1"
        self._output = await self._access.start(script)
        event = await ready(self, f"{self.location}: sfio-node serve", _START_SECONDS)
        self._following = asyncio.create_task(follow(self, self, self.program, self.ended, SILENCE_SECONDS))
        return event

    async def line(self) -> bytes | None:
        """Return the next line that `serve` prints, as for :class:`Lines`; None: no line is left."""
        assert self._output is not None
        line = await self._output.line()
        if line is None and self._ends:
            self._process = None
        elif line is not None and line.startswith(_PROCESS):
            self._process = int(line.removeprefix(_PROCESS))
        return line

    async def _close(self) -> None:
        for trying in self._tried.values():
            trying.cancel()
        directory = shlex.quote(str(self.directory))
        self._ends = True
        if self._clearing is not None:
            await self._clearing
        if self._following is not None and not self._following.done():
            with contextlib.suppress(NodeRuntimeError):
                await self._access.run(f"test -d {directory} && : > {directory}/end", _ANSWER_SECONDS)
            await asyncio.wait({self._following}, timeout=self.stop_seconds)
        if self._output is not None and (self._following is None or self._process is not None):
            await self._remove(directory)
        self.lose(self.ended)
        if self._following is not None:
            self._following.cancel()
        if self._output is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._output.close(), _ANSWER_SECONDS)

    async def _remove(self, directory: str) -> None:
        """End a `serve` that has not reported its end, and remove its files.

        A process with the same number is another program if its command line does not name the directory.
        """
        end = f"grep -qF {directory} /proc/{self._process}/cmdline 2>/dev/null && kill -KILL {self._process}; "
        try:
            said, code = await self._access.run(
                f"{end if self._process else ''}test -d {directory} || exit 0; sleep 1; rm -rf {directory}",
                _ANSWER_SECONDS,
            )
        except NodeRuntimeError as error:
            said, code = str(error), 1
            # A `serve` that has not started leaves the connection to StreamFlow, which may still use it.
            if self._following is not None:
                self._access.abandon()
        if code != 0:
            logger.warning(f"{self.directory} at {self.location} could not be removed: {said}")
