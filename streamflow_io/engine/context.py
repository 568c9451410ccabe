"""All that lives as long as one run of a workflow."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace
from streamflow.core.deployment import Connector
from streamflow.core.workflow import Job, Status, Token
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.step import CWLExecuteStep
from streamflow.log_handler import logger
from streamflow.workflow.step import ExecuteStep

from streamflow_io.adapters.attempts import StreamingJobs
from streamflow_io.adapters.deployment_sites import Sites
from streamflow_io.adapters.job_spec import time_limit
from streamflow_io.adapters.jobs import Jobs, JobState, Listener
from streamflow_io.adapters.steps import Connectors, StreamingExecuteStep
from streamflow_io.jobs.deploying import GangDeployment
from streamflow_io.jobs.execution import Execution
from streamflow_io.jobs.failure import Failure
from streamflow_io.jobs.gang_placement import GangPlacement
from streamflow_io.jobs.job_directories import JobDirectories
from streamflow_io.jobs.job_logs import JobLogs
from streamflow_io.jobs.job_runner import JobRunner
from streamflow_io.jobs.job_warnings import JobWarnings
from streamflow_io.jobs.reach import Reach
from streamflow_io.jobs.recorder import JobRecorder
from streamflow_io.parts.part_ways import PartSites, PartWays
from streamflow_io.parts.read_sessions import ReadSessions
from streamflow_io.parts.reader_tasks import ReaderTaskMaker
from streamflow_io.parts.session_starter import SessionStarter
from streamflow_io.records.learned.database import learned_path
from streamflow_io.records.records import Record, StepRecord
from streamflow_io.records.runs import TELEMETRY_FILE, create_run_directory, remove_old_runs
from streamflow_io.runtime.node_runtimes import NodeRuntimes, StartRuntime
from streamflow_io.storage.lent_cores import LentCores
from streamflow_io.storage.storages import Storages

from .bandwidth_of_run import BandwidthOfRun
from .coordination_record import CoordinationRecord
from .plan import Plan
from .proofs_of_run import ProofsOfRun
from .run_telemetry import RunTelemetry
from .safe_log import SafeLog
from .services import Scheduling, Services
from .start_records import start_records

if TYPE_CHECKING:
    from streamflow_io.storage.intermediates.disk_limit import DiskLimit
    from streamflow_io.storage.intermediates.intermediates import Intermediates


class Run:
    """Everything that lives as long as one run of one workflow.

    :ivar config: of the scheduler
    :ivar jobs: the jobs that have their input and have not ended
    :ivar streaming_jobs: the jobs that stream to others
    :ivar reach: where there are node runtimes, and which jobs can read each other's streams
    :ivar runner: gives the commands of jobs to the node runtimes
    :ivar recorder: records what jobs do
    :ivar gangs: lets the jobs of gangs meet
    :ivar lent_cores: lends cores that running jobs do not use; None: no cores are lent
    :ivar bandwidth: which jobs may use a storage when, and how fast
    :ivar proofs: which files stream without a hint
    :ivar part_ways: how the jobs that read parts of a file find it
    :ivar cuts: how jobs split files
    :ivar sessions: reads ahead the parts of one file that many jobs read
    :ivar disk_limit: lets jobs wait for disk space; None: no job waits for space
    :ivar failure: the messages if the run fails
    """

    def __init__(self, scheduler: Scheduling, plan: Plan, start_here: StartRuntime | None = None) -> None:
        config = self.config = scheduler.config
        self._plan = plan
        # A run that asks for nothing of the plugin has messages only about its failure.
        asks = config.observe or config.runtime == "off" or plan.proofs.candidates or any(plan.annotations.values())
        self._asks = bool(asks)
        self._coordination = CoordinationRecord(plan)
        self._directory: Path | None = None
        self._has_begun = False
        self._telemetry = RunTelemetry(self._locate, config.progress)
        self._file = str(scheduler.context.config["path"])
        context, allocations, used = scheduler.context, scheduler.job_allocations, scheduler.hardware_locations
        learned = learned_path(config, Path(context.config["path"]))
        runtimes = NodeRuntimes(context, config.tls, start_here, config.containers == "on", plan.graph.mixed_hosts)
        self._runtimes, deployments = runtimes, runtimes.deployments
        storages = Storages(config.storages, Sites(context.config.get("deployments", {})))
        self.jobs = Jobs(plan.annotations)
        services = Services(
            scheduler, plan, learned, runtimes, storages, self.jobs, self._record, self._telemetry.write
        )
        self.streaming_jobs = StreamingJobs()
        self.gangs = GangPlacement(allocations, used, plan.gang_cores)
        self.reach = Reach(runtimes, self.gangs.keep_together, self._record)
        self.recorder = JobRecorder(
            context.data_manager, config.observe, self._record, self._telemetry.show, deployments.has_queue
        )
        self.lent_cores: LentCores | None = None
        if config.oversubscribe == "idle":
            self.lent_cores = LentCores(used, self._may_share_cores, self.jobs.find, scheduler.wake, self._record)
        self.bandwidth = BandwidthOfRun(services)
        self.proofs = ProofsOfRun(services, self.streaming_jobs)
        sites = PartSites(plan.workflow, plan.graph.part_readers, context, runtimes, storages)
        self.part_ways = PartWays(sites, plan.graph.steps, allocations)
        self.cuts = plan.parts.cuts.of_run(self.part_ways, learned, self._record)
        # A node runtime that also serves containers is started when their first job runs.
        is_here = config.runtime == "embedded" and plan.service.unavailable is None and "" not in plan.graph.mixed_hosts
        starter = SessionStarter(config, storages, ReaderTaskMaker(self.bandwidth.admission), self._record)
        reads = plan.parts if is_here else replace(plan.parts, read_first={})
        self.sessions = ReadSessions(reads, plan.annotations, sites, self.part_ways, starter)
        ahead = GangDeployment(
            deployments.deploy_ahead, plan.workflow.steps, plan.graph.gangs if plan.service.streams else ()
        )
        listeners: list[Listener] = [self.recorder, *([] if self.lent_cores is None else [self.lent_cores])]
        listeners += [*self.bandwidth.listeners, ahead, self.sessions, self.gangs, JobWarnings(), self.reach]
        self._job_directories = JobDirectories(plan.workflow, context, self._record)
        listeners.append(self._job_directories)
        self._intermediates: Intermediates | None = None
        self.disk_limit: DiskLimit | None = None
        if plan.intermediates.removal is not None:
            # Other runs need none of these modules.
            from streamflow_io.storage.intermediates.intermediates import Intermediates

            if (limit := plan.intermediates.disk_limit) is not None:
                from streamflow_io.storage.intermediates.disk_limit import DiskLimit

                gangs = plan.graph.gangs if plan.service.streams else ()
                tools, steps = plan.intermediates.tools, plan.workflow.steps
                self.disk_limit = DiskLimit(limit, steps, plan.graph.routes, gangs, learned, tools, scheduler.wake)
                listeners.append(self.disk_limit)
            self._intermediates = Intermediates(
                plan.workflow, context, plan.intermediates.removal, self.proofs.held, self._record, self.disk_limit
            )
            self._intermediates.begin(plan.file)
            listeners.append(self._intermediates)
        self.jobs.listen([*listeners, *self.proofs.listeners])
        self.runner = JobRunner(self.jobs, self.reach, self.recorder, self.cuts)
        self._logs = JobLogs(context, plan.workflow.steps, self._record, self._telemetry.keep)
        self.failure = Failure(plan.workflow, allocations, self._logs.is_success)
        # After the filter that completes messages.
        logger.addFilter(SafeLog())
        if config.observe and config.runtime == "off":
            logger.warning("Nothing is observed in this run: `runtime: off`")

    async def all_ended(self) -> None:
        """All steps have succeeded, and the results are where the user wants them."""
        if self._intermediates is not None:
            await self.proofs.end(True)
            await self._intermediates.finish()

    async def close(self) -> None:
        """Keep what was learned, and end the telemetry and the node runtimes."""
        await self.proofs.end(self.failure.status == "completed")
        self.failure.closing()
        self.jobs.cancel_all(time.time())
        await self.jobs.run_closed()
        await self._save_streamed()
        for remembered in (self.bandwidth.remembered, self.cuts, self.proofs.proofs):
            await remembered.close()
        if self._has_begun or self.failure.status == "failed":
            self._record(await asyncio.to_thread(self._job_directories.results))
            for line in self._telemetry.close(self.failure.status):
                logger.info(line)
        if self._directory is not None:
            self.failure.recorded(self._directory.name)
        if self._directory is not None and self._asks:
            await asyncio.to_thread(self._coordination.write_ran, self._directory)
            logger.info(f"Telemetry of this run is in {self._directory}: streamflow-io report {self._directory.name}")
        await self._runtimes.close()

    async def _save_streamed(self) -> None:
        """Save for crates which inputs were streamed. Raises nothing, so that the run can end."""
        try:
            for name, edges in self.recorder.streamed.items():
                await cast(StreamingExecuteStep, self._plan.workflow.steps[name]).save_streamed(edges)
        except Exception as error:  # each database has exceptions of its own
            logger.warning(f"A crate of this run will not name its streamed inputs: {error}")

    def connector(self, job_name: str, inner: Connector) -> Connector:
        """Return the connector for the command of a job."""
        job = self.jobs.find(job_name)
        return self._logs.connector(job_name, inner if job is None else self.runner.connector(job, inner))

    def needs_no_core(self, job: JobState) -> bool:
        """Whether a job may start where no core is free: an I/O task, or a job that reads from a running job."""
        return job.is_io_task or (
            self.config.oversubscribe != "never" and any(map(self.streaming_jobs.is_running, job.sources))
        )

    async def submit(self, job: JobState) -> None:
        """Wait until a job that has its input can be scheduled, and tell the listeners of the job.

        An input that is not proven to stream has become a file then.
        """
        if await self.proofs.awaited.ready(job):
            self.gangs.join(job)
        self.jobs.submitted(job, time.time())

    async def running(self, job_name: str) -> None:
        """Note that a job has all its input, and is about to run its command."""
        if (job := self.jobs.find(job_name)) is None:
            return
        self.jobs.running(job, time.time())
        streams = isinstance(self._plan.workflow.steps.get(job.step), StreamingExecuteStep)
        if self.config.runtime == "off":
            self.bandwidth.limits.not_held(job, "in this run", "`runtime: off`")
        elif not streams and (
            self.recorder.is_measured(job) or self._runtimes.deployments.starts_commands(job.location)
        ):
            observes = self.config.observe
            what = "Nothing is observed" if observes else "The bytes of I/O tasks are not measured"
            if self.bandwidth.limits.is_limited(job):
                what = f"{job.step} is not held to its storageBW"
            await self.runner.measure(job, what)

    def observe(self, step: CWLExecuteStep, job: Job) -> None:
        """Let a job of a step that does not stream be observed. Its command is about to run."""
        state = self.jobs.of(job)
        state.executes(step, job)
        self.runner.observe(state)

    async def execute(self, step: StreamingExecuteStep, job: Job, connectors: Connectors) -> None:
        """Run a job of a step that streams; see :class:`Execution`."""
        await Execution(self, step, job, connectors).run()

    def delivered(self, job: Job, token: Token) -> None:
        """Note that a job that streams has put a token on one of its output ports."""
        if (state := self.jobs.find(job.name)) is not None:
            self.jobs.delivered(state, token)

    async def ended(self, job_name: str, status: Status) -> None:
        """Note that a job has ended, however. Its resources are free then."""
        # Before any wait: the last message that StreamFlow has logged is about this job.
        words = self._logs.ended(job_name)
        if status is Status.FAILED:
            status = self.failure.job_failed(job_name, words)
        if (job := self.jobs.find(job_name)) is None:
            return
        try:
            await self.runner.end(job, status is Status.COMPLETED)
        finally:
            self.jobs.ended(job, status, time.time())

    def time_limit(self, job: JobState) -> float | None:
        """See :func:`~streamflow_io.adapters.job_spec.time_limit`."""
        return time_limit(self._plan.workflow.steps.get(job.step))

    def _may_share_cores(self, job: JobState) -> bool:
        """Whether a job may take longer: no limit is learned from its time, and it has no time limit."""
        step = self._plan.workflow.steps.get(job.step)
        command = step.command if isinstance(step, ExecuteStep) else None
        return not job.concerns_storage and not (isinstance(command, CWLCommand) and command.time_limit)

    def _locate(self) -> Path:
        remove_old_runs()
        self._directory = create_run_directory(self._plan.workflow.name)
        if self._asks:
            self._coordination.write_planned(self._directory)
        return self._directory / TELEMETRY_FILE

    def _record(self, record: Record) -> None:
        # Not before there is a record: a workflow that is only planned is no run.
        if not self._has_begun:
            self._has_begun = True
            for first in start_records(self._plan, self.config, self._file, time.time()):
                self._telemetry.write(first)
                if isinstance(first, StepRecord):
                    self.bandwidth.admission.told(first)
        self._telemetry.write(record)
        self.bandwidth.admission.told(record)
