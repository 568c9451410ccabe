"""The RO-Crate of a run with streamed inputs: the crate of plain StreamFlow, and which inputs were streamed."""

from __future__ import annotations

import uuid
from collections.abc import MutableMapping, MutableSequence
from contextvars import ContextVar
from importlib.metadata import version
from typing import Any, NamedTuple

from streamflow.core.context import StreamFlowContext
from streamflow.core.persistence import DatabaseLoadingContext
from streamflow.core.utils import get_job_step_name, get_job_tag
from streamflow.core.workflow import Port, Token, Workflow
from streamflow.provenance.run_crate import CWLRunCrateProvenanceManager
from streamflow.workflow.token import ObjectToken

from streamflow_io.adapters.output_globs import field_port
from streamflow_io.adapters.steps import StreamingExecuteStep
from streamflow_io.adapters.tokens import StreamSource, StreamToken, file_tokens, stream_tokens
from streamflow_io.hints.inheritance import port_path

from .scheduler import IOAwareScheduler

_DISTRIBUTION = "streamflow-io"


class _ReadPort(NamedTuple):
    """The input of a step whose tokens are looked at.

    :ivar streamed: the outputs, as /step/port, that were read there as streams
    """

    workflow: Workflow
    streamed: frozenset[str]


# The input that got the list or record whose elements are looked at.
_read: ContextVar[_ReadPort | None] = ContextVar("read", default=None)


class StreamedRunCrate(CWLRunCrateProvenanceManager):  # type: ignore[misc]
    """Writes the crate of runs; a streamed input is the file that its producer has written.

    The crate has the entities and links that plain StreamFlow writes. It names this plugin as an add-on of StreamFlow.
    It lists the streamed inputs of each run, as an `additionalProperty` of the run's action. An input is streamed if
    a job that has succeeded has read the input as a byte stream, and never as a file.
    """

    def __init__(
        self,
        context: StreamFlowContext,
        db_context: DatabaseLoadingContext,
        workflows: MutableSequence[Workflow],
    ) -> None:
        super().__init__(context, db_context, workflows)
        # The tokens of regular output ports, by the identifier of the port and by tag.
        self._outputs: dict[int, dict[str, Token]] = {}

    async def add_initial_inputs(self, wf_id: int, workflow: Workflow) -> None:
        await super().add_initial_inputs(wf_id, workflow)
        if isinstance(self.context.scheduler, IOAwareScheduler):
            self._name_the_plugin()

    async def get_property_value(self, name: str, token: Token) -> MutableMapping[str, Any] | None:
        read = _read.get()
        if read is None and next(stream_tokens(token), None) is not None:
            if (read := await self._port_of(token)) is None:
                return None
            # An element of a list or a record has no port of its own.
            _read.set(read)
        if isinstance(token, StreamToken) and read is not None:
            self._name_the_plugin()
            source = token.source
            if port_path(get_job_step_name(source.job), source.port) in read.streamed:
                self._list_streamed(read.workflow, name)
            # A job that has failed has no output, as with plain StreamFlow.
            token = await self._final(read.workflow, source) or Token(None, tag=token.tag)
        value: MutableMapping[str, Any] | None = await super().get_property_value(name, token)
        return value

    def _name_the_plugin(self) -> None:
        if _DISTRIBUTION in self.graph:
            return
        number = version(_DISTRIBUTION)
        self.graph[_DISTRIBUTION] = {
            "@id": f"#{_DISTRIBUTION}",
            "@type": "SoftwareApplication",
            "name": f"StreamFlow-IO {number}",
            "softwareVersion": number,
        }
        for action in [entity for entity in self.graph.values() if entity["@type"] == "OrganizeAction"]:
            self.graph[action["instrument"]["@id"]]["softwareAddOn"] = {"@id": f"#{_DISTRIBUTION}"}

    def _list_streamed(self, workflow: Workflow, name: str) -> None:
        main = self.graph["./"]["mainEntity"]["@id"]
        (action,) = self.create_action_map[self.workflows.index(workflow)][main]["/"]["0"]
        if "additionalProperty" not in action:
            streamed = {"@id": f"#{uuid.uuid4()}", "@type": "PropertyValue", "name": "streamed inputs", "value": []}
            self.graph[streamed["@id"]] = streamed
            action["additionalProperty"] = {"@id": streamed["@id"]}
        names = self.graph[action["additionalProperty"]["@id"]]["value"]
        if name not in names:
            names.append(name)

    async def _port_of(self, token: Token) -> _ReadPort | None:
        """Return the input that got a token with an identifier."""
        port = await self.context.database.get_port_from_token(token.persistent_id)
        workflow = next((each for each in self.workflows if each.persistent_id == port["workflow"]), None)
        if workflow is None:
            return None
        edges = {
            output
            for step in workflow.steps.values()
            if isinstance(step, StreamingExecuteStep)
            for name, output in step.streamed
            if step.input_ports[name] == port["name"]
        }
        return _ReadPort(workflow, frozenset(edges))

    async def _final(self, workflow: Workflow, source: StreamSource) -> Token | None:
        """Return the token of the final file of a job; None: the job has not succeeded."""
        step = workflow.steps[get_job_step_name(source.job)]
        record = next((output.record for output in step.early_outputs if output.port == source.port), None)
        port = step.get_output_port(record or source.port)
        token = (await self._tokens_of(port)).get(get_job_tag(source.job))
        if record is not None and isinstance(token, ObjectToken):
            fields = (field for name, field in token.value.items() if field_port(record, name) == source.port)
            token = next(fields, None)
        files = list(file_tokens(token))
        # A single file may have had another name while it was written.
        same = [each for each in files if each.value["path"].endswith(f"/{source.path}")] or files
        return same[0] if len(same) == 1 else None

    async def _tokens_of(self, port: Port) -> dict[str, Token]:
        if port.persistent_id not in self._outputs:
            identifiers = await self.context.database.get_port_tokens(port.persistent_id)
            tokens = [await self.db_context.load_token(identifier) for identifier in identifiers]
            self._outputs[port.persistent_id] = {token.tag: token for token in tokens}
        return self._outputs[port.persistent_id]
