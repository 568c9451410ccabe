"""Plans which intermediate files are removed, and which have windows."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace
from streamflow.core.workflow import Step, Workflow
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.transformer import ValueFromTransformer
from streamflow.workflow.step import ExecuteStep, ScheduleStep, TransferStep

from streamflow_io.graph.gangs import Gang
from streamflow_io.graph.io_graph import HopKind, IOGraph, OutputKind, StreamEdge
from streamflow_io.graph.last_readers import Passage, Removal, RemovalOutcome, last_readers, outcome
from streamflow_io.graph.memory_steps import plan_memory
from streamflow_io.graph.partitions import Partition
from streamflow_io.graph.stream_windows import StreamWindow, WindowFacts, plan_windows
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.hints.inheritance import StepAnnotations, port_path

from .inspect import COLLECTOR, Readers, hop_of, readers_of
from .plan import IntermediatesPlan, Plan

# `inputs` as a whole, where a field of it is not taken.
_ALL_INPUTS = re.compile(r"\binputs\b(?!\s*[.\[])")


def plan_removal(
    workflow: Workflow, annotations: Mapping[str, StepAnnotations], partitions: Iterable[Partition]
) -> Removal:
    """Plan which outputs go when, from a translated workflow that is not rewired."""
    readers = readers_of(workflow)
    passages = {port: tuple(_passages(port, readers)) for port in list(readers)}
    tools = [step for step in workflow.steps.values() if isinstance(step, ExecuteStep)]
    found = {
        (tool.name, port): last_readers(passages, name) for tool in tools for port, name in tool.output_ports.items()
    }
    kept = {}
    for step, port in found:
        schedule = workflow.steps[posixpath.join(step, "__schedule__")]
        hints = annotations.get(step)
        if hints is not None and any(rule.value.permanent for rule in hints.streaming.get(port, ())):
            kept[step, port] = "its rule has `permanent: true`"
        elif isinstance(schedule, ScheduleStep) and schedule.output_directory is not None:
            kept[step, port] = f"{step} has a dockerOutputDirectory, which its jobs share"
    held = {
        partition.step: f"{port_path(partition.step, partition.of)} is read in parts, also when the job has ended"
        for partition in partitions
        # Jobs that select their parts read these themselves. A read session keeps its file open.
        if partition.is_served
    }
    # StreamFlow does not check the types of the outputs of an ExpressionTool: each may be a file of its inputs.
    passing = frozenset(tool.name for tool in tools if not isinstance(tool.command, CWLCommand))
    return Removal(found, kept, held, passing)


def outcomes(plan: Plan) -> list[RemovalOutcome]:
    """Say what happens to the files of each output of a command, if intermediate files are removed."""
    if plan.intermediates.removal is None:
        return []
    # The files of a record go together.
    files = dict.fromkeys(output.whole for output in plan.graph.outputs if output.kind is not OutputKind.OTHER)
    return [outcome(plan.intermediates.removal, step, port) for step, port in files]


def _passages(port: str, readers: Readers) -> Iterator[Passage]:
    for reader, name in readers[port]:
        if isinstance(reader, ScheduleStep):
            yield Passage(reader.name, name, "job")
        elif isinstance(reader, TransferStep | ExecuteStep):
            # Both kinds of steps read while a job lasts that another reader of the port schedules.
            if not any(isinstance(other, ScheduleStep) for other, _ in readers[port]) and name != "__job__":
                yield Passage(reader.name, name, "many", tuple(reader.output_ports.values()))
        elif reader.name.endswith(COLLECTOR):
            yield Passage(reader.name, name, "on", tuple(reader.output_ports.values()))
        else:
            yield from _passage(reader, name, readers)


def _passage(reader: Step, name: str, readers: Readers) -> Iterator[Passage]:
    if (found := hop_of(reader, name, readers)) is None:
        if isinstance(reader, ValueFromTransformer) and _ALL_INPUTS.search(str(reader.value_from)):
            yield Passage(reader.name, name, "many", tuple(reader.output_ports.values()))
        return
    hop, port = found
    if port is None or (hop.obstacle is not None and hop.kind is HopKind.SCATTER):
        further = tuple(reader.output_ports.values()) if port is None else (port.name,)
        yield Passage(reader.name, name, "many", further)
        return
    depth = {HopKind.SCATTER: 1, HopKind.GATHER: -hop.widths}.get(hop.kind, 0)
    yield Passage(reader.name, name, "on", (port.name,), depth, hop.kind is HopKind.VALUE_FROM)


def plan_intermediates(
    workflow: Workflow,
    annotations: Mapping[str, StepAnnotations],
    graph: IOGraph,
    edges: Sequence[StreamEdge],
    partitions: Sequence[Partition],
    gangs: Sequence[Gang],
    config: SchedulerConfig,
    tools: Mapping[str, str],
    has_windows: bool,
    need_files: Mapping[tuple[str, str], str],
) -> IntermediatesPlan:
    """Plan what happens to intermediate files. A window needs no removal.

    :param tools: the digests of all tools, by step path, if there is a limit
    :param has_windows: whether windows are asked for
    :param need_files: by step and port: why the jobs that read a stream may need the whole file
    """
    removal = plan_removal(workflow, annotations, partitions)
    windows: tuple[StreamWindow, ...] = ()
    if has_windows:
        late = dict(_late(annotations, gangs, config))
        windows = _find_windows(workflow, annotations, graph, edges, partitions, removal, config, need_files, late)
    if config.intermediates == "keep":
        return IntermediatesPlan(None, windows)
    return IntermediatesPlan(removal, windows, config.disk_limit, tools)


def _find_windows(
    workflow: Workflow,
    annotations: Mapping[str, StepAnnotations],
    graph: IOGraph,
    edges: Sequence[StreamEdge],
    partitions: Iterable[Partition],
    removal: Removal,
    config: SchedulerConfig,
    need_files: Mapping[tuple[str, str], str],
    late: Mapping[str, str],
) -> tuple[StreamWindow, ...]:
    """Decide about the windows of a workflow that is not rewired."""
    facts = WindowFacts(
        graph.outputs,
        graph.routes,
        edges,
        removal,
        frozenset((partition.step, partition.of) for partition in partitions),
        dict(_not_paused(workflow, annotations)),
        need_files,
        _never(config),
        late,
    )
    return plan_windows(facts, config.intermediates == "window")


def _never(config: SchedulerConfig) -> str | None:
    if config.runtime != "embedded":
        return f"`runtime: {config.runtime}`"
    if config.observe:
        return "`observe: true`"
    return None


def _late(
    annotations: Mapping[str, StepAnnotations], gangs: Iterable[Gang], config: SchedulerConfig
) -> Iterator[tuple[str, str]]:
    """Yield the steps whose jobs may wait for cores, memory, space or a storage, and why."""
    for gang in gangs:
        for step in gang.steps:
            hints = annotations.get(step)
            if config.oversubscribe == "never":
                yield step, "`oversubscribe: never`"
            elif config.disk_limit is not None:
                yield step, "`diskLimit`"
            elif gang.apart is not None:
                yield step, gang.apart
            elif hints is not None and hints.concern_storage:
                yield step, f"{step} may wait for its storage"


def _not_paused(workflow: Workflow, annotations: Mapping[str, StepAnnotations]) -> Iterator[tuple[str, str]]:
    for path, step in workflow.steps.items():
        hints = annotations.get(path)
        if hints is not None and hints.is_limited:
            yield path, "`limited` pauses its jobs"
        elif isinstance(step, ExecuteStep) and getattr(step.command, "time_limit", None):
            yield path, "pauses would count for its ToolTimeLimit"


def with_memory(
    plan: IntermediatesPlan,
    annotations: Mapping[str, StepAnnotations],
    graph: IOGraph,
    gangs: Sequence[Gang],
    repeated: Collection[str],
    config: SchedulerConfig,
) -> IntermediatesPlan:
    """Plan which of the files lie in memory, too.

    :param repeated: the paths of the steps whose jobs may run once more beside themselves
    """
    if config.memory is None or plan.removal is None:
        return plan
    windows = {window.step for window in plan.windows if window.why is None}
    obstacles = {}
    for path in graph.steps:
        if config.runtime != "embedded":
            obstacles[path] = f"`runtime: {config.runtime}`"
        elif (hints := annotations.get(path)) is not None and hints.concern_storage:
            obstacles[path] = "its hints say how the job uses a storage"
        elif path in repeated and path not in windows:
            obstacles[path] = "its jobs may run once more for a comparison (`rehearse`)"
    memory = plan_memory(config.memory, graph.steps, graph.outputs, plan.removal, plan.windows, gangs, obstacles)
    return replace(plan, memory=memory)
