"""Adapter: which jobs are held to their storageBW, and how fast they may move their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from streamflow.core.utils import get_job_step_name
from streamflow.core.workflow import Job
from streamflow.log_handler import logger
from streamflow.scheduling.scheduler import JobAllocation

from streamflow_io.admission.storages import bytes_per_second
from streamflow_io.hints.bandwidth import StaticConstraint, StorageBW
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.messages import Code, coded
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import RateLimit

from .storages import Storages


class RequiredRates(Protocol):
    """What is asked of those who find what is required."""

    def rate(self, job_name: str) -> float | None: ...
    def expected_bytes(self, job_name: str) -> float | None: ...
    def moved(self, job_name: str, moved: int) -> None: ...
    def repeated(self, job_name: str) -> None: ...
    def exited(self, job_name: str) -> None: ...
    def unheld(self, job_name: str) -> None: ...


class Limits:
    """The limits of jobs of steps with `limited`, or `required`.

    A job that cannot be held to its storageBW runs as without `limited`, which is said once for each step and location.

    :param jobs: those that were scheduled, by name
    :param annotations: by step path
    :param storages: that the config has
    :param limits: whether any job is limited
    :param required: how fast those with `required` may move
    """

    def __init__(
        self,
        jobs: Mapping[str, JobAllocation],
        annotations: Mapping[str, StepAnnotations],
        storages: Storages,
        limits: bool,
        required: RequiredRates,
    ) -> None:
        self._required = required
        self._allocations = jobs
        self._limited = {step: hints for step, hints in annotations.items() if limits and hints.is_limited}
        self._storages = storages
        self._jobs: dict[str, Job] = {}
        self._told: set[tuple[str, str]] = set()

    def is_limited(self, job_name: str) -> bool:
        """Whether a job is to be held to its storageBW."""
        return get_job_step_name(job_name) in self._limited

    def submitted(self, job: Job) -> None:
        """A job has all its input, and is to be scheduled."""
        if self.is_limited(job.name):
            self._jobs[job.name] = job

    def ended(self, job_name: str) -> None:
        """A job has ended, or will not start; may be called again."""
        self._jobs.pop(job_name, None)

    def of(self, job_name: str, runtime: NodeRuntime) -> RateLimit | None:
        """The limit of a job that was scheduled, and has its directories; None: it has none.

        :param runtime: that runs it
        """
        if (job := self._jobs.get(job_name)) is None:
            return None
        hints = self._limited[get_job_step_name(job_name)]
        bandwidth = hints.storage_bandwidth
        if bandwidth is None:
            return None
        if runtime.unlimited is not None:
            self.not_held(job_name, f"on {runtime.location}", runtime.unlimited)
            self._required.unheld(job_name)
            return None
        directory = str(job.output_directory)
        storage = self._storages.of(bandwidth.value.storage, self._allocations[job_name].target, directory)
        rate, expected = self._rate(job_name, bandwidth.value.storage_bw)
        path = directory if storage is None else storage.path
        return RateLimit(rate=rate, direction=hints.direction, path=path, expected=expected)

    def moved(self, job_name: str, moved: int) -> None:
        """A job that has a limit has moved so many bytes so far."""
        self._required.moved(job_name, moved)

    def exited(self, job_name: str) -> None:
        """The command of a job has ended, however."""
        self._required.exited(job_name)

    def repeated(self, job_name: str) -> None:
        """A job is tried again, because it has failed: what was required of it before does not hold."""
        self._required.repeated(job_name)

    def _rate(self, job_name: str, storage_bw: StorageBW) -> tuple[int | None, int | None]:
        """How fast a job may move now, and how many bytes it is expected to move."""
        if isinstance(storage_bw, StaticConstraint):
            return bytes_per_second(storage_bw.value), None
        rate, expected = self._required.rate(job_name), self._required.expected_bytes(job_name)
        return None if rate is None else max(1, round(rate)), None if expected is None else round(expected)

    def not_held(self, job_name: str, where: str, why: str) -> None:
        """A job is not held to its storageBW; does nothing if that is not asked for.

        :param where: `on LOCATION`, or `in this run`
        """
        about = get_job_step_name(job_name), where
        if self.is_limited(job_name) and about not in self._told:
            self._told.add(about)
            logger.warning(coded(f"{about[0]} is not held to its storageBW {where}: {why}", Code.NOT_HELD))
