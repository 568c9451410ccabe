"""Writes the coordination configuration of a run into the directory of the run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from streamflow.core.utils import get_tag
from streamflow.core.workflow import Job, Token, Workflow
from streamflow.log_handler import logger
from streamflow.workflow.token import JobToken, ListToken, ObjectToken

from streamflow_io.adapters.output_globs import field_port
from streamflow_io.files import write_atomically
from streamflow_io.graph.capio_cl.applications import KnownJobs
from streamflow_io.graph.capio_cl.language import resolved, write_capio_cl
from streamflow_io.graph.io_graph import Output
from streamflow_io.records.runs import COORDINATION_FILE

from .plan import Plan


class CoordinationRecord:
    """Keeps the coordination configuration of a run, in CAPIO-CL 1.1: as planned, and at the end as it was.

    :param plan: of the run
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def write_planned(self, directory: Path) -> None:
        """Write the planned configuration. If that fails, the run goes on, with a warning."""
        self._write(directory, self._plan.jobs)

    def write_ran(self, directory: Path) -> None:
        """Write the configuration again, with the jobs that ran and their files. The rest is as planned."""
        workflow, outputs = self._plan.workflow, self._plan.graph.outputs
        jobs = {output.step: tuple(_jobs(workflow, output.step)) for output in outputs}
        tags = {step: tuple(get_tag([token]) for token in tokens) for step, tokens in jobs.items() if tokens}
        globs = {
            (output.step, output.port, tag): paths
            for output in outputs
            for tag, paths in _paths(
                self._plan.workflow, output, {token.tag: token.value for token in jobs[output.step]}
            )
        }
        self._write(
            directory,
            KnownJobs({**self._plan.jobs.tags, **tags}, {**self._plan.jobs.globs, **globs}),
        )

    def _write(self, directory: Path, jobs: KnownJobs) -> None:
        try:
            document = write_capio_cl(resolved(self._plan.configure(jobs)), "1.1")
            write_atomically(directory / COORDINATION_FILE, json.dumps(document, indent=2) + "\n")
        except (OSError, ValueError) as error:
            logger.warning(f"The coordination configuration of this run is not kept, the run goes on: {error}")


def _jobs(workflow: Workflow, step: str) -> Iterator[JobToken]:
    for token in workflow.steps[step].get_input_port("__job__").token_list:
        if isinstance(token, JobToken):
            yield token


def _paths(workflow: Workflow, output: Output, jobs: dict[str, Job]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the paths of an output, by the tag of its job, relative to the job's output directory."""
    path, port = output.whole
    for token in workflow.steps[path].get_output_port(port).token_list:
        if (job := jobs.get(token.tag)) is None:
            continue
        elements = token.value if isinstance(token, ListToken) else [token]
        if isinstance(token, ObjectToken):
            elements = [field for name, field in token.value.items() if field_port(port, name) == output.port]
        paths = tuple(_relative(element, job.output_directory) for element in elements if isinstance(element, Token))
        if all(path is not None for path in paths):
            yield token.tag, tuple(path for path in paths if path is not None)


def _relative(token: Token, directory: str | None) -> str | None:
    path = token.value.get("path") if isinstance(token.value, dict) else None
    if path is None or directory is None:
        return None
    # A later attempt of a streaming job has the directory of the first one, with a number.
    found = re.fullmatch(rf"{re.escape(directory)}(?:-\d+)?/(.+)", path)
    return None if found is None else found[1]
