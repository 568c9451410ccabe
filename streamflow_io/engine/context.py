"""All that lives as long as one run of a workflow, and the warnings of node runtimes in its log."""

from __future__ import annotations

import asyncio
import time
from typing import cast

from streamflow.core.deployment import Connector
from streamflow.core.utils import get_job_step_name
from streamflow.core.workflow import Job, Status, Token
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.step import CWLExecuteStep
from streamflow.log_handler import logger
from streamflow.workflow.step import ExecuteStep, TransferStep

from streamflow_io.adapters.attempts import StreamingJobs
from streamflow_io.adapters.job_spec import time_limit
from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.adapters.steps import Connectors, StreamingExecuteStep
from streamflow_io.hints.inheritance import port_path
from streamflow_io.jobs.execution import Execution
from streamflow_io.jobs.failure import Failure, SafeLog
from streamflow_io.jobs.full_disks import FullDisks
from streamflow_io.jobs.gang_placement import GangDeployment, GangPlacement
from streamflow_io.jobs.job_directories import JobDirectories, RemadeFiles
from streamflow_io.jobs.job_logs import JobLogs, LastWords
from streamflow_io.jobs.job_runner import JobRunner
from streamflow_io.jobs.reach import Reach
from streamflow_io.jobs.recorder import JobRecorder
from streamflow_io.runtime.node_runtimes import StartRuntime
from streamflow_io.runtime.protocol import Event, WarningEvent
from streamflow_io.runtime.waiting_deployments import listen
from streamflow_io.runtime.wire import is_without_gate
from streamflow_io.storage.lent_cores import LentCores
from streamflow_io.wording import counted

from .plan import Plan
from .run_parts import (
    BandwidthOfRun,
    PartsOfRun,
    ProofsOfRun,
    Scheduling,
    Services,
    begin_removal,
    make_scheduled_space,
    make_space_limits,
)
from .run_telemetry import RunTelemetry


class JobWarnings(Listener):
    """Logs the first of equal warnings of a step's jobs at once, and the number of the others at the end."""

    def __init__(self) -> None:
        # By step, and by input or message: the message, and the names of the jobs.
        self._told: dict[tuple[str, str], tuple[str, set[str]]] = {}

    def event(self, job: JobState, event: Event) -> None:
        """Log a warning if it is new. Warnings about one input are equal, whatever paths they name."""
        if not isinstance(event, WarningEvent):
            return
        # The event names an input by the job and the port that write it.
        about = said = event.message
        if event.input is not None:
            about = port_path(get_job_step_name(event.input), event.port or "")
            said = f"{about}: {event.message.removeprefix(f'input {event.input}: ')}"
        # Where one job has no gate, other jobs have none: such a warning is for the run.
        step = "" if is_without_gate(event) else job.step
        message, jobs = self._told.setdefault((step, about), (said, set()))
        if not jobs:
            logger.warning(f"Job {job.name}: {message}")
        jobs.add(job.name)

    async def run_closed(self) -> None:
        for (step, _), (message, jobs) in self._told.items():
            if (more := len(jobs) - 1) and step:
                logger.warning(f"{counted(more, 'more job')} of {step}, with the same warning: {message}")
        self._told.clear()


