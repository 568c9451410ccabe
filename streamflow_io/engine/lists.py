"""The steps that change when outputs come early: lists and their elements, fields of records, defaults."""

from __future__ import annotations

import asyncio
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import cast

from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.utils import get_entity_ids, get_tag
from streamflow.core.workflow import Port, Status, Token, Workflow
from streamflow.cwl.step import CWLEmptyScatterConditionalStep
from streamflow.cwl.transformer import DefaultRetagTransformer, ValueFromTransformer
from streamflow.cwl.workflow import CWLWorkflow
from streamflow.workflow.step import BaseStep, GatherStep, ScatterStep
from streamflow.workflow.token import ListToken, ObjectToken, TerminationToken
from streamflow.workflow.transformer import ManyToOneTransformer

from streamflow_io.adapters.outputs import early_port, element_port, order_port
from streamflow_io.adapters.tokens import ScatterSize
from streamflow_io.graph.edges import scatter_of
from streamflow_io.graph.io_graph import Delivery, Hop, HopKind, OutputKind, StreamEdge
from streamflow_io.tasks import end, to_the_end

from .inspect import Readers, replace_step


class DefaultByTagTransformer(DefaultRetagTransformer):  # type: ignore[misc]
    """Gives each job the input of its own tag, or its default, and ends when no more input can come.

    StreamFlow pairs an input that has a default with the other inputs of its step by their order, and ends with these.
    Early commits come in the order of commits. And a run must not end before the step that writes the input has ended.
    """

    def __init__(self, name: str, workflow: CWLWorkflow, default_port: Port, primary_port: str) -> None:
        super().__init__(name, workflow, default_port, primary_port)
        self._came: dict[str, Token] = {}
        self._end: Status | None = None

    async def transform(
        self, inputs: MutableMapping[str, Token]
    ) -> MutableMapping[str, Token | MutableSequence[Token]]:
        token: Token = await self._get_next_token(await self._primary(get_tag(inputs.values())), inputs)
        return {self.get_output_name(): token}

    async def terminate(self, status: Status) -> None:
        if not self.terminated and status not in (Status.FAILED, Status.CANCELLED):
            while self._end is None:
                await self._hear()
            status = self._end if self._end in (Status.FAILED, Status.CANCELLED) else status
        await super().terminate(status)

    async def _primary(self, tag: str) -> Token | None:
        """Return the token for a tag: its own, or one for all tags below; None: no such token comes."""
        while (found := next((t for t in self._came if tag == t or tag.startswith(f"{t}.")), None)) is None:
            if self._end is not None:
                return None
            await self._hear()
        return self._came.pop(tag) if found == tag else self._came[found]

    async def _hear(self) -> None:
        name = self.primary_port
        token = (await self._get_inputs({name: self.get_input_port(name)}))[name]
        if isinstance(token, TerminationToken):
            self._end = token.value
        else:
            self._came[token.tag] = token


# The tokens that a transformer takes, and those that it makes.
_Inputs = MutableMapping[str, Token]
_Outputs = MutableMapping[str, "Token | MutableSequence[Token]"]


class RecordTransformer(ManyToOneTransformer):  # type: ignore[misc]
    """Makes a record when all of its fields are there. Each field comes on a port of its own."""

    async def transform(self, inputs: _Inputs) -> _Outputs:
        tag = get_tag(inputs.values())
        if all(token.value is None for token in inputs.values()):
            # The step was skipped: a step that runs gives each field.
            return {self.get_output_name(): Token(None, tag=tag, recoverable=True)}
        fields = {name: inputs[name].update(inputs[name].value) for name in self.input_ports}
        return {self.get_output_name(): ObjectToken(fields, tag=tag)}


