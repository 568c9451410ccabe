"""Edge: a plan is put into effect."""

from __future__ import annotations

from dataclasses import replace

from streamflow.log_handler import logger

from streamflow_io.run.plan import Plan
from streamflow_io.run.scheduler import IOAwareScheduler

from .capio import CapioChoice, choose_capio
from .early_inputs import wire_early_inputs
from .rewire import observe_jobs, rewire


def apply(plan: Plan, scheduler: IOAwareScheduler) -> None:
    """Say what a plan warns of, rewire its workflow, and let the scheduler serve its hints."""
    config = scheduler.config
    for warning in plan.warnings:
        logger.warning(warning)
    capio = CapioChoice()
    if plan.streams:
        if config.runtime == "capio":
            capio = choose_capio(plan.workflow, plan.edges)
            plan = replace(plan, capio=capio.edges)
        rewire(plan)
    wire_early_inputs(plan)
    if any(plan.annotations.values()) or plan.candidates or config.observe or config.runtime == "off":
        scheduler.begin(plan, capio.start)
    if config.observe:
        observe_jobs(plan.workflow)
