"""From a translated workflow to the I/O graph: which output reaches which input, and through what."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal, TypeVar

from msgspec.structs import replace
from streamflow.core.config import BindingConfig
from streamflow.core.processor import CommandOutputProcessor, TokenProcessor
from streamflow.core.scheduling import HardwareRequirement
from streamflow.core.workflow import Port, Step, Workflow
from streamflow.cwl import transformer
from streamflow.cwl.combinator import ListMergeCombinator
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.step import (
    CWLConditionalStep,
    CWLEmptyScatterConditionalStep,
    CWLExecuteStep,
    CWLInputInjectorStep,
    CWLLoopConditionalStep,
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

from streamflow_io.adapters.output_globs import collects_only_files, field_port, file_processor, kind_of, record_fields
from streamflow_io.graph import io_graph as graph
from streamflow_io.graph.io_graph import Hop, HopKind, Input, InputRoute, IOGraph, Output, OutputKind, Route
from streamflow_io.graph.sites import Site, SiteKind
from streamflow_io.hints.inheritance import StepAnnotations, port_path
from streamflow_io.messages import Code, coded

from .known_tokens import known_globs
from .obstacles import (
    PART_FIELDS,
    PLACE_FIELDS,
    SAFE_FIELDS,
    called_library,
    early_obstacle,
    expressions,
    input_expressions,
    is_word_of,
    output_obstacle,
    own_expressions,
    parts_obstacle,
    processor_obstacle,
    record_names,
    record_obstacle,
    taken_field,
    uses_only_name,
    whole_file_use,
    whole_self_use,
    with_library,
    without_fields,
    words_of,
)

# By the name of a port: the steps that read it, each with the name of its input port. A missing port has no readers.
Readers = dict[str, list[tuple[Step, str]]]
S = TypeVar("S", bound=Step)


def readers_of(workflow: Workflow) -> Readers:
    """The readers of all ports, in the order of the steps."""
    readers: Readers = defaultdict(list)
    for step in workflow.steps.values():
        for name, port in step.input_ports.items():
            readers[port].append((step, name))
    return readers


def replace_step(readers: Readers, old: S, new: S) -> None:
    """Put a step in the place of another, with the name and the ports of that one."""
    new.input_ports = dict(old.input_ports)
    new.output_ports = dict(old.output_ports)
    new.workflow.steps[old.name] = new
    for port in new.input_ports.values():
        readers[port] = [(new if s is old else s, name) for s, name in readers[port]]


COLLECTOR = "-collector-transformer"
TOKEN_TRANSFORMER = "-token-transformer"
# The one token of all inputs without a source.
UNBOUND = "/__empty_unbound_inputs__"


# The hop that a reader makes, and the port on which the token goes on; None: the token goes no further.
_Passed = tuple[Hop, Port | None]
_HopOf = Callable[[Any, str, Readers], _Passed | None]
# The use of an expression: a word of the command line alone, the value of an output, or anything else.
_Use = Literal["word", "result", "other"]


def io_graph(
    workflow: Workflow,
    annotations: Mapping[str, StepAnnotations],
    site_of: Callable[[BindingConfig], Site],
    *,
    all_obstacles: bool = False,
) -> IOGraph:
    """The I/O graph of a translated workflow.

    :param site_of: returns the site of a step with this binding
    :param all_obstacles: whether to look for obstacles also where no hint asks for anything
    """
    tools = [step for step in workflow.steps.values() if isinstance(step, CWLExecuteStep)]
    steps = {tool.name: _step(tool, site_of) for tool in tools}
    hints = {tool.name: annotations.get(tool.name, StepAnnotations(tool.name)) for tool in tools}
    # Obstacles of inputs matter only if a step starts with its producer, reads parts, or reads front to back.
    all_parts = any(annotated.sessions or annotated.streamable_inputs for annotated in annotations.values())
    all_inputs = all_obstacles or any(
        rule.value.start == "producer"
        for annotated in annotations.values()
        for rules in annotated.streaming.values()
        for rule in rules
    )
    inputs = {
        (tool.name, read.port): read
        for tool in tools
        for read in _inputs(workflow, tool, steps[tool.name], hints[tool.name], all_inputs, all_parts)
    }
    readers = readers_of(workflow)
    outputs: list[Output] = []
    routes: list[Route] = []
    for tool in tools:
        for output in _outputs(tool, steps[tool.name], hints[tool.name], all_obstacles):
            outputs.append(output)
            _, port = output.whole
            found = _follow(tool.get_output_port(port), readers, inputs, record=output.record is not None)
            routes += [Route(output, hops, consumer) for hops, consumer in found if _has_field(output, hops)]
    return IOGraph(
        steps,
        tuple(outputs),
        tuple(route for route in routes if not route.by_name),
        tuple(route for route in routes if route.by_name),
        tuple(_input_routes(workflow, readers, inputs, site_of)) if all_parts else (),
    )


def _has_field(output: Output, hops: Iterable[Hop]) -> bool:
    """Whether an output goes this way. If a record is taken apart on the way, only the field that is taken goes on."""
    return all(hop.field is None or field_port(str(output.record), hop.field) == output.port for hop in hops)


def _input_routes(
    workflow: Workflow,
    readers: Readers,
    inputs: Mapping[tuple[str, str], Input],
    site_of: Callable[[BindingConfig], Site],
) -> Iterator[InputRoute]:
    """Yield the routes by which inputs of the workflow, and defaults of a document, reach inputs of steps."""
    readers = defaultdict(list, readers)
    for step in workflow.steps.values():
        if isinstance(step, transformer.DefaultTransformer):
            # A default needs no input port.
            name = getattr(step, "primary_port", next(iter(step.input_ports)))
            readers[step.default_port.name] = [*readers[step.default_port.name], (step, name)]
    for step in workflow.steps.values():
        # The inputs behind this step have no source.
        if isinstance(step, CWLInputInjectorStep) and not step.name.startswith(UNBOUND):
            site = site_of(_schedule_step(step.get_input_port("__job__")).binding_config)
            for hops, consumer in _follow(step.get_output_port(), readers, inputs):
                yield InputRoute(step.name, hops, consumer, site)


def standard_outputs(workflow: Workflow) -> frozenset[str]:
    """The outputs that are the standard output of their command, as `/step/port`."""
    return frozenset(
        port_path(step.name, port)
        for step in workflow.steps.values()
        if isinstance(step, CWLExecuteStep) and isinstance(step.command, CWLCommand) and step.command.stdout
        for port, processor in step.output_processors.items()
        if (collector := file_processor(processor)) is not None and collector.glob == step.command.stdout
    )


def _schedule_step(jobs: Port) -> ScheduleStep:
    """The step that schedules the jobs on a port."""
    return next(step for step in jobs.get_input_steps() if isinstance(step, ScheduleStep))


def hardware_requirement(tool: CWLExecuteStep) -> HardwareRequirement | None:
    """The cores, memory and disk space that a job of a tool asks for; they may be expressions."""
    return _schedule_step(tool.get_job_port()).hardware_requirement


def _step(tool: CWLExecuteStep, site_of: Callable[[BindingConfig], Site]) -> graph.Step:
    schedule = _schedule_step(tool.get_job_port())
    requirement = schedule.hardware_requirement
    cores, memory = getattr(requirement, "cores", 1), getattr(requirement, "memory", 0)
    return graph.Step(
        tool.name,
        None if isinstance(cores, str) else float(cores),
        site_of(schedule.binding_config),
        None if isinstance(memory, str) else float(memory),
    )


def _outputs(tool: CWLExecuteStep, step: graph.Step, hints: StepAnnotations, all_obstacles: bool) -> Iterator[Output]:
    if not isinstance(tool.command, CWLCommand):
        return
    for port, record, processor in _with_fields(tool):
        collector = file_processor(processor)
        kind = kind_of(collector)
        rules = tuple(rule.value for rule in hints.streaming.get(record or port, ()))
        streamable = port in hints.streamable_outputs
        obstacle = stream_obstacle = part_obstacle = None
        if rules or streamable or all_obstacles:
            name = port_path(tool.name, port)
            obstacle = output_obstacle(collector, kind, rules, name) or _fixed_directory(tool)
            if obstacle is None and collector is not None:
                stream_obstacle = early_obstacle(collector, kind, tool.command, name)
            if obstacle is None and record is not None and collector is not None and collector.optional:
                obstacle = coded(f"{name} may be missing at the end", Code.KNOWN_AT_THE_END)
        if port in hints.partitions:
            name = port_path(tool.name, port)
            part_obstacle = parts_obstacle(collector, tool.command, name) or _fixed_directory(tool)
        globs = known_globs(tool, collector)
        optional = collector is None or collector.optional or not collects_only_files(processor)
        of_record = None if record is None else record_obstacle(tool.output_processors[record], record)
        yield Output(
            tool.name, port, kind, rules, streamable, obstacle, stream_obstacle, part_obstacle, globs, step.site,
            optional, record, of_record,
        )  # fmt: skip


def _with_fields(tool: CWLExecuteStep) -> Iterator[tuple[str, str | None, CommandOutputProcessor]]:
    """Yield the outputs of a tool with their processors; for a record, each of its files with the record's name."""
    for port, processor in tool.output_processors.items():
        files = {
            name: field
            for name, field in record_fields(processor).items()
            if kind_of(file_processor(field)) is OutputKind.FILE
            and field_port(port, name) not in tool.output_processors
        }
        for name, field in files.items():
            yield field_port(port, name), port, field
        if not files:
            yield port, None, processor


