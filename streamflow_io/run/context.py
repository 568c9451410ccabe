"""Adapter: all that lives as long as one run of a workflow."""

from __future__ import annotations

import asyncio
import posixpath
import time
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Protocol

from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import Connector, Target
from streamflow.core.scheduling import Hardware
from streamflow.core.utils import get_job_step_name
from streamflow.core.workflow import Job, Port, Status, Token
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.step import CWLExecuteStep
from streamflow.log_handler import logger
from streamflow.scheduling.scheduler import JobAllocation
from streamflow.workflow.step import ExecuteStep
from streamflow.workflow.token import TerminationToken

from streamflow_io.bandwidth.windows import Windows
from streamflow_io.graph.sites import SiteKind
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.learned.database import learned_path
from streamflow_io.learned.limits import RememberedLimits
from streamflow_io.learned.proofs import RememberedProofs
from streamflow_io.learned.verdicts import RememberedVerdicts
from streamflow_io.learned.windows import RememberedWindows
from streamflow_io.records.records import Record, StepRecord
from streamflow_io.records.runs import TELEMETRY_FILE, create_run_directory, remove_old_runs
from streamflow_io.runtime.node_runtimes import NodeRuntimes, StartRuntime

from .attempts import StreamingJobs
from .awaited_streams import AwaitedStreams
from .coordination_record import CoordinationRecord
from .deploying import GangDeployment
from .deployment_sites import Sites
from .execution import Execution
from .failure import Failure
from .gang_placement import GangPlacement
from .job_logs import JobLogs
from .job_runner import JobRunner
from .job_warnings import JobWarnings
from .learned_streams import LearnedStreams
from .lent_cores import LentCores
from .limits import Limits
from .part_ways import PartWays
from .plan import Plan
from .programs import Programs
from .rates import Rates, storages_of_steps
from .reach import Reach
from .read_sessions import ReadSessions
from .reader_tasks import ReaderTaskMaker
from .recorder import JobRecorder
from .rehearsals import Rehearsals
from .requests import Requests
from .run_telemetry import RunTelemetry
from .shared_storages import Meeting
from .short_jobs import ShortJobs
from .start_records import start_records
from .steps import Connectors, StreamingExecuteStep
from .storage_admission import StorageAdmission
from .storages import Storages
from .stream_rates import StreamRates, remembered_streams
from .tokens import streams_of
from .write_channels import WriteChannels


class Scheduling(Protocol):
    """What a run asks of StreamFlow's scheduler."""

    context: StreamFlowContext
    job_allocations: Mapping[str, JobAllocation]
    hardware_locations: MutableMapping[str, Hardware]

    @property
    def config(self) -> SchedulerConfig: ...
    def wake(self) -> None: ...


