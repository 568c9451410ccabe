"""The connectors that the commands of jobs run through."""

from __future__ import annotations

import asyncio
import os
import posixpath
import shlex
from collections.abc import Callable, Coroutine, MutableMapping, MutableSequence, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import Any, TypedDict, cast

from msgspec.structs import replace
from streamflow.core.deployment import Connector, ExecutionLocation
from streamflow.core.utils import create_command
from streamflow.deployment.wrapper import ConnectorWrapper
from streamflow.log_handler import logger

from streamflow_io.messages import Code, coded
from streamflow_io.processes import end_with_descendants
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeJob
from streamflow_io.runtime.protocol import ExitEvent, JobSpec
from streamflow_io.runtime.values import Path, Target
from streamflow_io.tasks import to_the_end

_EXIT_SECONDS = 60.0
# The exit code of a command whose result is not known; ssh has the same.
_UNKNOWN = 255
# A single quote in a word that is quoted for a shell.
_QUOTE = "'\"'\"'"


class ToolTimeLimitError(asyncio.TimeoutError):
    """The command of a job has taken longer than its ToolTimeLimit."""


class CommandOptions(TypedDict):
    """The arguments with which StreamFlow has a connector run a command."""

    location: ExecutionLocation
    command: MutableSequence[str]
    environment: MutableMapping[str, str] | None
    workdir: str | None
    stdin: int | str | None
    stdout: int | str
    stderr: int | str
    capture_output: bool
    timeout: int | None
    job_name: str | None


class CommandConnector(ConnectorWrapper):  # type: ignore[misc]
    """Runs the command of one job in a way of its own; passes everything else on to the inner connector.

    :param job: the name of the job, with which StreamFlow runs its command
    """

    def __init__(self, inner: Connector, job: str) -> None:
        super().__init__(inner.deployment_name, inner.config_dir, inner, None, inner.transferBufferSize)
        self._job = job

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
        options = CommandOptions(
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
        return await (self.run_of_job if job_name == self._job else self.run_plainly)(options)

    async def run_plainly(self, options: CommandOptions) -> tuple[str, int] | None:
        """Let the inner connector run a command.

        :return: its output and exit code; None: StreamFlow has not asked for them
        """
        return cast("tuple[str, int] | None", await self.connector.run(**options))

    async def run_of_job(self, options: CommandOptions) -> tuple[str, int] | None:
        """Run the command of the job. Returns the same as :meth:`run_plainly`."""
        raise NotImplementedError


class LocalJobConnector(CommandConnector):
    """Runs the command of one job on the driver's node, as StreamFlow does, and ends its processes with the job.

    StreamFlow 0.2.0rc3 leaves the processes of a job running when its run has failed, or was interrupted.
    """

    async def run_of_job(self, options: CommandOptions) -> tuple[str, int] | None:
        if not options["capture_output"]:
            return await self.run_plainly(options)
        files = (options["environment"], options["workdir"], options["stdin"], options["stdout"], options["stderr"])
        script = create_command(type(self.connector).__name__, options["command"], *files)
        process = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            script,
            env=os.environ | options["location"].environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), options["timeout"])
            return output.decode().strip(), await process.wait()
        finally:
            await to_the_end(end_with_descendants(process))


