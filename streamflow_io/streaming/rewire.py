"""Rewiring of the translated workflow, so that files are delivered as the stream edges say.

The regular output ports and the collection of workflow outputs are left as they are. A step of StreamFlow is replaced
by one of ours of the same name, with the same ports; additional ports carry what comes early.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from streamflow.core.workflow import Port, Step, Workflow
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.step import CWLExecuteStep, CWLTransferStep
from streamflow.workflow.step import GatherStep, ScatterStep

from streamflow_io.coordination.graph import Delivery, Hop, HopKind, OutputKind, Route, StreamEdge

from .inspect import COLLECTOR, WorkflowGraph
from .outputs import EarlyOutput, early_port, element_port
from .step import (
    ELEMENTS,
    ObservedExecuteStep,
    OrderedGatherStep,
    StreamingExecuteStep,
    StreamingScatterStep,
)
from .transfer import StreamingTransferStep

S = TypeVar("S", bound=Step)
T = TypeVar("T", bound=CWLExecuteStep)


def rewire(
    workflow: Workflow,
    graph: WorkflowGraph,
    edges: Iterable[StreamEdge],
    capio: Collection[tuple[str, str]] = (),
) -> None:
    """Change a translated workflow so that its files are delivered as the edges say.

    :param graph: its I/O graph; not valid any more afterwards
    :param edges: the edges to serve; those that are as with plain StreamFlow change nothing
    :param capio: the outputs that CAPIO holds: step and port
    """
    edges = [edge for edge in edges if not edge.is_plain]
    _Rewiring(workflow, graph, edges, capio).run()


def observe_jobs(workflow: Workflow) -> None:
    """Let all tools of a translated workflow, rewired or not, run under the eyes of the scheduler's observer."""
    for name, old in list(workflow.steps.items()):
        if type(old) is CWLExecuteStep and isinstance(old.command, CWLCommand):
            new = workflow.steps[name] = _same_tool(ObservedExecuteStep, old)
            new.input_ports, new.output_ports = dict(old.input_ports), dict(old.output_ports)


def _same_tool(cls: type[T], old: CWLExecuteStep) -> T:
    """A step of another class that runs the same tool, without its ports."""
    new: T = cls(
        name=old.name,
        workflow=old.workflow,
        job_port=old.get_job_port(),
        recoverable=old.recoverable,
        expression_lib=old.expression_lib,
        full_js=old.full_js,
    )
    new.command = old.command
    new.command.step = new
    new.output_connectors = old.output_connectors
    new.output_processors = old.output_processors
    return new


