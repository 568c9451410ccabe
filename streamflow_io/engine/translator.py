"""The translator of CWL workflows that serves the hints.

StreamFlow imports every plugin in every run, also with another scheduler: what only our runs need is imported by
:mod:`~streamflow_io.engine.serving`, and what only hints need by :mod:`~streamflow_io.engine.planning`. Both
are imported here when they are needed.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from streamflow.core.workflow import Workflow
from streamflow.cwl.translator import CWLTranslator

from streamflow_io._streamflow import (
    execute_statements_in_the_loop,
    look_up_in_constant_time,
    separate_standard_error,
    tools_loaded_once,
)
from streamflow_io.runtime.child_watcher import watch_children_without_threads

from .detection import can_have_hints
from .locked_database import say_locked
from .scheduler import IOAwareScheduler

if TYPE_CHECKING:
    from .plan import Plan


class IOAwareTranslator(CWLTranslator):  # type: ignore[misc]
    """Translates as StreamFlow does, then rewires what the hints ask for; does nothing unless the scheduler is ours."""

    def translate(self) -> Workflow:
        """:raises InvalidHintsException: if a hint is wrong, or a storage too slow for it"""
        scheduler = self.context.scheduler
        if not isinstance(scheduler, IOAwareScheduler):
            return super().translate()
        execute_statements_in_the_loop(self.context.database, say_locked)
        watch_children_without_threads()
        # What loading the inputs has left, some 30 kB for each element of a list, must not be frozen with the rest.
        gc.collect()
        # Modules, and below the translated graph, live as long as the run: the collector need not look at them again
        # and again.
        gc.freeze()
        from .serving import apply, begin_without_hints

        if scheduler.concerns_any_workflow or can_have_hints(self.cwl_definition):
            plan = self.plan()
            apply(plan, scheduler)
            workflow = plan.workflow
        else:
            workflow = self._translate()
            begin_without_hints(workflow, str(self.cwl_definition.loadingOptions.fileuri or ""), scheduler)
        look_up_in_constant_time(workflow)
        gc.freeze()
        return workflow

    def plan(self, *, in_detail: bool = False) -> Plan:
        """What is to be done with the workflow, under our scheduler; see :func:`~.planning.make_plan`."""
        from .planning import make_plan

        return make_plan(
            self.cwl_definition,
            self.workflow_config.name,
            self.context.scheduler,
            self._translate,
            in_detail=in_detail,
        )

    def _translate(self) -> Workflow:
        with tools_loaded_once():
            workflow = super().translate()
        separate_standard_error(workflow)
        return workflow