class FieldTransformer(ValueFromTransformer):  # type: ignore[misc]
    """A `valueFrom` that takes a field of a record, and gets that field alone instead of the record."""

    async def transform(self, inputs: _Inputs) -> _Outputs:
        (field,) = inputs.values()
        if field.value is None:
            # The step was skipped, so there is no record.
            return cast(_Outputs, await super().transform(inputs))
        return {self.get_output_name(): field.update(field.value)}


# The ports that a scatter can have besides the port of its list.
ELEMENTS = "__elements__"
WHOLE = "__whole__"
ORDER = "__order__"
_BESIDES = (ELEMENTS, WHOLE, ORDER)


class _ListStep(BaseStep):  # type: ignore[misc]
    async def _next(self, name: str) -> Token:
        """Return the next token of an input port."""
        return await self.get_input_port(name).get(posixpath.join(self.name, name))

    async def _put(self, port: Port, token: Token, *made_of: Token) -> None:
        """Put a token on an output port, with its provenance."""
        port.put(await self._persist_token(token=token, port=port, input_token_ids=get_entity_ids(made_of)))


class StreamingScatterStep(_ListStep, ScatterStep):  # type: ignore[misc]
    """A scatter that gets elements of its list before the list.

    An element has the tag of the list and a number of its own, under which it is scattered once. The port
    :data:`ELEMENTS` has elements. :data:`WHOLE` has the list itself, before it is known whether another list of the
    same scatter is empty. :data:`ORDER` has the numbers of the elements of each list, in the order of the list: a
    :class:`ScatterSize`, or a plain number if they are in order already. Without that port the tags in the list have
    the numbers.
    """

    def add_input_port(self, name: str, port: Port) -> None:
        others = [other for other in self.input_ports if other not in (*_BESIDES, name)]
        if name not in _BESIDES and others:
            raise WorkflowExecutionException(f"Step {self.name} scatters one input: {others[0]}")
        self.input_ports[name] = port.name

    def get_input_port_name(self) -> str:
        names: list[str] = [name for name in self.input_ports if name not in _BESIDES]
        return names[0]

    def get_input_port(self, name: str | None = None) -> Port:
        return super().get_input_port(self.get_input_port_name() if name is None else name)

    async def run(self) -> None:
        scattered: dict[str, set[int]] = defaultdict(set)
        early = [
            asyncio.create_task(scatter(scattered))
            for name, scatter in ((ELEMENTS, self._scatter_elements), (WHOLE, self._scatter_whole))
            if name in self.input_ports
        ]
        try:
            orders: dict[str, Sequence[int]] = {}
            while not isinstance(token := await self._next(self.get_input_port_name()), TerminationToken):
                await self._scatter_rest(token, orders, scattered[token.tag])
        finally:
            await end(*early)
        await self.terminate(self._get_status(token.value))

    async def _scatter_elements(self, scattered: dict[str, set[int]]) -> None:
        while not isinstance(token := await self._next(ELEMENTS), TerminationToken):
            tag, number = _split(token.tag)
            await self._scatter_one(token, tag, number, scattered[tag])

    async def _scatter_whole(self, scattered: dict[str, set[int]]) -> None:
        while not isinstance(token := await self._next(WHOLE), TerminationToken):
            for number, element in enumerate(token.value if isinstance(token, ListToken) else ()):
                await self._scatter_one(element, token.tag, number, scattered[token.tag])

    async def _scatter_rest(self, token: Token, orders: dict[str, Sequence[int]], scattered: set[int]) -> None:
        if not isinstance(token, ListToken):
            await self._scatter(token)
            return
        order = await self._order(token, orders)
        if scattered.difference(order):
            raise WorkflowExecutionException(f"Step {self.name} has got elements that are not in the list {token.tag}")
        for number, element in zip(order, token.value, strict=True):
            await self._scatter_one(element, token.tag, number, scattered)
        in_order = order == list(range(len(order)))
        size = Token(len(order), tag=token.tag, recoverable=True) if in_order else ScatterSize(order, tag=token.tag)
        await self._put(self.get_size_port(), size, token)

    async def _order(self, token: ListToken, orders: dict[str, Sequence[int]]) -> list[int]:
        """Return the numbers of the elements of a list, in the order of the list."""
        if WHOLE in self.input_ports:
            return list(range(len(token.value)))
        if ORDER not in self.input_ports:
            return [_split(element.tag)[1] for element in token.value]
        while token.tag not in orders:
            size = await self._next(ORDER)
            if isinstance(size, TerminationToken):
                raise WorkflowExecutionException(f"Step {self.name}: the order of the list {token.tag} is missing")
            orders[size.tag] = size.order if isinstance(size, ScatterSize) else range(size.value)
        return list(orders.pop(token.tag))

    async def _scatter_one(self, element: Token, tag: str, number: int, scattered: set[int]) -> None:
        if number in scattered:
            return
        scattered.add(number)
        await to_the_end(self._put(self.get_output_port(), element.retag(f"{tag}.{number}"), element))