class _Rewiring:
    def __init__(
        self,
        workflow: Workflow,
        graph: WorkflowGraph,
        edges: Sequence[StreamEdge],
        capio: Collection[tuple[str, str]],
    ) -> None:
        self._workflow = workflow
        self._capio = capio
        self._readers = graph.readers
        self._routes = graph.routes
        self._edges = {edge.route: edge for edge in edges}

    def run(self) -> None:
        outputs: dict[tuple[str, str], list[StreamEdge]] = defaultdict(list)
        for edge in self._edges.values():
            outputs[edge.route.output.step, edge.route.output.port].append(edge)
        early: dict[str, list[EarlyOutput]] = defaultdict(list)
        for (step, port), edges in outputs.items():
            if (output := _early_output(edges, (step, port) in self._capio)) is not None:
                early[step].append(output)
        consumers = {c.step for e in self._edges.values() if e.delivery.joins and (c := e.route.consumer)}
        for path in sorted({*early, *consumers}):
            self._replace_tool(path, early.get(path, []))
        for path in consumers:
            self._replace_transfers(path)
        for edges in outputs.values():
            self._wire_output(edges)

    def _replace_tool(self, path: str, outputs: list[EarlyOutput]) -> None:
        old = self._workflow.steps[path]
        assert isinstance(old, CWLExecuteStep)
        new = _same_tool(StreamingExecuteStep, old)
        self._take_ports(old, new)
        new.early_outputs = tuple(outputs)
        for output in outputs:
            for name in output.ports:
                new.add_early_port(name, self._workflow.create_port())

    def _replace_transfers(self, path: str) -> None:
        prefix = posixpath.join(path, "__transfer__") + "/"
        for old in [step for name, step in self._workflow.steps.items() if name.startswith(prefix)]:
            assert isinstance(old, CWLTransferStep)
            new = StreamingTransferStep(
                old.name, old.workflow, old.get_input_port("__job__"), old.prefix_path, old.writable
            )
            self._take_ports(old, new)

    def _take_ports(self, old: S, new: S) -> None:
        new.input_ports = dict(old.input_ports)
        new.output_ports = dict(old.output_ports)
        self._workflow.steps[old.name] = new
        for port in new.input_ports.values():
            self._readers[port] = [(new if s is old else s, name) for s, name in self._readers[port]]

    def _wire_output(self, edges: Sequence[StreamEdge]) -> None:
        output = edges[0].route.output
        step = self._workflow.steps[output.step]
        regular = step.get_output_port(output.port)
        ports = step.get_output_ports()
        for edge in edges:
            if edge.by_element:
                self._wire_elements(edge, ports)
        early = {d: ports[name] for d in Delivery if (name := early_port(d, output.port)) in ports}
        self._wire(regular, early, [route for route in self._routes if route.output == output], 0)

    def _wire(self, port: Port, early: Mapping[Delivery, Port], routes: Sequence[Route], depth: int) -> None:
        """Let the readers of a port read what is early instead, as far as all behind them can.

        :param early: the ports with the same, as it is delivered early
        :param routes: the routes through this port
        :param depth: how many hops they have behind them here
        """
        groups: dict[tuple[str, str], list[Route]] = defaultdict(list)
        for route in routes:
            if (reader := self._first_reader(port, route, depth)) is not None:
                groups[reader].append(route)
        for (owner, name), behind in groups.items():
            deliveries = {self._list_delivery(route) for route in behind if route.consumer is not None}
            # Others of the same step may wait for the token only to know its tag; some name the input with its step.
            readers = [
                (s, n) for s, n in self._readers[port.name] if _owner(s) == owner and name in (n, posixpath.basename(n))
            ]
            joining = [delivery for delivery in Delivery if delivery.joins and delivery in deliveries]
            if len(deliveries) == len(joining) == 1 and all(route.consumer is not None for route in behind):
                self._move(readers, port, early[joining[0]])
                continue
            for delivery in joining:
                self._clone_gather(readers, delivery, early[delivery], behind, depth)
            if Delivery.COMMIT in deliveries:
                self._move(readers, port, early[Delivery.COMMIT])

    def _first_reader(self, port: Port, route: Route, depth: int) -> tuple[str, str] | None:
        if depth < len(route.hops):
            hop = route.hops[depth]
            # A scatter is reached through the step that looks whether its list is empty.
            return _owner_of_name(hop.step), hop.port
        if route.consumer is None:
            return None
        return route.consumer.step, route.consumer.port

    def _list_delivery(self, route: Route) -> Delivery:
        """How a route is delivered as a whole: a list whose elements stream is itself delivered at commit."""
        edge = self._edges.get(route)
        if edge is None:
            return Delivery.TERMINATION
        if not edge.by_element:
            return edge.delivery
        # Elements of a File[] are known to the scatter by the tokens in the list that the step makes of them.
        return Delivery.COMMIT if route.output.kind is OutputKind.FILES else Delivery.TERMINATION

    def _clone_gather(
        self,
        readers: Sequence[tuple[Step, str]],
        delivery: Delivery,
        early: Port,
        behind: Sequence[Route],
        depth: int,
    ) -> None:
        """A gather whose list is delivered in several ways: a second one beside it gathers what is early."""
        (gather,) = [step for step, _ in readers if isinstance(step, GatherStep)]
        name = next(name for name in gather.input_ports if name != "__size__")
        clone = self._workflow.create_step(
            cls=type(gather),
            name=f"{gather.name}-{delivery.value}",
            size_port=gather.get_size_port(),
            depth=gather.depth,
        )
        clone.add_input_port(name, early)
        clone.add_output_port(next(iter(gather.output_ports)), self._workflow.create_port())
        routes = [route for route in behind if self._list_delivery(route) is delivery]
        self._wire(gather.get_output_port(), {delivery: clone.get_output_port()}, routes, depth + 1)

    def _move(self, readers: Sequence[tuple[Step, str]], old: Port, new: Port) -> None:
        for step, name in readers:
            if not step.name.endswith(COLLECTOR):
                step.input_ports[name] = new.name
                self._readers[old.name].remove((step, name))
                self._readers[new.name].append((step, name))

    def _wire_elements(self, edge: StreamEdge, ports: Mapping[str, Port]) -> None:
        """Let a scatter read the elements of a list as they come."""
        output = edge.route.output
        hop = next(hop for hop in edge.route.hops if hop.kind is HopKind.SCATTER)
        if output.kind is OutputKind.FILES:
            source = ports[element_port(edge.delivery, output.port)]
        else:
            regular = edge.delivery is Delivery.TERMINATION
            source = ports[output.port if regular else early_port(edge.delivery, output.port)]
        self._replace_scatter(hop, source)
        if edge.reordered:
            self._order_gathers(hop)

    def _replace_scatter(self, hop: Hop, elements: Port) -> None:
        old = self._workflow.steps[hop.step]
        assert isinstance(old, ScatterStep)
        if isinstance(old, StreamingScatterStep):
            return
        new = StreamingScatterStep(old.name, old.workflow, old.get_size_port())
        self._take_ports(old, new)
        new.add_input_port(ELEMENTS, elements)

    def _order_gathers(self, hop: Hop) -> None:
        scatter = self._workflow.steps[hop.step]
        assert isinstance(scatter, ScatterStep)
        for old, name in list(self._readers[scatter.get_size_port().name]):
            if isinstance(old, GatherStep) and name == "__size__" and not isinstance(old, OrderedGatherStep):
                new = OrderedGatherStep(old.name, old.workflow, old.get_size_port(), old.depth)
                self._take_ports(old, new)


def _early_output(edges: Sequence[StreamEdge], in_capio: bool) -> EarlyOutput | None:
    """What a step has to do for its edges; None if it delivers nothing early."""
    output = edges[0].route.output
    lists = output.kind is OutputKind.FILES
    elements = [edge for edge in edges if edge.by_element and lists]
    whole = [edge for edge in edges if edge not in elements]
    deliveries = {edge.delivery for edge in whole}
    if elements:
        # The list itself, for what the scatter does when all of it is known.
        deliveries.add(Delivery.COMMIT)
    early = EarlyOutput(
        port=output.port,
        kind=output.kind,
        rules=output.rules or (edges[0].rule,),
        deliveries=tuple(d for d in Delivery if d in deliveries and d is not Delivery.TERMINATION),
        elements=tuple(d for d in Delivery if any(edge.delivery is d for edge in elements)),
        runtime="capio" if in_capio else "embedded",
    )
    return early if early.deliveries else None


def _owner(step: Step) -> str:
    return _owner_of_name(step.name)


def _owner_of_name(name: str) -> str:
    """The CWL step or process for which StreamFlow made a step of its own."""
    for suffix in ("-when", "-empty-scatter-condition", "-scatter-combinator", "-scatter-size-transformer"):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return posixpath.dirname(name) or "/"
