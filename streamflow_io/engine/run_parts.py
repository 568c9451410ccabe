"""The parts of a run, by what they are for, and the services with which they are made."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from streamflow.core.context import StreamFlowContext
from streamflow.core.scheduling import Hardware
from streamflow.core.workflow import Port
from streamflow.scheduling.scheduler import JobAllocation
from streamflow.workflow.token import TerminationToken

from streamflow_io.adapters.attempts import StreamingJobs
from streamflow_io.adapters.deployment_sites import Sites
from streamflow_io.adapters.jobs import Jobs, Listener
from streamflow_io.bandwidth.rates import Limits, Rates, RememberedWindows, storages_of_steps
from streamflow_io.bandwidth.requests import Requests
from streamflow_io.bandwidth.write_channels import WriteChannels
from streamflow_io.graph.sites import SiteKind
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.jobs.awaited_streams import AwaitedStreams
from streamflow_io.jobs.learned_streams import LearnedStreams
from streamflow_io.jobs.programs import Programs
from streamflow_io.jobs.short_jobs import ShortJobs
from streamflow_io.parts.part_ways import PartSites, PartWays
from streamflow_io.parts.read_sessions import ReadSessions
from streamflow_io.parts.session_starter import SessionStarter
from streamflow_io.records.learned.database import learned_path
from streamflow_io.records.learned.proofs import RememberedProofs
from streamflow_io.records.records import Record
from streamflow_io.runtime.node_runtimes import NodeRuntimes, StartRuntime
from streamflow_io.storage.learned_limits import RememberedLimits
from streamflow_io.storage.shared_storages import Meeting
from streamflow_io.storage.storage_admission import StorageAdmission
from streamflow_io.storage.storages import Storages

from .plan import Plan

if TYPE_CHECKING:
    from streamflow_io.jobs.reach import Reach
    from streamflow_io.proofs.rehearsals import Rehearsals
    from streamflow_io.storage.intermediates.disk_limit import DiskLimit
    from streamflow_io.storage.intermediates.intermediates import Intermediates
    from streamflow_io.storage.intermediates.scheduled_space import ScheduledSpace
    from streamflow_io.storage.intermediates.space_watcher import SpaceWatcher

    from .space_limits import SpaceLimits


class Scheduling(Protocol):
    """StreamFlow's scheduler, as a run uses it."""

    context: StreamFlowContext
    job_allocations: Mapping[str, JobAllocation]
    hardware_locations: MutableMapping[str, Hardware]

    @property
    def config(self) -> SchedulerConfig: ...
    def wake(self) -> None: ...


class Services(Struct, frozen=True):
    """The services with which all parts of a run are made.

    :ivar scheduler: StreamFlow's
    :ivar learned: the file with all that was learned
    :ivar storages: of the StreamFlow file
    :ivar jobs: that have their input and have not ended
    :ivar programs: of tools, by location
    :ivar record: keeps a record for telemetry
    """

    scheduler: Scheduling
    plan: Plan
    learned: Path
    runtimes: NodeRuntimes
    storages: Storages
    jobs: Jobs
    programs: Programs
    record: Callable[[Record], None]

    @classmethod
    def of(
        cls,
        scheduler: Scheduling,
        plan: Plan,
        start_here: StartRuntime | None,
        record: Callable[[Record], None],
    ) -> Services:
        """Make the services of a run; see :class:`~.context.Run`."""
        config, context = scheduler.config, scheduler.context
        runtimes = NodeRuntimes(context, config.tls, start_here, config.containers == "on", plan.graph.mixed_hosts)
        storages = Storages(config.storages, Sites(context.config.get("deployments", {})))
        learned = learned_path(config, Path(context.config["path"]))
        return cls(scheduler, plan, learned, runtimes, storages, Jobs(plan.annotations), Programs(), record)

    @property
    def config(self) -> SchedulerConfig:
        return self.scheduler.config

    @property
    def context(self) -> StreamFlowContext:
        return self.scheduler.context

    def more_jobs(self, step: str) -> bool:
        """Whether further jobs of a step may be scheduled."""
        return not self.plan.workflow.steps[posixpath.join(step, "__schedule__")].terminated

    def arrived(self, step: str) -> int:
        """The number of jobs of a step that have all their input."""
        schedule = self.plan.workflow.steps[posixpath.join(step, "__schedule__")]
        ports = [port for name, port in schedule.get_input_ports().items() if not name.startswith("__connector__")]
        return min(map(_count_tokens, ports), default=1)


