"""What the driver does for a job besides its decisions: StreamFlow's own parts, and what our adapters add to them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from streamflow.core.config import BindingConfig
from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import DeploymentConfig, Target
from streamflow.core.scheduling import AvailableLocation, Hardware
from streamflow.core.workflow import Job, Status
from streamflow.scheduling.scheduler import DefaultScheduler

from streamflow_io.hints.config import SchedulerConfig, StorageConfig
from streamflow_io.hints.errors import Level, Located, Source
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.models import IOTask, StorageBandwidth
from streamflow_io.runtime.protocol import EVENT
from streamflow_io.scheduling.remembered import RememberedLimits
from streamflow_io.scheduling.storage_admission import StorageAdmission

DEPLOYMENT = "cluster"
STEP = "/step"
_CORES = 16.0
_MEMORY = 1e6
EVENT_SECONDS = 0.5


@dataclass
class Cluster:
    """A connector of which nothing but the locations is asked.

    :ivar nodes: how many hosts it has
    """

    nodes: int
    deployment_name: str = DEPLOYMENT

    def __post_init__(self) -> None:
        names, hardware = [f"node{number:05d}" for number in range(self.nodes)], Hardware(_CORES, _MEMORY)
        self._locations = {name: AvailableLocation(name, DEPLOYMENT, name, hardware=hardware) for name in names}

    async def get_available_locations(self, service: str | None = None) -> MutableMapping[str, AvailableLocation]:
        """What a connector needs to find them out is not measured: that of SSH starts a task for each host."""
        return dict(self._locations)


def streamflow_scheduler_ms(nodes: int, jobs: int) -> float:
    """CPU time of StreamFlow's own scheduler for a job from its submission to its end, with so many locations; ms."""

    async def measure() -> float:
        scheduler = DefaultScheduler(_context(nodes))
        binding = BindingConfig([_target()])

        async def one(number: int) -> None:
            job = _job(number)
            await scheduler.schedule(job, binding, None)
            await scheduler.notify_status(job.name, Status.RUNNING)
            await scheduler.notify_status(job.name, Status.COMPLETED)

        return await _mean_ms(one, jobs)

    return asyncio.run(measure())


def storage_admission_ms(nodes: int, jobs: int) -> float:
    """CPU time of our adapter for an I/O task from its submission to its end, with so many locations; ms."""

    async def measure() -> float:
        storage = StorageConfig(name="ssd", path="/", scope="node", write=1000)
        config = SchedulerConfig(storages=(storage,))
        source = Source("")
        bandwidth = StorageBandwidth(storageBW=10)
        annotations = StepAnnotations(
            STEP,
            io_task=Located(IOTask(), Level.TOOL, "", source),
            storage_bandwidth=Located(bandwidth, Level.TOOL, "", source),
        )
        remembered = RememberedLimits(Path("/nonexistent"), {})
        admission = StorageAdmission(
            _context(nodes), config, {STEP: annotations}, remembered, lambda _: True, lambda _: 1, lambda _: None
        )
        targets = [_target()]

        async def one(number: int) -> None:
            job = _job(number)
            await admission.admit(job, targets)
            admission.release(job.name, None)

        return await _mean_ms(one, jobs)

    return asyncio.run(measure())


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


def _context(nodes: int) -> StreamFlowContext:
    cluster = Cluster(nodes)
    context = SimpleNamespace(
        deployment_manager=SimpleNamespace(get_connector=lambda _: cluster),
        data_manager=SimpleNamespace(get_data_locations=lambda _: []),
    )
    return cast(StreamFlowContext, context)


def _target() -> Target:
    return Target(DeploymentConfig(DEPLOYMENT, "ssh", {}), workdir="/scratch")


def _job(number: int) -> Job:
    return Job(f"{STEP}/0.{number}", 0, {}, None, None, None)


async def _mean_ms(action: Callable[[int], Awaitable[None]], jobs: int) -> float:
    await action(0)
    begin = time.process_time()
    for number in range(1, jobs + 1):
        await action(number)
    return 1e3 * (time.process_time() - begin) / jobs
