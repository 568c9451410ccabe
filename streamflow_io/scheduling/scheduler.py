"""The adapter to StreamFlow's scheduler: admission of gang members, the node runtime, the connectors of jobs.

StreamFlow imports every plugin in every run: what only our own runs need is imported when it is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, MutableMapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamflow.core.config import BindingConfig
from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import Connector
from streamflow.core.exception import WorkflowDefinitionException
from streamflow.core.persistence import Database, DatabaseLoadingContext
from streamflow.core.scheduling import Hardware, HardwareRequirement
from streamflow.core.workflow import Job
from streamflow.log_handler import logger
from streamflow.scheduling.scheduler import DefaultScheduler
from typing_extensions import Self

from streamflow_io.streaming.jobs import StreamingJobs
from streamflow_io.streaming.token import stream_tokens

if TYPE_CHECKING:
    from streamflow_io.hints import SchedulerConfig
    from streamflow_io.runtime import EmbeddedRuntime

SCHEMA = "scheduler.schema.json"


class IOAwareScheduler(DefaultScheduler):  # type: ignore[misc]
    """StreamFlow's default scheduler, and: a job that reads from a running job is admitted even when no core is free.

    What such a job uses is bounded by its stream, as in a shell pipe; it keeps its memory requirement. With
    `oversubscribe: never` it starts when a core is free: nothing is lost, for the file that it reads is on disk.

    :ivar config: `config` of the scheduler in the StreamFlow file
    :ivar streaming_jobs: the jobs that stream to others
    """

    def __init__(self, context: StreamFlowContext, retry_delay: int | None = None, **config: Any) -> None:
        super().__init__(context, retry_delay)
        self.config: SchedulerConfig = _parse(config, context.config)
        self.streaming_jobs = StreamingJobs()
        self._members: dict[str, float] = {}
        self._connectors: dict[str, Connector] = {}
        self._runtime: asyncio.Task[EmbeddedRuntime] | None = None

    @property
    def annotations_path(self) -> Path | None:
        """The annotations file; relative to the StreamFlow file."""
        if self.config.annotations is None:
            return None
        return Path(self.context.config["path"]).parent / self.config.annotations

    def streams_here(self, wanted: bool) -> bool:
        """Whether files can be delivered early in this run.

        :param wanted: whether anything is to be; if so and it cannot, one warning says why
        """
        from streamflow_io.runtime import EmbeddedRuntime, NodeRuntimeError

        if not wanted or self.config.runtime == "off":
            return False
        if self.config.runtime == "capio":
            logger.warning("`runtime: capio` is not available yet: the embedded node runtime is used")
        try:
            EmbeddedRuntime.check()
        except NodeRuntimeError as error:
            logger.warning(f"Nothing streams in this run, everything is as with plain StreamFlow: {error}")
            return False
        return True

    async def node_runtime(self) -> EmbeddedRuntime:
        """The node runtime of this run, started when first needed.

        :raises NodeRuntimeError: if it cannot be started
        """
        from streamflow_io.runtime import EmbeddedRuntime

        if self._runtime is None:
            self._runtime = asyncio.create_task(EmbeddedRuntime.start())
        return await asyncio.shield(self._runtime)

    async def close(self) -> None:
        if self._runtime is not None:
            with contextlib.suppress(Exception):
                await (await self._runtime).close()
        await super().close()

    @contextlib.contextmanager
    def connected(self, job_name: str, connector: Connector) -> Iterator[None]:
        """Let the command of a job run through another connector."""
        self._connectors[job_name] = connector
        try:
            yield
        finally:
            del self._connectors[job_name]

    def get_connector(self, job_name: str) -> Connector:
        return self._connectors.get(job_name) or super().get_connector(job_name)

    def get_hardware(self, job_name: str) -> Hardware:
        # A command sees the cores that its step declares (`runtime.cores`), however it was admitted.
        hardware = super().get_hardware(job_name)
        if job_name in self._members:
            return Hardware(self._members[job_name], hardware.memory, hardware.storage)
        return hardware

    async def schedule(
        self, job: Job, binding_config: BindingConfig, hardware_requirement: HardwareRequirement | None
    ) -> None:
        if hardware_requirement is not None and self.config.oversubscribe == "gangs" and self._is_member(job):
            hardware_requirement = MemberRequirement(hardware_requirement, self._members)
        await super().schedule(job, binding_config, hardware_requirement)

    def _is_member(self, job: Job) -> bool:
        """Whether a job reads from one that is running."""
        return any(
            self.streaming_jobs.is_running(token.source.job)
            for value in job.inputs.values()
            for token in stream_tokens(value)
        )

    @classmethod
    def get_schema(cls) -> str:
        # Generated by `python -m streamflow_io.hints.schemas`: StreamFlow asks for it in every run.
        return files(__package__).joinpath(SCHEMA).read_text("utf-8")


class MemberRequirement(HardwareRequirement):  # type: ignore[misc]
    """What a gang member needs: all that its step declares but cores.

    :param cores: where the declared cores are noted, by the name of the job
    """

    def __init__(self, requirement: HardwareRequirement, cores: dict[str, float]) -> None:
        self._requirement = requirement
        self._cores = cores

    def eval(self, job: Job) -> Hardware:
        hardware = self._requirement.eval(job)
        self._cores[job.name] = hardware.cores
        return Hardware(0.0, hardware.memory, hardware.storage)

    @classmethod
    async def _load(cls, row: MutableMapping[str, Any], loading_context: DatabaseLoadingContext) -> Self:
        raise NotImplementedError("made for one job, never saved")

    async def _save_additional_params(self, database: Database) -> MutableMapping[str, Any]:
        raise NotImplementedError("made for one job, never saved")


def _parse(config: Mapping[str, Any], streamflow_config: Mapping[str, Any]) -> SchedulerConfig:
    from streamflow_io.hints import HintErrors, Source, parse_scheduler_config

    try:
        return parse_scheduler_config(config, Source(str(streamflow_config.get("path", "the StreamFlow file"))))
    except HintErrors as error:
        raise WorkflowDefinitionException(str(error)) from None
