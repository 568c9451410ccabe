"""Puts a plan into effect."""

from __future__ import annotations

import posixpath

from msgspec.structs import replace
from streamflow.core.workflow import Workflow
from streamflow.cwl.step import CWLInputInjectorStep
from streamflow.log_handler import logger
from streamflow.workflow.step import ExecuteStep

from streamflow_io.adapters.early_inputs import EarlyInputInjectorStep
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.messages import Code, coded

from .inspect import readers_of, replace_step
from .plan import Plan, WorkflowSource
from .rewire import observe_jobs, replace_transfer, rewire
from .runtimes import RuntimeChoice, runtime_module
from .scheduler import IOAwareScheduler


def apply(plan: Plan, scheduler: IOAwareScheduler) -> None:
    """Log the warnings of a plan, rewire its workflow, and let the scheduler serve its hints."""
    config = scheduler.config
    for warning in plan.warnings:
        logger.warning(warning)
    # Declarations of other people may be meant for another end: no warning.
    if config.runtime != "off" and (one_ended := plan.one_ended):
        number = len(one_ended)
        many = f"{number:,} edges are `streamable` at one end only: `streamflow-io plan` has them"
        logger.info(one_ended[0] if number == 1 else coded(many, Code.ONE_END))
    choice = RuntimeChoice()
    if plan.service.streams:
        if (module := runtime_module(config.runtime)) is not None:
            choice = module.choose(plan.workflow, plan.graph.edges)
            plan = replace(plan, service=replace(plan.service, runtime_edges=choice.edges))
        rewire(plan)
    _wire_early_inputs(plan)
    scheduler.begin(plan, choice.start)
    if config.observe:
        observe_jobs(plan.workflow)


def _wire_early_inputs(plan: Plan) -> None:
    """Change the workflow of a plan so that jobs get its early inputs early."""
    workflow, readers = plan.workflow, readers_of(plan.workflow)
    for name in dict.fromkeys(route.input for route in plan.parts.early_inputs):
        old = workflow.steps[name]
        assert isinstance(old, CWLInputInjectorStep)
        new = EarlyInputInjectorStep(name, old.workflow, old.get_input_port("__job__"), workflow.create_port())
        replace_step(readers, old, new)
    for step, port in plan.parts.read_early:
        replace_transfer(workflow, readers, posixpath.join(step, "__transfer__", port))


def begin_without_hints(workflow: Workflow, name: str, file: str, scheduler: IOAwareScheduler) -> None:
    """Let the scheduler record the run of a workflow without hints; nothing else is to be done.

    :param name: that of the workflow in the StreamFlow file
    """
    tools = (path for path, step in workflow.steps.items() if isinstance(step, ExecuteStep))
    scheduler.begin(Plan(workflow, WorkflowSource(name, file), {tool: StepAnnotations(tool) for tool in tools}))
