"""The steps of StreamFlow that change when files stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, MutableMapping, MutableSet
from typing import Any, Protocol, cast

from streamflow.core.deployment import Connector
from streamflow.core.persistence import Database, DatabaseLoadingContext
from streamflow.core.processor import CommandOutputProcessor
from streamflow.core.utils import get_entity_ids, get_job_tag, make_future
from streamflow.core.workflow import CommandOutput, Job, Port, Status, Token
from streamflow.cwl.step import CWLExecuteStep
from streamflow.log_handler import logger
from streamflow.workflow.port import JobPort
from typing_extensions import Self

from streamflow_io._streamflow import find_job_token

from .outputs import EarlyOutput

# The connector of each output, by its port.
Connectors = MutableMapping[str, Connector]


class JobExecutor(Protocol):
    """The run, as its steps use it."""

    def observe(self, step: CWLExecuteStep, job: Job) -> None: ...
    async def execute(self, step: StreamingExecuteStep, job: Job, connectors: Connectors) -> None: ...
    def delivered(self, job: Job, token: Token) -> None: ...


class _NoOutput(CommandOutputProcessor):  # type: ignore[misc]
    """The processor of each additional port of a streaming step. The step itself puts the tokens on these ports."""

    async def process(
        self,
        job: Job,
        command_output: asyncio.Future[CommandOutput],
        connector: Connector | None = None,
        recoverable: bool = False,
    ) -> None:
        return None


class ObservedExecuteStep(CWLExecuteStep):  # type: ignore[misc]
    """Runs jobs as StreamFlow does, and lets the use of their files be observed."""

    async def _execute_command(self, job: Job, connectors: Connectors) -> None:
        cast(JobExecutor, self.workflow.context.scheduler.run).observe(self, job)
        await super()._execute_command(job, connectors)


class StreamingExecuteStep(CWLExecuteStep):  # type: ignore[misc]
    """Runs jobs under the node runtime, which delivers outputs before the end, and feeds inputs while they are written.

    The regular output ports get the same tokens as from StreamFlow, at the same time. Early tokens have ports of their
    own.

    :ivar streamable: the inputs that read a part of a file front to back, once
    :ivar streamed: of a run that is over: see :meth:`save_streamed`
    """

    early_outputs: tuple[EarlyOutput, ...] = ()
    streamable: tuple[str, ...] = ()
    streamed: Collection[tuple[str, str]] = ()
    _has_warned = False

    def add_early_port(self, name: str, port: Port) -> None:
        """Add one of the ports that :mod:`streamflow_io.adapters.outputs` names."""
        self.add_output_port(name, port, _NoOutput(name, self.workflow))

    def warn_once(self, message: str) -> None:
        """Log a warning that holds for all jobs of the step; only the first call has an effect."""
        if not self._has_warned:
            self._has_warned = True
            logger.warning(message)

    @property
    def tells_paths(self) -> bool:
        """Whether a file that an InitialWorkDirRequirement makes may have the path of an input in its text."""
        made = str(getattr(self.command, "initial_work_dir", None))
        return "$(" in made or "${" in made

    def is_recoverable(self, job: Job) -> bool:
        return bool(self._is_recoverable(job))

    async def deliver(self, job: Job, port_name: str, token: Token) -> None:
        """Put a token on one of the output ports, with its provenance."""
        port = self.get_output_port(port_name)
        inputs = get_entity_ids((*job.inputs.values(), self._job_token(job)))
        persisted = await self._persist_token(token=token, port=port, input_token_ids=inputs)
        cast(JobExecutor, self.workflow.context.scheduler.run).delivered(job, token)
        port.put(persisted)

    async def collect(
        self, job: Job, output: CommandOutput, connectors: Connectors, collected: Mapping[str, Token]
    ) -> dict[str, Token]:
        """Return the outputs of a successful job, by output, as StreamFlow makes them."""
        names = [name for name in self._regular_ports() if name not in collected]
        tokens = await asyncio.gather(*(self.collect_port(job, name, output, connectors) for name in names))
        made = {name: token for name, token in zip(names, tokens, strict=True) if token is not None}
        return {**collected, **made}

    async def collect_port(self, job: Job, name: str, output: CommandOutput, connectors: Connectors) -> Token | None:
        """Return one output of a successful job, as StreamFlow makes it."""
        processor, is_recoverable = self.output_processors[name], self.is_recoverable(job)
        return cast(
            "Token | None", await processor.process(job, make_future(output), connectors.get(name), is_recoverable)
        )

    async def deliver_regular(self, job: Job, tokens: Mapping[str, Token]) -> None:
        """Put the outputs of a job on the regular ports. Does nothing if the step has terminated."""
        if self.terminated:
            return
        for name, token in tokens.items():
            await self.deliver(job, name, token)
            manager = self.workflow.context.failure_manager
            await manager.notify(self.get_output_port(name).name, token, self._job_token(job))

    async def save_streamed(self, edges: Collection[tuple[str, str]]) -> None:
        """Save which inputs were read as streams to the end. StreamFlow has saved the step before.

        :param edges: inputs, each with the output that was read, as /step/port
        """
        database = self.workflow.context.database
        row = await database.get_step(self.persistent_id)
        params = {**row["params"], "streamed": sorted(edges)}
        await database.update_step(self.persistent_id, {"params": json.dumps(params)})

    def _regular_ports(self) -> dict[str, Port]:
        ports = self.get_output_ports()
        return {name: ports[name] for name, p in self.output_processors.items() if not isinstance(p, _NoOutput)}

    async def run(self) -> None:
        self._waiting_jobs: dict[str, Job] = {}
        await super().run()

    async def _check_inputs(
        self,
        inputs: MutableMapping[str, Token],
        input_ports: MutableMapping[str, Port],
        inputs_map: MutableMapping[str, MutableMapping[str, Token]],
        connectors: Connectors,
        unfinished: MutableSet[asyncio.Task[MutableMapping[str, Token] | Status]],
    ) -> None:
        """Run each job whose inputs are all there, with the inputs of its own tag.

        StreamFlow pairs jobs and inputs by their order. Here the orders may differ: an input that cannot be read early
        comes later than the inputs of other jobs.
        """
        for name, token in inputs.items():
            inputs_map.setdefault(token.tag, {})[name] = token
        for tag in [tag for tag, found in inputs_map.items() if len(found) == len(input_ports)]:
            if (job := await self._job_of(tag)) is None:
                return
            await self._set_status(Status.FIREABLE)
            running = self._run_job(job, inputs_map.pop(tag), connectors)
            unfinished.add(asyncio.create_task(running, name=job.name))
        unfinished.add(asyncio.create_task(self._get_inputs(input_ports), name="retrieve_inputs"))

    async def _job_of(self, tag: str) -> Job | None:
        """Return the job of a tag, which has been scheduled; None: no such job comes any more."""
        port = cast(JobPort, self.get_input_port("__job__"))
        while tag not in self._waiting_jobs:
            if (job := await port.get_job(self.name)) is None:
                return None
            self._waiting_jobs[get_job_tag(job.name)] = job
        return self._waiting_jobs.pop(tag)

    async def _execute_command(self, job: Job, connectors: Connectors) -> None:
        await cast(JobExecutor, self.workflow.context.scheduler.run).execute(self, job, connectors)

    def _job_token(self, job: Job) -> Token:
        return find_job_token(job.name, self.get_input_port("__job__").token_list)

    def _get_status(self, status: Status) -> Status:
        # A list without elements leaves its element port empty. That does not make the step skipped.
        if status in (Status.FAILED, Status.CANCELLED):
            return status
        if any(port.empty() for port in self._regular_ports().values()):
            return Status.SKIPPED
        return Status.COMPLETED if status == Status.RECOVERED else status

    async def _save_additional_params(self, database: Database) -> MutableMapping[str, Any]:
        return {
            **await super()._save_additional_params(database),
            "early_outputs": [
                output.model_dump(mode="json", by_alias=True, exclude_unset=True) for output in self.early_outputs
            ],
            "streamable": list(self.streamable),
        }

    @classmethod
    async def _load(cls, row: MutableMapping[str, Any], loading_context: DatabaseLoadingContext) -> Self:
        step = await super()._load(row, loading_context)
        step.early_outputs = tuple(EarlyOutput.model_validate(o) for o in row["params"]["early_outputs"])
        step.streamable = tuple(row["params"]["streamable"])
        step.streamed = {(name, output) for name, output in row["params"].get("streamed", ())}
        return cast(Self, step)
