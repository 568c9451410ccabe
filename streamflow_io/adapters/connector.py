"""The connector that a streaming job's command runs through."""

from __future__ import annotations

import asyncio
import posixpath
import shlex
from collections.abc import Callable, Coroutine, MutableMapping, MutableSequence, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from streamflow.core.deployment import Connector, ExecutionLocation
from streamflow.core.utils import create_command
from streamflow.deployment.wrapper import ConnectorWrapper
from streamflow.log_handler import logger

from streamflow_io.messages import Code, coded
from streamflow_io.runtime.node_runtime import NodeJob, NodeRuntimeError
from streamflow_io.runtime.protocol import ExitEvent, JobSpec

_EXIT_SECONDS = 60.0
# The exit code of a command of which it is not known how it ended: that of ssh.
_UNKNOWN = 255


class ToolTimeLimitError(asyncio.TimeoutError):
    """The command of a job has taken longer than its ToolTimeLimit."""


class JobConnector(ConnectorWrapper):  # type: ignore[misc]
    """Runs the command of one job under `sfio-node`; everything else goes to the inner connector as it is.

    Redirections are done by the node runtime, not by the shell: a FIFO would block the shell, and what the shell opens
    cannot be watched from the start.

    :param command: what is run instead of the command of the job, without its redirections
    :param is_optional: the job is only measured: without the node runtime its command runs plainly, and nobody asks it
        afterwards. On a queue manager the command counts as successful only if the node runtime says so, too: for some
        of them a job that was killed has ended with 0
    """

    def __init__(
        self,
        inner: Connector,
        job_name: str,
        node_job: NodeJob,
        spec: JobSpec,
        is_optional: bool = False,
        command: Sequence[str] | None = None,
    ) -> None:
        super().__init__(inner.deployment_name, inner.config_dir, inner, None, inner.transferBufferSize)
        self._job_name = job_name
        self._node_job = node_job
        self._spec = spec
        self._is_queued = node_job.runtime.wrapper == "run"
        self._is_optional = is_optional
        self._command = command

    @classmethod
    def get_schema(cls) -> str:
        raise NotImplementedError("made for one job, never configured")

    async def run(
        self,
        location: ExecutionLocation,
        command: MutableSequence[str],
        environment: MutableMapping[str, str] | None = None,
        workdir: str | None = None,
        stdin: int | str | None = None,
        stdout: int | str = asyncio.subprocess.STDOUT,
        stderr: int | str = asyncio.subprocess.STDOUT,
        capture_output: bool = False,
        timeout: int | None = None,
        job_name: str | None = None,
    ) -> tuple[str, int] | None:
        if job_name == self._job_name:
            if self._command is not None:
                command, stdin = list(map(shlex.quote, self._command)), None
                stdout = stderr = asyncio.subprocess.STDOUT
            if isinstance(stdin, str) and self._opens_itself(posixpath.join(workdir or "", stdin)):
                command, stdin = [*map(shlex.quote, self._node_job.fed(stdin)), *command], None
            words = await self._words(self._redirected(workdir or "", stdin, stdout, stderr))
            if words is not None:
                # The shell that StreamFlow starts becomes the wrapper: there is no process between driver and job.
                command = ["exec", *map(shlex.quote, words), *command]
                if self._node_job.runtime.starts_commands:
                    script = create_command(type(self.connector).__name__, command, environment, workdir)
                    return await self._wrapped(timeout, partial(self._started, script))
                # Else there is a file of the queue manager among the outputs that is not there with plain StreamFlow.
                hides = self._is_queued and isinstance(stdout, str) and isinstance(stderr, str)
                printed = str(self._node_job.directory / "printed") if hides else asyncio.subprocess.STDOUT
                run = partial(
                    self.connector.run,
                    location=location,
                    command=command,
                    environment=environment,
                    workdir=workdir,
                    stdout=printed,
                    stderr=printed,
                    capture_output=capture_output,
                    job_name=job_name,
                )
                return await self._wrapped(timeout, run)
        result: tuple[str, int] | None = await self.connector.run(
            location=location,
            command=command,
            environment=environment,
            workdir=workdir,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            capture_output=capture_output,
            timeout=timeout,
            job_name=job_name,
        )
        return result

    async def _started(self, script: str, timeout: int | None) -> tuple[str, int]:
        """What the command of the job gives, which is started by its node runtime."""
        return await asyncio.wait_for(self._node_job.runtime.run_command(self._node_job, script), timeout)

    async def _wrapped(
        self, seconds: int | None, run: Callable[..., Coroutine[Any, Any, tuple[str, int] | None]]
    ) -> tuple[str, int] | None:
        """What the command of the job gives, under the node runtime.

        :param seconds: its ToolTimeLimit
        :param run: runs it; takes the argument `timeout`
        :raises ToolTimeLimitError: if it takes longer
        """
        # A queue manager has a clock of its own.
        waits = self._node_job.waiting is not None and not self._is_queued
        try:
            if seconds is not None and waits:
                result = await self._within(seconds, run(timeout=None))
            else:
                result = await run(timeout=seconds)
        except asyncio.TimeoutError as error:
            if seconds is None:
                raise
            raise ToolTimeLimitError(f"it has taken longer than its ToolTimeLimit of {seconds} s") from error
        if result is None:
            return None
        said, code = await self._judged(*result)
        if code in self._spec.command.success_codes:
            await self._node_job.collected()
        return said, code

    async def _words(self, spec: JobSpec) -> list[str] | None:
        """The words to put before the command; None: it is run without.

        :raises NodeRuntimeError: if there are none, and it is to fail for that
        """
        try:
            return await self._node_job.wrap(spec)
        except NodeRuntimeError as error:
            if not self._is_optional:
                raise
            logger.warning(coded(f"Job {self._job_name} is not measured: {error}", Code.NOT_MEASURED))
            self._node_job.abandon()
            return None

    async def _within(
        self, seconds: int, running: Coroutine[Any, Any, tuple[str, int] | None]
    ) -> tuple[str, int] | None:
        """What a command gives, if it takes no longer than it may once it waits for no other job any more.

        :raises asyncio.TimeoutError: if it does
        """
        assert self._node_job.waiting is not None
        command, clock = asyncio.ensure_future(running), asyncio.ensure_future(self._node_job.waiting())
        try:
            await asyncio.wait({command, clock}, return_when=asyncio.FIRST_COMPLETED)
            done, _ = await asyncio.wait({command}, timeout=seconds)
            if not done:
                raise asyncio.TimeoutError
            return command.result()
        finally:
            command.cancel()
            clock.cancel()

    async def _judged(self, said: str, code: int | None) -> tuple[str, int]:
        """What the command has printed, and its exit code.

        :param code: as the inner connector has it; none: it does not know
        """
        if code is None:
            return said, _UNKNOWN
        if code < 0:
            return said, 128 - code  # What a shell says of a command that a signal ended.
        confirms = self._is_optional and self._is_queued
        if confirms and code in self._spec.command.success_codes and not await self._has_succeeded():
            return f"{said or ''}\n\t(it was killed, or its node has failed)", _UNKNOWN
        return said, code

    async def _has_succeeded(self) -> bool:
        try:
            return (await exit_event_of(self._node_job)).success
        except (asyncio.TimeoutError, NodeRuntimeError):
            return False

    def _opens_itself(self, path: str) -> bool:
        """Whether the command has to open its standard input: only then it is held at the gate, or sees what it is."""
        return self._node_job.sees(PurePosixPath(path)) or any(path == gate.target for gate in self._spec.gates)

    def _redirected(self, workdir: str, stdin: int | str | None, stdout: int | str, stderr: int | str) -> JobSpec:
        """The job with its redirections. A standard input that is a stream needs no FIFO."""

        def path(stream: int | str | None) -> str | None:
            return posixpath.join(workdir, stream) if isinstance(stream, str) else None

        standard_input = path(stdin)
        into_stdin = {"target": {"stdin": True}}
        streams, parts = list(self._spec.streams), list(self._spec.parts)
        fifos = [one.target.get("fifo") for one in streams] + [one.target.get("fifo") for one in parts]
        if standard_input is not None and standard_input in fifos:
            index, standard_input = fifos.index(standard_input), None
            if index < len(streams):
                streams[index] = streams[index].model_copy(update=into_stdin)
            else:
                parts[index - len(streams)] = parts[index - len(streams)].model_copy(update=into_stdin)
        redirected = {"stdin": standard_input, "stdout": path(stdout), "stderr": path(stderr)}
        command = self._spec.command.model_copy(update=redirected)
        return self._spec.model_copy(update={"command": command, "streams": tuple(streams), "parts": tuple(parts)})


async def exit_event_of(node_job: NodeJob) -> ExitEvent:
    """The last event of a job whose command has ended.

    :raises asyncio.TimeoutError: if it does not come
    :raises NodeRuntimeError: if it will not
    """
    return await asyncio.wait_for(asyncio.shield(node_job.exit), _EXIT_SECONDS)
