"""Rewires the translated workflow, so that jobs get inputs before these are read for their checksum."""

from __future__ import annotations

import posixpath

from streamflow.cwl.step import CWLInputInjectorStep

from streamflow_io.adapters.early_inputs import EarlyInputInjectorStep

from .plan import Plan
from .ports import readers_of, replace_step
from .rewire import replace_transfer


def wire_early_inputs(plan: Plan) -> None:
    """Change the workflow of a plan so that jobs get its early inputs early."""
    workflow, readers = plan.workflow, readers_of(plan.workflow)
    for name in dict.fromkeys(route.input for route in plan.parts.early_inputs):
        old = workflow.steps[name]
        assert isinstance(old, CWLInputInjectorStep)
        new = EarlyInputInjectorStep(name, old.workflow, old.get_input_port("__job__"), workflow.create_port())
        replace_step(readers, old, new)
    for step, port in plan.parts.read_early:
        replace_transfer(workflow, readers, posixpath.join(step, "__transfer__", port))
