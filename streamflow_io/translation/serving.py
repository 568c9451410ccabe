"""Edge: a plan is put into effect."""

from __future__ import annotations

from streamflow.log_handler import logger

from streamflow_io.run.plan import Plan
from streamflow_io.run.scheduler import IOAwareScheduler

from .capio import choose_capio
from .rewire import observe_jobs, rewire


def apply(plan: Plan, scheduler: IOAwareScheduler) -> None:
    """Say what a plan warns of, rewire its workflow, and let the scheduler serve its hints."""
    config = scheduler.config
    for warning in plan.warnings:
        logger.warning(warning)
    capio = None
    if plan.streams:
        in_capio: frozenset[tuple[str, str]] = frozenset()
        if config.runtime == "capio":
            capio, in_capio = choose_capio(plan.workflow, plan.edges, config.capio_unchecked)
        rewire(plan, in_capio)
    if any(plan.annotations.values()) or config.observe:
        scheduler.begin(plan, capio)
    if config.observe:
        observe_jobs(plan.workflow)