def _count_tokens(port: Port) -> int:
    tokens = port.token_list
    return len(tokens) - (1 if tokens and isinstance(tokens[-1], TerminationToken) else 0)


class BandwidthOfRun:
    """Makes the parts of a run that have to do with bandwidth, and connects them.

    :ivar remembered: the limits that earlier runs have learned
    :ivar limits: which jobs are held to their storageBW
    :ivar admission: keeps jobs back until their storage has room
    :ivar listeners: in the order in which they are told of jobs
    """

    def __init__(self, services: Services) -> None:
        plan, config, learned = services.plan, services.config, services.learned
        self.remembered = RememberedLimits(learned, plan.bandwidth.tools)
        writes = WriteChannels(services.storages, services.record)
        used = storages_of_steps(plan.annotations, plan.bandwidth.storages, config.storages)
        rates = Rates(
            plan.workflow,
            plan.annotations,
            config.limits and config.runtime != "off",
            RememberedWindows(learned, plan.bandwidth.tools, used),
            lambda place, way: writes.left(self.admission.capacity(place, way), place, way),
            lambda step: self.admission.behind(step),
            services.jobs.find,
            services.more_jobs,
            services.record,
        )
        self.limits = Limits(services.storages, config.limits, rates)
        self.admission = StorageAdmission(
            services.context,
            config,
            services.storages,
            self.remembered,
            services.more_jobs,
            services.arrived,
            services.scheduler.wake,
            services.record,
            rates.spacing,
            Meeting(plan.workflow.name, config.storages, services.context.config.get("deployments", {}))
            if config.storages
            else None,
        )
        delivered = plan.graph.delivered if plan.service.streams else ()
        requests = Requests(plan.workflow, plan.annotations, delivered, rates, services.record)
        self.listeners: tuple[Listener, ...] = (
            *self.admission.listeners,
            rates,
            requests,
            writes,
            self.limits,
        )


class PartsOfRun:
    """Makes the parts of a run that split files without writing, and read files ahead.

    :ivar ways: how the jobs that read parts of a file find it
    :ivar cuts: how jobs split files
    :ivar sessions: reads ahead the parts of one file that many jobs read
    """

    def __init__(self, services: Services) -> None:
        plan, config = services.plan, services.config
        sites = PartSites(
            plan.workflow, plan.graph.part_readers, services.context, services.runtimes, services.storages
        )
        self.ways = PartWays(sites, plan.graph.steps, services.scheduler.job_allocations)
        self.cuts = plan.parts.cuts.of_run(self.ways, services.learned, services.programs, services.record)
        starter = SessionStarter(config, services.storages, services.record)
        self.sessions = ReadSessions(plan.parts.partitions, plan.annotations, sites, self.ways, starter)


