"""The jobs of a run, and the one way in which all parts of a run are told of them."""

from __future__ import annotations

import contextlib
import posixpath
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar, cast

from streamflow.core.deployment import ExecutionLocation, Target
from streamflow.core.exception import UnrecoverableWorkflowException, WorkflowExecutionException
from streamflow.core.scheduling import AvailableLocation
from streamflow.core.utils import get_job_tag
from streamflow.core.workflow import Job, Status, Token
from streamflow.cwl.step import CWLExecuteStep
from streamflow.scheduling.scheduler import JobAllocation

from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.runtime.node_runtime import NodeJob, NodeRuntime
from streamflow_io.runtime.protocol import Event, ExitEvent, JobSpec
from streamflow_io.runtime.usage import JobUsage

from .tokens import parts_of, streams_of

T = TypeVar("T")


class NeverStartsError(UnrecoverableWorkflowException, WorkflowExecutionException):  # type: ignore[misc]
    """A job can never start, so the run ends: no further attempt would change that. The message says all."""


class JobState:
    """All that a run knows of one job, from the moment in which the job has its input until it has ended.

    A listener keeps what it knows of a job here, as an object of a class of its own: see :meth:`keep`.

    :ivar job: StreamFlow's job
    :ivar hints: of its step; None: the step belongs to StreamFlow, or to a workflow that asks for nothing
    :ivar targets: where its binding lets the job run
    :ivar sources: the names of the jobs whose streams the job reads
    :ivar allocation: where StreamFlow has placed the job; None: the job waits for a place
    :ivar places: the locations of the allocation, as StreamFlow's scheduler sees them
    :ivar cores: the number of cores that the job may use
    :ivar declared_cores: the number of cores that its step declares; None: the job holds all of them
    :ivar submitted: when the job asked for a place, in seconds since the epoch
    :ivar started: when its command was about to run, in seconds since the epoch; None: the command has not run
    :ivar ended: when the job has ended, in seconds since the epoch; None: the job has not ended
    :ivar attempts: how often its command was given to a node runtime
    :ivar node_job: the last attempt, as the node runtime has it; None: no node runtime runs the job
    :ivar executed_by: the step whose command the job runs; None: the command has not been about to run
    :ivar usage: what its last command has used; None: no node runtime has measured the command
    :ivar status: how the job has ended; None: the job has not ended
    """

    __slots__ = (
        "_kept",
        "allocation",
        "attempts",
        "cores",
        "declared_cores",
        "ended",
        "executed_by",
        "hints",
        "job",
        "name",
        "node_job",
        "places",
        "sources",
        "started",
        "status",
        "step",
        "submitted",
        "targets",
        "usage",
    )

    def __init__(self, job: Job, hints: StepAnnotations | None = None, targets: Sequence[Target] = ()) -> None:
        self.job = job
        self.name = str(job.name)
        self.step = _step_of(job)
        self.hints = hints
        self.targets = tuple(targets)
        self.sources: tuple[str, ...] = ()
        self.allocation: JobAllocation | None = None
        self.places: Sequence[AvailableLocation] = ()
        self.cores = 0.0
        self.declared_cores: float | None = None
        self.submitted = 0.0
        self.started: float | None = None
        self.ended: float | None = None
        self.attempts = 0
        self.node_job: NodeJob | None = None
        self.executed_by: CWLExecuteStep | None = None
        self.usage: JobUsage | None = None
        self.status: Status | None = None
        self._kept: dict[type, object] = {}

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"JobState({self.name!r})"

    @property
    def tag(self) -> str:
        """The tag of the inputs and outputs of the job, which no other job of the step has."""
        return str(get_job_tag(self.name))

    @property
    def location(self) -> ExecutionLocation:
        """The first location of a job that has been placed."""
        return self._placed.locations[0]

    @property
    def target(self) -> Target:
        """The target of a job that has been placed."""
        return self._placed.target

    @property
    def producers(self) -> set[str]:
        """The names of the jobs from whose hosts the job may read: `sources`, and those that have split its files."""
        return {*self.sources, *(token.said_by.job for _, token in parts_of(self.job.inputs))}

    @property
    def is_io_task(self) -> bool:
        """Whether the job only moves data, and computes nothing."""
        return self.hints is not None and self.hints.io_task is not None

    @property
    def concerns_storage(self) -> bool:
        """Whether the hints of the step say something about storage."""
        return self.hints is not None and self.hints.concern_storage

    @property
    def _placed(self) -> JobAllocation:
        assert self.allocation is not None, f"{self.name} has no place yet"
        return self.allocation

    def executes(self, step: CWLExecuteStep, job: Job) -> None:
        """Note that the step is about to run the command of the job.

        :param job: the step's own object for the job, whose inputs are at the location of the job
        """
        self.executed_by, self.job = step, job

    def begin(self, node_job: NodeJob) -> None:
        """Begin an attempt under a node runtime."""
        self.attempts += 1
        self.node_job = node_job

    def limit(self, rate: float | None) -> None:
        """Limit the bytes per second that the job moves from now on. Does nothing if no node runtime runs the job.

        :param rate: bytes per second; None: no limit
        """
        if self.node_job is not None:
            self.node_job.limit(rate)

    def keep(self, state: object) -> None:
        """Keep what a listener knows of the job; replaces an object of the same class."""
        self._kept[type(state)] = state

    def kept(self, kind: type[T]) -> T | None:
        """The object of this class that a listener has kept; None: no listener has kept one."""
        return cast("T | None", self._kept.get(kind))

    def drop(self, kind: type[T]) -> T | None:
        """Remove the object of this class that a listener has kept, and return it."""
        return cast("T | None", self._kept.pop(kind, None))


