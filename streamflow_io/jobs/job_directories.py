"""The directories of jobs: recorded, so that they can be removed, and made where one is missing.

Files of lost nodes are found again where a later attempt of their job has made them.
"""

from __future__ import annotations

import os
import posixpath
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import Connector, ExecutionLocation
from streamflow.core.utils import get_job_tag
from streamflow.core.workflow import Status, Workflow
from streamflow.data.remotepath import StreamFlowPath, get_inner_path
from streamflow.workflow.step import ScheduleStep
from streamflow.workflow.token import TerminationToken

from streamflow_io._streamflow import last_recovery, register_copy, token_value
from streamflow_io.adapters.connector import CommandConnector, CommandOptions
from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.records.jobs import DirectoriesRecord
from streamflow_io.records.leftovers import JOB_DIRECTORY
from streamflow_io.records.records import Record, ResultsRecord
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import JobSpec

# As many links as Linux follows.
_MOST_LINKS = 40


class JobDirectories(Listener):
    """Records the directories of the jobs of a run, each once. Directories that the workflow names are left out.

    Makes those in which a command runs, if they are not those of its job.

    :param record: keeps a record for telemetry
    """

    def __init__(self, workflow: Workflow, context: StreamFlowContext, record: Callable[[Record], None]) -> None:
        self._workflow = workflow
        self._context = context
        self._record = record
        self._names: set[str] = set()

    def connector(self, job: JobState, inner: Connector) -> Connector:
        """Return the connector for the command of a job."""
        return _DirectoriesConnector(self._context, job, inner)

    def running(self, job: JobState) -> None:
        self._note(job)

    def starting(self, job: JobState, spec: JobSpec, runtime: NodeRuntime) -> JobSpec:
        # Each further attempt has new directories for outputs and temporary files.
        self._note(job)
        return spec

    def ended(self, job: JobState) -> None:
        # Some jobs have never started, or have no command.
        self._note(job)

    def results(self) -> ResultsRecord:
        """Find the directories of jobs that the results of the workflow are in, or lead to."""
        found = {
            name
            for port in self._workflow.get_output_ports().values()
            for token in port.token_list
            if not isinstance(token, TerminationToken)
            for name in self._needed(token_value(token))
        }
        return ResultsRecord(time.time(), tuple(sorted(found)))

    def _note(self, job: JobState) -> None:
        schedule = self._workflow.steps.get(posixpath.join(job.step, "__schedule__"))
        if not isinstance(schedule, ScheduleStep) or job.allocation is None:
            return
        paths = []
        for kind in ("input_directory", "output_directory", "tmp_directory"):
            path = getattr(job.job, kind)
            name = posixpath.basename(path or "")
            if getattr(schedule, kind) is None and name not in self._names and JOB_DIRECTORY.fullmatch(name):
                self._names.add(name)
                paths.append(path)
        found: dict[tuple[str | None, str], list[str]] = defaultdict(list)
        for location in job.allocation.locations:
            for path in paths:
                place, inner = self._innermost(location, path)
                found[None if place.local else place.deployment, place.name].append(inner)
        for (deployment, name), there in found.items():
            record = DirectoriesRecord(
                time.time(), job=job.name, step=job.step, deployment=deployment, location=name, paths=tuple(there)
            )
            self._record(record)

    def _innermost(self, location: ExecutionLocation, path: str) -> tuple[ExecutionLocation, str]:
        """Where a directory of a container is when the container is gone."""
        while location.wraps is not None:
            inner = get_inner_path(StreamFlowPath(path, context=self._context, location=location))
            if inner is None:
                break
            location, path = location.wraps, str(inner)
        return location, path

    def _needed(self, value: Any) -> Iterator[str]:
        """The directories that a value of CWL is in, names, or leads to by links."""
        if isinstance(value, str):
            for found in JOB_DIRECTORY.finditer(value):
                yield from (name for name in (found[0], found[1]) if name in self._names)
        elif isinstance(value, Mapping):
            path = str(value.get("path"))
            if value.get("class") in ("File", "Directory") and os.path.isabs(path):
                yield from self._led_through(path)
            for each in value.values():
                yield from self._needed(each)
        elif isinstance(value, list | tuple):
            for each in value:
                yield from self._needed(each)

    def _led_through(self, path: str) -> Iterator[str]:
        """The directories of jobs that the links at a path lead through, and all links below the path."""
        ahead, seen = [path], set[str]()
        while ahead:
            way = [*_followed(ahead.pop())]
            found = [name for each in way for name in self._needed(each)]
            yield from found
            # Links may lead to large directories that no job has made.
            if way[-1] not in seen and (found or not seen):
                for place, directories, files in os.walk(way[-1]):
                    entries = (os.path.join(place, entry) for entry in (*directories, *files))
                    ahead += filter(os.path.islink, entries)
            seen.add(way[-1])


class _DirectoriesConnector(CommandConnector):
    """Makes the directories in which the command of a job runs, where the job has others.

    A job whose inputs could not be transferred gets another place, and new directories there, by StreamFlow's recovery.
    Its command then runs there in the directories of the first place.
    """

    def __init__(self, context: StreamFlowContext, job: JobState, inner: Connector) -> None:
        super().__init__(inner, job.name)
        self._context = context
        self._state = job

    async def run_of_job(self, options: CommandOptions) -> tuple[str, int] | None:
        directory, environment = options["workdir"], options["environment"] or {}
        if directory is not None and directory != self._state.job.output_directory:
            for path in filter(None, (directory, environment.get("TMPDIR"))):
                place = StreamFlowPath(path, context=self._context, location=options["location"])
                await place.mkdir(mode=0o777, parents=True, exist_ok=True)
        return await self.run_plainly(options)


def _followed(path: str) -> Iterator[str]:
    """A path, the path that is left after each link on the way, and last the real path."""
    real = os.path.realpath(path)
    for _ in range(_MOST_LINKS):
        yield path
        ways = (path[:end] for end in range(1, len(path) + 1) if path[end : end + 1] in ("", "/"))
        if (link := next(filter(os.path.islink, ways), None)) is None:
            break
        path = os.path.normpath(os.path.join(os.path.dirname(link), os.readlink(link)) + path[len(link) :])
    yield real


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
