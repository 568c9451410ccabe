"""Adapter: lets the jobs of gangs meet on one node, for StreamFlow's scheduler."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping, Sequence

from streamflow.core.config import BindingConfig
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.scheduling import AvailableLocation, Hardware
from streamflow.core.utils import get_job_step_name
from streamflow.core.workflow import Job
from streamflow.scheduling.scheduler import JobAllocation

from streamflow_io.admission.gang_placement import BorrowedCores, candidates
from streamflow_io.runtime.locations import innermost

from .deployment_sites import host_of
from .tokens import streams_of


class GangPlacement:
    """Where the jobs of gangs run. What it costs a job of another step is a look into a dictionary.

    :param jobs: those that were scheduled, by name
    :param used: the hardware that is taken, by the name of a location
    :param together: the cores of the whole gang of each step that is of one; see :func:`.placement.gang_cores`
    """

    def __init__(
        self, jobs: Mapping[str, JobAllocation], used: Mapping[str, Hardware], together: Mapping[str, float]
    ) -> None:
        self._jobs = jobs
        self._used = used
        self._together = together
        self._borrowed = BorrowedCores()
        self._apart: set[tuple[str, str]] = set()
        self._joining: set[str] = set()

    def concerns(self, job_name: str) -> bool:
        return job_name in self._joining or get_job_step_name(job_name) in self._together

    def join(self, job_name: str) -> None:
        """A job reads from others while they run, though its step is in no gang that was known before."""
        self._joining.add(job_name)

    def ordered(self, job: Job, binding: BindingConfig) -> BindingConfig:
        """The targets of a job, those first that are on the deployments, or the hosts, of the jobs that it reads from.

        Filters of the binding have the last word on the order.
        """
        if len(binding.targets) == 1 or not self.concerns(job.name):
            return binding
        partners = self._partners(job)
        deployments, hosts = {partner.deployment for partner in partners}, {_host(partner) for partner in partners}
        targets = sorted(
            binding.targets,
            key=lambda target: (target.deployment.name not in deployments, host_of(target.deployment) not in hosts),
        )
        return BindingConfig(targets, binding.filters)

    def narrow(
        self, job: Job, cores: float, available: MutableMapping[str, AvailableLocation]
    ) -> MutableMapping[str, AvailableLocation]:
        """Of the locations of a target where a job fits, those that are best for its gang.

        :param cores: that it declares
        """
        if len(available) == 1 or not self.concerns(job.name):
            return available

        locations = {location.name: location for location in available.values()}

        def free_cores(name: str) -> float:
            return self._free_cores(locations[name])

        partners = [location.name for location in self._partners(job)]
        together = self._together.get(get_job_step_name(job.name), cores)
        chosen = set(candidates(list(locations), partners, cores, together, free_cores, self._apart))
        return {key: location for key, location in available.items() if location.name in chosen}

    def started(self, job_name: str, cores: float, locations: Sequence[AvailableLocation]) -> None:
        """A job that holds no cores has been given its locations."""
        if self.concerns(job_name):
            self._borrowed.borrow(job_name, locations[0].name, cores)

    def ended(self, job_name: str) -> None:
        self._borrowed.give_back(job_name)
        self._joining.discard(job_name)

    def keep_together(self, reader: str, producer: str) -> None:
        """No job where one job runs can read the stream of one where another runs: no more of them are parted so.

        :param reader: the name of a job that could not, as of its producer
        """
        here, there = (self._jobs[job_name].locations[0].name for job_name in (reader, producer))
        self._apart.add((here, there))

    def _partners(self, job: Job) -> list[ExecutionLocation]:
        """The location of each job that a job reads from."""
        sources = dict.fromkeys(token.source.job for token in streams_of(job.inputs))
        return [
            allocation.locations[0]
            for source in sources
            if (allocation := self._jobs.get(source)) is not None and allocation.locations
        ]

    def _free_cores(self, location: AvailableLocation) -> float:
        if location.hardware is None:
            return math.inf
        # By its name alone, as StreamFlow does: a host may be in several deployments.
        used = self._used.get(location.name)
        held = 0.0 if used is None else float(used.cores)
        return float(location.hardware.cores) - held - self._borrowed.on(location.name)


def _host(location: ExecutionLocation) -> str:
    """The deployment that a location is in, or whose host its container is on; as of :func:`host_of`."""
    host = innermost(location)
    return "" if host.local else str(host.deployment)