def usage_of(exit_event: ExitEvent) -> JobUsage | None:
    """The resources that a command has used; None: the command has not run."""
    if exit_event.started is None or exit_event.ended is None:
        return None
    used = exit_event.usage
    return JobUsage(
        started=exit_event.started,
        ended=exit_event.ended,
        bytes_read=used.rchar,
        bytes_written=used.wchar,
        storage_bytes_read=used.read_bytes,
        storage_bytes_written=used.write_bytes,
        cpu_seconds=used.user + used.system,
        io_seconds=used.io,
        held_seconds=used.held,
        paused_seconds=used.paused,
        pauses=used.pauses,
    )


class Listener:
    """Hears what happens to the jobs of a run. Each method does nothing, unless a subclass says otherwise.

    For every job :meth:`submitted` is called first, and :meth:`ended` last and exactly once, however the job ends.
    """

    def submitted(self, job: JobState) -> None:
        """The job has all its input, and asks for a place."""

    def placed(self, job: JobState) -> None:
        """StreamFlow has given the job its locations."""

    def running(self, job: JobState) -> None:
        """The job has its input at its location, and is about to run its command."""

    def starting(self, job: JobState, spec: JobSpec, runtime: NodeRuntime) -> JobSpec:
        """An attempt of the job is about to be given to a node runtime.

        :return: the spec for the node runtime: `spec`, with what this listener asks for
        """
        return spec

    def event(self, job: JobState, event: Event) -> None:
        """The node runtime of the job has reported an event."""

    def delivered(self, job: JobState, token: Token) -> None:
        """The job has put a token on one of its output ports."""

    def ended(self, job: JobState) -> None:
        """The job has ended, or will never start; see :attr:`JobState.status`."""

    async def run_closed(self) -> None:
        """The run is over: no job is left, and no other method is called after this one."""


