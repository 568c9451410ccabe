"""Plans which intermediate files are removed, and which have windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamflow.core.workflow import Workflow

from streamflow_io.graph.io_graph import IOGraph, StreamEdge
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
