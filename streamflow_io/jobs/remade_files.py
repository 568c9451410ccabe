"""Files of lost nodes that a later attempt of their job has made once more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from streamflow.core.context import StreamFlowContext
from streamflow.core.utils import get_job_tag
from streamflow.core.workflow import Status, Workflow
from streamflow.workflow.token import TerminationToken

from streamflow_io._streamflow import last_recovery, register_copy, token_value
from streamflow_io.adapters.jobs import JobState, Listener


class RemadeFiles(Listener):
    """Lets all jobs that read a lost file read the one that the next attempt of its job has made.

    StreamFlow 0.2.0rc3 knows the new file in the recovery of one reader. For each further reader it would run the job
    again, and count that as one more failure of the job.
    """

    def __init__(self, workflow: Workflow, context: StreamFlowContext) -> None:
        self._workflow = workflow
        self._context = context

    def ended(self, job: JobState) -> None:
        recovery = last_recovery(self._context.failure_manager, job.name)
        step = self._workflow.steps.get(job.step)
        if job.status is not Status.COMPLETED or recovery is None or step is None:
            return
        tag = get_job_tag(job.name)
        for name in step.output_ports.values():
            first, again = (_value(workflow, name, tag) for workflow in (self._workflow, recovery))
            for lost, made in same_files(first, again):
                register_copy(self._context.data_manager, lost, made)


def _value(workflow: Workflow, port: str, tag: str) -> object:
    """The last value with a tag at a port; None: such a value is missing."""
    tokens = workflow.ports[port].token_list if port in workflow.ports else []
    found = (token for token in reversed(tokens) if token.tag == tag and not isinstance(token, TerminationToken))
    return None if (token := next(found, None)) is None else token_value(token)


def same_files(one: object, other: object) -> Iterator[tuple[str, str]]:
    """Yield the paths of files at the same places of two values of CWL, if their contents are the same."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        yield from chain.from_iterable(map(same_files, one, other))
    elif isinstance(one, Mapping) and isinstance(other, Mapping):
        if one.get("class") == "File" and one.get("checksum") is not None and one["checksum"] == other.get("checksum"):
            yield one["path"], other["path"]
        for name in one.keys() & other.keys():
            yield from same_files(one[name], other[name])
