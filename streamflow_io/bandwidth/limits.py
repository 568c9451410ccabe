"""The jobs that are limited to their storageBW, and the rates at which they may move their bytes."""

from __future__ import annotations

from msgspec.structs import replace
from streamflow.log_handler import logger

from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.hints.bandwidth import StaticConstraint, StorageBW
from streamflow_io.messages import Code, coded
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import Event, ExitEvent, JobSpec, MovedEvent, RateLimit
from streamflow_io.storage.admission.storages import bytes_per_second
from streamflow_io.storage.storages import Storages

from .rates import Rates


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