def _inputs(
    workflow: Workflow,
    tool: CWLExecuteStep,
    step: graph.Step,
    hints: StepAnnotations,
    all_obstacles: bool,
    all_parts: bool,
) -> Iterator[Input]:
    @cache
    def used() -> tuple[tuple[str, _Use], ...]:
        words = {} if not isinstance(tool.command, CWLCommand) else words_of(tool.command)
        others = [*expressions([tool.command, hardware_requirement(tool)], set(words))]
        results = [*expressions(tool.output_processors)]
        library = called_library((*others, *results, *words.values()), tool.command)
        # The format and the secondary files of one input may depend on another input.
        of_inputs = [
            text for port in tool.input_ports for text in input_expressions(_input_processor(workflow, tool, port))
        ]
        found: dict[_Use, Iterable[str]] = {
            "other": (*others, *library, *of_inputs),
            "result": results,
            "word": words.values(),
        }
        return tuple((text, use) for use, texts in found.items() for text in texts)

    for name in tool.input_ports:
        if name != "__job__":
            streamable = name in hints.streamable_inputs
            obstacle = _input_obstacle(workflow, tool, step, name, used) if streamable or all_obstacles else None
            of_part = _input_obstacle(workflow, tool, step, name, used, PART_FIELDS) if all_parts else None
            yield Input(tool.name, name, streamable, obstacle, of_part, step.site)


