"""I/O tasks that are granted a place where they cannot start: they start elsewhere, and what they held is free."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from streamflow.core.config import BindingConfig
from streamflow.core.deployment import Connector
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.scheduling import AvailableLocation
from streamflow.core.workflow import Job, Status

from lab.node import wait_for
from streamflow_io._streamflow import NoHostsError
from streamflow_io.engine import scheduler
from streamflow_io.hints.errors import Source
from streamflow_io.hints.inheritance import Level, Located, StepAnnotations
from streamflow_io.hints.models import IOTask
from streamflow_io.runtime.allocation.allocation import Allocation
from streamflow_io.runtime.allocation.connector import AllocationConnector
from tests.integration.test_gang_placement import Cluster, Cores, Hosts

STEP = "/save"

pytestmark = [pytest.mark.usefixtures("own_data"), pytest.mark.timeout(60)]


class EndingHosts(Hosts):
    """Hosts of an allocation that may end."""

    def __init__(self, name: str, cores: Mapping[str, float]) -> None:
        super().__init__(name, cores)
        self.is_over = False

    async def get_available_locations(self, service: str | None = None) -> MutableMapping[str, AvailableLocation]:
        if self.is_over:
            raise NoHostsError("allocation 7 of Slurm has ended")
        return await super().get_available_locations(service)


def tasks(directory: Path, deployments: Mapping[str, Mapping[str, float]]) -> Cluster:
    """I/O tasks of one step. Each host runs one at a time."""
    task = Located(IOTask(), Level.TOOL, "sfio:IOTask", Source("step.cwl"))
    cluster = Cluster(directory, deployments, annotations={STEP: StepAnnotations(STEP, io_task=task)}, ioExecutors=1)
    schedule = SimpleNamespace(status=Status.RUNNING, terminated=False, get_input_ports=dict)
    cluster.run._plan.workflow.steps[f"{STEP}/__schedule__"] = schedule
    return cluster


def submit(cluster: Cluster, number: int, step: str = STEP) -> asyncio.Task[None]:
    name = f"{step}/0.{number}"
    binding = BindingConfig(list(cluster.targets))
    return asyncio.create_task(cluster.scheduler.schedule(Job(name, 1, {}, "/in", "/out", "/tmp"), binding, Cores(1)))


async def start(cluster: Cluster, number: int) -> str:
    await submit(cluster, number)
    await cluster.scheduler.notify_status(f"{STEP}/0.{number}", Status.RUNNING)
    return place(cluster, number)


async def until(cluster: Cluster, *, waits: bool) -> None:
    """Wait until a task waits for its grant, or until none does any more."""
    admission = cluster.run.bandwidth.admission._admission
    await asyncio.to_thread(wait_for, lambda: bool(admission.waiting(STEP)) is waits, "a task that waits, or its grant")


def place(cluster: Cluster, number: int) -> str:
    (location,) = cluster.scheduler.get_locations(f"{STEP}/0.{number}")
    return str(location.name)


async def test_a_task_that_is_granted_a_host_of_an_ended_allocation(tmp_path: Path) -> None:
    """The allocation ends while the task waits, so that only StreamFlow's scheduler sees that the host is gone."""
    cluster = tasks(tmp_path, {"nodes": {"n": 1}, "hosts": {"h": 1}})
    cluster.context.deployment_manager.deployments_map["nodes"] = nodes = EndingHosts("nodes", {"n": 1})
    assert [await start(cluster, 0), await start(cluster, 1)] == ["n", "h"]
    waiting = submit(cluster, 2)
    await until(cluster, waits=True)
    nodes.is_over = True
    await cluster.scheduler.notify_status(f"{STEP}/0.0", Status.FAILED)
    await cluster.scheduler.notify_status(f"{STEP}/0.1", Status.COMPLETED)
    await waiting
    assert place(cluster, 2) == "h"