class ProofsOfRun:
    """Makes the parts of a run that let files stream without a hint.

    :ivar proofs: the proofs of this run and earlier ones
    :ivar streams: which inputs of jobs stream because of proofs
    :ivar awaited: which outputs stream as soon as a proof allows it
    :ivar rehearsals: tries streams on idle cores; None: no trials are wanted
    :ivar listeners: in the order in which they are told of jobs
    """

    def __init__(self, services: Services, streaming_jobs: StreamingJobs, disk_limit: DiskLimit | None) -> None:
        plan, config = services.plan, services.config
        self.proofs = RememberedProofs(services.learned, plan.proofs.known)
        self._programs = services.programs
        self.streams = LearnedStreams(
            plan.proofs.candidates,
            plan.proofs.contents,
            plan.proofs.proven,
            self.proofs,
            self._programs,
            plan.graph.wiring.awaited,
            config.declarations == "recover" and config.runtime == "embedded",
        )
        unasked = {step for step, hints in plan.annotations.items() if not hints}
        is_auto = config.streaming == "auto" and not config.observe and config.rehearse != "wait"
        self.short_jobs = ShortJobs(unasked if is_auto else ())
        here = {path for path, step in plan.graph.steps.items() if step.site.kind is SiteKind.LOCAL}
        self.awaited = AwaitedStreams(self.streams, streaming_jobs, here)
        self.rehearsals: Rehearsals | None = None
        if config.rehearse != "never" and plan.proofs.candidates and config.runtime == "embedded":
            # Imported late: most runs try no streams, and `proofs/` takes 12 ms.
            from streamflow_io.proofs import findings, rehearsable_jobs, rehearsals

            inconclusive = findings.RememberedInconclusive(
                services.learned, None if plan.proofs.known is None else plan.proofs.inconclusive
            )
            self.rehearsals = rehearsals.Rehearsals(
                rehearsable_jobs.RehearsableJobs(
                    plan.proofs.candidates, plan.proofs.is_auto, self._programs, streaming_jobs
                ),
                findings.Findings(self.proofs, inconclusive, config.declarations, services.record),
                services.scheduler.hardware_locations,
                disk_limit,
                config.rehearse == "wait",
            )
        self._has_ended = False
        self.listeners: tuple[Listener, ...] = () if self.rehearsals is None else (self.rehearsals,)

    async def end(self, is_well: bool) -> None:
        """End all trials. No job of the workflow runs any more. Only the first call has an effect."""
        if self._has_ended:
            return
        self._has_ended = True
        if self.rehearsals is not None:
            await self.rehearsals.close(is_well=is_well)
        await self._programs.close()


def make_space_limits(services: Services, reach: Reach) -> SpaceLimits | None:
    """Make what decides how much space files may take. None: the run has no limit, and puts no files into memory."""
    removal = services.plan.intermediates
    if removal.removal is None or (removal.disk_limit is None and removal.memory is None):
        return None
    # Other runs need none of these modules.
    from .space_limits import SpaceLimits

    scheduler = services.scheduler
    used, placed = scheduler.hardware_locations, scheduler.job_allocations
    return SpaceLimits(services.plan, services.context, services.learned, used, scheduler.wake, placed, reach.runtime)


def make_scheduled_space(services: Services) -> ScheduledSpace | None:
    """Make what gives back the space of removed files. None: the run removes no files, and has no windows."""
    planned = services.plan.intermediates
    if planned.removal is None and all(window.why is not None for window in planned.windows):
        return None
    # Other runs do not need this module.
    from streamflow_io.storage.intermediates.scheduled_space import ScheduledSpace

    return ScheduledSpace(services.scheduler.hardware_locations, services.scheduler.wake)


def begin_removal(
    services: Services, rehearsals: Rehearsals | None, watchers: Sequence[SpaceWatcher]
) -> Intermediates | None:
    """Begin to remove intermediate files that are not needed any more. None: the run removes no files.

    :param rehearsals: run jobs once more, which need their files longer; None: no job runs once more
    :param watchers: are told what lies on the disks
    """
    plan = services.plan
    if plan.intermediates.removal is None:
        return None
    # Other runs need none of these modules.
    from streamflow_io.storage.intermediates.intermediates import Intermediates
    from streamflow_io.storage.intermediates.space_watcher import RepeatedJobs

    repeated = rehearsals or RepeatedJobs()
    removal = plan.intermediates.removal
    removing = Intermediates(plan.workflow, services.context, removal, repeated, services.record, watchers)
    removing.begin(plan.source.file)
    return removing
