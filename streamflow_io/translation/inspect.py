"""From a translated workflow to the I/O graph: which output reaches which input, and through what."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterator, Mapping

from streamflow.core.workflow import Port, Step, Workflow
from streamflow.cwl.combinator import ListMergeCombinator
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.processor import CWLCommandOutputProcessor
from streamflow.cwl.step import (
    CWLConditionalStep,
    CWLEmptyScatterConditionalStep,
    CWLExecuteStep,
    CWLLoopConditionalStep,
)
from streamflow.cwl.transformer import (
    AllNonNullTransformer,
    CWLTokenTransformer,
    DefaultTransformer,
    FirstNonNullTransformer,
    ForwardTransformer,
    ListToElementTransformer,
    OnlyNonNullTransformer,
    ValueFromTransformer,
)
from streamflow.cwl.utils import resolve_dependencies
from streamflow.workflow.combinator import LoopCombinator, LoopTerminationCombinator
from streamflow.workflow.step import (
    CombinatorStep,
    GatherStep,
    LoopCombinatorStep,
    LoopOutputStep,
    ScatterStep,
    ScheduleStep,
)

from streamflow_io.graph import io_graph as graph
from streamflow_io.graph.io_graph import Hop, HopKind, Input, Output, Route
from streamflow_io.graph.sites import Site, SiteKind
from streamflow_io.hints import StepAnnotations, StreamingRule
from streamflow_io.run.globs import file_processor, kind_of

from .known_jobs import known_globs
from .obstacles import (
    early_obstacle,
    expressions,
    output_obstacle,
    processor_obstacle,
    uses_only_name,
    whole_file_use,
    whole_self_use,
    with_inner,
    with_library,
)
from .sites import site_of

COLLECTOR = "-collector-transformer"
TOKEN_TRANSFORMER = "-token-transformer"


class WorkflowGraph:
    """The I/O graph of a translated workflow.

    :ivar steps: the tools, by step path
    :ivar outputs: what they make
    :ivar routes: how their outputs reach inputs and workflow outputs
    :ivar names: how the names of their outputs do, as part of other values, where no file arrives
    :ivar readers: by the name of a port, the steps that read it and under which name

    :param all_obstacles: look for them also where no hint asks for anything
    """

    def __init__(
        self, workflow: Workflow, annotations: Mapping[str, StepAnnotations], *, all_obstacles: bool = False
    ) -> None:
        self._workflow = workflow
        self._annotations = annotations
        self._all_obstacles = all_obstacles
        self._starts_with_producers = any(
            rule.value.start == "producer"
            for hints in annotations.values()
            for rules in hints.streaming.values()
            for rule in rules
        )
        self._expressions: dict[str, tuple[str, ...]] = {}
        self.readers: dict[str, list[tuple[Step, str]]] = defaultdict(list)
        for step in workflow.steps.values():
            for name, port in step.input_ports.items():
                self.readers[port].append((step, name))
        tools = [step for step in workflow.steps.values() if isinstance(step, CWLExecuteStep)]
        self.steps = {step.name: self._step(step) for step in tools}
        self.inputs = {
            (step.name, name): self._input(step, name)
            for step in tools
            for name in step.input_ports
            if name != "__job__"
        }
        made = [(step, output) for step in tools for output in self._outputs(step)]
        self.outputs = [output for _, output in made]
        routes = [route for step, output in made for route in self._routes(step, output)]
        self.routes = [route for route in routes if not route.by_name]
        self.names = [route for route in routes if route.by_name]

    @property
    def standard_outputs(self) -> frozenset[str]:
        """The outputs that are the standard output of their command, as `/step/port`."""
        return frozenset(
            f"{step.name.rstrip('/')}/{port}"
            for step in self._workflow.steps.values()
            if isinstance(step, CWLExecuteStep) and isinstance(step.command, CWLCommand) and step.command.stdout
            for port, processor in step.output_processors.items()
            if (collector := file_processor(processor)) is not None and collector.glob == step.command.stdout
        )

    def schedule_step(self, step: CWLExecuteStep) -> ScheduleStep:
        return next(s for s in step.get_job_port().get_input_steps() if isinstance(s, ScheduleStep))

    def _step(self, step: CWLExecuteStep) -> graph.Step:
        requirement = self.schedule_step(step).hardware_requirement
        cores, memory = getattr(requirement, "cores", 1), getattr(requirement, "memory", 0)
        return graph.Step(
            step.name,
            None if isinstance(cores, str) else float(cores),
            self._site(step),
            None if isinstance(memory, str) else float(memory),
        )

    def _site(self, step: CWLExecuteStep) -> Site:
        return site_of(self.schedule_step(step).binding_config)

    def _outputs(self, step: CWLExecuteStep) -> Iterator[Output]:
        annotations = self._annotations.get(step.name)
        for port, processor in step.output_processors.items():
            if isinstance(step.command, CWLCommand):
                rules = tuple(rule.value for rule in annotations.streaming.get(port, ())) if annotations else ()
                streamable = annotations is not None and port in annotations.streamable_outputs
                if rules or streamable or self._all_obstacles:
                    yield self._output(step, port, file_processor(processor), rules, streamable)
                else:
                    collector = file_processor(processor)
                    globs = known_globs(step, collector)
                    yield Output(step.name, port, kind_of(collector), globs=globs, site=self.steps[step.name].site)

    def _output(
        self,
        step: CWLExecuteStep,
        port: str,
        processor: CWLCommandOutputProcessor | None,
        rules: tuple[StreamingRule, ...],
        streamable: bool,
    ) -> Output:
        kind = kind_of(processor)
        name = f"{step.name.rstrip('/')}/{port}"
        assert isinstance(step.command, CWLCommand)
        obstacle = output_obstacle(processor, kind, rules, name)
        stream_obstacle = None if obstacle or processor is None else early_obstacle(processor, kind, step.command, name)
        globs = known_globs(step, processor)
        site = self.steps[step.name].site
        return Output(step.name, port, kind, rules, streamable, obstacle, stream_obstacle, globs, site)

    def _input(self, step: CWLExecuteStep, name: str) -> Input:
        annotations = self._annotations.get(step.name)
        streamable = annotations is not None and name in annotations.streamable_inputs
        # Not looked for where nobody starts with his producer.
        wanted = streamable or self._starts_with_producers or self._all_obstacles
        obstacle = self._input_obstacle(step, name) if wanted else None
        return Input(step.name, name, streamable, obstacle, self.steps[step.name].site)

    def _input_obstacle(self, step: CWLExecuteStep, name: str) -> str | None:
        shown = f"{step.name.rstrip('/')}/{name}"
        if not isinstance(step.command, CWLCommand):
            return f"{step.name} is an ExpressionTool"
        if step.command.time_limit and self.steps[step.name].site.kind is SiteKind.QUEUE:
            return f"{step.name} has a ToolTimeLimit, and its queue manager counts the time in which it would wait"
        transformer = self._workflow.steps.get(posixpath.join(step.name, name + TOKEN_TRANSFORMER))
        if (
            isinstance(transformer, CWLTokenTransformer)
            and (obstacle := processor_obstacle(transformer.processor, shown)) is not None
        ):
            return obstacle
        for binding in (inner for processor in step.command.processors for inner in with_inner(processor)):
            expression = getattr(binding, "expression", None)
            if getattr(binding, "name", None) == name and isinstance(expression, str) and whole_self_use(expression):
                return f"{shown} is used in the expression {expression!r}, which needs the whole file"
        for expression in self._expressions_of(step):
            if (what := whole_file_use(expression, name)) is not None:
                return f"{shown} is used in the expression {what!r}, which needs the whole file"
        return None

    def _expressions_of(self, step: CWLExecuteStep) -> tuple[str, ...]:
        if step.name not in self._expressions:
            everything = [step.command, self.schedule_step(step).hardware_requirement, step.output_processors]
            assert isinstance(step.command, CWLCommand)
            self._expressions[step.name] = with_library(expressions(everything), step.command)
        return self._expressions[step.name]

    def _routes(self, step: CWLExecuteStep, output: Output) -> Iterator[Route]:
        port = step.get_output_port(output.port)
        for hops, consumer in self._follow(port, (), frozenset()):
            yield Route(output, hops, consumer)

    def _follow(
        self, port: Port, hops: tuple[Hop, ...], seen: frozenset[str]
    ) -> Iterator[tuple[tuple[Hop, ...], Input | None]]:
        if port.name in seen:
            return
        seen |= {port.name}
        for reader, name in self.readers[port.name]:
            if reader.name.endswith(COLLECTOR):
                yield hops, None
            elif (consumer := self._consumer(reader, name)) is not None:
                yield hops, consumer
            elif (found := self._hop(reader, name)) is not None:
                hop, next_port = found
                if next_port is None:
                    yield (*hops, hop), Input(posixpath.dirname(reader.name) or "/", name)
                else:
                    yield from self._follow(next_port, (*hops, hop), seen)

    def _consumer(self, reader: Step, name: str) -> Input | None:
        """The input of a tool that a step of StreamFlow stands for."""
        if isinstance(reader, CWLTokenTransformer) and reader.port_name == name:
            return self.inputs.get((posixpath.dirname(reader.name), name))
        return None

    def _hop(self, reader: Step, name: str) -> tuple[Hop, Port | None] | None:
        """What a reader does with a token, and where it goes from there. None: it needs no more than the tag."""

        def hop(kind: HopKind, obstacle: str | None = None, widths: int = 1) -> Hop:
            return Hop(reader.name, name, kind, obstacle, widths)

        match reader:
            case CWLTokenTransformer():
                if reader.port_name != name:
                    return None
                obstacle = processor_obstacle(reader.processor, reader.name.removesuffix(TOKEN_TRANSFORMER))
                return hop(HopKind.SUBWORKFLOW, obstacle), reader.get_output_port()
            case ValueFromTransformer():
                uses = resolve_dependencies(
                    reader.value_from, full_js=reader.full_js, expression_lib=reader.expression_lib
                )
                if reader.port_name != name and name not in uses:
                    return None
                by_name = uses_only_name(reader, name)
                return Hop(reader.name, name, HopKind.VALUE_FROM, by_name=by_name), reader.get_output_port()
            case DefaultTransformer():
                if getattr(reader, "primary_port", name) != name:
                    return None
                return hop(HopKind.DEFAULT), reader.get_output_port()
            case GatherStep():
                return hop(HopKind.GATHER, widths=reader.depth), reader.get_output_port()
            case CWLEmptyScatterConditionalStep():
                return self._scatter(reader, name)
            case CWLLoopConditionalStep() | LoopCombinatorStep() | LoopOutputStep():
                return hop(HopKind.LOOP), None
            case CWLConditionalStep():
                texts = with_library([reader.expression], reader)
                whole = next((use for text in texts if (use := whole_file_use(text, name))), None)
                obstacle = f"`when` needs the whole file ({whole})" if whole else None
                decides = name in resolve_dependencies(
                    reader.expression, full_js=reader.full_js, expression_lib=reader.expression_lib
                )
                return Hop(reader.name, name, HopKind.WHEN, obstacle, decides=decides), reader.get_output_port(name)
            case ForwardTransformer():
                if reader.name.endswith("-back-propagation-transformer"):
                    return hop(HopKind.LOOP), None
                return hop(HopKind.FORWARD), reader.get_output_port()
            case ListToElementTransformer():
                return hop(HopKind.LINK_MERGE), reader.get_output_port()
            case FirstNonNullTransformer() | OnlyNonNullTransformer() | AllNonNullTransformer():
                return hop(HopKind.PICK_VALUE), reader.get_output_port()
            case CombinatorStep():
                return self._combinator(reader, name)
            case _:
                return hop(HopKind.UNKNOWN), None

    def _combinator(self, reader: CombinatorStep, name: str) -> tuple[Hop, Port | None]:
        if isinstance(reader.combinator, ListMergeCombinator):
            return Hop(reader.name, name, HopKind.LINK_MERGE), reader.get_output_port()
        if isinstance(reader.combinator, LoopCombinator | LoopTerminationCombinator):
            return Hop(reader.name, name, HopKind.LOOP), None
        if name in reader.output_ports:
            return Hop(reader.name, name, HopKind.COMBINATOR), reader.get_output_port(name)
        return Hop(reader.name, name, HopKind.UNKNOWN), None

    def _scatter(self, conditional: CWLEmptyScatterConditionalStep, name: str) -> tuple[Hop, Port | None]:
        scatter, _ = next(
            reader for reader in self.readers[conditional.output_ports[name]] if isinstance(reader[0], ScatterStep)
        )
        widths = len(conditional.input_ports)
        method = conditional.scatter_method
        product = method == "nested_crossproduct" or (widths > 1 and method != "dotproduct")
        obstacle = f"{method} needs the whole list" if product else None
        return Hop(scatter.name, name, HopKind.SCATTER, obstacle, widths), scatter.get_output_port()
