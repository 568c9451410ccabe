"""Jobs that run again because the files of a job could not be brought, where the next jobs hold all that is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from streamflow.core.config import BindingConfig
from streamflow.core.deployment import DeploymentConfig, Target
from streamflow.core.scheduling import AvailableLocation, Hardware, HardwareRequirement, Storage
from streamflow.core.workflow import Job, Status
from streamflow.data import remotepath

from tests.integration.test_gang_placement import Cores, Hosts, scheduling

pytestmark = pytest.mark.timeout(60)


class Disk(Cores):
    """Needs all that is left of a disk."""

    def eval(self, job: Job) -> Hardware:
        return Hardware(0.0, 0.0, {"out": Storage("/", 900.0, {"/"})})


class Nodes(Hosts):
    """Nodes with a disk. A node can be lost."""

    async def get_available_locations(self, service: str | None = None) -> MutableMapping[str, AvailableLocation]:
        locations = await super().get_available_locations(service)
        for location in locations.values():
            assert location.hardware is not None
            location.hardware.storage = {"/": Storage("/", 1000.0, {"/"})}
        return locations

    def lose(self, name: str) -> None:
        self._cores = {other: cores for other, cores in self._cores.items() if other != name}


class Cluster:
    """StreamFlow with the plugin's scheduler, and two nodes. Each node has room for one job."""

    def __init__(self, directory: Path, asked: HardwareRequirement) -> None:
        context, self.scheduler = scheduling(directory)
        self.nodes = Nodes("nodes", {"n1": 2, "n2": 2})
        context.deployment_manager.deployments_map["nodes"] = self.nodes
        self._asked = asked

    def start(self, name: str) -> asyncio.Task[None]:
        binding = BindingConfig([Target(DeploymentConfig("nodes", "ssh", {}))])
        job = Job(name, 1, {}, "/in", "/out", "/tmp")
        return asyncio.create_task(self.scheduler.schedule(job, binding, self._asked))

    async def place(self, name: str) -> str:
        await self.start(name)
        (where,) = self.scheduler.get_locations(name)
        return str(where.name)

    async def tell(self, name: str, *statuses: Status) -> None:
        for status in statuses:
            await self.scheduler.notify_status(name, status)


@pytest.mark.parametrize(
    "make", [lambda: Cores(2), lambda: Cores(0, 1000), lambda: Cores(1, 600), lambda: Disk(0)],
    ids=["cores", "memory", "both", "disk"],
)  # fmt: skip
async def test_they_take_what_is_held_and_who_holds_it_starts_after_them(
    tmp_path: Path, make: Callable[[], HardwareRequirement], monkeypatch: pytest.MonkeyPatch
) -> None:
    """StreamFlow brings files to one job of a step after the other: `/b/1` waits for the recovery of `/b/0`."""
    monkeypatch.setattr(remotepath, "get_storage_usages", AsyncMock(return_value={}))
    cluster = Cluster(tmp_path, make())
    await cluster.place("/a/0")
    await cluster.tell("/a/0", Status.RUNNING, Status.COMPLETED)
    lost, left = await cluster.place("/b/0"), await cluster.place("/b/1")
    cluster.nodes.lose(lost)
    await cluster.tell("/b/0", Status.RECOVERY)
    for name in ("/a/0", "/b/0"):
        await cluster.tell(name, Status.ROLLBACK)
    assert await cluster.place("/a/0") == left
    new = cluster.start("/c/0")
    await cluster.tell("/a/0", Status.RUNNING, Status.COMPLETED)
    assert await cluster.place("/b/0") == left
    await cluster.tell("/b/0", Status.RUNNING)
    held = asyncio.create_task(cluster.tell("/b/1", Status.RUNNING))
    # A job without needs looks after the two that wait.
    cluster._asked = Cores(0)
    await cluster.place("/turn/0")
    assert not held.done()
    assert not new.done()
    await cluster.tell("/b/0", Status.COMPLETED)
    await held
    assert not new.done()
    await cluster.tell("/b/1", Status.COMPLETED)
    await new
