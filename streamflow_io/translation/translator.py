"""The translator of CWL workflows that serves the hints."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from streamflow.core.exception import WorkflowDefinitionException
from streamflow.core.workflow import Workflow
from streamflow.cwl.translator import CWLTranslator
from streamflow.log_handler import logger

from streamflow_io.run.scheduler import IOAwareScheduler

from .detection import can_have_hints

if TYPE_CHECKING:
    from streamflow_io.capio_cl import Configuration
    from streamflow_io.capio_cl.known_jobs import KnownJobs
    from streamflow_io.graph import Gang, StreamEdge
    from streamflow_io.graph.io_graph import Output, Route, Step
    from streamflow_io.hints import HintErrors, StepAnnotations

    from .storage_checks import StepStorages


@dataclass(frozen=True)
class Plan:
    """What will be done with a workflow.

    :ivar name: of the workflow, or of its run
    :ivar annotations: the hints that hold, by step path
    :ivar steps: all tools, by step path
    :ivar edges: all stream edges, also those that fell back
    :ivar outputs: of all tools
    :ivar routes: how they reach inputs and workflow outputs
    :ivar jobs: what is known of the jobs before the run
    :ivar storages: the steps that say something about storage, and which one they use; none if none does
    :ivar impossible: steps of which no job can start, and why
    :ivar apart: the gangs whose steps do not all run at the same time, by their number, and why
    """

    name: str
    annotations: dict[str, StepAnnotations]
    steps: dict[str, Step]
    edges: tuple[StreamEdge, ...]
    gangs: tuple[Gang, ...]
    outputs: tuple[Output, ...]
    routes: tuple[Route, ...]
    jobs: KnownJobs
    storages: StepStorages | None = None
    impossible: Mapping[str, str] = field(default_factory=dict)
    apart: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def configuration(self) -> Configuration:
        """The coordination configuration, as far as it is known before the run."""
        return self.configure(self.jobs)

    def configure(self, jobs: KnownJobs) -> Configuration:
        """The coordination configuration, with what is known of the jobs."""
        from streamflow_io.capio_cl import configure

        return configure(self.name, self.steps, self.outputs, self.routes, self.edges, jobs)

    @property
    def stricter(self) -> dict[str, str]:
        """Outputs that are delivered to some earlier than the configuration says, and why."""
        from streamflow_io.capio_cl import stricter_than_served

        return stricter_than_served(self.routes, self.edges)


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
        from streamflow_io.admission.gang_placement import gang_cores
        from streamflow_io.capio_cl import KnownJobs
        from streamflow_io.graph import find_gangs, name_edges, plan_edges, possible_routes
        from streamflow_io.graph.capacity import never_start, not_together
        from streamflow_io.hints import tool_digests
        from streamflow_io.run.coordination_record import CoordinationRecord
        from streamflow_io.run.steps import StreamingExecuteStep

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
        outputs, routes = tuple(graph.outputs), tuple(graph.routes)
        io_tasks = [path for path, hints in annotations.items() if hints.io_task is not None]
        here = room_here()
        impossible = never_start(
            graph.steps, io_tasks, gangs if scheduler.config.oversubscribe == "gangs" else (), here
        )
        apart = {number: why for number, gang in enumerate(gangs) if (why := not_together(gang, graph.steps, here))}
        self.plan = Plan(
            self.name, annotations, graph.steps, edges, gangs, outputs, routes, jobs, storages, impossible, apart
        )
        for path, why in impossible.items():
            logger.warning(f"No job of {path} can start: {why}")
        for edge in edges:
            if edge.fallback is not None:
                logger.warning(f"{edge_name(edge)} is delivered at {edge.delivery.value}: {edge.fallback}")
        delivered = (*edges, *name_edges(graph.names, edges))
        if streams := scheduler.streams_here(any(not edge.is_plain for edge in delivered)):
            in_capio: frozenset[tuple[str, str]] = frozenset()
            if scheduler.config.runtime == "capio":
                from .capio import choose_capio

                scheduler.capio, in_capio = choose_capio(workflow, edges, scheduler.config.capio_unchecked)
            rewire(workflow, graph, delivered, in_capio)
        if any(annotations.values()) or observes:
            streaming = [name for name, step in workflow.steps.items() if isinstance(step, StreamingExecuteStep)]
            file = str(self.cwl_definition.loadingOptions.fileuri or "")
            coordination = CoordinationRecord(workflow, outputs, jobs, self.plan.configure)
            possible = possible_routes(graph.routes, edges, graph.standard_outputs) if observes else ()
            together = gang_cores(gangs, graph.steps) if streams else {}
            scheduler.begin(workflow, annotations, tools, streaming, file, coordination, possible, together)
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
