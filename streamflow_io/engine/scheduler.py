"""StreamFlow's scheduler, extended: admission of gang members and I/O tasks, the node runtime, connectors of jobs.

StreamFlow imports every plugin in every run. So modules that only runs of the plugin need are imported late.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Collection, Iterable, MutableMapping, MutableSequence, Sequence
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from functools import cached_property, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from streamflow.core.config import BindingConfig
from streamflow.core.context import StreamFlowContext
from streamflow.core.data import DataLocation, DataType
from streamflow.core.deployment import Connector, Target
from streamflow.core.exception import WorkflowDefinitionException, WorkflowExecutionException
from streamflow.core.persistence import Database, DatabaseLoadingContext
from streamflow.core.scheduling import AvailableLocation, Hardware, HardwareRequirement, Policy
from streamflow.core.workflow import Job, Status
from streamflow.log_handler import logger
from streamflow.scheduling.scheduler import DefaultScheduler, JobAllocation, JobContext
from typing_extensions import Self

from streamflow_io._streamflow import (
    HostJobs,
    NoHostsError,
    collect_shared_outputs_once,
    end_with_the_last_step,
    hosts_left,
    mend_containers_on_ssh_hosts,
    mend_copies,
    mend_inputs_of_lost_hosts,
    mend_queue_managers,
    mend_shells,
    own_hosts,
    seconds_left,
    wait_for_hosts,
)
from streamflow_io.capacity import Room, too_large
from streamflow_io.messages import Code, coded
from streamflow_io.processes import interrupt_on_sigterm, mend_interrupted_starts

from .database_messages import explain_database_errors
from .held_room import HeldRoom
from .room_check import BUSY, DiskWaits, HostUse, check_room, with_inner

if TYPE_CHECKING:
    from streamflow_io.adapters.jobs import JobState
    from streamflow_io.hints.config import SchedulerConfig
    from streamflow_io.records.jobs import WaitCause
    from streamflow_io.runtime.node_runtimes import StartRuntime
    from streamflow_io.storage.intermediates.scheduled_space import ScheduledSpace
    from streamflow_io.storage.lent_cores import LentCores
    from streamflow_io.storage.storage_admission import StorageAdmission

    from .context import Run
    from .plan import Plan

SCHEMA = "scheduler.schema.json"
_TRIED_AGAIN = (Status.ROLLBACK, Status.RECOVERY)
# The target for which StreamFlow calls a method without naming it. Each target of a job has a task of its own.
_target: ContextVar[Target] = ContextVar("target")
# All targets of this job.
_targets: ContextVar[Sequence[Target]] = ContextVar("targets", default=())


class IOAwareScheduler(DefaultScheduler):  # type: ignore[misc]
    """StreamFlow's default scheduler, and two kinds of jobs that start even when no core is free.

    - A job that reads from a running job: its use of cores is bounded by its stream, as in a shell pipe. With
      `oversubscribe: never` the job starts when a core is free. Nothing is lost, because the file that it reads is on
      disk.
    - An I/O task: its use of cores is bounded by the storage's bandwidth and by the I/O executors.

    Both keep their memory requirement. Of several locations, the jobs of a gang get the same one, as far as its cores
    allow.

    :ivar run: the run of the workflow; None: no workflow is translated yet, or its run has ended
    """

    def __init__(self, context: StreamFlowContext, **config: Any) -> None:
        # The modules of StreamFlow live as long as the run: each later collection would take as long as all of them.
        gc.freeze()
        self._config = config
        self._streamflow_config = context.config
        # Mistakes in the config end the run before anything starts. An empty config has none.
        super().__init__(context, self.config.retry_delay if config else None)
        explain_database_errors(context.config)
        collect_shared_outputs_once()
        mend_containers_on_ssh_hosts()
        end_with_the_last_step(self._all_ended)
        mend_queue_managers()
        mend_shells()
        mend_copies()
        mend_inputs_of_lost_hosts()
        mend_interrupted_starts()
        self.run: Run | None = None
        self._waking: asyncio.Task[None] | None = None
        self._is_closing = False
        self._forget_sigterm: Callable[[], None] = lambda: None
        self._looking: set[asyncio.Task[None]] = set()
        # Steps whose jobs all ask for the same room, and can start.
        self._roomy: set[tuple[str, bool]] = set()
        self._told_of_memory: set[str] = set()
        # By job and deployment: why no host of the deployment will do for the job.
        self._refusals: dict[str, dict[str, str]] = {}
        # Why the run ends: a job can never start.
        self._never_starts: str | None = None
        self._disk_waits = DiskWaits(self.job_allocations, self._is_idle, self.wake)
        self._host_use = HostUse()
        self._held_room = HeldRoom(self.job_allocations, self.hardware_locations)

    @cached_property
    def config(self) -> SchedulerConfig:
        """The `config` of the scheduler in the StreamFlow file.

        :raises WorkflowDefinitionException: if it has mistakes
        """
        from streamflow_io.hints import errors, yaml_files

        source = yaml_files.scheduler_config_source(self._streamflow_config["path"])
        try:
            return yaml_files.parse_scheduler_config(self._config, source)
        except errors.HintErrors as error:
            raise WorkflowDefinitionException(str(error)) from None

    @property
    def concerns_any_workflow(self) -> bool:
        """Whether the StreamFlow file asks for something that holds for workflows without hints, too."""
        return bool(self._config) and (
            self.config.annotations is not None
            or bool(self.config.storages)
            or self.config.observe
            or self.config.streaming == "auto"
            or self.config.intermediates != "keep"
            # A run with `runtime: off` is for a comparison.
            or self.config.runtime == "off"
        )

    def begin(self, plan: Plan, start_here: StartRuntime | None = None) -> None:
        """Serve a workflow that is about to run; see :class:`~.context.Run`."""
        from .context import Run

        self._forget_sigterm()
        self._forget_sigterm = interrupt_on_sigterm()
        # What is known of the steps and jobs of an earlier workflow, which may have the same names.
        self._roomy.clear()
        self._told_of_memory.clear()
        self._refusals.clear()
        self._never_starts = None
        self.run = Run(self, plan, start_here)

    async def _all_ended(self) -> None:
        """End the run of a workflow that has succeeded: StreamFlow may run another workflow of the file next."""
        if (run := self.run) is None:
            return
        await run.all_ended()
        try:
            await run.close()
        except Exception as error:  # as StreamFlow does when a context is closed: the results are there
            logger.exception(error)
        # After Ctrl-C meanwhile, `close` ends what is left of the run.
        self.run = None

    async def close(self) -> None:
        self._is_closing = True
        self._disk_waits.close()
        for looking in self._looking:
            looking.cancel()
        waking = () if self._waking is None else (self._waking,)
        await asyncio.gather(*waking, *self._looking, return_exceptions=True)
        if self.run is not None:
            await self.run.close()
        await super().close()
        self._forget_sigterm()

    def get_connector(self, job_name: str) -> Connector:
        connector = super().get_connector(job_name)
        return connector if self.run is None else self.run.connector(job_name, connector)

    def get_hardware(self, job_name: str) -> Hardware:
        # A command sees the cores that its step declares (`runtime.cores`), however its job was admitted.
        hardware = super().get_hardware(job_name)
        job = self._job(job_name)
        if job is not None and job.declared_cores is not None:
            return Hardware(job.declared_cores, hardware.memory, hardware.storage)
        borrowed = 0 if job is None or self._lent_cores is None else self._lent_cores.borrowed(job)
        return Hardware(hardware.cores + borrowed, hardware.memory, hardware.storage) if borrowed else hardware

    async def schedule(
        self, job: Job, binding_config: BindingConfig, hardware_requirement: HardwareRequirement | None
    ) -> None:
        try:
            if not self._is_closing:
                return await self._schedule(job, binding_config, hardware_requirement)
        except Exception as error:
            if not self._is_closing:
                raise self._noted(job, error) from error.__cause__
        # The connectors go while the run closes.
        raise asyncio.CancelledError

    def _noted(self, job: Job, error: Exception) -> Exception:
        """Return the error that a job ends with, and note whether the job can never start."""
        from streamflow_io.adapters.jobs import NeverStartsError

        if isinstance(error, NoHostsError):
            # The same holds for all jobs: the first message is enough.
            message = self._never_starts or coded(f"Job {job.name} cannot start: {error}", Code.NEVER_STARTS)
            error = NeverStartsError(message)
        if isinstance(error, NeverStartsError):
            self._never_starts = str(error)
        return error

    async def _schedule(
        self, job: Job, binding_config: BindingConfig, hardware_requirement: HardwareRequirement | None
    ) -> None:
        if (run := self.run) is None:
            await self._wait_for_hosts(binding_config)
            await check_room(self.context, self._roomy, job, binding_config.targets, hardware_requirement, False)
            binding_config = await self._filtered(job, binding_config)
            await super().schedule(job, binding_config, hardware_requirement)
            return
        state = run.jobs.new(job, binding_config.targets)
        try:
            if run.disk_limit is not None:
                run.disk_limit.check()
            await run.submit(state)
            binding_config = run.gangs.ordered(state, binding_config)
            await self._wait_for_hosts(binding_config)
            await run.full_disks.look(job.name, binding_config.targets)
            coreless = run.needs_no_core(state)
            await check_room(self.context, self._roomy, job, binding_config.targets, hardware_requirement, coreless)
            await run.sessions.arrived(state)
            binding_config = await self._filtered(job, binding_config)
            if state.concerns_storage:
                binding_config = await self._admitted(run, state, binding_config)
            # The jobs that this job reads from may have ended meanwhile.
            if hardware_requirement is not None and run.needs_no_core(state):
                hardware_requirement = CorelessRequirement(hardware_requirement, state)
            await super().schedule(job, binding_config, hardware_requirement)
            await run.choose_directory(state)
        except BaseException:
            run.jobs.ended(state, Status.CANCELLED, time.time())
            self.wake()
            raise

    async def _wait_for_hosts(self, binding: BindingConfig) -> None:
        """Wait until a deployment of a job has locations, or none of them will have any."""
        deployments = {target.deployment.name for target in binding.targets}
        await wait_for_hosts(map(self.context.deployment_manager.get_connector, deployments), self)

    def host_jobs(self, deployment: str) -> HostJobs:
        """The jobs of a deployment."""
        return self._host_use.of(deployment)

    def copies(self, path: str) -> Sequence[tuple[DataLocation, Connector]]:
        """The places where a file is, each with its connector."""
        found = self.context.data_manager.get_data_locations(path, data_type=DataType.PRIMARY)
        connector = self.context.deployment_manager.get_connector
        return [(each, connector(each.deployment)) for each in found if each.available.is_set()]

    async def _filtered(self, job: Job, binding: BindingConfig) -> BindingConfig:
        """The targets of a job that its filters leave, as StreamFlow itself finds them."""
        targets = list(binding.targets)
        for binding_filter in (self._get_binding_filter(config) for config in binding.filters):
            targets = await binding_filter.get_targets(job, targets)
        _targets.set(targets)
        return BindingConfig(targets)

    async def _admitted(self, run: Run, job: JobState, binding: BindingConfig) -> BindingConfig:
        """Wait until the storages have room for a job.

        :return: the targets whose storages have
        """
        run.recorder.lacks(job, "storage")
        targets = list(await run.bandwidth.admission.admit(job, binding.targets))
        run.recorder.lacks(job, None)
        _targets.set(targets)
        return BindingConfig(targets)

    def wake(self) -> None:
        """Let all waiting jobs look again whether they can start. Jobs that wait when the run ends never start."""

        async def notify() -> None:
            async with self.wait_queue:
                if (space := self._scheduled_space) is not None:
                    space.give_back()
                self.wait_queue.notify_all()

        if not self._is_closing and (self._waking is None or self._waking.done()):
            self._waking = asyncio.create_task(notify())

    def _is_idle(self, job_name: str) -> bool:
        """Whether no job runs, is about to run, or runs again before a waiting job."""
        # For a job that has run before, failed jobs wait.
        busy = BUSY if job_name in self.job_allocations else (*BUSY, *_TRIED_AGAIN)
        found = (name for name, allocation in self.job_allocations.items() if allocation.status in busy)
        # StreamFlow never says that the copy of a result has ended, which makes no space.
        return all(self.run is not None and self.run.only_copies(name) for name in found)

    def hosts_changed(self, deployment: str) -> None:
        looking = asyncio.create_task(self._look_at_hosts(deployment))
        self._looking.add(looking)
        looking.add_done_callback(self._looking.discard)

    async def _look_at_hosts(self, deployment: str) -> None:
        # What is granted at a host that is lost has to be free before the jobs look again.
        if self.run is not None:
            try:
                await self.run.bandwidth.admission.hosts_changed(deployment)
            except Exception as error:
                # A connector may raise anything. The jobs that look again fail with the error.
                logger.debug(f"The hosts of {deployment} are not known: {error}")
        self.wake()

    async def notify_status(self, job_name: str, status: Status) -> None:
        self._held_room.note(job_name, status)
        if status is Status.RUNNING:
            await self._held_room.until_given_back(job_name, self.wait_queue)
        if self.run is not None:
            if status is Status.RUNNING:
                await self.run.running(job_name)
            elif status is not Status.FIREABLE:
                await self.run.ended(job_name, status)
        # Resources are free now. This call wakes the jobs that wait for bandwidth or cores.
        if not self._is_closing:
            await super().notify_status(job_name, status)
        if status is Status.RECOVERY and self._never_starts is not None:
            # StreamFlow takes the end of a recovery for the failure of a job, and would try again, perhaps for ever.
            from streamflow_io.adapters.jobs import NeverStartsError

            raise NeverStartsError(self._never_starts)

    async def _process_target(
        self, target: Target, job_context: JobContext, hardware_requirement: HardwareRequirement | None
    ) -> None:
        _target.set(target)
        try:
            with self._host_use.waiting(target.deployment.name, job_context.job.name):
                await self._choose_location(target, job_context, hardware_requirement)
        except NoHostsError as error:
            targets = _targets.get()
            if len(targets) == 1:
                raise
            # StreamFlow fails a job with the first of its targets that fails.
            self._refuse(job_context.job.name, target.deployment.name, str(error))
            job = self._job(job_context.job.name)
            if job is not None and (storages := self._storages_of(job)) is not None:
                storages.no_hosts(job, target, error)
            await check_room(self.context, set(), job_context.job, targets, hardware_requirement, coreless=False)
            async with self.wait_queue:
                await self.wait_queue.wait_for(lambda: job_context.scheduled)

    async def _choose_location(
        self, target: Target, job_context: JobContext, hardware_requirement: HardwareRequirement | None
    ) -> None:
        """Choose a location of a target for a job; choose again if a host is lost while StreamFlow looks at each.

        No failure manager could recover the job: the job has no place yet.
        """
        connector = self.context.deployment_manager.get_connector(target.deployment.name)
        while (hosts := own_hosts(connector)) is not None:
            looked_at = await connector.get_available_locations(service=target.service)
            try:
                await super()._process_target(target, job_context, hardware_requirement)
                return
            except NoHostsError:
                raise
            except WorkflowExecutionException as error:
                if not any(map(hosts.is_lost, looked_at)):
                    raise
                logger.debug(f"Job {job_context.job.name} is placed once more, without a host that is lost: {error}")
        await super()._process_target(target, job_context, hardware_requirement)

    def _refuse(self, job_name: str, deployment: str, why: str) -> None:
        """Note that no host of a deployment will do for a job.

        :raises NeverStartsError: if this holds for all deployments of the job, which would wait for ever
        """
        refusals = self._refusals.setdefault(job_name, {})
        refusals[deployment] = why
        if refusals.keys() >= {target.deployment.name for target in _targets.get()}:
            from streamflow_io.adapters.jobs import NeverStartsError

            message = f"Job {job_name} cannot start: {'; '.join(refusals.values())}"
            raise NeverStartsError(coded(message, Code.NEVER_STARTS))

    def _is_valid(
        self,
        connector: Connector,
        location: AvailableLocation,
        hardware_requirements: MutableMapping[str, Hardware],
        job_name: str,
    ) -> bool:
        job = self._job(job_name)
        lack = self._lack(connector, location, hardware_requirements, job_name, job)
        if job is not None and self.run is not None:
            self.run.recorder.lacks(job, lack)
        if (space := self._scheduled_space) is not None:
            space.waits(job_name, lack == "disk")
        if lack in ("cores", "memory", "place"):
            self._host_use.lacks(_target.get().deployment.name, job_name)
        return lack is None

    def _lack(
        self,
        connector: Connector,
        location: AvailableLocation,
        hardware_requirements: MutableMapping[str, Hardware],
        job_name: str,
        job: JobState | None,
    ) -> WaitCause | None:
        """The resource that a job lacks on a location; None: the job may start there."""
        lack = self._lack_of_room(connector, location, hardware_requirements, job_name, job)
        if job is None or (storages := self._storages_of(job)) is None:
            return lack
        if lack is not None:
            storages.stand_down(job, _target.get(), location)
            return lack
        return None if storages.may_start(job, _target.get(), location, hardware_requirements) else "storage"

    def _lack_of_room(
        self,
        connector: Connector,
        location: AvailableLocation,
        hardware_requirements: MutableMapping[str, Hardware],
        job_name: str,
        job: JobState | None,
    ) -> WaitCause | None:
        """The resource that a job lacks on a location, apart from bandwidth. None: nothing is lacking."""
        if job is not None and self._ends_too_soon(connector, location, job):
            return "place"
        if job is not None and self._is_full(connector, location, hardware_requirements, job):
            return "disk"
        asked = hardware_requirements[f"{connector.deployment_name}/{location.name}"]
        if self._is_too_large_now(connector, asked, job_name):
            return "place"
        free = self._has_hardware(connector, location, hardware_requirements, job_name)
        free = free or self._may_borrow(connector, location, hardware_requirements, job_name, job)
        if not free and location.hardware is not None:
            used = self.hardware_locations.get(location.name, Hardware())
            self._disk_waits.look(job_name, location, used, asked, partial(self._shown, location))
        if not free and job is not None and job.declared_cores is not None:
            free = _is_one_for_each_job(location)
            if not free:
                self._tell_of_memory(job, location, asked.memory)
        if not free:
            return self._lack_of_hardware(location, asked)
        return None if self._has_space(job, location) else "disk"

    def _is_full(
        self,
        connector: Connector,
        location: AvailableLocation,
        hardware_requirements: MutableMapping[str, Hardware],
        job: JobState,
    ) -> bool:
        """Whether a job has failed because a disk was full, and others than this location will do for it."""
        if self.run is None or not (others := self.run.full_disks.elsewhere(job.name, location)):
            return False

        def may_take(other: AvailableLocation) -> bool:
            # The job does not wait for a location that is gone, or that is too small for it.
            if f"{connector.deployment_name}/{other.name}" not in hardware_requirements:
                return False
            lack = self._lack_of_room(connector, other, hardware_requirements, job.name, job)
            return lack is None or bool(self._get_running_jobs(job.name, other))

        if sum(map(may_take, others)) < _target.get().locations:
            return False
        self.run.full_disks.tell(job.name)
        return True

    def _ends_too_soon(self, connector: Connector, location: AvailableLocation, job: JobState) -> bool:
        """Whether the allocation of a location ends before the ToolTimeLimit of a job.

        :raises NeverStartsError: if this holds for all deployments of the job, which would wait for ever
        """
        here, left = seconds_left(connector, location)
        if here is None or self.run is None or (limit := self.run.time_limit(job)) is None or limit <= here:
            return False
        if left is None or limit <= left:
            return True
        why = f"it has a ToolTimeLimit of {limit:.0f} s, and the allocation of {connector.deployment_name}"
        self._refuse(job.name, connector.deployment_name, f"{why} ends in {left:.0f} s")
        return True

    def _is_too_large_now(self, connector: Connector, asked: Hardware, job_name: str) -> bool:
        """Whether no host of a deployment that has lost some is large enough for a job.

        :raises NeverStartsError: if this holds for all deployments of the job, which would wait for ever
        """
        if (found := hosts_left(connector, self)) is None:
            return False
        hosts, losses = found
        there = {name: Room(float(has.cores), float(has.memory)) for name, has in hosts.items()}
        why = too_large(Room(float(asked.cores), float(asked.memory)), there, _target.get().locations)
        if why is None:
            self._refusals.get(job_name, {}).pop(connector.deployment_name, None)
            return False
        self._refuse(
            job_name,
            connector.deployment_name,
            f"{why} ({connector.deployment_name}), because {'; '.join(losses)}",
        )
        return True

    def _lack_of_hardware(self, location: AvailableLocation, asked: Hardware) -> WaitCause:
        if location.hardware is None:
            return "place"
        used = self.hardware_locations.get(location.name, Hardware())
        if asked.cores > location.hardware.cores - used.cores:
            return "cores"
        if asked.memory > location.hardware.memory - used.memory:
            return "memory"
        if location.stacked and location.wraps is not None:
            return self._lack_of_hardware(location.wraps, asked)
        return "disk"

    def _may_borrow(
        self,
        connector: Connector,
        location: AvailableLocation,
        hardware_requirements: MutableMapping[str, Hardware],
        job_name: str,
        job: JobState | None,
    ) -> bool:
        """Whether a job lacks only cores on a location, and can borrow these."""
        cores = hardware_requirements[f"{connector.deployment_name}/{location.name}"].cores
        if job is None or self._lent_cores is None or not self._lent_cores.can_start(job, location, cores):
            return False
        without = {key: Hardware(0.0, asked.memory, asked.storage) for key, asked in hardware_requirements.items()}
        return self._has_hardware(connector, location, without, job_name)

    def _has_hardware(
        self,
        connector: Connector,
        location: AvailableLocation,
        hardware_requirements: MutableMapping[str, Hardware],
        job_name: str,
    ) -> bool:
        """Whether StreamFlow finds enough of all hardware free on a location.

        StreamFlow fails where jobs have more on a disk than was free when the run began, as when the user has made
        space meanwhile. Such a disk is full.
        """
        if not self._held_room.is_any:
            with suppress(WorkflowExecutionException):
                return bool(super()._is_valid(connector, location, hardware_requirements, job_name))
        with self._held_room.uncounted(job_name, [location], self._producers_of(job_name)):
            return bool(super()._is_valid(connector, location, hardware_requirements, job_name))

    def _producers_of(self, job_name: str) -> Collection[str]:
        """The jobs from which a job reads streams."""
        job = self._job(job_name)
        return () if job is None else job.producers

    def _tell_of_memory(self, job: JobState, location: AvailableLocation, asked: float) -> None:
        """Warn, once for each step, of a job without cores that waits for the memory of a location, or of its host."""
        if location.stacked and location.wraps is not None:
            self._tell_of_memory(job, location.wraps, asked)
        if location.hardware is None or job.step in self._told_of_memory:
            return
        used = self.hardware_locations.get(location.name, Hardware())
        free = location.hardware.memory - used.memory
        if asked > free:
            self._told_of_memory.add(job.step)
            has = f"{free:,.0f} of {location.hardware.memory:,.0f} MiB are free"
            waits = f"Job {job.name} needs no free core, and waits for memory on {self._shown(location)}"
            logger.warning(coded(f"{waits}: it asks for {asked:,.0f} MiB, and {has}", Code.NO_MEMORY))

    def _shown(self, location: AvailableLocation) -> str:
        """The name of a location, for people."""
        if location.local:
            return "the driver's node"
        from streamflow_io.adapters.deployment_sites import location_shown

        return location_shown(location, _target.get())

    async def _get_locations(
        self,
        job: Job,
        hardware_requirement: Hardware,
        locations: int,
        scheduling_policy: Policy,
        available_locations: MutableMapping[str, AvailableLocation],
    ) -> MutableSequence[AvailableLocation]:
        state = self._job(job.name)
        if self.run is not None:
            self.run.recorder.offered(available_locations)
        if state is not None and self.run is not None and locations == 1:
            cores = hardware_requirement.cores if state.declared_cores is None else state.declared_cores
            available_locations = self.run.gangs.narrow(state, cores, available_locations)
            available_locations = self.run.part_ways.narrow(job, available_locations)
        selected: MutableSequence[AvailableLocation] = await super()._get_locations(
            job, hardware_requirement, locations, scheduling_policy, available_locations
        )
        # A policy may look at files. Meanwhile other jobs may have got the bandwidth, or need the idle cores.
        if state is None:
            return selected
        storages = self._storages_of(state)
        if not all(self._has_space(state, where) for where in selected):
            return []
        if storages is not None and not all(storages.may_start(state, _target.get(), where) for where in selected):
            return []
        lent_cores = self._lent_cores
        if lent_cores is None:
            return selected
        with self._held_room.uncounted(job.name, selected, state.producers):
            return selected if lent_cores.choose(state, selected, hardware_requirement.cores) else []

    def _allocate_job(
        self,
        job: Job,
        hardware: MutableMapping[str, Hardware],
        connector: Connector,
        selected_locations: MutableSequence[AvailableLocation],
        target: Target,
    ) -> None:
        state, lent_cores = self._job(job.name), self._lent_cores
        if state is not None and lent_cores is not None:
            hardware = lent_cores.accounted(state, hardware)
        holders = self._held_room.holders(job.name, self._producers_of(job.name)) if self._held_room.is_any else []
        space = self._scheduled_space
        with nullcontext() if space is None else space.reserving(job.name, _names_of(selected_locations)):
            super()._allocate_job(job, hardware, connector, selected_locations, target)
        if holders:
            self._held_room.taken(job.name, selected_locations, holders)
        # The host of a producer serves its streams also after its end.
        producers = () if state is None else state.producers
        read_from = [location for producer in producers for location in self.get_locations(producer)]
        self._host_use.placed(job.name, [*(location.location for location in selected_locations), *read_from])
        if state is not None and self.run is not None:
            cores = 0.0 if state.is_io_task else float(self.get_hardware(job.name).cores)
            self.run.jobs.placed(state, self.job_allocations[job.name], selected_locations, cores)

    async def _free_resources(self, connector: Connector, job_allocation: JobAllocation) -> None:
        # StreamFlow looks behind the connector of a container for that of its host. The plugin's must not be in front
        # of it.
        self._host_use.freed(job_allocation.job)
        space = self._scheduled_space
        async with nullcontext() if space is None else space.counting(job_allocation.job):
            await super()._free_resources(super().get_connector(job_allocation.job), job_allocation)
        if self._lent_cores is not None:
            self._lent_cores.settle()
        if self.run is not None and self.run.proofs.rehearsals is not None:
            self.run.proofs.rehearsals.look()

    @property
    def _lent_cores(self) -> LentCores | None:
        """The cores that are lent; None: no cores are to be lent."""
        return None if self.run is None else self.run.lent_cores

    @property
    def _scheduled_space(self) -> ScheduledSpace | None:
        """The account of disk space; None: the run removes nothing."""
        return None if self.run is None else self.run.scheduled_space

    def _job(self, job_name: str) -> JobState | None:
        """The state of a job; None: the run does not know the job."""
        return None if self.run is None else self.run.jobs.find(job_name)

    def _storages_of(self, job: JobState | None) -> StorageAdmission | None:
        """The admission by storages; None: the job needs no such admission."""
        return (
            self.run.bandwidth.admission if self.run is not None and job is not None and job.concerns_storage else None
        )

    def _has_space(self, job: JobState | None, location: AvailableLocation) -> bool:
        """Whether the files of a job have space on a location.

        :raises NeverStartsError: if the run cannot go on within its limit
        """
        if self.run is None or job is None:
            return True
        workdir, space = _target.get().workdir, self._scheduled_space
        # On other disks the driver cannot see what is free.
        is_here = location.local and location.wraps is None
        if is_here and space is not None and not space.may_start(workdir):
            return False
        return self.run.disk_limit is None or self.run.disk_limit.may_start(job, location, workdir)

    @classmethod
    def get_schema(cls) -> str:
        # Generated by `python -m streamflow_io.hints.schemas`, because StreamFlow asks for it in every run.
        return files(__package__).joinpath(SCHEMA).read_text("utf-8")


def _names_of(locations: Iterable[AvailableLocation]) -> list[str]:
    return [location.name for location in with_inner(locations)]


def _is_one_for_each_job(location: AvailableLocation) -> bool:
    """Whether StreamFlow runs one job at a time at a location without any known size, as in a container of a pod."""
    return location.hardware is None and location.slots is None and not location.stacked


class CorelessRequirement(HardwareRequirement):  # type: ignore[misc]
    """The requirement of a gang member or an I/O task: all that its step declares, but no cores.

    :param job: gets the declared cores
    """

    def __init__(self, requirement: HardwareRequirement, job: JobState) -> None:
        self._requirement = requirement
        self._job = job

    def eval(self, job: Job) -> Hardware:
        hardware = self._requirement.eval(job)
        self._job.declared_cores = hardware.cores
        return Hardware(0.0, hardware.memory, hardware.storage)

    @classmethod
    async def _load(cls, row: MutableMapping[str, Any], loading_context: DatabaseLoadingContext) -> Self:
        raise NotImplementedError("made for one job, never saved")

    async def _save_additional_params(self, database: Database) -> MutableMapping[str, Any]:
        raise NotImplementedError("made for one job, never saved")