def _input_obstacle(
    workflow: Workflow,
    tool: CWLExecuteStep,
    step: graph.Step,
    name: str,
    used: Callable[[], tuple[tuple[str, _Use], ...]],
    known: Collection[str] = SAFE_FIELDS,
) -> str | None:
    """Why an input needs its whole file; None: no obstacle.

    :param used: all expressions of the tool, each with its use
    :param known: the fields that are known without the file
    """
    shown = port_path(tool.name, name)
    if not isinstance(tool.command, CWLCommand):
        return coded(f"{tool.name} is an ExpressionTool", Code.EXPRESSION)
    if tool.command.time_limit and step.site.kind is SiteKind.QUEUE:
        return coded(
            f"{tool.name} has a ToolTimeLimit, and its queue manager counts the time in which it would wait",
            Code.TIME_LIMIT,
        )
    if (obstacle := _fixed_directory(tool)) is not None:
        return obstacle
    processor = _input_processor(workflow, tool, name)
    if (obstacle := processor_obstacle(processor, shown)) is not None:
        return obstacle
    fields = record_names(processor)
    for expression in own_expressions(tool.command, name):
        if not is_word_of("self", expression, fields) and whole_self_use(
            without_fields("self", expression, fields), known
        ):
            return coded(
                f"{shown} is used in the expression {expression!r}, which needs the whole file", Code.EXPRESSION
            )
    # An output that is the input itself needs a file there at the end. A stream from the same host leaves one.
    stays = "size" not in known and step.site.kind in (SiteKind.LOCAL, SiteKind.QUEUE)
    of_results = known if stays else {*known} - PLACE_FIELDS
    for expression, use in used():
        if use == "word" and is_word_of(f"inputs.{name}", expression, fields):
            continue
        safe = of_results if use == "result" else known
        if (what := whole_file_use(without_fields(f"inputs.{name}", expression, fields), name, safe)) is not None:
            return coded(f"{shown} is used in the expression {what!r}, which needs the whole file", Code.EXPRESSION)
    return None