class Jobs:
    """The jobs of a run that have their input and have not ended. Tells the listeners of them, in their order.

    :param hints: of the steps of the workflow, by path
    :param listeners: see :meth:`listen`
    """

    def __init__(self, hints: Mapping[str, StepAnnotations], listeners: Sequence[Listener] = ()) -> None:
        self._hints = hints
        self._open: dict[str, JobState] = {}
        self.listen(listeners)

    def listen(self, listeners: Sequence[Listener]) -> None:
        """Set the listeners; the first one is told first. Call this method before there is a job."""
        self._listeners = tuple(listeners)
        # Most listeners react to few things only, and there are thousands of events.
        self._submitted = self._that_hear(Listener.submitted)
        self._placed = self._that_hear(Listener.placed)
        self._running = self._that_hear(Listener.running)
        self._starting = self._that_hear(Listener.starting)
        self._event = self._that_hear(Listener.event)
        self._delivered = self._that_hear(Listener.delivered)
        self._ended = self._that_hear(Listener.ended)

    def __iter__(self) -> Iterator[JobState]:
        """All jobs that have not ended, in the order in which they asked for a place."""
        return iter(tuple(self._open.values()))

    def find(self, name: str) -> JobState | None:
        """The job with this name; None: no such job, or the job has ended."""
        return self._open.get(name)

    def new(self, job: Job, targets: Sequence[Target] = ()) -> JobState:
        """The state of a job that is about to ask for a place; see :meth:`submitted`."""
        return JobState(job, self._hints.get(_step_of(job)), targets)

    def of(self, job: Job) -> JobState:
        """The state of a job of StreamFlow, which runs."""
        return self._open[job.name]

    def submitted(self, job: JobState, now: float) -> None:
        """See :meth:`Listener.submitted`. A job of the same name that has not ended is cancelled first.

        :param now: seconds since the epoch
        """
        if (before := self._open.get(job.name)) is not None:
            self.ended(before, Status.CANCELLED, now)
        job.submitted = now
        job.sources = tuple(dict.fromkeys(token.source.job for token in streams_of(job.job.inputs)))
        self._open[job.name] = job
        for listener in self._submitted:
            listener.submitted(job)

    def placed(
        self, job: JobState, allocation: JobAllocation, places: Sequence[AvailableLocation], cores: float
    ) -> None:
        """See :meth:`Listener.placed`."""
        job.allocation, job.places, job.cores = allocation, places, cores
        for listener in self._placed:
            listener.placed(job)

    def running(self, job: JobState, now: float) -> None:
        """See :meth:`Listener.running`.

        :param now: seconds since the epoch
        """
        job.started = now
        for listener in self._running:
            listener.running(job)

    def starting(self, job: JobState, spec: JobSpec, runtime: NodeRuntime) -> JobSpec:
        """See :meth:`Listener.starting`: each listener gets what the one before has returned."""
        for listener in self._starting:
            spec = listener.starting(job, spec, runtime)
        return spec

    def event(self, job: JobState, event: Event) -> None:
        """See :meth:`Listener.event`."""
        for listener in self._event:
            listener.event(job, event)

    def delivered(self, job: JobState, token: Token) -> None:
        """See :meth:`Listener.delivered`."""
        for listener in self._delivered:
            listener.delivered(job, token)

    def ended(self, job: JobState, status: Status, now: float) -> None:
        """See :meth:`Listener.ended`. Does nothing if the job has ended before.

        All listeners are told, even if one of them raises an exception, which is raised in the end.

        :param now: seconds since the epoch
        """
        if self._open.get(job.name) is not job:
            return
        del self._open[job.name]
        job.status, job.ended = status, now
        with contextlib.ExitStack() as telling:
            for listener in reversed(self._ended):
                telling.callback(listener.ended, job)

    def cancel_all(self, now: float) -> None:
        """End the jobs that are left at the end of the run: they are cancelled.

        :param now: seconds since the epoch
        """
        for job in self:
            self.ended(job, Status.CANCELLED, now)

    async def run_closed(self) -> None:
        """See :meth:`Listener.run_closed`. A listener is closed before those that are told before it.

        All listeners are closed, even if one of them raises an exception, which is raised in the end.
        """
        async with contextlib.AsyncExitStack() as closing:
            for listener in self._listeners:
                closing.push_async_callback(listener.run_closed)

    def _that_hear(self, method: Callable[..., object]) -> tuple[Listener, ...]:
        """The listeners whose class overrides a method of :class:`Listener`."""
        name = method.__name__
        return tuple(one for one in self._listeners if getattr(type(one), name) is not method)


def _step_of(job: Job) -> str:
    """The path of the step of a job.

    StreamFlow 0.2.0rc3 starts a job without a tag where it gathers lists too early.
    """
    # Records of all jobs of a step are kept, and share the path.
    return sys.intern(posixpath.dirname(job.name))
