"""From a translated workflow to what decides about windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from streamflow.core.workflow import Workflow
from streamflow.workflow.step import ExecuteStep

from streamflow_io.graph.io_graph import IOGraph, StreamEdge
from streamflow_io.graph.last_readers import Removal
from streamflow_io.graph.partitions import Partition
from streamflow_io.graph.stream_windows import StreamWindow, WindowFacts, plan_windows
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.hints.inheritance import StepAnnotations


def find_windows(
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