class OrderedGatherStep(_ListStep, GatherStep):  # type: ignore[misc]
    """A gather that puts results in the order of the list that was scattered, with the tags of that order."""

    async def _gather(self, key: str) -> None:
        size = self.size_map[key]
        if not isinstance(size, ScatterSize):
            await super()._gather(key)
            return
        places = {number: place for place, number in enumerate(size.order)}
        found = {places[_split(token.tag)[1]]: token for token in self.token_map[key]}
        # Later steps may look at the tags, as `merge_flattened` does.
        in_order = [found[place].retag(f"{key}.{place}") for place in sorted(found)]
        await self._put(self.get_output_port(), ListToken(in_order, tag=key), size, *found.values())


class ListBeginsStep(_ListStep):
    """Puts one token for each list, with its tag, as soon as its first element is there, or the list itself."""

    async def run(self) -> None:
        told: set[str] = set()
        elements = asyncio.create_task(self._tell_elements(told))
        try:
            while not isinstance(token := await self._next(WHOLE), TerminationToken):
                await self._tell(token, token.tag, told)
        finally:
            await end(elements)
        await self.terminate(self._get_status(token.value))

    async def _tell_elements(self, told: set[str]) -> None:
        while not isinstance(token := await self._next(ELEMENTS), TerminationToken):
            await self._tell(token, _split(token.tag)[0], told)

    async def _tell(self, token: Token, tag: str, told: set[str]) -> None:
        if tag not in told:
            told.add(tag)
            await to_the_end(self._put(self.get_output_port(), Token(None, tag=tag, recoverable=True), token))


def _split(tag: str) -> tuple[str, int]:
    """The tag of a list, and the number of its element, from the tag of the element."""
    prefix, _, number = tag.rpartition(".")
    return prefix, int(number)


def leaves_by_element(edge: StreamEdge) -> bool:
    """Whether the step itself delivers the elements of its list one by one."""
    return edge.by_element and edge.route.output.kind is OutputKind.FILES and edge.route.hops[0].kind is HopKind.SCATTER


