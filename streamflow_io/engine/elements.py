"""Rewires scatters that get the elements of a list one by one."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from streamflow.core.workflow import Port, Workflow
from streamflow.cwl.step import CWLEmptyScatterConditionalStep
from streamflow.cwl.transformer import DefaultRetagTransformer
from streamflow.workflow.step import GatherStep, ScatterStep

from streamflow_io.adapters.outputs import early_port, element_port, order_port
from streamflow_io.graph.edges import scatter_of
from streamflow_io.graph.io_graph import Delivery, Hop, HopKind, OutputKind, StreamEdge

from .lists import ELEMENTS, ORDER, WHOLE, ListBeginsStep, OrderedGatherStep, StreamingScatterStep
from .ports import Readers, replace_step


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
