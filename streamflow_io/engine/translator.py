"""The translator of CWL workflows that serves the hints.

StreamFlow imports every plugin in every run, also with another scheduler. So this module imports two others only when
they are needed. :mod:`~streamflow_io.engine.serving` imports what only runs of the plugin need, and
:mod:`~streamflow_io.engine.planning` what only hints need.

The text of a CWL document says whether it may have hints: to import their models takes longer than to translate a small
workflow. `streamable` counts as a hint.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from schema_salad.exceptions import ValidationException
from schema_salad.fetcher import Fetcher
from streamflow.core.workflow import Workflow
from streamflow.cwl.translator import CWLTranslator

from streamflow_io._streamflow import (
    documents_read_once,
    execute_statements_in_the_loop,
    give_input,
    look_up_in_constant_time,
    parse_expressions_once,
    separate_standard_error,
    sizes_of_nested_lists_made_once,
    split_commands_by_pieces,
)
from streamflow_io.nested import parts
from streamflow_io.processes import watch_children_without_threads

from .database_messages import say_locked
from .scheduler import IOAwareScheduler

if TYPE_CHECKING:
    from streamflow_io.hints.cwl import Walk

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
            from .planning import steps_of

            plan = self.plan(steps_of(self.cwl_definition))
            apply(plan, scheduler)
            workflow = plan.workflow
        else:
            workflow = self._translate()
            file = str(self.cwl_definition.loadingOptions.fileuri or "")
            begin_without_hints(workflow, self.workflow_config.name, file, scheduler)
        look_up_in_constant_time(workflow)
        gc.freeze()
        return workflow

    def plan(self, walk: Walk, *, in_detail: bool = False) -> Plan:
        """Plan the run of the workflow under the plugin's scheduler; see :func:`~.planning.make_plan`.

        :param walk: the steps of the workflow
        """
        from .planning import make_plan

        return make_plan(
            walk,
            self.workflow_config.name,
            self.context.scheduler,
            self._translate,
            given=self.cwl_inputs.get("cwl:requirements", ()),
            in_detail=in_detail,
        )

    def _handle_inner_inputs(self, **elements: Any) -> None:
        step, tool = elements["cwl_element"], elements["inner_cwl_element"]
        if isinstance(self.context.scheduler, IOAwareScheduler) and getattr(step, "when", None) is not None:
            give_input(tool, elements["inner_cwl_name_prefix"])
        super()._handle_inner_inputs(**elements)

    def _translate(self) -> Workflow:
        parse_expressions_once()
        with documents_read_once(), sizes_of_nested_lists_made_once():
            workflow = super().translate()
        separate_standard_error(workflow)
        return workflow


# cwl_utils has a class per CWL version and no common base: its objects are read by attribute.
CWLObject = Any
# A part of each hint, and of each likely mistake in one; directives that include other files; escaped letters.
_TRACES = re.compile(
    r"sfio|streamflow-io|IOTask|StorageBandwidth|Streaming|ReadSession|streamable|\$import|\$mixin|\\[xuU]"
)
_JOINED = re.compile(r"\\\r?\n[ \t]*")


def can_have_hints(document: CWLObject) -> bool:
    """Whether a process, or anything that it runs, may have a hint of the plugin or a `streamable` parameter.

    Reads the files that `run` names.

    :param document: as loaded by `cwl_utils.parser`
    :return: false only if there is certainly no hint; true if a file cannot be read
    """
    fetcher = document.loadingOptions.fetcher
    file = str(document.loadingOptions.fileuri or "")
    try:
        if _has_traces(fetcher, file):
            return True
        ahead = [fetcher.urljoin(file, run) for run in _runs_of(document)]
        seen: set[str] = set()
        while ahead:
            file = urldefrag(ahead.pop())[0]
            if file in seen:
                continue
            seen.add(file)
            if _has_traces(fetcher, file):
                return True
            ahead += [fetcher.urljoin(file, run) for run in _runs_in(fetcher.fetch_text(file))]
    except (ValidationException, YAMLError, OSError, ValueError, RecursionError):
        return True
    return False


def _has_traces(fetcher: Fetcher, file: str) -> bool:
    # A file from another machine is not fetched twice.
    return not file.startswith("file:") or _TRACES.search(_JOINED.sub("", fetcher.fetch_text(file))) is not None


def _runs_of(process: CWLObject) -> Iterator[str]:
    """Yield the processes in other files that the steps of a process run."""
    for step in getattr(process, "steps", ()):
        if isinstance(step.run, str):
            yield step.run
        else:
            yield from _runs_of(step.run)


def _runs_in(text: str) -> Iterator[str]:
    """Yield the same for all processes in a file; perhaps more.

    :raises YAMLError: if the text is neither YAML nor JSON
    """
    if "run" not in text:
        return
    try:
        document = json.loads(text)  # packed workflows are large, and YAML is slow
    except ValueError:
        document = YAML(typ="safe", pure=True).load(text)
    for node in parts(document):
        if isinstance(node, dict) and isinstance(run := node.get("run"), str):
            yield run
