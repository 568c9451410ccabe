"""Places the jobs of a gang on one node, for StreamFlow's scheduler."""

from __future__ import annotations

import math
import posixpath
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping, Sequence, Set

from streamflow.core.config import BindingConfig
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.scheduling import AvailableLocation, Hardware
from streamflow.core.workflow import Step
from streamflow.scheduling.scheduler import JobAllocation

from streamflow_io.adapters.deployment_sites import host_of
from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.graph.gangs import Gang
from streamflow_io.runtime.locations import innermost


def candidates(
    fitting: Sequence[str],
    partners: Sequence[str],
    cores: float,
    together: float,
    free_cores: Callable[[str], float],
    apart: Set[tuple[str, str]] = frozenset(),
    *,
    is_near: bool = False,
) -> list[str]:
    """Return the locations to choose from for a job of a gang. All of them are equally good for the gang.

    A job with partners goes to the location with most of its partners, if its cores are free there. Otherwise the job
    goes to a location that has its cores free and can read from all partners. If there is no such location, the job
    goes to its partners anyway, because it mostly waits for them.

    A head, a job without partners, goes where the cores of its whole gang are free, if there is such a location.

    :param fitting: where the job can start. Locations without a free core count, if the job needs no core to start
    :param partners: the locations of the jobs that it reads from, one entry for each job. Empty: the job is a head
    :param cores: the cores that the job declares
    :param together: the cores of its whole gang, from :func:`~streamflow_io.graph.gangs.gang_cores`
    :param free_cores: returns the free cores of a location
    :param apart: pairs of locations. No job at the first can read a file while a job at the second writes the file
    :param is_near: whether the job can read the files of its partners only where they are written
    :return: some of `fitting`, in that order; at least one, if `fitting` has any
    """
    if not partners:
        return [location for location in fitting if free_cores(location) >= together] or list(fitting)
    fits = set(fitting)
    near = [location for location, _ in Counter(partners).most_common() if location in fits]
    for location in near:
        if free_cores(location) >= cores:
            return [location]
    roomy = [location for location in fitting if free_cores(location) >= cores]
    written = set(partners)
    joined = [place for place in roomy if not is_near and all((place, partner) not in apart for partner in written)]
    return joined or near[:1] or roomy or list(fitting)


class BorrowedCores:
    """The cores that jobs use without holding them: cores of gang members that were admitted without."""

    def __init__(self) -> None:
        self._jobs: dict[Hashable, tuple[str, float]] = {}
        self._locations: Counter[str] = Counter()

    def borrow(self, job: Hashable, location: str, cores: float) -> None:
        """Record the cores of a job that starts, or of a running job that has moved."""
        self.give_back(job)
        self._jobs[job] = location, cores
        # Count whole thousandths, so that nothing is lost in rounding.
        self._locations[location] += _thousandths(cores)

    def give_back(self, job: Hashable) -> None:
        """Forget the cores of a job that has ended. Does nothing for a job that has borrowed none."""
        if (borrowed := self._jobs.pop(job, None)) is not None:
            self._locations[borrowed[0]] -= _thousandths(borrowed[1])

    def on(self, location: str) -> float:
        return self._locations[location] / 1000


def _thousandths(cores: float) -> int:
    return round(cores * 1000)


class _Joins:
    """Marks a job that reads from running jobs, though its step was in no gang when the run began."""