class ElementWiring:
    """Lets scatters read the elements of their lists as they come.

    :param readers: by the name of a port: the steps that read it, with the names of their ports; kept up to date
    """

    def __init__(self, workflow: Workflow, readers: Readers) -> None:
        self._workflow = workflow
        self._readers = readers

    def wire(self, edges: Iterable[StreamEdge]) -> None:
        """Wire all edges by element. The ports of their lists may be moved afterwards."""
        for edge in edges:
            if edge.by_element:
                hop = scatter_of(edge)
                elements, order = self._sources(edge)
                self._replace_scatter(
                    hop, {ELEMENTS: elements} if order is None else {ELEMENTS: elements, ORDER: order}
                )
                if edge.reordered:
                    self._order_gathers(hop)

    def finish(self, edges: Iterable[StreamEdge]) -> None:
        """Let nothing else wait for the lists. To be called when the ports of all lists are final."""
        for hop in dict.fromkeys(scatter_of(edge) for edge in edges if edge.by_element):
            conditional = self._conditional(hop)
            self._begin_with_elements(hop, conditional)
            for name, port in conditional.input_ports.items():
                self._scatter_at_once(conditional, name, self._workflow.ports[port])

    def _sources(self, edge: StreamEdge) -> tuple[Port, Port | None]:
        """The port with the elements, and the port with their order; None: the order is that of the list."""
        output = edge.route.output
        ports = self._workflow.steps[output.step].get_output_ports()
        if leaves_by_element(edge):
            return ports[element_port(edge.delivery, output.port)], ports[order_port(output.port)]
        regular = edge.delivery in (Delivery.TERMINATION, Delivery.PART)
        elements = ports[output.port if regular else early_port(edge.delivery, output.port)]
        gather = self._workflow.steps[edge.route.hops[0].step]
        assert isinstance(gather, GatherStep)
        return elements, gather.get_size_port() if edge.reordered else None

    def _replace_scatter(self, hop: Hop, ports: Mapping[str, Port]) -> None:
        old = self._workflow.steps[hop.step]
        assert isinstance(old, ScatterStep)
        if isinstance(old, StreamingScatterStep):
            return
        new = StreamingScatterStep(old.name, old.workflow, old.get_size_port())
        replace_step(self._readers, old, new)
        for name, port in ports.items():
            new.add_input_port(name, port)

    def _order_gathers(self, hop: Hop) -> None:
        scatter = self._workflow.steps[hop.step]
        assert isinstance(scatter, ScatterStep)
        for old, name in list(self._readers[scatter.get_size_port().name]):
            if isinstance(old, GatherStep) and name == "__size__" and not isinstance(old, OrderedGatherStep):
                replace_step(
                    self._readers, old, OrderedGatherStep(old.name, old.workflow, old.get_size_port(), old.depth)
                )

    def _conditional(self, hop: Hop) -> CWLEmptyScatterConditionalStep:
        """The step that looks whether one of the lists of a scatter is empty."""
        (conditional,) = self._workflow.steps[hop.step].get_input_port(hop.port).get_input_steps()
        assert isinstance(conditional, CWLEmptyScatterConditionalStep)
        return conditional

    def _begin_with_elements(self, hop: Hop, conditional: CWLEmptyScatterConditionalStep) -> None:
        """Let steps that need only the tag of a list wait no longer than for its first element."""
        whole = conditional.get_input_port(hop.port)
        waiting = [
            (step, name)
            for step, name in self._readers[whole.name]
            if isinstance(step, DefaultRetagTransformer)
            and step.primary_port != name
            and posixpath.dirname(step.name) == posixpath.dirname(hop.step)
        ]
        if not waiting:
            return
        begins = self._workflow.create_step(cls=ListBeginsStep, name=f"{hop.step}-begins")
        begins.add_input_port(WHOLE, whole)
        begins.add_input_port(ELEMENTS, self._workflow.steps[hop.step].get_input_port(ELEMENTS))
        begins.add_output_port(hop.port, self._workflow.create_port())
        for step, name in waiting:
            step.input_ports[name] = begins.get_output_port().name
            self._readers[whole.name].remove((step, name))
            self._readers[begins.get_output_port().name].append((step, name))

    def _scatter_at_once(self, conditional: CWLEmptyScatterConditionalStep, name: str, whole: Port) -> None:
        """Let a list that is paired with one that comes by element wait for no other list.

        If one of the lists turns out to be empty, nothing is paired.
        """
        readers = self._readers[conditional.output_ports[name]]
        scatter = next(step for step, _ in readers if isinstance(step, ScatterStep))
        if not isinstance(scatter, StreamingScatterStep):
            self._replace_scatter(Hop(scatter.name, name, HopKind.SCATTER), {WHOLE: whole})