async def test_a_task_that_is_granted_a_host_whose_time_is_too_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ToolTimeLimit of the task is an hour, and `n1` is there for a minute."""

    def left(connector: Connector, location: AvailableLocation) -> tuple[float, float]:
        return (60.0 if location.name == "n1" else 9000.0), 9000.0

    monkeypatch.setattr(scheduler, "seconds_left", left)
    cluster = tasks(tmp_path, {"nodes": {"n1": 1, "n2": 1}})
    monkeypatch.setattr(cluster.run, "time_limit", lambda job: 3600.0 if job.name.endswith(".0") else None)
    assert await start(cluster, 0) == "n2"
    assert await start(cluster, 1) == "n1"


class ComingHosts(AllocationConnector):
    """Nodes of allocations that come later, each of one core. Nothing is run on them."""

    def __init__(self, cluster: Cluster, *names: str) -> None:
        super().__init__("nodes", "/")
        self.names = [*names]
        self.error: Exception | None = None
        times = {"seconds_left": None, "seconds_of": lambda _: None}
        allocation = SimpleNamespace(over=None, comes=True, nodes={}, wait=lambda: asyncio.sleep(0), **times)
        self._allocation = cast(Allocation, allocation)
        self.scheduler = cluster.scheduler
        cluster.context.deployment_manager.deployments_map["nodes"] = self

    async def get_available_locations(self, service: str | None = None) -> MutableMapping[str, AvailableLocation]:
        if self.error is not None:
            raise self.error
        return await Hosts("nodes", dict.fromkeys(self.names, 1)).get_available_locations(service)

    def have(self, *names: str) -> None:
        """The nodes are others now."""
        self.names = [*names]
        self.changed()


async def test_a_task_that_is_granted_a_host_of_an_allocation_after_which_another_comes(tmp_path: Path) -> None:
    """The next allocation may wait in the queue for long: the task takes the host of its other target."""
    cluster = tasks(tmp_path, {"nodes": {"n": 1}, "hosts": {"h": 1}})
    nodes = ComingHosts(cluster, "n")
    assert [await start(cluster, 0), await start(cluster, 1)] == ["n", "h"]
    waiting = submit(cluster, 2)
    await until(cluster, waits=True)
    # The grant of the job comes in the moment in which the node is lost.
    nodes.names = []
    await cluster.scheduler.notify_status(f"{STEP}/0.0", Status.FAILED)
    await until(cluster, waits=False)
    nodes.have()
    await cluster.scheduler.notify_status(f"{STEP}/0.1", Status.COMPLETED)
    await waiting
    assert place(cluster, 2) == "h"


async def test_a_task_that_waits_for_its_grant_when_other_hosts_come(tmp_path: Path) -> None:
    """No other task is submitted, with which the new host could become known."""
    cluster = tasks(tmp_path, {"nodes": {"n": 1}})
    nodes = ComingHosts(cluster, "n")
    assert await start(cluster, 0) == "n"
    waiting = submit(cluster, 1)
    await until(cluster, waits=True)
    nodes.have("n-2")
    await waiting
    assert place(cluster, 1) == "n-2"


async def test_a_task_that_is_granted_a_host_that_another_one_replaces(tmp_path: Path) -> None:
    cluster = tasks(tmp_path, {"nodes": {"n": 1}})
    nodes = ComingHosts(cluster, "n")
    assert await start(cluster, 0) == "n"
    waiting = submit(cluster, 1)
    await until(cluster, waits=True)
    nodes.names = []
    await cluster.scheduler.notify_status(f"{STEP}/0.0", Status.FAILED)
    await until(cluster, waits=False)
    nodes.have("n-2")
    await waiting
    assert place(cluster, 1) == "n-2"


async def test_a_job_that_waits_fails_when_the_hosts_cannot_be_told_any_more(tmp_path: Path) -> None:
    cluster = tasks(tmp_path, {"nodes": {"n": 1}})
    nodes = ComingHosts(cluster, "n")
    assert await start(cluster, 0) == "n"
    await submit(cluster, 0, "/compute")
    waiting = submit(cluster, 1, "/compute")
    await asyncio.to_thread(wait_for, lambda: cluster.scheduler.host_jobs("nodes").waits, "a job that waits")
    nodes.error = WorkflowExecutionException("srun is gone")
    nodes.have("n")
    with pytest.raises(WorkflowExecutionException, match="srun is gone"):
        await asyncio.wait_for(waiting, 30)