class JobConnector(CommandConnector):
    """Runs the command of one job under `sfio-node`.

    Redirections are made by the node runtime, not by the shell. A FIFO would block the shell, and files that the shell
    opens cannot be watched from the start.

    :param command: runs in place of the command of the job, without its redirections
    :param tells_paths: the command may find the path of its standard input in a file
    :param is_optional: the job is only measured. Without the node runtime its command runs plainly. On a queue manager,
        the command succeeds only if the node runtime confirms the success. Some queue managers report 0 for a killed
        job
    """

    def __init__(
        self,
        inner: Connector,
        node_job: NodeJob,
        spec: JobSpec,
        is_optional: bool = False,
        command: Sequence[str] | None = None,
        tells_paths: bool = False,
    ) -> None:
        super().__init__(inner, spec.name)
        self._node_job = node_job
        self._spec = spec
        self._is_queued = node_job.runtime.wrapper == "run"
        self._is_optional = is_optional
        self._command = command
        self._tells_paths = tells_paths

    async def run_of_job(self, options: CommandOptions) -> tuple[str, int] | None:
        command, workdir = options["command"], options["workdir"] or ""
        stdin, stdout, stderr = options["stdin"], options["stdout"], options["stderr"]
        if self._command is not None:
            command, stdin = list(map(shlex.quote, self._command)), None
            stdout = stderr = asyncio.subprocess.STDOUT
        if isinstance(stdin, str):
            words = [*command, *(options["environment"] or {}).values()]
            if self._opens_itself(posixpath.join(workdir, stdin), words):
                command, stdin = [*map(shlex.quote, self._node_job.fed(stdin)), *command], None
        wrapper = await self._wrapper(self._redirected(workdir, stdin, stdout, stderr))
        options = {**options, "command": command, "stdin": stdin, "stdout": stdout, "stderr": stderr}
        if wrapper is None:
            return await self.run_plainly(options)
        # The shell that StreamFlow starts becomes the wrapper: no other process is between driver and job.
        command = ["exec", *map(shlex.quote, wrapper), *command]
        if self._node_job.runtime.starts_commands:
            environment = options["environment"]
            script = create_command(type(self.connector).__name__, command, environment, options["workdir"])
            return await self._wrapped(options["timeout"], partial(self._started, script))
        # Otherwise the queue manager puts a file among the outputs that plain StreamFlow does not have.
        hides = self._is_queued and isinstance(stdout, str) and isinstance(stderr, str)
        printed = str(self._node_job.directory / "printed") if hides else asyncio.subprocess.STDOUT
        options = {**options, "command": command, "stdin": None, "stdout": printed, "stderr": printed}
        return await self._wrapped(
            options["timeout"], lambda timeout: self.run_plainly({**options, "timeout": timeout})
        )

    async def _started(self, script: str, timeout: int | None) -> tuple[str, int]:
        """Let the node runtime start the command of the job.

        :return: its output and exit code
        """
        return await asyncio.wait_for(self._node_job.runtime.run_command(self._node_job, script), timeout)

    async def _wrapped(
        self, seconds: int | None, run: Callable[[int | None], Coroutine[Any, Any, tuple[str, int] | None]]
    ) -> tuple[str, int] | None:
        """Run the command of the job under the node runtime.

        :param seconds: its ToolTimeLimit; None: no limit
        :param run: runs the command; takes the seconds after which it fails
        :return: its output and exit code
        :raises ToolTimeLimitError: if the command takes longer
        """
        # A queue manager applies the limit itself.
        waits = self._node_job.waiting is not None and not self._is_queued
        try:
            if seconds is not None and waits:
                result = await self._within(seconds, run(None))
            else:
                result = await run(seconds)
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

    async def _wrapper(self, spec: JobSpec) -> list[str] | None:
        """Return the words to put before the command; None: the command runs without the node runtime.

        :raises NodeRuntimeError: if the node runtime cannot run a job that is not optional
        """
        try:
            return await self._node_job.wrap(spec)
        except NodeRuntimeError as error:
            if not self._is_optional:
                raise
            logger.warning(coded(f"Job {self._job} is not measured: {error}", Code.NOT_MEASURED))
            self._node_job.abandon()
            return None

    async def _within(
        self, seconds: int, running: Coroutine[Any, Any, tuple[str, int] | None]
    ) -> tuple[str, int] | None:
        """Run a command with a time limit that begins when the command waits for no other job any more.

        :raises asyncio.TimeoutError: if the command takes longer
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
        """Return the output of the command, and its exit code.

        :param code: from the inner connector; None: the exit code is :data:`_UNKNOWN`
        """
        if code is None:
            return said, _UNKNOWN
        if code < 0:
            return said, 128 - code  # the exit code of a shell for a command that a signal has ended
        confirms = self._is_optional and self._is_queued
        if confirms and code in self._spec.command.success_codes and not await self._has_succeeded():
            return f"{said or ''}\n\t(it was killed, or its node has failed)", _UNKNOWN
        return said, code

    async def _has_succeeded(self) -> bool:
        try:
            return (await exit_event_of(self._node_job)).success
        except (asyncio.TimeoutError, NodeRuntimeError):
            return False

    def _opens_itself(self, path: str, words: Sequence[str]) -> bool:
        """Whether the command itself has to open its standard input.

        Such a file is at the gate, is held by its runtime, or is a stream that the command can open once more.

        :param words: of the command and of its environment
        """
        if self._node_job.sees(PurePosixPath(path)) or any(path == gate.target for gate in self._spec.gates):
            return True
        # A command that knows the directory may read from there, too: with a FIFO this is noticed.
        directory = posixpath.dirname(path)
        return path in self._fifos() and (
            self._tells_paths or any(directory in word.replace(_QUOTE, "'") for word in words)
        )

    def _fifos(self) -> list[Path | bool | None]:
        """The FIFOs of the streams, and then of the parts; None: the input is not at a FIFO."""
        targets = [one.target for one in self._spec.streams] + [one.target for one in self._spec.parts]
        return [target.get("fifo") for target in targets]

    def _redirected(self, workdir: str, stdin: int | str | None, stdout: int | str, stderr: int | str) -> JobSpec:
        """The spec of the job with its redirections. A byte stream for the standard input needs no FIFO."""

        def path(stream: int | str | None) -> str | None:
            return posixpath.join(workdir, stream) if isinstance(stream, str) else None

        standard_input = path(stdin)
        into_stdin: Target = {"stdin": True}
        streams, parts = list(self._spec.streams), list(self._spec.parts)
        fifos = self._fifos()
        if standard_input is not None and standard_input in fifos:
            index, standard_input = fifos.index(standard_input), None
            if index < len(streams):
                streams[index] = replace(streams[index], target=into_stdin)
            else:
                parts[index - len(streams)] = replace(parts[index - len(streams)], target=into_stdin)
        command = replace(self._spec.command, stdin=standard_input, stdout=path(stdout), stderr=path(stderr))
        return replace(self._spec, command=command, streams=tuple(streams), parts=tuple(parts))


async def exit_event_of(node_job: NodeJob) -> ExitEvent:
    """Return the last event of a job whose command has ended.

    :raises asyncio.TimeoutError: if no such event comes in time
    :raises NodeRuntimeError: if the node runtime has ended before
    """
    return await asyncio.wait_for(asyncio.shield(node_job.exit), _EXIT_SECONDS)
