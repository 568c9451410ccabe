"""The requests of I/O tasks, from what jobs read and when they end.

:mod:`streamflow_io.bandwidth` decides. This module finds the job that has written each file that a job reads, and when
the file was there.
"""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Callable, Iterable, Mapping

from streamflow.core.utils import get_job_step_name
from streamflow.core.workflow import Status, Token, Workflow
from streamflow.workflow.combinator import LoopCombinator
from streamflow.workflow.step import LoopCombinatorStep

from streamflow_io.adapters.job_spec import paths_of
from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.adapters.tokens import StreamToken, file_tokens
from streamflow_io.graph.io_graph import Delivery, StreamEdge
from streamflow_io.hints.inheritance import StepAnnotations, within
from streamflow_io.records.records import Record, RequestRecord
from streamflow_io.storage.admission.demand import Grant

from .rates import Rates
from .windows import Moved, UnreportedRequest, Windows, learned_window

_LOOP = "-loop-combinator"


class Requests(Listener):
    """Follows the jobs of a run, and reports for each I/O task the bytes that it has moved, and its required end.

    A workflow without I/O tasks has no requests, and nothing is followed.

    :param hints: the hints of the steps of the workflow, by path
    :param delivered: the edges whose files come before their producer has ended
    :param rates: limits requests to the required bandwidth
    :param record: keeps a record for telemetry
    """

    def __init__(
        self,
        workflow: Workflow,
        hints: Mapping[str, StepAnnotations],
        delivered: Iterable[StreamEdge],
        rates: Rates,
        record: Callable[[Record], None],
    ) -> None:
        self._record = record
        self._directions = {step: of.direction for step, of in hints.items() if of.io_task is not None}
        self._within = {step: of.within for step, of in hints.items() if of.io_task is not None}
        self._windows = Windows()
        self._rates = rates
        self._loops: dict[str, LoopCombinator] = {
            name.removesuffix(_LOOP): step.combinator
            for name, step in workflow.steps.items()
            if isinstance(step, LoopCombinatorStep) and isinstance(step.combinator, LoopCombinator)
        }
        # Pairs of steps between which files go at their commit, and whether they go one by one.
        self._at_commit = {
            (edge.route.output.step, edge.route.consumer.step): edge.by_element
            for edge in delivered
            if edge.route.consumer is not None and edge.delivery is Delivery.COMMIT
        }
        # The job of each output directory.
        self._jobs: dict[str, str] = {}
        # When each job has ended, and when others could read each path that was delivered at commit.
        self._ended: dict[str, float] = {}
        self._delivered: dict[str, float] = {}

    def submitted(self, job: JobState) -> None:
        now, step = job.submitted, job.step
        if not self._is_followed(job):
            return
        sources = self._sources(job, now)
        if (direction := self._directions.get(step)) is None:
            reads = [source for source in sources if self._windows.is_request(source)]
            others = max((at for source, at in sources.items() if source not in reads), default=float("-inf"))
            self._windows.needed(reads, others, now)
            self._rates.computes(job)
            self._rates.update(now)
            return
        at = max(sources.values(), default=now)
        channel = self._channel(job, sources)
        request = self._windows.ready(job.name, step, channel, direction, at, now, sources, self._within[step])
        job.keep(request)
        self._rates.opened(job, request, now)
        self._rates.update(now)

    def delivered(self, job: JobState, token: Token) -> None:
        if self._directions and any(source == job.step for source, _ in self._at_commit):
            for file in file_tokens(token):
                if not isinstance(file, StreamToken):
                    self._delivered.setdefault(file.value["path"], time.time())

    def placed(self, job: JobState) -> None:
        if (grant := job.kept(Grant)) is not None and self._is_followed(job):
            now = time.time()
            self._rates.admitted(job, _storage(job), grant.locations[0], now)
            self._tell_settled(now)

    def running(self, job: JobState) -> None:
        if self._is_followed(job) and job.started is not None:
            self._jobs[str(job.job.output_directory)] = job.name
            self._rates.started(job, job.started)
            self._tell_settled(job.started)

    def ended(self, job: JobState) -> None:
        if self._is_followed(job) and job.ended is not None:
            self._end(job, job.ended)
            self._tell_settled(job.ended)

    async def run_closed(self) -> None:
        """Report all remaining requests."""
        self._tell(self._windows.close(time.time()))

    def _is_followed(self, job: JobState) -> bool:
        """Whether a job counts. StreamFlow has jobs of its own that collect the outputs of a workflow; these do not."""
        return bool(self._directions) and job.hints is not None

    def _tell_settled(self, now: float) -> None:
        """Report the requests that are final now."""
        self._rates.update(now)
        self._tell(self._windows.settled(now))

    def _tell(self, requests: Iterable[RequestRecord]) -> None:
        for request in requests:
            if (window := learned_window(request)) is not None:
                self._rates.waited(request.step, window)
            self._record(request)

    def _end(self, job: JobState, now: float) -> None:
        if job.status is Status.COMPLETED:
            self._ended[job.name] = now
        if (direction := self._directions.get(job.step)) is None:
            self._windows.computed(now)
            self._rates.computed(job, now)
            return
        moved = None
        if job.status is Status.COMPLETED and (usage := job.usage) is not None:
            started, ended = usage.ran(job.submitted, now)
            limit = self._rates.first_rate(job)
            moved = Moved(usage.moved(direction), started, ended, _storage(job), limit)
            if (request := job.kept(UnreportedRequest)) is not None:
                request.move(moved, now)
        self._rates.finished(job, now, moved)

    def _sources(self, job: JobState, now: float) -> dict[str, float]:
        """Return the jobs whose files a job reads, each with the time when the job could read all of its files."""
        sources = dict.fromkeys(job.sources, now)
        known: dict[str, str | None] = {}
        for path in paths_of(job.job.inputs.values()):
            directory = posixpath.dirname(path)
            if directory not in known:
                known[directory] = self._job_of(directory)
            if (source := known[directory]) is not None or (source := self._jobs.get(path)) is not None:
                at = self._ended.get(source, now)
                if (get_job_step_name(source), job.step) in self._at_commit:
                    at = self._delivered.get(path, at)
                sources[source] = max(at, sources.get(source, at))
        return sources

    def _job_of(self, directory: str) -> str | None:
        """Return the job that has written the content of a directory, at any depth."""
        while directory not in ("/", ""):
            # A further attempt of a job has the directory of the first, with a number.
            for own in (directory, re.sub(r"-\d+$", "", directory)):
                if own in self._jobs:
                    return self._jobs[own]
            directory = posixpath.dirname(directory)
        return None

    def _channel(self, job: JobState, sources: Iterable[str]) -> str:
        """Return the channel of a job's request: the job whose files come one by one, or all iterations of a loop."""
        step = job.step
        for source in sources:
            if self._at_commit.get((get_job_step_name(source), step)):
                return f"{step} of {source}"
        tag = job.tag.split(".")
        for loop in self._loops:
            if (level := self._level(step, loop)) is not None:
                tag[level] = "*"
        return posixpath.join(step, ".".join(tag))

    def _level(self, step: str, loop: str) -> int | None:
        """Return the position of a loop's iteration in the tags of a step. None: the step is outside the loop."""
        if not within(step, loop) or not self._loops[loop].iteration_map:
            return None
        # Count the parts of the tags with which the loop was entered. The next part is the iteration.
        return len(next(iter(self._loops[loop].iteration_map)).split("."))


def _storage(job: JobState) -> str | None:
    """Return the name of the storage that a job was granted. None: the job uses no storage."""
    grant = job.kept(Grant)
    return None if grant is None or grant.placement.storage is None else grant.placement.storage.name