def _input_processor(workflow: Workflow, tool: CWLExecuteStep, name: str) -> TokenProcessor | None:
    """The processor of an input of a tool."""
    reader = workflow.steps.get(posixpath.join(tool.name, name + TOKEN_TRANSFORMER))
    return reader.processor if isinstance(reader, transformer.CWLTokenTransformer) else None


def _fixed_directory(tool: CWLExecuteStep) -> str | None:
    """Why no job of a tool can be tried again in a directory of its own; None: its jobs can."""
    if _schedule_step(tool.get_job_port()).output_directory is None:
        return None
    return coded(f"{tool.name} has a dockerOutputDirectory, which a job shares with its next attempt", Code.NOT_WATCHED)


def _follow(
    port: Port,
    readers: Readers,
    inputs: Mapping[tuple[str, str], Input],
    hops: tuple[Hop, ...] = (),
    seen: frozenset[str] = frozenset(),
    *,
    record: bool = False,
) -> Iterator[tuple[tuple[Hop, ...], Input | None]]:
    """Yield the hops of a token on a port, and the input that it reaches; None: an output of the workflow.

    :param record: whether the token is a record, whose fields may take ways of their own
    """
    if port.name in seen:
        return
    seen |= {port.name}
    for reader, name in readers[port.name]:
        if reader.name.endswith(COLLECTOR):
            yield hops, None
        elif (consumer := _consumer(reader, name, inputs)) is not None:
            yield hops, consumer
        elif (found := hop_of(reader, name, readers)) is not None:
            hop, next_port = found
            if record and hop.kind is HopKind.VALUE_FROM:
                field = None if hops else taken_field(reader, name)
                kind = HopKind.VALUE_FROM if field is None else HopKind.FIELD
                hop, taken = replace(hop, kind=kind, by_name=False, field=field), field is not None
            else:
                taken = False
            if next_port is None:
                yield (*hops, hop), Input(posixpath.dirname(reader.name) or "/", name)
            else:
                yield from _follow(next_port, readers, inputs, (*hops, hop), seen, record=record and not taken)


def _consumer(reader: Step, name: str, inputs: Mapping[tuple[str, str], Input]) -> Input | None:
    """The input of a tool that a step of StreamFlow stands for; None: no such input."""
    if isinstance(reader, transformer.CWLTokenTransformer) and reader.port_name == name:
        return inputs.get((posixpath.dirname(reader.name), name))
    return None


def hop_of(reader: Step, name: str, readers: Readers) -> _Passed | None:
    """The hop that a reader makes, and the port on which the token goes on. None: the reader needs only the tag."""
    for cls, hop_of in _HOPS.items():
        if isinstance(reader, cls):
            return hop_of(reader, name, readers)
    return Hop(reader.name, name, HopKind.UNKNOWN), None


def _passes(kind: HopKind) -> _HopOf:
    return lambda reader, name, _: (Hop(reader.name, name, kind), reader.get_output_port())


def _picks(reader: Step, name: str, _: Readers) -> _Passed:
    # The first value is known when a step has begun or was skipped. If one value is missing, another goes on.
    return Hop(reader.name, name, HopKind.PICK_VALUE, fills=True), reader.get_output_port()


def _loops(reader: Step, name: str, _: Readers) -> _Passed:
    return Hop(reader.name, name, HopKind.LOOP), None


def _subworkflow(reader: transformer.CWLTokenTransformer, name: str, _: Readers) -> _Passed | None:
    if reader.port_name != name:
        return _looks_beside(reader, name)
    obstacle = processor_obstacle(reader.processor, reader.name.removesuffix(TOKEN_TRANSFORMER))
    return Hop(reader.name, name, HopKind.SUBWORKFLOW, obstacle), reader.get_output_port()


