"""A cluster that knows nothing but its locations, and the admission of the jobs of one step on it."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import DeploymentConfig, Target
from streamflow.core.scheduling import AvailableLocation, Hardware
from streamflow.core.workflow import Job, Token

from streamflow_io.adapters.deployment_sites import Sites
from streamflow_io.adapters.jobs import JobState
from streamflow_io.hints.config import SchedulerConfig, StorageConfig
from streamflow_io.hints.errors import Level, Located, Source
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.models import IOTask, StorageBandwidth
from streamflow_io.storage.demands import Spacing
from streamflow_io.storage.learned_limits import RememberedLimits
from streamflow_io.storage.shared_storages import Meeting
from streamflow_io.storage.storage_admission import StorageAdmission
from streamflow_io.storage.storages import Storages

DEPLOYMENT = "cluster"
STEP = "/step"
_CORES = 16.0
_MEMORY = 1e6


class Cluster:
    """A deployment that knows nothing but its locations.

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
        """Set the number of its hosts."""
        names, hardware = [f"node{number:05d}" for number in range(nodes)], Hardware(_CORES, _MEMORY)
        self._locations = {name: AvailableLocation(name, DEPLOYMENT, name, hardware=hardware) for name in names}

    def lose(self, host: AvailableLocation) -> None:
        del self._locations[host.name]

    async def get_available_locations(self, service: str | None = None) -> MutableMapping[str, AvailableLocation]:
        return dict(self._locations)


def io_task_admission(
    cluster: Cluster,
    spacing: Spacing = lambda *_: None,
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
        wake=lambda: None,
        record=lambda _: None,
        spacing=spacing,
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
