"""What the driver does for a job besides its decisions: StreamFlow's own parts, and what our adapters add to them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from streamflow.core.config import BindingConfig
from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import DeploymentConfig, Target
from streamflow.core.scheduling import AvailableLocation, Hardware
from streamflow.core.workflow import Job, Status, Token
from streamflow.scheduling.scheduler import DefaultScheduler
from streamflow.workflow.token import JobToken
from streamflow.workflow.utils import get_job_token

from streamflow_io.hints.config import SchedulerConfig, StorageConfig
from streamflow_io.hints.errors import Level, Located, Source
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.models import IOTask, StorageBandwidth
from streamflow_io.learned.limits import RememberedLimits
from streamflow_io.run.demands import RequiredJobs
from streamflow_io.run.deployment_sites import Sites
from streamflow_io.run.jobs import JobState
from streamflow_io.run.shared_storages import Meeting
from streamflow_io.run.storage_admission import StorageAdmission
from streamflow_io.run.storages import Storages
from streamflow_io.runtime.protocol import EVENT

DEPLOYMENT = "cluster"
STEP = "/step"
_CORES = 16.0
_MEMORY = 1e6
_LOOKUPS = 20
EVENT_SECONDS = 0.5


class Cluster:
    """A deployment of which nothing but its locations is asked.

    :ivar context: StreamFlow's, with nothing but this deployment
    """

    deployment_name = DEPLOYMENT

    def __init__(self, nodes: int) -> None:
        self.resize(nodes)
        self.context = cast(
            StreamFlowContext,
            SimpleNamespace(
                config={},
                deployment_manager=SimpleNamespace(get_connector=lambda _: self),
                data_manager=SimpleNamespace(get_data_locations=lambda _: []),
            ),
        )

    def resize(self, nodes: int) -> None:
        """Let it have so many hosts."""
        names, hardware = [f"node{number:05d}" for number in range(nodes)], Hardware(_CORES, _MEMORY)
        self._locations = {name: AvailableLocation(name, DEPLOYMENT, name, hardware=hardware) for name in names}

    async def get_available_locations(self, service: str | None = None) -> MutableMapping[str, AvailableLocation]:
        """What a connector needs to find them out is not measured: that of SSH starts a task for each host."""
        return dict(self._locations)


def streamflow_scheduler_ms(nodes: int, jobs: int) -> float:
    """CPU time of StreamFlow's own scheduler for a job from its submission to its end, with so many locations; ms."""

    async def measure() -> float:
        scheduler = DefaultScheduler(Cluster(nodes).context)
        binding = BindingConfig([target()])

        async def one(number: int) -> None:
            name = f"{STEP}/0.{number}"
            await scheduler.schedule(job(number).job, binding, None)
            await scheduler.notify_status(name, Status.RUNNING)
            await scheduler.notify_status(name, Status.COMPLETED)

        return await _mean_ms(one, jobs)

    return asyncio.run(measure())


def job_token_ms(jobs: int) -> float:
    """CPU time in which StreamFlow finds a job among those of a step of so many, which it does twice for each; ms."""
    tokens = [JobToken(job(number).job) for number in range(jobs)]
    wanted = [f"{STEP}/0.{jobs * part // _LOOKUPS}" for part in range(_LOOKUPS)]
    begin = time.process_time()
    for name in wanted:
        get_job_token(name, tokens)
    return 1e3 * (time.process_time() - begin) / _LOOKUPS


def storage_admission_ms(nodes: int, jobs: int) -> float:
    """CPU time of our adapter for an I/O task from its submission to its end, with so many locations; ms."""

    async def measure() -> float:
        admission, targets = io_task_admission(Cluster(nodes)), [target()]

        async def one(number: int) -> None:
            task = job(number)
            await admission.admit(task, targets)
            admission.ended(task)

        return await _mean_ms(one, jobs)

    return asyncio.run(measure())


def io_task_admission(
    cluster: Cluster,
    wake: Callable[[], None] = lambda: None,
    required: RequiredJobs | None = None,
    storage: StorageConfig | None = None,
    meeting: Meeting | None = None,
) -> StorageAdmission:
    """Our adapter on a storage that each location has."""
    storage = storage or StorageConfig(name="ssd", path="/", scope="node", write=1000)
    return StorageAdmission(
        cluster.context,
        SchedulerConfig(storages=(storage,)),
        Storages((storage,), Sites({})),
        RememberedLimits(Path(), {}),
        more_jobs=lambda _: True,
        arrived=lambda _: 1,
        wake=wake,
        record=lambda _: None,
        required=required,
        meeting=meeting,
    )


def job(number: int, is_io_task: bool = True, storage_bw: float | str = 10, **inputs: Token) -> JobState:
    """A job of the step: an I/O task, or another job with a storageBW."""
    bandwidth = StorageBandwidth.model_validate({"storageBW": storage_bw})
    hints = StepAnnotations(
        STEP,
        io_task=Located(IOTask(), Level.TOOL, "sfio:IOTask", Source("step.cwl")) if is_io_task else None,
        storage_bandwidth=Located(bandwidth, Level.TOOL, "sfio:StorageBandwidth", Source("step.cwl")),
    )
    return JobState(Job(f"{STEP}/0.{number}", 0, inputs, None, None, None), hints)


def target() -> Target:
    """The cluster."""
    return Target(DeploymentConfig(DEPLOYMENT, "ssh", {}), workdir="/scratch")


def events_per_second() -> float:
    """How many lines of `sfio-node` are read in a second of CPU time: those of a job that streams a file."""
    now = time.time()
    job = {"job": "000001-step-0.1", "time": now}
    file = {"port": "output", "path": "/scratch/streamflow/0a1b2c3d-4e5f-6789-abcd-ef0123456789/output/part-0001.bin"}
    usage = dict.fromkeys(("rchar", "wchar", "read_bytes", "write_bytes", "max_rss", "streamed"), 123_456_789)
    ended = {"code": 0, "success": True, "reason": "exited", "started": now, "ended": now, "usage": usage}
    lines = [
        json.dumps(event | job).encode()
        for event in (
            {"event": "started", "pid": 12345},
            {"event": "opened", **file},
            {"event": "closed", **file, "closes": 1},
            {"event": "committed", **file, "size": 123_456_789},
            {"event": "complete", "port": "output"},
            {"event": "exit", **ended},
        )
    ]
    count, begin = 0, time.process_time()
    while (seconds := time.process_time() - begin) < EVENT_SECONDS:
        for line in lines:
            EVENT.validate_json(line)
        count += len(lines)
    return count / seconds


async def _mean_ms(action: Callable[[int], Awaitable[None]], jobs: int) -> float:
    await action(0)
    begin = time.process_time()
    for number in range(1, jobs + 1):
        await action(number)
    return 1e3 * (time.process_time() - begin) / jobs
