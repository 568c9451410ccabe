"""Rewires the translated workflow, so that files are delivered as the stream edges say.

The regular output ports and the collection of workflow outputs stay as they are. A step of StreamFlow is replaced by
one of the plugin with the same name and ports. Additional ports carry early tokens.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from streamflow.core.workflow import Job, Port, Status, Step, Token, Workflow
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.step import CWLBaseConditionalStep, CWLExecuteStep, CWLScheduleStep, CWLTransferStep
from streamflow.cwl.transformer import DefaultRetagTransformer
from streamflow.workflow.step import GatherStep
from streamflow.workflow.token import TerminationToken
from typing_extensions import Self

from streamflow_io.adapters.output_globs import field_port, file_processor, output_processor, record_fields
from streamflow_io.adapters.outputs import EarlyOutput, early_port, is_early_port
from streamflow_io.adapters.steps import ObservedExecuteStep, StreamingExecuteStep
from streamflow_io.graph.io_graph import Delivery, HopKind, Route, StreamEdge
from streamflow_io.grouping import grouped
from streamflow_io.hints.inheritance import port_path
from streamflow_io.jobs.streaming_run import StreamingScheduleStep
from streamflow_io.jobs.transfer import StreamingTransferStep

from .inspect import COLLECTOR, TOKEN_TRANSFORMER, UNBOUND, Readers, readers_of, replace_step
from .lists import DefaultByTagTransformer, ElementWiring, FieldTransformer, RecordTransformer, leaves_by_element
from .plan import Plan

EMPTY_SCATTER = "-empty-scatter-condition"

T = TypeVar("T", bound=CWLExecuteStep)


def rewire(plan: Plan) -> None:
    """Change the workflow of a plan so that its files are delivered as the edges say."""
    _Rewiring(plan).run()


def observe_jobs(workflow: Workflow) -> None:
    """Let the run observe all tools of a translated workflow, rewired or not."""
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


def replace_transfer(workflow: Workflow, readers: Readers, name: str) -> None:
    """Replace the transfer step of this name, for an input of a job, by the plugin's."""
    old = workflow.steps[name]
    assert isinstance(old, CWLTransferStep)
    if not isinstance(old, StreamingTransferStep):
        new = StreamingTransferStep(
            old.name, old.workflow, old.get_input_port("__job__"), old.prefix_path, old.writable
        )
        replace_step(readers, old, new)


def _replace_schedule(workflow: Workflow, readers: Readers, name: str) -> None:
    """Replace the step of this name, which gives jobs their places, by the plugin's."""
    old = workflow.steps[name]
    assert isinstance(old, CWLScheduleStep)
    new = StreamingScheduleStep(
        old.name,
        old.workflow,
        old.binding_config,
        {},
        old.get_output_port(),
        old.job_prefix,
        old.hardware_requirement,
        old.input_directory,
        old.output_directory,
        old.tmp_directory,
    )
    replace_step(readers, old, new)