class Run:
    """Everything that lives as long as one run of one workflow.

    :ivar jobs: the jobs that have their input and have not ended
    :ivar streaming_jobs: the jobs that stream to others
    :ivar reach: where there are node runtimes, and which jobs can read each other's streams
    :ivar runner: gives the commands of jobs to the node runtimes
    :ivar logs: keeps the output of jobs
    :ivar recorder: records what jobs do
    :ivar gangs: lets the jobs of gangs meet
    :ivar lent_cores: lends cores that running jobs do not use; None: no cores are lent
    :ivar bandwidth: which jobs may use a storage when, and how fast
    :ivar proofs: which files stream without a hint
    :ivar part_ways: how the jobs that read parts of a file find it
    :ivar cuts: how jobs split files
    :ivar sessions: reads ahead the parts of one file that many jobs read
    :ivar full_disks: lets jobs that have failed on a full disk start elsewhere
    :ivar disk_limit: lets jobs wait for disk space; None: no job waits for space
    :ivar scheduled_space: gives back the space of removed files; None: the run removes nothing
    :ivar failure: the messages if the run fails
    """

    def __init__(self, scheduler: Scheduling, plan: Plan, start_here: StartRuntime | None = None) -> None:
        config = self.config = scheduler.config
        context, allocations, used = scheduler.context, scheduler.job_allocations, scheduler.hardware_locations
        self._plan = plan
        self._telemetry = RunTelemetry(plan, config, str(context.config["path"]))
        record = self._telemetry.write
        services = Services.of(scheduler, plan, start_here, record)
        self.jobs, self._runtimes = services.jobs, services.runtimes
        self.streaming_jobs = StreamingJobs()
        self.gangs = GangPlacement(allocations, used, plan.gang_cores, plan.read_near)
        self.reach = Reach(self._runtimes, self.gangs.keep_together, record)
        has_queue = self._runtimes.deployments.has_queue
        self.recorder = JobRecorder(context.data_manager, config.observe, record, self._telemetry.show, has_queue)
        self.lent_cores: LentCores | None = None
        if config.oversubscribe == "idle":
            self.lent_cores = LentCores(used, self._may_share_cores, scheduler.wake, record)
        self.bandwidth = BandwidthOfRun(services)
        self._space = make_space_limits(services, self.reach)
        self.disk_limit = None if self._space is None else self._space.disk
        self.proofs = ProofsOfRun(services, self.streaming_jobs, self.disk_limit)
        parts = PartsOfRun(services)
        self.part_ways, self.cuts, self.sessions = parts.ways, parts.cuts, parts.sessions
        self._job_directories = JobDirectories(plan.workflow, context, record)
        self._remade_files = RemadeFiles(plan.workflow, context)
        self.scheduled_space = make_scheduled_space(services)
        limits = [] if self._space is None else self._space.watchers
        self._watchers = [*limits, *filter(None, [self.scheduled_space])]
        self._intermediates = begin_removal(services, self.proofs.rehearsals, self._watchers)
        self.jobs.listen(self._listeners())
        self.runner = JobRunner(self.jobs, self.reach, self.recorder, self.cuts)
        make_space = None if self._intermediates is None else self._intermediates.make_space
        self.logs = JobLogs(context, plan.workflow.steps, record, self._telemetry.keep, make_space)
        self.full_disks = FullDisks(context.deployment_manager.get_connector, self.logs.on_node)
        self.failure = Failure(plan.workflow, allocations, self.logs.is_success)
        self._ignore_queues = listen(self._telemetry.queued)
        # After the filter that completes messages.
        logger.addFilter(SafeLog())
        if config.observe and config.runtime == "off":
            logger.warning("Nothing is observed in this run: `runtime: off`")

    def _listeners(self) -> list[Listener]:
        """Return what hears of jobs, in order."""
        plan, gangs = self._plan, self._plan.graph.gangs if self._plan.service.streams else ()
        ahead = GangDeployment(self._runtimes.deployments.deploy_ahead, plan.workflow.steps, gangs)
        listeners: list[Listener] = [self.recorder, *([] if self.lent_cores is None else [self.lent_cores])]
        listeners += [*self.bandwidth.listeners, ahead, self.sessions, self.gangs, JobWarnings(), self.reach]
        removal = () if self._intermediates is None else (self._intermediates,)
        files = (self._job_directories, self._remade_files, *removal)
        return [*listeners, *self._watchers, *files, *self.proofs.listeners]

    async def all_ended(self) -> None:
        """All steps have succeeded, and the results are where the user wants them."""
        if self._intermediates is not None:
            await self.proofs.end(True)
            await self._intermediates.finish()

    async def close(self) -> None:
        """Keep what was learned, and end the telemetry and the node runtimes, which end in any case."""
        try:
            await self._close_parts()
        finally:
            await self._runtimes.close()

    async def _close_parts(self) -> None:
        await self.proofs.end(self.failure.status == "completed")
        self._ignore_queues()
        self.failure.closing()
        self.jobs.cancel_all(time.time())
        await self.jobs.run_closed()
        await self._save_streamed()
        sizes = () if self._space is None else (self._space.sizes,)
        for remembered in (self.bandwidth.remembered, self.proofs.proofs, *sizes):
            await remembered.close()
        if self._telemetry.has_begun or self.failure.status == "failed":
            self._telemetry.write(await asyncio.to_thread(self._job_directories.results))
            await self._telemetry.close(self.failure.status)
        if (directory := self._telemetry.directory) is not None:
            self.failure.recorded(directory.name)

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
        if job is None:
            return inner
        return self.logs.connector(job, self._job_directories.connector(job, self.runner.connector(job, inner)))

    def needs_no_core(self, job: JobState) -> bool:
        """Whether a job may start where no core is free: an I/O task, or a job that reads from a running job."""
        return job.is_io_task or (
            self.config.oversubscribe != "never" and any(map(self.streaming_jobs.is_running, job.sources))
        )

    def only_copies(self, job_name: str) -> bool:
        """Whether a job has no tool, and is there for the copy of a result."""
        return isinstance(self._plan.workflow.steps.get(get_job_step_name(job_name)), TransferStep)

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
            (is_measured := self.recorder.is_measured(job)) or self._runtimes.deployments.starts_commands(job.location)
        ):
            what = "Nothing is observed" if self.config.observe else "The bytes of I/O tasks are not measured"
            if not is_measured:
                # The launcher starts each job, as srun.
                what = "Jobs start more slowly"
            if self.bandwidth.limits.is_limited(job):
                what = f"{job.step} is not held to its storageBW"
            await self.runner.measure(job, what)

    async def choose_directory(self, job: JobState) -> None:
        """Let the files of a job that has its place lie in memory, if they fit."""
        if self._space is not None and self._space.memory is not None:
            await self._space.memory.choose_directory(job)

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
        job = self.jobs.find(job_name)
        words = None if job is None else job.drop(LastWords)
        if status is Status.FAILED:
            status = self.failure.job_failed(job_name, words)
        elif status is Status.RECOVERY:
            self.failure.job_is_tried_again(job_name, words)
        if job is None:
            return
        try:
            if status is Status.RECOVERY:
                full = self.failure.no_space or (None if words is None else words.full)
                await self.full_disks.failed(job, full)
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
