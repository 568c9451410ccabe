"""Limits the requests of I/O tasks to the bandwidth that is required.

:mod:`streamflow_io.bandwidth.pacing` decides. This module translates StreamFlow's jobs, tells jobs their rates, and
remembers their windows.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from msgspec.structs import replace
from streamflow.core.workflow import Workflow
from streamflow.log_handler import logger

from streamflow_io.adapters.job_spec import time_limit
from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.adapters.tokens import file_bytes
from streamflow_io.hints.bandwidth import StaticConstraint, StorageBW
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.messages import Code, coded
from streamflow_io.records.learned.database import LearnedEntry, SizeKey, size_class_of
from streamflow_io.records.learned.remembered import Remembered
from streamflow_io.records.records import RateRecord, Record
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import Event, ExitEvent, JobSpec, MovedEvent, RateLimit
from streamflow_io.storage.admission.demand import StepStorages, StoragePlace, bytes_per_second
from streamflow_io.storage.storages import Storages

from .expectations import Expectations, Learned
from .pacing import CapacityOf, PacedRequest, Pacing
from .windows import Moved, UnreportedRequest


class LearnedWindow(LearnedEntry, frozen=True):
    """The window of a step.

    :ivar key: its `storage` names the storages that the jobs may use
    """

    kind: ClassVar[str] = "window"
    key: SizeKey
    of: Learned

    @property
    def order(self) -> tuple[Any, ...]:
        return self.step, self.key.storage, self.key.size_class


class RememberedWindows:
    """Windows of earlier runs, and of this one.

    A file that cannot be read or written never makes a run fail: one warning says so.

    :param path: the file
    :param tools: the digest of the tool of each step
    :param storages: the `storage` of the key, by step
    """

    def __init__(self, path: Path, tools: Mapping[str, str], storages: Mapping[str, str]) -> None:
        self._tools = tools
        self._storages = storages
        self._kept = Remembered(path, LearnedWindow, (), "Windows are")
        self._known: Mapping[SizeKey, Learned] | None = None
        self._keys: dict[str, SizeKey] = {}

    def of(self, step: str, input_bytes: float) -> Learned | None:
        """Return what is known of a step. None: nothing is known, or the step has no tool.

        :param input_bytes: bytes that its job reads. What this run learns is kept for the size of the first call
        """
        if step not in self._tools:
            return None
        if self._known is None:
            self._known = {one.key: one.of for one in self._kept.read()}
        key = SizeKey(self._tools[step], self._storages[step], size_class_of(input_bytes))
        self._keys.setdefault(step, key)
        return next((self._known[near] for near in key.near if near in self._known), None)

    async def keep(self, learned: Mapping[str, Learned]) -> None:
        """Keep what was learned, by step, for later runs."""
        now = time.time()
        windows = [LearnedWindow(self._keys[step], step, now, of) for step, of in learned.items() if step in self._keys]
        if windows:
            await self._kept.remember(*windows)


_MB = 10**6
# Seconds between two looks at the rates, while a job runs that has a rate or could have one.
_LOOK_SECONDS = 1.0
# How long no job may compute before no further one is expected: StreamFlow needs time between two iterations. The
# factor applies to StreamFlow's own time around a command; the other value is the least number of seconds.
_PATIENCE, _LEAST_PATIENCE = 2.0, 0.25


class Rates(Listener):
    """The rates of the jobs of I/O tasks with `storageBW: required`.

    :param hints: the hints of the steps of the workflow, by path
    :param is_on: whether any job is limited
    :param capacity: returns the bandwidth of a storage for these jobs
    :param hidden: see :class:`~streamflow_io.bandwidth.pacing.Pacing`
    :param find: returns the open job with a name
    :param more_jobs: whether further jobs of a step may be scheduled
    :param record: keeps a record for telemetry
    """

    def __init__(
        self,
        workflow: Workflow,
        hints: Mapping[str, StepAnnotations],
        is_on: bool,
        remembered: RememberedWindows,
        capacity: CapacityOf,
        hidden: Callable[[str], int],
        find: Callable[[str], JobState | None],
        more_jobs: Callable[[str], bool],
        record: Callable[[Record], None],
    ) -> None:
        self._workflow = workflow
        self._compute = [step for step, of in hints.items() if of.io_task is None]
        self._steps = {
            step: Expectations(of.required, of.within)
            for step, of in hints.items()
            if is_on and of.required is not None and of.is_limited
        }
        self._pacing = Pacing(self._steps, capacity, hidden)
        self._remembered = remembered
        self._looked_up: set[str] = set()
        self._find = find
        self._more_jobs = more_jobs
        self._record = record
        self._computing: set[JobState] = set()
        self._computed = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self._waiting: asyncio.TimerHandle | None = None

    def opened(self, job: JobState, request: UnreportedRequest, now: float) -> None:
        """Open the request of an I/O task's job, which has all its input."""
        if (step := job.step) not in self._steps:
            return
        size = file_bytes(job.job.inputs)
        if step not in self._looked_up:
            self._looked_up.add(step)
            if (learned := self._remembered.of(step, size)) is not None:
                self._steps[step].remember(learned)
        limit = time_limit(self._workflow.steps.get(step))
        job.keep(self._pacing.opened(request, now, size, limit))

    def computes(self, job: JobState) -> None:
        """Note that a job that is no I/O task has all its input."""
        self._computing.add(job)

    def admitted(self, job: JobState, storage: str | None, location: str, now: float) -> None:
        """Note that a job has its location."""
        if (request := job.kept(PacedRequest)) is not None:
            self._pacing.admitted(request, StoragePlace(storage, location), now)

    def started(self, job: JobState, now: float) -> None:
        """Note that a job is about to run its command."""
        if (request := job.kept(PacedRequest)) is not None:
            request.started(now)

    def repeated(self, job: JobState) -> None:
        """Note that the command of a failed job is run again."""
        if (request := job.kept(PacedRequest)) is not None:
            request.repeated()
        self.update(time.time())

    def exited(self, job: JobState) -> None:
        """Note that the command of a job has ended, with or without success. Others get its bandwidth from now on."""
        if (request := job.kept(PacedRequest)) is not None:
            request.exited()
        self.update(time.time())

    def unheld(self, job: JobState) -> None:
        """Note that a job cannot be held to a rate where it runs."""
        if (request := job.kept(PacedRequest)) is not None:
            self._pacing.unheld(request)
        self.update(time.time())

    def moved(self, job: JobState, moved: int) -> None:
        """Set how many bytes a running job has moved so far."""
        if (request := job.kept(PacedRequest)) is not None:
            request.move(moved, time.time())
        self.update(time.time())

    def computed(self, job: JobState, now: float) -> None:
        """Note that a job that is no I/O task has ended, with or without success."""
        self._computing.discard(job)
        self._computed = now
        if self._steps and not self._computing:
            self._stop_waiting()
            loop = asyncio.get_running_loop()
            self._waiting = loop.call_later(self._patience, lambda: self.update(time.time()))

    def finished(self, job: JobState, now: float, moved: Moved | None) -> None:
        """Close the request of an I/O task's job that has ended, with or without success.

        :param moved: None: the job has not succeeded, or was not measured
        """
        if (request := job.drop(PacedRequest)) is None:
            return
        if moved is None:
            self._pacing.ended(request, now)
        else:
            self._pacing.ended(request, now, moved.bytes, (moved.started, moved.ended))

    def waited(self, step: str, window: float) -> None:
        """Learn the window of a finished request: see :meth:`Expectations.waited`."""
        if step in self._steps:
            self._steps[step].waited(window)

    def update(self, now: float) -> None:
        """Tell jobs their rates, where these have changed."""
        if not self._steps:
            return
        self._pacing.over(self._is_over(now))
        for one in self._pacing.rates(now):
            rate = None if one.rate is None else one.rate / _MB
            self._record(RateRecord(time=now, job=one.of.facts.job, step=one.of.step, rate=rate, reason=one.reason))
            if (job := self._find(one.of.facts.job)) is not None:
                job.limit(one.rate)
        if self._looking is None and not self._pacing.is_idle:
            self._looking = asyncio.create_task(self._look())

    def rate(self, job: JobState) -> float | None:
        """Return how fast a job may move now, in bytes per second. None: no limit."""
        return None if (request := job.kept(PacedRequest)) is None else request.rate

    def first_rate(self, job: JobState) -> float | None:
        """Return how fast a job was allowed to move when it started, in MB/s. None: no limit."""
        request = job.kept(PacedRequest)
        return None if request is None or request.first is None else request.first / _MB

    def expected_bytes(self, job: JobState) -> float | None:
        """Return how many bytes a job is expected to move. None: unknown."""
        return None if (request := job.kept(PacedRequest)) is None else request.expected.bytes

    def spacing(self, job: JobState, bandwidth: float, executors: int) -> StaticConstraint | None:
        """Return a constraint for the admission of a job that is too small to be limited. None: larger jobs.

        The constraint keeps small jobs from moving all at once.

        :param bandwidth: bandwidth of the job's storage, in MB/s
        :param executors: how many of such jobs may run at once
        """
        if (request := job.kept(PacedRequest)) is None or not request.is_small:
            return None
        throughput = self._steps[job.step].throughput
        each = bandwidth / executors if throughput is None else throughput / _MB
        return StaticConstraint(min(bandwidth, each))

    async def run_closed(self) -> None:
        """Remember the windows of this run. All its requests must have been reported."""
        self._stop_waiting()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        learned = {step: of.learned for step, of in self._steps.items()}
        await self._remembered.keep({step: of for step, of in learned.items() if of is not None})

    async def _look(self) -> None:
        while not self._pacing.is_idle:
            await asyncio.sleep(_LOOK_SECONDS)
            self.update(time.time())
        self._looking = None

    def _is_over(self, now: float) -> bool:
        """Whether no job computes, or waits to, and none is expected to."""
        if self._computing:
            return False
        return abs(now - self._computed) >= self._patience or not any(map(self._more_jobs, self._compute))

    @property
    def _patience(self) -> float:
        return max(_LEAST_PATIENCE, *(_PATIENCE * of.overhead for of in self._steps.values()))

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()


