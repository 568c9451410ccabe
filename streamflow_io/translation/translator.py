"""The translator of CWL workflows that serves the hints."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from streamflow.core.exception import WorkflowDefinitionException
from streamflow.core.workflow import Workflow
from streamflow.cwl.translator import CWLTranslator
from streamflow.log_handler import logger

from streamflow_io.run.scheduler import IOAwareScheduler

from .detection import can_have_hints

if TYPE_CHECKING:
    from streamflow_io.admission.storages import StepStorages
    from streamflow_io.graph import StreamEdge
    from streamflow_io.hints import HintErrors, StepAnnotations
    from streamflow_io.run.plan import Plan


class InvalidHintsException(WorkflowDefinitionException):  # type: ignore[misc]
    """Hints have mistakes; the message names each.

    :ivar mistakes: the mistakes
    """

    def __init__(self, mistakes: HintErrors) -> None:
        super().__init__(str(mistakes))
        self.mistakes = mistakes


class IOAwareTranslator(CWLTranslator):  # type: ignore[misc]
    """Translates as StreamFlow does, then rewires what the hints ask for; does nothing unless the scheduler is ours.

    :ivar plan: what was done; missing if there are certainly no hints
    """

    plan: Plan
    # Whether only the plan is wanted. A run evaluates no globs beforehand: at its end it knows the names.
    only_plans = False

    def translate(self) -> Workflow:
        """:raises InvalidHintsException: if a hint is wrong, or a storage too slow for it"""
        scheduler = self.context.scheduler
        if not isinstance(scheduler, IOAwareScheduler):
            return super().translate()
        if not self.may_have_hints(scheduler):
            workflow = super().translate()
            gc.freeze()
            return workflow
        # Imported here: StreamFlow imports every plugin in every run, and not every run has hints.
        from streamflow_io.capio_cl import KnownJobs
        from streamflow_io.graph import find_gangs, name_edges, plan_edges, possible_routes
        from streamflow_io.graph.capacity import never_start, not_together
        from streamflow_io.hints import tool_digests
        from streamflow_io.run.plan import Plan

        from .inspect import WorkflowGraph
        from .known_jobs import foresee
        from .rewire import observe_jobs, rewire
        from .sites import room_here

        # Before StreamFlow changes the document.
        annotations = self._annotations(scheduler)
        tools = tool_digests(self.cwl_definition, [path for path, hints in annotations.items() if hints.is_learned])
        workflow = super().translate()
        observes = scheduler.config.observe
        graph = WorkflowGraph(workflow, annotations, all_obstacles=observes)
        storages = self._storages(scheduler, workflow, annotations)
        edges = plan_edges(graph.routes) if any(annotations.values()) else ()
        told = self.only_plans or any(annotations.values())
        jobs = foresee(workflow, graph.outputs, evaluate=self.only_plans) if told else KnownJobs()
        gangs = find_gangs(edges, graph.steps)
        io_tasks = [path for path, hints in annotations.items() if hints.io_task is not None]
        here = room_here()
        impossible = never_start(
            graph.steps, io_tasks, gangs if scheduler.config.oversubscribe == "gangs" else (), here
        )
        apart = {number: why for number, gang in enumerate(gangs) if (why := not_together(gang, graph.steps, here))}
        delivered = (*edges, *name_edges(graph.names, edges))
        self.plan = Plan(
            workflow,
            graph.steps,
            str(self.cwl_definition.loadingOptions.fileuri or ""),
            annotations,
            tools,
            edges,
            gangs,
            scheduler.streams_here(any(not edge.is_plain for edge in delivered)),
            tuple(graph.outputs),
            tuple(graph.routes),
            possible_routes(graph.routes, edges, graph.standard_outputs) if observes else (),
            jobs,
            storages,
            impossible,
            apart,
        )
        for path, why in impossible.items():
            logger.warning(f"No job of {path} can start: {why}")
        for edge in edges:
            if edge.fallback is not None:
                logger.warning(f"{edge_name(edge)} is delivered at {edge.delivery.value}: {edge.fallback}")
        if self.plan.streams:
            in_capio: frozenset[tuple[str, str]] = frozenset()
            if scheduler.config.runtime == "capio":
                from .capio import choose_capio

                scheduler.capio, in_capio = choose_capio(workflow, edges, scheduler.config.capio_unchecked)
            rewire(workflow, graph, delivered, in_capio)
        if any(annotations.values()) or observes:
            scheduler.begin(self.plan)
        if observes:
            observe_jobs(workflow)
        # Modules and the translated graph live as long as the run: the collector need not look at them again and again.
        gc.freeze()
        return workflow

    def may_have_hints(self, scheduler: IOAwareScheduler) -> bool:
        """False only if nothing is to be done but what StreamFlow does."""
        return scheduler.concerns_any_workflow or can_have_hints(self.cwl_definition)

    def _storages(
        self, scheduler: IOAwareScheduler, workflow: Workflow, annotations: dict[str, StepAnnotations]
    ) -> StepStorages | None:
        if not scheduler.config.storages and not any(annotations.values()):
            return None
        from streamflow_io.hints import HintErrors

        from .storage_checks import find_storages

        found = find_storages(workflow, annotations, scheduler.config.storages)
        if found.errors:
            raise InvalidHintsException(HintErrors(found.errors))
        for warning in found.warnings:
            logger.warning(warning)
        return found

    def _annotations(self, scheduler: IOAwareScheduler) -> dict[str, StepAnnotations]:
        from streamflow_io.hints import HintErrors, check_storages, resolve
        from streamflow_io.hints.files import check_annotations_file, check_annotations_names, of_several_workflows

        streamflow_file = self.context.config["path"]
        workflows = self.context.config.get("workflows", {})
        try:
            check_annotations_names(scheduler.config, workflows, streamflow_file)
            if (path := scheduler.annotations_path(self.workflow_config.name)) is not None:
                check_annotations_file(path, streamflow_file)
            with of_several_workflows(scheduler.config, workflows):
                annotations = resolve(self.cwl_definition, path)
            if errors := check_storages(annotations, scheduler.config.storages):
                raise HintErrors(errors)
        except HintErrors as error:
            # Not `from error`: StreamFlow prints all that an exception comes from.
            raise InvalidHintsException(error) from None
        return annotations


def edge_name(edge: StreamEdge) -> str:
    """An edge, for people: `/a/output -> /b/input`."""
    consumer = edge.route.consumer
    return f"{edge.route.output.name} -> {consumer.name if consumer else 'workflow output'}"