class Run:
    """Everything that lives as long as one run of one workflow.

    :ivar config: of the scheduler
    :ivar streaming_jobs: the jobs that stream to others
    :ivar verdicts: which declared splits are trusted
    :ivar proofs: what streams without a hint
    :ivar learned_streams: which inputs of jobs do
    :ivar short_jobs: which jobs are too short for streams
    :ivar awaited: which outputs do as soon as that is proven
    :ivar reach: where there are node runtimes, and which jobs can read the streams of which
    :ivar runner: gives the commands of jobs to the node runtimes
    :ivar recorder: records what jobs do
    :ivar stream_rates: measures byte streams, and keeps them to what is required
    :ivar storages: keeps jobs back until their storage has room
    :ivar part_ways: how those that read parts of a file find it
    :ivar sessions: reads ahead what many jobs read of one file
    :ivar gangs: lets the jobs of gangs meet
    :ivar rehearsals: proves on idle cores what streams without a hint; None: it is not wanted
    :ivar lent_cores: lends cores that running jobs do not use; None: it is not wanted
    :ivar warnings: what jobs are warned of
    :ivar failure: what is said if the run fails
    """

    def __init__(self, scheduler: Scheduling, plan: Plan, start_here: StartRuntime | None = None) -> None:
        self._plan = plan
        # Of a run that asks for nothing of ours only its failure is spoken of.
        self._asks = bool(any(plan.annotations.values()) or plan.candidates) or (
            scheduler.config.observe or scheduler.config.runtime == "off"
        )
        self._coordination = CoordinationRecord(plan)
        self.config = scheduler.config
        self._directory: Path | None = None
        self._telemetry = RunTelemetry(self._locate, self.config.progress)
        learned = learned_path(self.config, Path(scheduler.context.config["path"]))
        self._remembered = RememberedLimits(learned, plan.tools)
        self.verdicts = RememberedVerdicts(learned, plan.verdicts)
        self.proofs = RememberedProofs(learned, plan.proofs)
        self._programs = Programs()
        self.learned_streams = LearnedStreams(
            plan.candidates,
            plan.contents,
            plan.proven,
            self.proofs,
            self._programs,
            plan.wiring.awaited,
            self.config.declarations == "recover" and self.config.runtime == "embedded",
        )
        unasked = {step for step, hints in plan.annotations.items() if not hints}
        is_auto = self.config.streaming == "auto" and not self.config.observe and self.config.rehearse != "wait"
        self.short_jobs = ShortJobs(unasked if is_auto else ())
        self._runtimes = NodeRuntimes(
            scheduler.context, self.config.tls, start_here, self.config.containers == "on", plan.mixed_hosts
        )
        self._deployment = GangDeployment(
            self._runtimes.deployments.deploy_ahead, plan.workflow.steps, plan.gangs if plan.streams else ()
        )
        self.streaming_jobs = StreamingJobs()
        here = {path for path, step in plan.steps.items() if step.site.kind is SiteKind.LOCAL}
        self.awaited = AwaitedStreams(self.learned_streams, self.streaming_jobs, here)
        self.warnings = JobWarnings()
        self.gangs = GangPlacement(scheduler.job_allocations, scheduler.hardware_locations, plan.gang_cores)
        self.reach = Reach(self._runtimes, scheduler.job_allocations, self.gangs.keep_together, self._record)
        self.recorder = JobRecorder(
            scheduler.job_allocations,
            scheduler.context.data_manager,
            plan.annotations,
            self.config.observe,
            self._record,
            self._telemetry.show,
            self._runtimes.deployments.has_queue,
        )
        storages = Storages(self.config.storages, Sites(scheduler.context.config.get("deployments", {})))
        windows = Windows()
        self._writes = WriteChannels(scheduler.job_allocations, plan.annotations, storages)
        self._rates = Rates(
            plan,
            self.config.limits and self.config.runtime != "off",
            windows,
            RememberedWindows(learned, plan.tools, storages_of_steps(plan, self.config.storages)),
            lambda place, way: self._writes.left(self.storages.capacity(place, way), place, way),
            lambda step: self.storages.behind(step),
            lambda job, rate: self.runner.limit(job, rate),
            self._more_jobs,
            self._telemetry.write,
        )
        self._requests = Requests(plan, windows, self._rates)
        self._limits = Limits(scheduler.job_allocations, plan.annotations, storages, self.config.limits, self._rates)
        self.stream_rates = StreamRates(
            self.config.limits,
            remembered_streams(learned, plan),
            lambda job, stream, rate: self.runner.limit_stream(job, stream, rate),
            self._telemetry.write,
        )
        self.lent_cores: LentCores | None = None
        if self.config.oversubscribe == "idle":
            self.lent_cores = LentCores(
                scheduler.job_allocations,
                scheduler.hardware_locations,
                self._may_share_cores,
                scheduler.wake,
                self._record,
            )
        self.rehearsals: Rehearsals | None = None
        if self.config.rehearse != "never" and plan.candidates and self.config.runtime == "embedded":
            self.rehearsals = Rehearsals(
                plan,
                self.config,
                scheduler.context,
                self.proofs,
                self._programs,
                self.streaming_jobs,
                scheduler.job_allocations,
                scheduler.hardware_locations,
                self._record,
            )
        self.runner = JobRunner(
            self.reach, self.recorder, self.warnings, self._limits, self.stream_rates, self._writes, self.lent_cores
        )
        self._logs = JobLogs(scheduler.context, plan.workflow.steps, self._record, self._telemetry.keep)
        self.failure = Failure(plan.workflow, scheduler.job_allocations, self._logs.is_success)
        self.storages = StorageAdmission(
            scheduler.context,
            self.config,
            storages,
            plan.annotations,
            self._remembered,
            self._more_jobs,
            self._arrived,
            scheduler.wake,
            self._record,
            self._rates,
            Meeting(plan.workflow.name, self.config.storages, scheduler.context.config.get("deployments", {})),
        )
        self.part_ways = PartWays(plan, scheduler.context, self._runtimes, storages, scheduler.job_allocations)
        self.sessions = ReadSessions(
            plan,
            self.config,
            scheduler.context,
            storages,
            self._runtimes,
            ReaderTaskMaker(self.storages, self._remembered),
            scheduler.job_allocations,
            self.part_ways,
            self._record,
        )
        self._started = False
        if self.config.observe and self.config.runtime == "off":
            logger.warning("Nothing is observed in this run: `runtime: off`")

    async def close(self) -> None:
        """Keep what was learned, end the telemetry and the node runtimes."""
        if self.rehearsals is not None:
            is_well = self.failure.status == "completed"
            await self.rehearsals.close(waits=is_well and self.config.rehearse == "wait", is_well=is_well)
        await self._programs.close()
        if self.lent_cores is not None:
            self.lent_cores.close()
        self.warnings.close()
        self.failure.closing()
        await self.stream_rates.close()
        await self.sessions.close()
        # What has been learned of their last chunks, too.
        self.storages.decide()
        await self.storages.close()
        await self._remembered.close()
        await self.verdicts.close()
        await self.proofs.close()
        self.recorder.close()
        if self._started:
            for request in self._requests.close():
                self._telemetry.write(request)
            await self._rates.close()
            for line in self._telemetry.close(self.failure.status):
                logger.info(line)
        if self._directory is not None:
            self.failure.recorded(self._directory.name)
        if self._directory is not None and self._asks:
            await asyncio.to_thread(self._coordination.write_ran, self._directory)
            logger.info(f"Telemetry of this run is in {self._directory}: streamflow-io report {self._directory.name}")
        await self._runtimes.close()

    def connector(self, job_name: str, inner: Connector) -> Connector:
        """What the command of a job is to be run through."""
        return self._logs.connector(job_name, self.runner.connector(job_name, inner))

    def needs_no_core(self, job: Job) -> bool:
        """Whether a job may start where no core is free: an I/O task, or one that reads from a job that is running."""
        return self.storages.is_io_task(job.name) or (
            self.config.oversubscribe != "never"
            and any(self.streaming_jobs.is_running(token.source.job) for token in streams_of(job.inputs))
        )

    async def ready(self, job: Job) -> None:
        """Wait until a job that has its input can be scheduled: what it cannot read as a stream is a file then."""
        if await self.awaited.ready(job):
            self.gangs.join(job.name)

    def submitted(self, job: Job, targets: Sequence[Target]) -> None:
        """A job has all its input, and is to be scheduled to one of some targets."""
        self.recorder.submitted(job)
        self._requests.submitted(job)
        self.stream_rates.submitted(job)
        self._limits.submitted(job)
        self._writes.submitted(job)
        self._deployment.submitted(job, targets)
        self.sessions.submitted(job, targets)

    async def started(self, job_name: str) -> None:
        """A job has all its input and is about to run its command."""
        self.recorder.started(job_name)
        if self.lent_cores is not None:
            self.lent_cores.running(job_name)
        streams = isinstance(self._plan.workflow.steps.get(get_job_step_name(job_name)), StreamingExecuteStep)
        if self.config.runtime == "off":
            self._limits.not_held(job_name, "in this run", "`runtime: off`")
        elif not streams and self.recorder.is_measured(job_name):
            observes = self.config.observe
            what = "Nothing is observed" if observes else "The bytes of I/O tasks are not measured"
            if self._limits.is_limited(job_name):
                what = f"{get_job_step_name(job_name)} is not held to its storageBW"
            await self.runner.measure(job_name, what)

    def observe(self, step: CWLExecuteStep, job: Job) -> None:
        """A job of a step that does not stream is about to run its command, and is to be observed."""
        self.runner.observe(step, job)

    async def execute(self, step: StreamingExecuteStep, job: Job, connectors: Connectors) -> None:
        """Run a job of a step that streams; see :class:`Execution`."""
        await Execution(self, step, job, connectors).run()

    def delivered(self, job: Job, token: Token) -> None:
        """A job that streams delivers something."""
        self._requests.delivered(job, token)

    async def ended(self, job_name: str, status: Status) -> None:
        """A job has ended, however: what it has held is for others."""
        # Before anything is waited for: what StreamFlow has logged last is of this job.
        if status is Status.FAILED:
            status = self.failure.job_failed(job_name, self._logs.ended(job_name))
        else:
            self._logs.ended(job_name)
        try:
            await self.runner.end(job_name, status is Status.COMPLETED)
        finally:
            observation = self.recorder.ended(job_name, status)
        self.storages.release(job_name, observation)
        self._limits.ended(job_name)
        self.sessions.ended(job_name)
        self.gangs.ended(job_name)
        self.awaited.ended(job_name)
        if self.lent_cores is not None:
            self.lent_cores.ended(job_name, status is Status.COMPLETED)

    def abandoned(self, job_name: str) -> None:
        """A job that was submitted will not start."""
        self.storages.release(job_name, None)
        self._limits.ended(job_name)
        self.sessions.ended(job_name)
        self.recorder.abandoned(job_name)

    def _may_share_cores(self, job_name: str) -> bool:
        """Whether a job may take longer: no limit is learned from its time, nor is there one for it."""
        step = self._plan.workflow.steps.get(get_job_step_name(job_name))
        command = step.command if isinstance(step, ExecuteStep) else None
        return not self.storages.concerns(job_name) and not (isinstance(command, CWLCommand) and command.time_limit)

    def _more_jobs(self, step: str) -> bool:
        """Whether further jobs of a step may be scheduled."""
        return not self._plan.workflow.steps[posixpath.join(step, "__schedule__")].terminated

    def _arrived(self, step: str) -> int:
        """How many jobs of a step have all their input."""
        schedule = self._plan.workflow.steps[posixpath.join(step, "__schedule__")]
        ports = [port for name, port in schedule.get_input_ports().items() if not name.startswith("__connector__")]
        return min(map(_count_tokens, ports), default=1)

    def _locate(self) -> Path:
        remove_old_runs()
        self._directory = create_run_directory(self._plan.workflow.name)
        if self._asks:
            self._coordination.write_planned(self._directory)
        return self._directory / TELEMETRY_FILE

    def _record(self, record: Record) -> None:
        # Not before there is something to tell: a workflow that is only planned is no run.
        if not self._started:
            self._started = True
            for first in start_records(self._plan, self.config, time.time()):
                self._telemetry.write(first)
                if isinstance(first, StepRecord):
                    self.storages.told(first)
        self._telemetry.write(record)
        self.storages.told(record)
        told = (*self._requests.told(record), *self.stream_rates.told(record), *self._writes.told(record))
        for request in told:
            self._telemetry.write(request)


def _count_tokens(port: Port) -> int:
    tokens = port.token_list
    return len(tokens) - (1 if tokens and isinstance(tokens[-1], TerminationToken) else 0)
