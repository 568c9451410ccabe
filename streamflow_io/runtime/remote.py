"""The node runtime at a location that is not the driver's: on a host, in a container, or of a queue manager."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath

from pydantic import ValidationError

from .access import SECONDS, Access, Output
from .binary import Binary, deliver
from .certificate import Certificate
from .node_runtime import ENDED, NodeJob, NodeRuntime, NodeRuntimeError
from .protocol import ReadyEvent

logger = logging.getLogger("streamflow")

#: `serve` says every 15 s that it is alive.
SILENCE_SECONDS = 60.0
_START_SECONDS = 30.0
_ANSWER_SECONDS = 10.0
_ALIVE = b'{"event":"alive"'
_PROCESS = b"sfio:process="
_SAID_LINES = 20
# Run directories of `serve --shared` that were killed: a living one changes its own every few seconds.
_SWEEP = "find {directory} -maxdepth 1 -type d -name 'streamflow-io-*' -mmin +60 -exec rm -rf {{}} + 2>/dev/null"


@dataclass(frozen=True)
class Manner:
    """How a node runtime is to run at a location.

    :ivar shared: jobs run on other nodes than `serve`, which share the work directory with it
    :ivar listen: jobs at other locations read streams from here, and jobs here from there
    """

    shared: bool = False
    listen: bool = False


class RemoteRuntime(NodeRuntime):
    """`sfio-node serve --remote`, driven through a connector: what it prints comes as it is printed, by one call.

    It ends with the driver, however that ends, because nobody reads then what it prints.

    :ivar unreachable: why it has no address; None where it has one, or none was asked for
    """

    def __init__(self, access: Access, binary: PurePosixPath, directory: PurePosixPath, manner: Manner) -> None:
        super().__init__(access.name, str(binary), directory)
        if manner.shared:
            self.wrapper = "run"
            self.stop_seconds = 30.0  # told by files, which are looked at now and then
        self.unreachable: str | None = None
        self._access = access
        self._manner = manner
        self._output: Output | None = None
        self._process: int | None = None
        self._ends = False
        self._following: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._tried: dict[NodeRuntime, asyncio.Task[str | None]] = {}

    @classmethod
    async def start(
        cls,
        access: Access,
        workdir: str,
        binary: Binary,
        key: str,
        manner: Manner = Manner(),
        certificate: Certificate | None = None,
    ) -> RemoteRuntime:
        """Deliver `sfio-node` and start `serve`.

        :param workdir: of the deployment
        :param key: of the run; written where it listens
        :param certificate: of the run, for links inside TLS only; None: they are plain
        :raises NodeRuntimeError: if it cannot be started, with one reason; nothing is left but the binary
        """
        delivered = await deliver(access, workdir, binary)
        parent = delivered.temporary
        if manner.shared:
            parent = delivered.directory
            await access.run(_SWEEP.format(directory=shlex.quote(str(parent))))
        directory = parent / f"streamflow-io-{os.getpid()}-{os.urandom(4).hex()}"
        runtime = cls(access, delivered.binary, directory, manner)
        runtime.tls = certificate is not None
        try:
            await runtime._serve()
            if manner.listen:
                if certificate is not None:
                    await access.write(runtime.key_path.with_name("certificate.pem"), certificate.certificate)
                    await access.write(runtime.key_path.with_name("certificate.key"), certificate.key)
                await access.write(runtime.key_path, key.encode())
        except BaseException:
            await asyncio.shield(runtime.close())
            raise
        return runtime

    async def write_spec(self, job: NodeJob, text: str) -> None:
        writing = asyncio.ensure_future(self._access.write(job.directory / "job.json", text.encode(), parent=True))
        assert self._following is not None
        try:
            await asyncio.wait({writing, self._following}, return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                raise NodeRuntimeError(self._lost or f"{ENDED} at {self.location}")
            await writing
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def has_events(self, job: NodeJob) -> bool:
        if self._lost is not None:
            raise NodeRuntimeError(self._lost)
        # Listed, because a network file system may remember for a while that a file was not there.
        job_directory, directory = shlex.quote(str(job.directory)), shlex.quote(str(self.directory))
        listed = f"ls {job_directory} 2>/dev/null | grep -qx {job.events_path.name}"
        _, code = await self._access.run(f"{listed} && exit 0; test -d {directory} && exit 3; exit 4")
        if code not in (0, 3):
            raise NodeRuntimeError(self._lost or f"{ENDED} at {self.location}")
        return code == 0

    async def request_cancel(self, job: NodeJob) -> None:
        script = f": > {shlex.quote(str(job.directory / 'cancel'))}"
        if job.pid is not None and not self._manner.shared:
            script = f"( {script} ) || kill -TERM {job.pid}"  # on a full disk
        try:
            await self._access.run(script, _ANSWER_SECONDS)
        except NodeRuntimeError:
            await self._access.pour(script, b"")

    async def run(self, words: list[str], seconds: float) -> tuple[str, int]:
        said, code = await self._access.run(f"{shlex.join(words)} 2>&1", seconds)
        return said.strip(), code

    async def obstacle(self, other: NodeRuntime) -> str | None:
        if other is self:
            return None
        if not self._manner.listen or not isinstance(other, RemoteRuntime) or not other._manner.listen:
            return await super().obstacle(other)
        if other.address is None:
            return f"{other.location} cannot be reached from elsewhere: {other.unreachable}"
        if other not in self._tried:
            self._tried[other] = asyncio.create_task(self._try(other, other.address))
        return await asyncio.shield(self._tried[other])

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    @property
    def _tls_option(self) -> list[str]:
        return ["--tls"] if self.tls else []

    async def _serve(self) -> None:
        listen = ["--listen", *self._tls_option] if self._manner.listen else []
        options = [*(["--shared"] if self._manner.shared else []), *listen]
        words = [self.binary, "serve", "--directory", str(self.directory), "--remote", *options]
        script = f"echo {_PROCESS.decode()}$$; exec {shlex.join(words)} 2>&1"
        self._output = await self._access.start(script)
        try:
            ready = await asyncio.wait_for(self._ready(self._output), _START_SECONDS)
        except asyncio.TimeoutError:
            raise NodeRuntimeError(f"{self.location}: sfio-node serve does not start") from None
        self.address = ready.address
        if self._manner.listen and self.address is None:
            self.unreachable = ready.message or "it does not say why"
        self._following = asyncio.create_task(self._follow(self._output))

    async def _ready(self, output: Output) -> ReadyEvent:
        """Read until it is ready; what the shell prints first is of no concern."""
        said: list[str] = []
        while (line := await output.line()) is not None:
            if line.startswith(_PROCESS):
                self._process = int(line.removeprefix(_PROCESS))
                said.clear()
                continue
            with contextlib.suppress(ValidationError):
                return ReadyEvent.model_validate_json(line)
            said = [*said, line.decode(errors="replace").strip()][-_SAID_LINES:]
        why = "; ".join(filter(None, said)) or "it says nothing"
        raise NodeRuntimeError(f"{self.location}: sfio-node serve does not start: {why}")

    async def _follow(self, output: Output) -> None:
        """Hand on what `serve` prints until it ends, or cannot be heard any more."""
        reason = f"{ENDED} at {self.location}"
        try:
            while (line := await asyncio.wait_for(output.line(), SILENCE_SECONDS)) is not None:
                if line.startswith(_ALIVE):
                    continue
                if line.startswith(b"{"):
                    self.receive(line)
                elif line.strip():
                    logger.warning(f"sfio-node at {self.location}: {line.decode(errors='replace').rstrip()}")
            if self._ends:
                self._process = None
        except asyncio.TimeoutError:
            reason = f"sfio-node at {self.location} has not been heard of for {SILENCE_SECONDS:.0f} s"
        except Exception as error:  # Each connector has its own.
            reason = f"the connection to {self.location} is lost: {error or type(error).__name__}"
        finally:
            self.lose(reason)

    async def _try(self, other: NodeRuntime, address: str) -> str | None:
        words = [self.binary, "reach", address, "--key", str(self.key_path), *self._tls_option]
        try:
            said, code = await self.run(words, SECONDS)
        except NodeRuntimeError as error:
            return str(error)
        if code == 0:
            return None
        why = said.splitlines()[-1:] or [f"exit code {code}"]
        return f"{self.location} cannot reach {other.location} at {address}: {why[0]}"

    async def _close(self) -> None:
        for trying in self._tried.values():
            trying.cancel()
        directory = shlex.quote(str(self.directory))
        if self._following is not None and not self._following.done():
            self._ends = True
            with contextlib.suppress(NodeRuntimeError):
                await self._access.run(f"test -d {directory} && : > {directory}/end", _ANSWER_SECONDS)
            await asyncio.wait({self._following}, timeout=self.stop_seconds)
        if self._output is not None and (self._following is None or self._process is not None):
            await self._remove(directory)
        self.lose(f"{ENDED} at {self.location}")
        if self._following is not None:
            self._following.cancel()
        if self._output is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._output.close(), _ANSWER_SECONDS)

    async def _remove(self, directory: str) -> None:
        """End a `serve` that has not said that it ends, and remove what it leaves.

        A process of the same id that is not told of the directory is not ours.
        """
        end = f"grep -qF {directory} /proc/{self._process}/cmdline 2>/dev/null && kill -KILL {self._process}; "
        try:
            said, code = await self._access.run(
                f"{end if self._process else ''}test -d {directory} || exit 0; sleep 1; rm -rf {directory}",
                _ANSWER_SECONDS,
            )
        except NodeRuntimeError as error:
            said, code = str(error), 1
        if code != 0:
            logger.warning(f"{self.directory} at {self.location} could not be removed: {said}")
