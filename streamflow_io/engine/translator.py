"""The translator of CWL workflows that serves the hints.

StreamFlow imports every plugin in every run, also with another scheduler. So this module imports two others only when
they are needed. :mod:`~streamflow_io.engine.serving` imports what only runs of the plugin need, and
:mod:`~streamflow_io.engine.planning` what only hints need.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from streamflow.core.workflow import Workflow
from streamflow.cwl.translator import CWLTranslator

from streamflow_io._streamflow import (
    execute_statements_in_the_loop,
    look_up_in_constant_time,
    parse_expressions_once,
    separate_standard_error,
    split_commands_by_pieces,
    tools_loaded_once,
)
from streamflow_io.runtime.child_watcher import watch_children_without_threads

from .detection import can_have_hints
from .locked_database import say_locked
from .scheduler import IOAwareScheduler

if TYPE_CHECKING:
    from .plan import Plan


class IOAwareTranslator(CWLTranslator):  # type: ignore[misc]
    """Translates as StreamFlow does, then rewires by the hints; only translates if the scheduler is another one."""

    def translate(self) -> Workflow:
        """Translate the workflow, and serve its hints.

        :raises InvalidHintsException: if a hint is wrong, or a storage too slow for it
        """
        scheduler = self.context.scheduler
        if not isinstance(scheduler, IOAwareScheduler):
            return super().translate()
        execute_statements_in_the_loop(self.context.database, say_locked)
        watch_children_without_threads()
        split_commands_by_pieces()
        # The rest of loading the inputs, some 30 kB for each element of a list, must not be frozen with everything
        # else.
        gc.collect()
        # Modules, and below the translated graph, live as long as the run: the garbage collector must not look at them
        # again and again.
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
        """Plan the run of the workflow under the plugin's scheduler; see :func:`~.planning.make_plan`."""
        from .planning import make_plan

        return make_plan(
            self.cwl_definition,
            self.workflow_config.name,
            self.context.scheduler,
            self._translate,
            in_detail=in_detail,
        )

    def _translate(self) -> Workflow:
        parse_expressions_once()
        with tools_loaded_once():
            workflow = super().translate()
        separate_standard_error(workflow)
        return workflow
