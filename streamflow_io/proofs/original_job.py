"""The original job that a rehearsal repeats."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field
from streamflow.core.deployment import Connector
from streamflow.core.scheduling import AvailableLocation, Hardware
from streamflow.core.workflow import Job, Token
from streamflow.workflow.utils import get_token_value

from streamflow_io.adapters.paths import CHECKSUM, NoChecksumsError, checksums_below, job_path
from streamflow_io.adapters.steps import StreamingExecuteStep
from streamflow_io.adapters.tokens import file_tokens, with_own_value
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import ExitEvent

from .clocks import Span


class JobResult(Struct, frozen=True):
    """The result of a job that has succeeded.

    :ivar outputs: as StreamFlow has made them
    :ivar seconds: that its command took
    :ivar cpu: seconds of CPU time, with those of its node runtime
    :ivar span: the start and the end of its command, by the clock of its host, in seconds since the epoch
    """

    outputs: Mapping[str, Token]
    seconds: float
    cpu: float
    span: Span = (0.0, 0.0)


def span_of(exit_event: ExitEvent) -> Span:
    """The start and the end of a command, by the clock of its host."""
    return exit_event.started or 0.0, exit_event.ended or 0.0


def file_sizes(files: Iterable[Token]) -> tuple[int, ...]:
    """The sizes of files in bytes; 0 if CWL does not say."""
    return tuple(int(file.value.get("size") or 0) for file in files)


class OriginalJob(Struct, frozen=True, eq=False):
    """The original job, which runs, or has succeeded.

    :ivar inputs: before an InitialWorkDirRequirement has changed them
    :ivar place: where the job runs, as StreamFlow's scheduler sees the location
    :ivar result: set when the job has succeeded; to be awaited only through :meth:`ended`
    """

    step: StreamingExecuteStep
    job: Job
    runtime: NodeRuntime
    inputs: Mapping[str, Token]
    hardware: Hardware
    connector: Connector
    place: AvailableLocation
    result: asyncio.Future[JobResult] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def has_ended(self) -> bool:
        """Whether the original job has succeeded."""
        return self.result.done()

    async def ended(self) -> JobResult:
        """Wait until the job has succeeded; for ever, if it fails."""
        return await asyncio.shield(self.result)

    @property
    def seconds(self) -> float:
        """The seconds that the command took; infinite before the job has succeeded."""
        return self.result.result().seconds if self.has_ended else math.inf

    @property
    def cpu(self) -> float:
        """The seconds of CPU time that the command took; infinite before the job has succeeded."""
        return self.result.result().cpu if self.has_ended else math.inf

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories of its outputs, its inputs, and its temporary files."""
        return self.job.output_directory, self.job.input_directory, self.job.tmp_directory

    def files(self, port: str) -> list[Token]:
        """The files of one of its inputs."""
        return list(file_tokens(self.inputs[port]))

    def copied_inputs(self) -> dict[str, Token]:
        """Return copies of its inputs, which can be changed in place."""
        return {name: with_own_value(token) for name, token in self.inputs.items()}

    async def described(self) -> dict[str, Any]:
        """Return the outputs of the job as :func:`described` does, when the job has succeeded."""
        return await described(self.step, self.job, (await self.ended()).outputs)


async def described(step: StreamingExecuteStep, job: Job, tokens: Mapping[str, Token]) -> dict[str, Any]:
    """Return the outputs of a job as CWL objects, each Directory with the checksums of its files. Reads these files.

    :raises NoChecksumsError: if the job's location has no sha1sum, so that only sizes could be compared
    """

    async def describe(value: Any) -> Any:
        if isinstance(value, Mapping):
            found = {name: await describe(inner) for name, inner in value.items()}
            if value.get("class") == "Directory" and "path" in value:
                found["checksums"] = await checksums_below(job_path(step.workflow.context, job, value["path"]))
            if value.get("class") == "File" and CHECKSUM.fullmatch(str(value.get("checksum"))) is None:
                raise NoChecksumsError(f"{value.get('basename')} has no checksum")
            return found
        if isinstance(value, list | tuple):
            return [await describe(inner) for inner in value]
        return value

    return {name: await describe(get_token_value(token)) for name, token in tokens.items()}