class _Rewiring:
    def __init__(self, plan: Plan) -> None:
        self._workflow = plan.workflow
        self._readers = readers_of(plan.workflow)
        wiring = plan.graph.wiring
        self._routes = [*wiring.routes, *wiring.names]
        self._edges = {edge.route: edge for edge in wiring.delivered if not edge.is_plain}
        self._awaited = wiring.awaited
        self._parts = {(each.step, each.port): each.of for each in plan.parts.partitions if each.is_served}
        self._candidates = plan.proofs.candidates
        memory = plan.intermediates.memory
        # Jobs of such steps run again on disk if their files do not fit.
        self._in_memory = () if memory is None else memory.steps
        windows = (window for window in plan.intermediates.windows if window.why is None)
        self._windows = {(window.step, window.port): window for window in windows}

    def run(self) -> None:
        outputs = grouped(self._edges.values(), lambda edge: (edge.route.output.step, edge.route.output.port))
        early: dict[str, list[EarlyOutput]] = defaultdict(list)
        for (step, port), edges in outputs.items():
            if (output := _early_output(edges, self._parts.get((step, port)))) is not None:
                processor = file_processor(output_processor(self._workflow.steps[step], port))
                secondary = tuple(file.pattern for file in processor.secondary_files) if processor else ()
                is_awaited = port_path(step, port) in self._awaited
                more: dict[str, object] = {"secondary": secondary, "when_proven": is_awaited}
                if (window := self._windows.get((step, port))) is not None:
                    more |= {"window": (window.size, window.readers), "waits": window.late is None}
                early[step].append(output.model_copy(update=more))
        read = [edge for edge in self._edges.values() if edge.delivery.joins or edge.delivery is Delivery.PART]
        consumers = {edge.route.consumer.step for edge in read if edge.route.consumer and not edge.route.by_name}
        for path in sorted({*early, *consumers, *self._candidates, *self._in_memory}):
            self._replace_tool(path, early.get(path, []))
        for path in consumers:
            self._replace_transfers(path)
            _replace_schedule(self._workflow, self._readers, posixpath.join(path, "__schedule__"))
        elements = ElementWiring(self._workflow, self._readers)
        elements.wire(self._edges.values())
        for edges in grouped(self._edges.values(), lambda edge: edge.route.output.whole).values():
            self._wire_output(edges)
        elements.finish(self._edges.values())
        confirm_results(self._workflow, readers_of(self._workflow))
        if self._edges:
            _pair_defaults_by_tag(self._workflow, self._readers)

    def _replace_tool(self, path: str, outputs: list[EarlyOutput]) -> None:
        old = self._workflow.steps[path]
        assert isinstance(old, CWLExecuteStep)
        new = _same_tool(StreamingExecuteStep, old)
        replace_step(self._readers, old, new)
        new.early_outputs = tuple(outputs)
        new.streamable = self._streamable_parts(path)
        for output in outputs:
            for name in output.ports:
                new.add_early_port(name, self._workflow.create_port())
            for delivery in output.deliveries:
                name = early_port(delivery, output.port)
                self._skip_also(
                    new.get_output_port(output.record or output.port), f"{path}/{name}", new.get_output_port(name)
                )

    def _streamable_parts(self, path: str) -> tuple[str, ...]:
        """The inputs of a step that read parts front to back."""
        inputs = {e.route.consumer: None for e in self._edges.values() if e.delivery is Delivery.PART}
        return tuple(read.port for read in inputs if read is not None and read.step == path and read.streamable)

    def _replace_transfers(self, path: str) -> None:
        prefix = posixpath.join(path, "__transfer__") + "/"
        for name in [name for name in self._workflow.steps if name.startswith(prefix)]:
            replace_transfer(self._workflow, self._readers, name)

    def _wire_output(self, edges: Sequence[StreamEdge]) -> None:
        path, port = edges[0].route.output.whole
        step = self._workflow.steps[path]
        regular = step.get_output_port(port)
        ports = step.get_output_ports()
        for output in dict.fromkeys(edge.route.output for edge in edges):
            early = {d: ports[name] for d in Delivery if (name := early_port(d, output.port)) in ports}
            routes = [route for route in self._routes if route.output == output and not route.of_record]
            self._wire(regular, early, routes, 0)
            self._take_fields(regular, routes)
        of_record = [edge for edge in edges if edge.route.of_record]
        early = {d: self._record(step, port, d) for d in Delivery if any(edge.delivery is d for edge in of_record)}
        if early:
            output = of_record[0].route.output
            routes = [route for route in self._routes if route.output == output and route.of_record]
            self._wire(regular, early, routes, 0)

    def _record(self, step: Step, port: str, delivery: Delivery) -> Port:
        """Make a port on which a record comes as soon as all of its fields have come."""
        record = self._workflow.create_step(
            cls=RecordTransformer, name=posixpath.join(step.name, early_port(delivery, port))
        )
        for field in record_fields(step.output_processors[port]):
            record.add_input_port(field, step.get_output_port(early_port(delivery, field_port(port, field))))
            self._readers[record.input_ports[field]].append((record, field))
        record.add_output_port(port, self._workflow.create_port())
        return record.get_output_port()

    def _take_fields(self, regular: Port, routes: Sequence[Route]) -> None:
        """Let steps that take a field of a record accept the field alone, if the field comes early."""
        for hop in dict.fromkeys(route.hops[0] for route in routes if route.output.record is not None):
            old = self._workflow.steps[hop.step]
            if old.input_ports[hop.port] != regular.name and not isinstance(old, FieldTransformer):
                new = FieldTransformer(
                    old.name,
                    old.workflow,
                    old.port_name,
                    old.processor,
                    old.value_from,
                    old.expression_lib,
                    old.full_js,
                )
                replace_step(self._readers, old, new)

    def _wire(self, port: Port, early: Mapping[Delivery, Port], routes: Sequence[Route], depth: int) -> None:
        """Let the readers of a port read an early port instead, if all consumers behind a reader can.

        :param early: the ports with the same output, as it is delivered early
        :param routes: the routes through this port
        :param depth: the number of hops of the routes that lie before this port
        """
        through: dict[tuple[str, str], list[Route]] = defaultdict(list)
        for route in routes:
            if (reader := self._reader(route, depth)) is not None:
                through[reader].append(route)
        chosen = {reader: self._choose(reader, early, behind, depth) for reader, behind in through.items()}
        for step, name in list(self._readers[port.name]):
            if step.name.endswith(COLLECTOR):
                continue
            if (step.name, name) in chosen:
                delivery = chosen[step.name, name]
            else:
                delivery = _earliest(chosen, _owner(step.name), name)
            if delivery is not None:
                self._move(step, name, port, early[delivery])

    def _reader(self, route: Route, depth: int) -> tuple[str, str] | None:
        """The step that reads a route's token after this many hops, and its port; None: a workflow output."""
        if depth < len(route.hops):
            hop = route.hops[depth]
            if hop.kind is HopKind.SCATTER:
                # A scatter is reached through the step that looks whether its list is empty.
                return _owner(hop.step) + EMPTY_SCATTER, hop.port
            return hop.step, hop.port
        if route.consumer is None:
            return None
        return posixpath.join(route.consumer.step, f"{route.consumer.port}{TOKEN_TRANSFORMER}"), route.consumer.port

    def _choose(
        self, reader: tuple[str, str], early: Mapping[Delivery, Port], behind: Sequence[Route], depth: int
    ) -> Delivery | None:
        """How a reader gets its token: early if all consumers behind the reader can. None: plain StreamFlow's way."""
        deliveries = {self._list_delivery(route) for route in behind if route.consumer is not None}
        joining = [delivery for delivery in early if delivery.joins and delivery in deliveries]
        if len(deliveries) == len(joining) == 1 and all(route.consumer is not None for route in behind):
            return joining[0]
        gather = self._workflow.steps[reader[0]]
        if isinstance(gather, GatherStep):
            for delivery in joining:
                self._clone_gather(gather, delivery, early[delivery], behind, depth)
        return Delivery.COMMIT if Delivery.COMMIT in deliveries and Delivery.COMMIT in early else None

    def _list_delivery(self, route: Route) -> Delivery:
        """How a route is delivered as a whole: a list whose elements stream is itself delivered at commit."""
        edge = self._edges.get(route)
        if edge is None:
            return Delivery.TERMINATION
        if not edge.by_element:
            # A list of parts is on the regular port: no job writes its files.
            return Delivery.TERMINATION if edge.delivery is Delivery.PART else edge.delivery
        # The list of a step that delivers elements comes with their order.
        return Delivery.COMMIT if leaves_by_element(edge) else Delivery.TERMINATION

    def _clone_gather(
        self, gather: GatherStep, delivery: Delivery, early: Port, behind: Sequence[Route], depth: int
    ) -> None:
        """Put a second gather, for early tokens, beside a gather whose list is delivered in several ways."""
        name = next(name for name in gather.input_ports if name != "__size__")
        clone = self._workflow.create_step(
            cls=type(gather),
            name=f"{gather.name}-{delivery.value}",
            size_port=gather.get_size_port(),
            depth=gather.depth,
        )
        clone.add_input_port(name, early)
        clone.add_output_port(next(iter(gather.output_ports)), self._workflow.create_port())
        self._skip_also(gather.get_output_port(), clone.name, clone.get_output_port())
        # Readers behind the gather itself may share later hops with those behind the clone.
        self._wire(gather.get_output_port(), {delivery: clone.get_output_port()}, behind, depth + 1)

    def _skip_also(self, regular: Port, name: str, early: Port) -> None:
        """Let steps that put a result on a port without a job (empty list, `when`) put it on another port, too.

        :param name: of the other port, among the ports of the step that puts the result
        """
        for step in self._workflow.steps.values():
            if isinstance(step, CWLBaseConditionalStep) and regular.name in step.skip_ports.values():
                step.add_skip_port(name, early)

    def _move(self, step: Step, name: str, old: Port, new: Port) -> None:
        step.input_ports[name] = new.name
        self._readers[old.name].remove((step, name))
        self._readers[new.name].append((step, name))


