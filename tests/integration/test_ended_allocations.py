"""Jobs with several targets, after the end of an allocation among them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from streamflow.core.config import BindingConfig
from streamflow.core.deployment import DeploymentConfig, Target
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.workflow import Job, Status

from lab.node import wait_for
from streamflow_io.adapters.jobs import NeverStartsError
from streamflow_io.engine.context import Run
from streamflow_io.runtime.allocation.allocation import Allocation
from streamflow_io.runtime.allocation.connector import AllocationConnector
from tests.integration.test_gang_placement import Cores, Hosts, scheduling

ENDED = "allocation 7 of Slurm has ended"
TYPES = {"nodes": "sfio.allocation", "others": "sfio.allocation", "hosts": "ssh"}


class Cluster:
    """StreamFlow with the plugin's scheduler, a host of two cores, and two allocations whose nodes are still to come.

    :ivar allocations: by deployment
    """

    def __init__(self, directory: Path) -> None:
        context, self.scheduler = scheduling(directory)
        self.allocations = {}
        for name in ("nodes", "others"):
            connector = AllocationConnector(name, "/")
            allocation = SimpleNamespace(over=None, comes=True, nodes={}, wait=lambda: asyncio.sleep(0))
            connector._allocation = cast(Allocation, allocation)
            connector.scheduler = self.scheduler
            context.deployment_manager.deployments_map[name] = connector
            self.allocations[name] = allocation
        context.deployment_manager.deployments_map["hosts"] = Hosts("hosts", {"h": 2})

    def end(self, name: str, why: str = ENDED) -> None:
        allocation = self.allocations[name]
        allocation.over, allocation.comes = why, False

    def schedule(self, name: str, *deployments: str, cores: float = 2) -> asyncio.Task[None]:
        binding = BindingConfig([Target(DeploymentConfig(each, TYPES[each], {})) for each in deployments])
        job = Job(name, 1, {}, "/in", "/out", "/tmp")
        return asyncio.create_task(self.scheduler.schedule(job, binding, Cores(cores)))

    async def until_it_waits(self, name: str) -> None:
        await asyncio.to_thread(wait_for, lambda: self.scheduler.host_jobs(name).waits, "a job that waits")


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("targets", [("nodes", "hosts"), ("hosts", "nodes"), ("nodes", "others", "hosts")])
@pytest.mark.parametrize("is_over_before", [True, False])
async def test_a_job_runs_where_another_target_has_room(
    cluster: Cluster, targets: tuple[str, ...], is_over_before: bool
) -> None:
    """The host is busy at first: the job waits for the host, also when the allocation ends meanwhile."""
    await cluster.schedule("/first/0", "hosts")
    await cluster.scheduler.notify_status("/first/0", Status.RUNNING)
    if is_over_before:
        cluster.end("nodes")
    waiting = cluster.schedule("/a/0", *targets)
    await cluster.until_it_waits("hosts")
    cluster.end("nodes")
    cluster.scheduler.wake()
    await cluster.schedule("/turn/0", "hosts", cores=0)
    assert not waiting.done()
    await cluster.scheduler.notify_status("/first/0", Status.COMPLETED)
    await waiting
    assert [each.name for each in cluster.scheduler.get_locations("/a/0")] == ["h"]


async def test_the_message_names_all_targets_when_all_have_ended(cluster: Cluster) -> None:
    waiting = cluster.schedule("/a/0", "nodes", "others")
    await cluster.until_it_waits("others")
    cluster.end("nodes")
    cluster.end("others", "allocation 8 of Slurm has ended")
    cluster.scheduler.wake()
    with pytest.raises(WorkflowExecutionException, match=f"start: {ENDED}; allocation 8 of Slurm has ended"):
        await waiting


@pytest.mark.parametrize("is_over_before", [True, False])
async def test_no_job_is_tried_again_when_a_job_can_never_start(cluster: Cluster, is_over_before: bool) -> None:
    """StreamFlow tries a job again that has failed on a lost node, perhaps without end."""
    await cluster.schedule("/first/0", "hosts")
    await cluster.scheduler.notify_status("/first/0", Status.RECOVERY)
    if is_over_before:
        cluster.end("nodes")
    waiting = cluster.schedule("/a/0", "nodes")
    if not is_over_before:
        await cluster.until_it_waits("nodes")
        cluster.end("nodes")
        cluster.scheduler.wake()
    why = f"Job /a/0 cannot start: {ENDED}"
    with pytest.raises(NeverStartsError, match=why):
        await waiting
    with pytest.raises(NeverStartsError, match=why):
        await cluster.scheduler.notify_status("/first/0", Status.RECOVERY)


@pytest.mark.parametrize("is_over_before", [True, False])
async def test_the_message_names_a_host_that_is_too_small(cluster: Cluster, is_over_before: bool) -> None:
    if is_over_before:
        cluster.end("nodes")
    waiting = cluster.schedule("/a/0", "nodes", "hosts", cores=3)
    if not is_over_before:
        await cluster.until_it_waits("nodes")
        cluster.end("nodes")
        cluster.scheduler.wake()
    with pytest.raises(WorkflowExecutionException, match=rf"No job of /a can start: {ENDED}; it asks for 3 cores"):
        await waiting


async def test_a_job_that_waits_when_the_run_ends_does_not_look_again(cluster: Cluster) -> None:
    """The deployments are gone then. What else ends would wake the job."""
    scheduler = cluster.scheduler
    await cluster.schedule("/first/0", "hosts")
    waiting = cluster.schedule("/a/0", "hosts")
    await cluster.until_it_waits("hosts")

    async def ended(job: str, status: Status) -> None:
        scheduler.wake()

    async def close() -> None:
        await scheduler.notify_status("/first/0", Status.CANCELLED)

    scheduler.run = cast(Run, SimpleNamespace(ended=ended, close=close, connector=lambda _, inner: inner))
    scheduler.context.deployment_manager.deployments_map["hosts"] = None
    await scheduler.close()
    for _ in range(100):  # turns of the event loop
        await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