def storages_of_steps(
    steps: Iterable[str], used: StepStorages | None, storages: Iterable[StorageConfig]
) -> dict[str, str]:
    """Return a text for each step that stays the same while the storages that its jobs may use do.

    :param used: the storages that the steps use. None: no step says anything about storage
    """
    where = {one.name: f"{one.name}: {one.path} ({one.scope})" for one in storages}
    found: defaultdict[str, set[str]] = defaultdict(set)
    for step in () if used is None else used.steps:
        found[step.step].add(where.get(step.storage or "", "none"))
    return {step: ", ".join(sorted(found[step])) for step in steps}


class Limits(Listener):
    """The limits of jobs of steps with `limited`, or `required`.

    A job that cannot be limited to its storageBW runs as without `limited`. One warning for each step and location says
    so.

    :param storages: the storages of the config
    :param limits: whether any job is limited
    :param required: how fast jobs with `required` may move
    """

    def __init__(
        self,
        storages: Storages,
        limits: bool,
        required: Rates,
    ) -> None:
        self._required = required
        self._limits = limits
        self._storages = storages
        self._told: set[tuple[str, str]] = set()

    def is_limited(self, job: JobState) -> bool:
        """Whether a job is to be limited to its storageBW."""
        return self._limits and job.hints is not None and job.hints.is_limited

    def starting(self, job: JobState, spec: JobSpec, runtime: NodeRuntime) -> JobSpec:
        """Give the attempt its limit. A further attempt of a job is late, and has no required rate."""
        if job.attempts > 1:
            self._required.repeated(job)
        return replace(spec, limit=self.of(job, runtime))

    def event(self, job: JobState, event: Event) -> None:
        if isinstance(event, MovedEvent):
            self._required.moved(job, event.bytes)
        elif isinstance(event, ExitEvent):
            self._required.exited(job)

    def of(self, job: JobState, runtime: NodeRuntime) -> RateLimit | None:
        """Return the limit of a job that was scheduled, and has its directories. None: the job has no limit.

        :param runtime: the runtime that runs the job
        """
        hints = job.hints
        if hints is None or not self.is_limited(job) or (bandwidth := hints.storage_bandwidth) is None:
            return None
        if runtime.unlimited is not None:
            self.not_held(job, f"on {runtime.location}", runtime.unlimited)
            self._required.unheld(job)
            return None
        directory = str(job.job.output_directory)
        storage = self._storages.of(bandwidth.value.storage, job.target, directory)
        rate, expected = self._rate(job, bandwidth.value.storage_bw)
        path = directory if storage is None else storage.path
        return RateLimit(rate=rate, direction=hints.direction, path=path, expected=expected)

    def _rate(self, job: JobState, storage_bw: StorageBW) -> tuple[int | None, int | None]:
        """Return how fast a job may move now, in bytes per second, and how many bytes it is expected to move."""
        if isinstance(storage_bw, StaticConstraint):
            return bytes_per_second(storage_bw.value), None
        rate, expected = self._required.rate(job), self._required.expected_bytes(job)
        return None if rate is None else max(1, round(rate)), None if expected is None else round(expected)

    def not_held(self, job: JobState, where: str, why: str) -> None:
        """Warn, once for each step and place, that a job is not limited. Does nothing for a job without a limit.

        :param where: `on LOCATION`, or `in this run`
        """
        about = job.step, where
        if self.is_limited(job) and about not in self._told:
            self._told.add(about)
            logger.warning(coded(f"{about[0]} is not held to its storageBW {where}: {why}", Code.NOT_HELD))
