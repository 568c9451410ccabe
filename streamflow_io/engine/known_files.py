"""The files of read sessions that are known before the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from streamflow.core.workflow import Workflow
from streamflow.cwl.step import CWLExecuteStep

from streamflow_io.graph.partitions import Partition

from .known_splits import with_paths
from .known_tokens import KnownTokens, UnknownValue, is_open

# Jobs of a step that are looked at: nearly always all of them read the same file.
_JOBS = 16


def known_files(tokens: KnownTokens, workflow: Workflow, partitions: Iterable[Partition]) -> dict[str, str]:
    """The files that are read in parts and not made by the workflow, with a step that reads them."""
    found = dict[str, str]()
    for partition in partitions:
        step = workflow.steps.get(partition.step)
        if partition.real is not None or not isinstance(step, CWLExecuteStep):
            continue
        port = step.get_input_port(partition.of)
        for tag in islice(tokens.tags_of(step) or (), _JOBS):
            try:
                value = with_paths(tokens.value(port, tag)) if not is_open(tag) else None
            except UnknownValue:
                break
            if isinstance(value, Mapping) and value.get("class") == "File":
                found.setdefault(value["path"], partition.step)
    return found