def _early_output(edges: Sequence[StreamEdge], of: str | None) -> EarlyOutput | None:
    """How a step has to deliver the output of its edges; None: nothing of it early.

    :param of: the input whose parts the program may report; None: the program reports none
    """
    output = edges[0].route.output
    elements = [edge for edge in edges if leaves_by_element(edge)]
    whole = [edge for edge in edges if edge not in elements]
    deliveries = {edge.delivery for edge in whole}
    if elements:
        # The list itself is for the scatter, which needs it when all of it is known.
        deliveries.add(Delivery.COMMIT)
    joining = [edge.route for edge in edges if edge.delivery.joins]
    early = EarlyOutput(
        port=output.port,
        kind=output.kind,
        rules=output.rules or (edges[0].rule,),
        deliveries=tuple(d for d in Delivery if d in deliveries and d not in (Delivery.TERMINATION, Delivery.PART)),
        elements=tuple(d for d in Delivery if any(edge.delivery is d for edge in elements)),
        of=of,
        fixed_name=any(route.needs_name for route in joining),
        fixed=any(hop.fills for route in joining for hop in route.hops),
        record=output.record,
    )
    return early if early.deliveries or of else None


def _earliest(chosen: Mapping[tuple[str, str], Delivery | None], owner: str, port: str) -> Delivery | None:
    """The delivery for a reader that needs only the tag of a token: the earliest that others of its step get.

    :param port: the name of the port for the reader; some names have the step before the input
    """
    names = (port, posixpath.basename(port))
    alike = {delivery for (step, name), delivery in chosen.items() if _owner(step) == owner and name in names}
    return next((delivery for delivery in Delivery if delivery in alike), None)