def _looks_beside(reader: transformer.CWLTokenTransformer, name: str) -> _Passed | None:
    """The hop of an input beside the one that a reader takes. The format of this one may depend on it."""
    if isinstance(reader.workflow.steps.get(posixpath.dirname(reader.name)), CWLExecuteStep):
        return None  # The obstacles of the inputs of a tool have this.
    if not any(whole_file_use(text, name) for text in input_expressions(reader.processor)):
        return None
    return Hop(reader.name, name, HopKind.UNKNOWN), None


def _value_from(reader: transformer.ValueFromTransformer, name: str, _: Readers) -> _Passed | None:
    uses = resolve_dependencies(reader.value_from, full_js=reader.full_js, expression_lib=reader.expression_lib)
    if reader.port_name != name and name not in uses:
        return None
    by_name = uses_only_name(reader, name)
    return Hop(reader.name, name, HopKind.VALUE_FROM, by_name=by_name), reader.get_output_port()


def _default(reader: transformer.DefaultTransformer, name: str, _: Readers) -> _Passed | None:
    if getattr(reader, "primary_port", name) != name:
        return None
    # Each optional input has such a step, also without a default.
    fills = any(not step.name.startswith(UNBOUND) for step in reader.default_port.get_input_steps())
    return Hop(reader.name, name, HopKind.DEFAULT, fills=fills), reader.get_output_port()


def _gather(reader: GatherStep, name: str, _: Readers) -> _Passed:
    return Hop(reader.name, name, HopKind.GATHER, widths=reader.depth), reader.get_output_port()


def _scatter(conditional: CWLEmptyScatterConditionalStep, name: str, readers: Readers) -> _Passed:
    scatter, _ = next(
        reader for reader in readers[conditional.output_ports[name]] if isinstance(reader[0], ScatterStep)
    )
    widths = len(conditional.input_ports)
    method = conditional.scatter_method
    product = method == "nested_crossproduct" or (widths > 1 and method != "dotproduct")
    obstacle = f"{method} needs the whole list" if product else None
    return Hop(scatter.name, name, HopKind.SCATTER, obstacle, widths), scatter.get_output_port()


def _when(reader: CWLConditionalStep, name: str, _: Readers) -> _Passed:
    texts = with_library([reader.expression], reader)
    whole = next((use for text in texts if (use := whole_file_use(text, name))), None)
    obstacle = coded(f"`when` needs the whole file ({whole})", Code.EXPRESSION) if whole else None
    uses = resolve_dependencies(reader.expression, full_js=reader.full_js, expression_lib=reader.expression_lib)
    return Hop(reader.name, name, HopKind.WHEN, obstacle, decides=name in uses), reader.get_output_port(name)


def _forward(reader: transformer.ForwardTransformer, name: str, _: Readers) -> _Passed:
    if reader.name.endswith("-back-propagation-transformer"):
        return Hop(reader.name, name, HopKind.LOOP), None
    return Hop(reader.name, name, HopKind.FORWARD), reader.get_output_port()


def _combinator(reader: CombinatorStep, name: str, _: Readers) -> _Passed:
    if isinstance(reader.combinator, ListMergeCombinator):
        return Hop(reader.name, name, HopKind.LINK_MERGE), reader.get_output_port()
    if isinstance(reader.combinator, LoopCombinator | LoopTerminationCombinator):
        return Hop(reader.name, name, HopKind.LOOP), None
    if name in reader.output_ports:
        return Hop(reader.name, name, HopKind.COMBINATOR), reader.get_output_port(name)
    return Hop(reader.name, name, HopKind.UNKNOWN), None


# By class of StreamFlow's steps: their hop. The first class that fits counts.
_HOPS: dict[type[Step], _HopOf] = {
    transformer.CWLTokenTransformer: _subworkflow,
    transformer.ValueFromTransformer: _value_from,
    transformer.DefaultTransformer: _default,
    GatherStep: _gather,
    CWLEmptyScatterConditionalStep: _scatter,
    CWLLoopConditionalStep: _loops,
    LoopCombinatorStep: _loops,
    LoopOutputStep: _loops,
    CWLConditionalStep: _when,
    transformer.ForwardTransformer: _forward,
    transformer.ListToElementTransformer: _passes(HopKind.LINK_MERGE),
    transformer.FirstNonNullTransformer: _picks,
    transformer.OnlyNonNullTransformer: _picks,
    transformer.AllNonNullTransformer: _picks,
    CombinatorStep: _combinator,
}