class GangPlacement(Listener):
    """Chooses where the jobs of gangs run. For a job of any other step, the cost is one look into a dictionary.

    :param jobs: the scheduled jobs, by name
    :param used: the hardware in use, by the name of a location
    :param together: by step: the cores of the whole gang that the step belongs to
    :param near: the steps whose jobs read from running jobs of their own location only
    """

    def __init__(
        self,
        jobs: Mapping[str, JobAllocation],
        used: Mapping[str, Hardware],
        together: Mapping[str, float],
        near: Set[str] = frozenset(),
    ) -> None:
        self._jobs = jobs
        self._used = used
        self._together = together
        self._near = near
        self._borrowed = BorrowedCores()
        self._apart: set[tuple[str, str]] = set()

    def join(self, job: JobState) -> None:
        """Let a job belong to the gang of the jobs that it reads from, though its step was in no gang before."""
        job.keep(_Joins())

    def ordered(self, job: JobState, binding: BindingConfig) -> BindingConfig:
        """The binding of a job, in which targets on the deployments or hosts of its producers come first.

        Filters of the binding have the last word on the order.
        """
        if len(binding.targets) == 1 or not self._concerns(job):
            return binding
        partners = self._partners(job)
        deployments, hosts = {partner.deployment for partner in partners}, {_host(partner) for partner in partners}
        targets = sorted(
            binding.targets,
            key=lambda target: (target.deployment.name not in deployments, host_of(target.deployment) not in hosts),
        )
        return BindingConfig(targets, binding.filters)

    def narrow(
        self, job: JobState, cores: float, available: MutableMapping[str, AvailableLocation]
    ) -> MutableMapping[str, AvailableLocation]:
        """The locations that are best for the gang of a job, of those where the job fits.

        :param cores: the cores that the job declares
        """
        if len(available) == 1 or not self._concerns(job):
            return available

        locations = {location.name: location for location in available.values()}

        def free_cores(name: str) -> float:
            return self._free_cores(locations[name])

        partners = [location.name for location in self._partners(job)]
        together = self._together.get(job.step, cores)
        is_near = job.step in self._near
        chosen = set(candidates(list(locations), partners, cores, together, free_cores, self._apart, is_near=is_near))
        return {key: location for key, location in available.items() if location.name in chosen}

    def placed(self, job: JobState) -> None:
        """Count the cores of a job that computes, though it holds no cores."""
        if job.declared_cores is not None and not job.is_io_task and self._concerns(job):
            self._borrowed.borrow(job, job.places[0].name, job.declared_cores)

    def ended(self, job: JobState) -> None:
        self._borrowed.give_back(job)

    def keep_together(self, reader: JobState, producer: str) -> None:
        """Divide no gang between two locations any more: a job at one cannot read the stream of a job at the other.

        :param producer: the name of the job whose stream was not read
        """
        self._apart.add((reader.location.name, self._jobs[producer].locations[0].name))

    def _concerns(self, job: JobState) -> bool:
        return job.step in self._together or job.kept(_Joins) is not None

    def _partners(self, job: JobState) -> list[ExecutionLocation]:
        """The location of each job that this job reads from."""
        return [
            allocation.locations[0]
            for source in job.sources
            if (allocation := self._jobs.get(source)) is not None and allocation.locations
        ]

    def _free_cores(self, location: AvailableLocation) -> float:
        if location.hardware is None:
            return math.inf
        # By name alone, as in StreamFlow: a host may be in several deployments.
        used = self._used.get(location.name)
        held = 0.0 if used is None else float(used.cores)
        return float(location.hardware.cores) - held - self._borrowed.on(location.name)


def _host(location: ExecutionLocation) -> str:
    """The name of the deployment of a location, or of its container's host; empty on the driver's node."""
    host = innermost(location)
    return "" if host.local else str(host.deployment)


class GangDeployment(Listener):
    """Deploys the containers of jobs before StreamFlow does.

    StreamFlow deploys a container when the first job of its step is scheduled: one after the other along a chain. When
    a run fails or is interrupted, StreamFlow cancels all that it does for a job, and leaves a container whose
    deployment is cut short. Hence no job starts a deployment itself.

    :param deploy_ahead: begins a deployment of containers; see :meth:`.Deployments.deploy_ahead`
    :param steps: StreamFlow's, by name
    """

    def __init__(self, deploy_ahead: Callable[[str], None], steps: Mapping[str, Step], gangs: Iterable[Gang]) -> None:
        self._deploy_ahead = deploy_ahead
        self._steps = steps
        self._followers = {
            head: [step for step in gang.steps if step not in gang.heads] for gang in gangs for head in gang.heads
        }

    def submitted(self, job: JobState) -> None:
        """Deploy the containers of a job; for the first job of a gang, those of its readers, too.

        A reader with several targets may run in another container. Such a reader waits for its container as with plain
        StreamFlow.
        """
        ahead = [*job.targets]
        for step in self._followers.pop(job.step, ()):
            schedule = self._steps.get(posixpath.join(step, "__schedule__"))
            found = [] if schedule is None else schedule.binding_config.targets
            ahead += found if len(found) == 1 else ()
        for target in ahead:
            self._deploy_ahead(target.deployment.name)
