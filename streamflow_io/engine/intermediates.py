"""Plans which intermediate files are removed, and which have windows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace
from streamflow.core.workflow import Workflow
from streamflow.workflow.step import ExecuteStep

from streamflow_io.graph.gangs import Gang
from streamflow_io.graph.io_graph import IOGraph, StreamEdge
from streamflow_io.graph.last_readers import Removal
from streamflow_io.graph.memory_steps import plan_memory
from streamflow_io.graph.partitions import Partition
from streamflow_io.graph.stream_windows import StreamWindow, WindowFacts, plan_windows
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.hints.inheritance import StepAnnotations

from .plan import IntermediatesPlan
from .removal import plan_removal


def plan_intermediates(
    workflow: Workflow,
    annotations: Mapping[str, StepAnnotations],
    graph: IOGraph,
    edges: Sequence[StreamEdge],
    partitions: Sequence[Partition],
    config: SchedulerConfig,
    tools: Mapping[str, str],
    has_windows: bool,
) -> IntermediatesPlan:
    """Plan what happens to intermediate files. A window needs no removal.

    :param tools: the digests of all tools, by step path, if there is a limit
    :param has_windows: whether windows are asked for
    """
    removal = plan_removal(workflow, annotations, partitions)
    windows = _find_windows(workflow, annotations, graph, edges, partitions, removal, config) if has_windows else ()
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
) -> tuple[StreamWindow, ...]:
    """Decide about the windows of a workflow that is not rewired."""
    facts = WindowFacts(
        graph.outputs,
        graph.routes,
        edges,
        removal,
        frozenset((partition.step, partition.of) for partition in partitions),
        dict(_not_paused(workflow, annotations)),
        _never(config),
    )
    return plan_windows(facts, config.intermediates == "window")


def _never(config: SchedulerConfig) -> str | None:
    if config.runtime != "embedded":
        return f"`runtime: {config.runtime}`"
    if config.observe:
        return "`observe: true`"
    return None


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
