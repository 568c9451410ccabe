"""The steps of StreamFlow whose work changes when files stream."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Mapping, MutableMapping, MutableSequence
from typing import Any, cast

from streamflow.core.deployment import Connector
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.persistence import Database, DatabaseLoadingContext
from streamflow.core.processor import CommandOutputProcessor
from streamflow.core.utils import get_entity_ids, make_future
from streamflow.core.workflow import CommandOutput, Job, Port, Status, Token
from streamflow.cwl.step import CWLExecuteStep
from streamflow.workflow.step import GatherStep, ScatterStep
from streamflow.workflow.token import ListToken, TerminationToken
from streamflow.workflow.utils import get_job_token
from typing_extensions import Self

from .execution import Execution
from .outputs import EarlyOutput
from .spec import job_spec
from .token import ScatterSize

ELEMENTS = "__elements__"


class _NoOutput(CommandOutputProcessor):  # type: ignore[misc]
    """For the additional ports of a streaming step: what they carry is delivered by the step itself."""

    async def process(
        self,
        job: Job,
        command_output: asyncio.Future[CommandOutput],
        connector: Connector | None = None,
        recoverable: bool = False,
    ) -> None:
        return None


class ObservedExecuteStep(CWLExecuteStep):  # type: ignore[misc]
    """Runs jobs as StreamFlow does; what they do with their files is observed."""

    async def _execute_command(self, job: Job, connectors: MutableMapping[str, Connector]) -> None:
        self.workflow.context.scheduler.observed(job_spec(self, job), self, job)
        await super()._execute_command(job, connectors)


class StreamingExecuteStep(CWLExecuteStep):  # type: ignore[misc]
    """Runs jobs under the node runtime: it delivers outputs before they end, and has inputs while they are written.

    The regular output ports get what they get from StreamFlow, at the same time; what is early has ports of its own.
    """

    early_outputs: tuple[EarlyOutput, ...] = ()

    def add_early_port(self, name: str, port: Port) -> None:
        """Add one of the ports that :mod:`streamflow_io.streaming.outputs` names."""
        self.add_output_port(name, port, _NoOutput(name, self.workflow))

    def is_recoverable(self, job: Job) -> bool:
        return bool(self._is_recoverable(job))

    async def deliver(self, job: Job, port_name: str, token: Token) -> None:
        """Put a token on one of the output ports, with its provenance."""
        port = self.get_output_port(port_name)
        inputs = get_entity_ids((*job.inputs.values(), self._job_token(job)))
        port.put(await self._persist_token(token=token, port=port, input_token_ids=inputs))

    async def collect(
        self,
        job: Job,
        output: CommandOutput,
        connectors: MutableMapping[str, Connector],
        collected: Mapping[str, Token],
    ) -> dict[str, Token]:
        """The outputs of a job that has succeeded, by output, as StreamFlow makes them.

        :param collected: those that are there already
        """
        names = [name for name in self._regular_ports() if name not in collected]
        tokens = await asyncio.gather(
            *(
                self.output_processors[name].process(
                    job, make_future(output), connectors.get(name), self.is_recoverable(job)
                )
                for name in names
            )
        )
        made = {name: token for name, token in zip(names, tokens, strict=True) if token is not None}
        return {**collected, **made}

    async def deliver_regular(self, job: Job, tokens: Mapping[str, Token]) -> None:
        """Put the outputs of a job on the regular ports."""
        if self.terminated:
            return
        for name, token in tokens.items():
            await self.deliver(job, name, token)
            manager = self.workflow.context.failure_manager
            await manager.notify(self.get_output_port(name).name, token, self._job_token(job))

    def _regular_ports(self) -> dict[str, Port]:
        ports = self.get_output_ports()
        return {name: ports[name] for name, p in self.output_processors.items() if not isinstance(p, _NoOutput)}

    async def _execute_command(self, job: Job, connectors: MutableMapping[str, Connector]) -> None:
        await Execution(self, job, connectors).run()

    def _job_token(self, job: Job) -> Token:
        return get_job_token(job.name, self.get_input_port("__job__").token_list)

    def _get_status(self, status: Status) -> Status:
        # A list without elements leaves its element port empty; that does not make the step skipped.
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
        }

    @classmethod
    async def _load(cls, row: MutableMapping[str, Any], loading_context: DatabaseLoadingContext) -> Self:
        step = await super()._load(row, loading_context)
        step.early_outputs = tuple(EarlyOutput.model_validate(o) for o in row["params"]["early_outputs"])
        return cast(Self, step)


class StreamingScatterStep(ScatterStep):  # type: ignore[misc]
    """A scatter that gets elements of its list before the list.

    An element has the tag of the list and a number of its own; the list, when it comes, holds the same elements, in its
    own order. What was scattered before is not scattered again.
    """

    def add_input_port(self, name: str, port: Port) -> None:
        if name == ELEMENTS:
            self.input_ports[name] = port.name
        else:
            without = {k: v for k, v in self.input_ports.items() if k != ELEMENTS}
            if without and name not in without:
                raise WorkflowExecutionException(f"Step {self.name} scatters one input: {next(iter(without))}")
            self.input_ports[name] = port.name

    def get_input_port_name(self) -> str:
        names: list[str] = [name for name in self.input_ports if name != ELEMENTS]
        return names[0]

    def get_input_port(self, name: str | None = None) -> Port:
        return super().get_input_port(self.get_input_port_name() if name is None else name)

    async def run(self) -> None:
        scattered: dict[str, set[int]] = {}
        elements = asyncio.create_task(self._scatter_elements(scattered))
        name = self.get_input_port_name()
        try:
            while True:
                token = await self.get_input_port().get(posixpath.join(self.name, name))
                if isinstance(token, TerminationToken):
                    status = token.value
                    break
                await self._scatter_rest(token, scattered.setdefault(token.tag, set()))
        finally:
            elements.cancel()
            await asyncio.gather(elements, return_exceptions=True)
        await self.terminate(self._get_status(status))

    async def _scatter_elements(self, scattered: dict[str, set[int]]) -> None:
        port = self.get_input_port(ELEMENTS)
        while not isinstance(token := await port.get(posixpath.join(self.name, ELEMENTS)), TerminationToken):
            tag, _, number = token.tag.rpartition(".")
            if int(number) not in scattered.setdefault(tag, set()):
                scattered[tag].add(int(number))
                await self._put_element(token, token.tag)

    async def _scatter_rest(self, token: Token, scattered: set[int]) -> None:
        if not isinstance(token, ListToken):
            await self._scatter(token)
            return
        order = []
        for element in token.value:
            tag, _, number = element.tag.rpartition(".")
            place = int(number) if tag == token.tag else -1
            if place < 0:
                place = next(i for i in range(len(token.value)) if i not in scattered and i not in order)
            order.append(place)
            if place not in scattered:
                scattered.add(place)
                await self._put_element(element, f"{token.tag}.{place}")
        size_port = self.get_size_port()
        size_port.put(
            await self._persist_token(
                token=ScatterSize(order, tag=token.tag),
                port=size_port,
                input_token_ids=get_entity_ids([token]),
            )
        )

    async def _put_element(self, element: Token, tag: str) -> None:
        port = self.get_output_port()
        port.put(
            await self._persist_token(token=element.retag(tag), port=port, input_token_ids=get_entity_ids([element]))
        )


class OrderedGatherStep(GatherStep):  # type: ignore[misc]
    """A gather that puts results in the order of the list that was scattered, not in that of their tags."""

    async def _gather(self, key: str) -> None:
        size = self.size_map[key]
        tokens: MutableSequence[Token] = self.token_map[key]
        if not isinstance(size, ScatterSize):
            await super()._gather(key)
            return
        places = {place: index for index, place in enumerate(size.order)}
        tokens = sorted(tokens, key=lambda token: places[int(token.tag.split(".")[-self.depth])])
        port = self.get_output_port()
        port.put(
            await self._persist_token(
                token=ListToken(tokens, tag=key),
                port=port,
                input_token_ids=get_entity_ids([size, *tokens]),
            )
        )
