"""The connector that a streaming job's command runs through."""

from __future__ import annotations

import asyncio
import posixpath
import shlex
from collections.abc import MutableMapping, MutableSequence, Sequence
from typing import TYPE_CHECKING

from streamflow.core.deployment import Connector, ExecutionLocation
from streamflow.deployment.wrapper import ConnectorWrapper

from streamflow_io.runtime import InputStream, JobSpec, NodeJob

if TYPE_CHECKING:
    from .capio import CapioJob


class JobConnector(ConnectorWrapper):  # type: ignore[misc]
    """Runs the command of one job under `sfio-node exec`; everything else goes to the inner connector as it is.

    Redirections are done by the node runtime, not by the shell: a FIFO would block the shell, and what the shell opens
    cannot be watched from the start.
    """

    def __init__(
        self, inner: Connector, job_name: str, node_job: NodeJob, spec: JobSpec, capio: CapioJob | None = None
    ) -> None:
        super().__init__(inner.deployment_name, inner.config_dir, inner, None, inner.transferBufferSize)
        self._job_name = job_name
        self._node_job = node_job
        self._spec = spec
        self._capio = capio

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
        wrapped = job_name == self._job_name
        output_directory = workdir or ""
        if wrapped:
            if isinstance(stdin, str) and self._opens_itself(posixpath.join(output_directory, stdin)):
                command, stdin = _opened_by_itself(stdin, command), None
            if self._capio is not None:
                command = [*self._capio.prefix, *command]
                workdir = str(self._capio.directory or output_directory)
            # The shell that StreamFlow starts becomes the wrapper: there is no process between driver and job.
            command = [
                "exec",
                *await self._node_job.wrap(self._redirected(output_directory, stdin, stdout, stderr)),
                *command,
            ]
            stdin, stdout, stderr = None, asyncio.subprocess.STDOUT, asyncio.subprocess.STDOUT
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
        if wrapped and result is not None and result[1] < 0:
            # What a shell says of a command that a signal ended.
            result = (result[0], 128 - result[1])
        if wrapped and result is not None and self._capio is not None and result[1] in self._spec.success_codes:
            await self._capio.collect(output_directory)
        return result

    def _opens_itself(self, path: str) -> bool:
        """Whether the command has to open its standard input: only then it is held at the gate, or sees CAPIO."""
        if self._capio is not None and self._capio.holds(path):
            return True
        return any(path == gate.target for gate in self._spec.gates)

    def _redirected(self, workdir: str, stdin: int | str | None, stdout: int | str, stderr: int | str) -> JobSpec:
        """The job with its redirections. A standard input that is a stream needs no FIFO."""

        def path(stream: int | str | None) -> str | None:
            return posixpath.join(workdir, stream) if isinstance(stream, str) else None

        inputs = list(self._spec.inputs)
        standard_input = path(stdin)
        for index, stream in enumerate(inputs):
            if standard_input is not None and stream.target.get("fifo") == standard_input:
                inputs[index] = _into_stdin(stream)
                standard_input = None
        return self._spec.model_copy(
            update={
                "stdin": standard_input,
                "stdout": path(stdout),
                "stderr": path(stderr),
                "inputs": tuple(inputs),
            }
        )


def _opened_by_itself(stdin: str, command: Sequence[str]) -> list[str]:
    """A command whose standard input is opened when it runs already, and so is held at the gate.

    :param command: words as a shell reads them
    """
    return ["/bin/sh", "-c", shlex.quote('exec "$@" < "$0"'), shlex.quote(stdin), *command]


def _into_stdin(stream: InputStream) -> InputStream:
    return stream.model_copy(update={"target": {"stdin": True}})