def _owner(name: str) -> str:
    """The CWL step or process for which StreamFlow has made a step of its own."""
    for suffix in ("-when", EMPTY_SCATTER, "-scatter-combinator", "-scatter-size-transformer"):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return posixpath.dirname(name) or "/"


def _pair_defaults_by_tag(workflow: Workflow, readers: Readers) -> None:
    """Let no step of a workflow with early deliveries pair its inputs by their order."""
    writers: dict[str, Step] = {port: step for step in workflow.steps.values() for port in step.output_ports.values()}
    for old in [step for step in workflow.steps.values() if type(step) is DefaultRetagTransformer]:
        writer = writers.get(old.input_ports[old.primary_port])
        # An input without a source has one token for all jobs. A single input is not paired with others.
        if len(old.input_ports) > 1 and writer is not None and not writer.name.startswith(UNBOUND):
            replace_step(readers, old, DefaultByTagTransformer(old.name, workflow, old.default_port, old.primary_port))


class ConfirmedTransferStep(CWLTransferStep):  # type: ignore[misc]
    """Puts a result at its final place when all jobs have succeeded from whose files it was made.

    A commit may still turn out to be wrong before. Then the run fails, and the result is void.

    :ivar early: one port of each step whose early outputs this result is made from
    """

    # A step that is loaded from the database runs when its producers have ended.
    early: tuple[str, ...] = ()
    _confirmed: asyncio.Future[bool] | None = None

    @classmethod
    def like(cls, step: CWLTransferStep, early: Iterable[str]) -> Self:
        """Return the same step, which waits.

        :param early: the names of the ports
        """
        new = cls(step.name, step.workflow, step.get_input_port("__job__"), step.prefix_path, step.writable)
        new.input_ports, new.output_ports = dict(step.input_ports), dict(step.output_ports)
        new.early = tuple(early)
        return new

    async def transfer(self, job: Job, token: Token) -> Token:
        if self._confirmed is None:
            # Once for all results: a port tells each reader only once how it ended.
            self._confirmed = asyncio.ensure_future(self._have_ended_well())
        if not await asyncio.shield(self._confirmed):
            raise asyncio.CancelledError
        return await super().transfer(job, token)

    async def _have_ended_well(self) -> bool:
        return all(await asyncio.gather(*(self._has_ended_well(name) for name in self.early)))

    async def _has_ended_well(self, name: str) -> bool:
        port = self.workflow.ports[name]
        while not isinstance(
            token := await port.get(posixpath.join(self.name, "__confirmed__", name)), TerminationToken
        ):
            pass
        return token.value not in (Status.FAILED, Status.CANCELLED)


def confirm_results(workflow: Workflow, readers: Mapping[str, Iterable[tuple[Step, str]]]) -> None:
    """Let the results that are made from early outputs of a rewired workflow wait until these outputs are confirmed.

    :param readers: by port: the steps that read it, and the names of their input ports
    """
    awaited: dict[str, list[str]] = defaultdict(list)
    for step in workflow.steps.values():
        if isinstance(step, StreamingExecuteStep) and step.early_outputs:
            early = [port for name, port in step.output_ports.items() if is_early_port(name)]
            for name in _reached(early, readers):
                awaited[name].append(early[0])
    for output in workflow.output_ports:
        collector = workflow.steps.get(f"/{output}-collector")
        if isinstance(collector, CWLTransferStep) and collector.name in awaited:
            workflow.steps[collector.name] = ConfirmedTransferStep.like(collector, awaited[collector.name])


def _reached(ports: Iterable[str], readers: Mapping[str, Iterable[tuple[Step, str]]]) -> set[str]:
    """The names of the steps that get tokens from these ports, directly or through other steps."""
    steps: set[str] = set()
    known = set(ports)
    waiting = list(known)
    while waiting:
        for step, _ in readers[waiting.pop()]:
            steps.add(step.name)
            waiting.extend(set(step.output_ports.values()) - known)
            known.update(step.output_ports.values())
    return steps
