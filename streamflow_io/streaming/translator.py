"""The translator of CWL workflows that serves the hints."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamflow.core.exception import WorkflowDefinitionException
from streamflow.core.workflow import Workflow
from streamflow.cwl.translator import CWLTranslator
from streamflow.log_handler import logger

from streamflow_io.scheduling.scheduler import IOAwareScheduler

if TYPE_CHECKING:
    from streamflow_io.coordination import Gang, StreamEdge
    from streamflow_io.coordination.graph import Step
    from streamflow_io.hints import StepAnnotations


@dataclass(frozen=True)
class Plan:
    """What will be done with a workflow.

    :ivar annotations: the hints that hold, by step path
    :ivar steps: all tools, by step path
    :ivar edges: all stream edges, also those that fell back
    """

    annotations: dict[str, StepAnnotations]
    steps: dict[str, Step]
    edges: tuple[StreamEdge, ...]
    gangs: tuple[Gang, ...]


class IOAwareTranslator(CWLTranslator):  # type: ignore[misc]
    """Translates as StreamFlow does, then rewires what the hints ask for; does nothing unless the scheduler is ours."""

    plan: Plan

    def translate(self) -> Workflow:
        """:raises WorkflowDefinitionException: if a hint is wrong; the message names each mistake"""
        scheduler = self.context.scheduler
        if not isinstance(scheduler, IOAwareScheduler):
            return super().translate()
        # Imported here: StreamFlow imports every plugin in every run.
        from streamflow_io.coordination import find_gangs, plan_edges

        from .inspect import WorkflowGraph
        from .rewire import rewire

        # Before StreamFlow changes the document.
        annotations = self._annotations(scheduler)
        workflow = super().translate()
        graph = WorkflowGraph(workflow, annotations)
        edges = plan_edges(graph.routes) if any(annotations.values()) else ()
        self.plan = Plan(annotations, graph.steps, edges, find_gangs(edges, graph.steps))
        for edge in edges:
            if edge.fallback is not None:
                logger.warning(f"{edge_name(edge)} is delivered at {edge.delivery.value}: {edge.fallback}")
        if scheduler.streams_here(any(not edge.is_plain for edge in edges)):
            rewire(workflow, graph, edges)
        # Modules and the translated graph live as long as the run: the collector need not look at them again and again.
        gc.freeze()
        return workflow

    def _annotations(self, scheduler: IOAwareScheduler) -> dict[str, StepAnnotations]:
        from streamflow_io.hints import HintErrors, check_storages, resolve

        try:
            annotations = resolve(self.cwl_definition, scheduler.annotations_path)
            if errors := check_storages(annotations, scheduler.config.storages):
                raise HintErrors(errors)
        except HintErrors as error:
            raise WorkflowDefinitionException(str(error)) from error
        return annotations


def edge_name(edge: StreamEdge) -> str:
    """An edge, for people: `/a/output -> /b/input`."""
    consumer = edge.route.consumer
    return f"{edge.route.output.name} -> {consumer.name if consumer else 'workflow output'}"
