"""Plans which intermediate files are removed, and which have windows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace
from streamflow.core.workflow import Workflow

from streamflow_io.graph.gangs import Gang
from streamflow_io.graph.io_graph import IOGraph, StreamEdge
from streamflow_io.graph.memory_steps import plan_memory
from streamflow_io.graph.partitions import Partition
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.hints.inheritance import StepAnnotations

from .plan import IntermediatesPlan
from .removal import plan_removal
from .stream_windows import find_windows


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
    windows = find_windows(workflow, annotations, graph, edges, partitions, removal, config) if has_windows else ()
    if config.intermediates == "keep":
        return IntermediatesPlan(None, windows)
    return IntermediatesPlan(removal, windows, config.disk_limit, tools)


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
