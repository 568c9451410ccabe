"""Containers of a gang are deployed side by side, and none is left that was deployed for nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from streamflow.core.deployment import DeploymentConfig, ExecutionLocation, WrapsConfig
from streamflow.core.workflow import Job
from streamflow.deployment.connector import connector_classes
from streamflow.deployment.connector.container import DockerConnector
from streamflow.deployment.connector.local import LocalConnector
from streamflow.deployment.manager import DefaultDeploymentManager

from streamflow_io.adapters.jobs import JobState
from streamflow_io.graph.gangs import Gang
from streamflow_io.jobs.gang_placement import GangDeployment
from streamflow_io.runtime.deployments import Deployments


def targets(*deployments: str) -> Any:
    return [SimpleNamespace(deployment=SimpleNamespace(name=name)) for name in deployments]


def step(*deployments: str) -> Any:
    return SimpleNamespace(binding_config=SimpleNamespace(targets=targets(*deployments)))


def job(name: str, *deployments: str) -> JobState:
    return JobState(Job(name, 1, {}, None, None, None), targets=targets(*deployments))


class Ahead:
    def __init__(self) -> None:
        self.deployed: list[str] = []

    def deploy_ahead(self, deployment: str) -> None:
        self.deployed.append(deployment)


def test_a_step_and_those_that_read_of_it_are_deployed_once() -> None:
    ahead = Ahead()
    steps = {f"/{name}/__schedule__": step(name) for name in "abcd"} | {"/e/__schedule__": step("e", "other")}
    gangs = [Gang(("/a", "/b", "/e", "/c"), ("/a",), 1.0)]
    deployment = GangDeployment(ahead.deploy_ahead, steps, gangs)
    for name in ("/d/0", "/b/0", "/a/0", "/a/1"):
        deployment.submitted(job(name, name[1]))
    assert ahead.deployed == ["d", "b", "a", "b", "c", "a"]
    deployment.submitted(job("/e/0", "e", "other"))
    assert ahead.deployed[6:] == ["e", "other"]


def test_a_job_may_have_the_name_of_no_step() -> None:
    """StreamFlow collects the files of a nested list as a job without a tag, now and then."""
    ahead = Ahead()
    GangDeployment(ahead.deploy_ahead, {}, []).submitted(job("/a-collector/", "local"))
    assert ahead.deployed == ["local"]


def test_a_step_that_is_not_scheduled_is_not_deployed() -> None:
    """Tests of the scheduler have such steps: workflows without steps of StreamFlow."""
    ahead = Ahead()
    GangDeployment(ahead.deploy_ahead, {}, [Gang(("/a", "/b"), ("/a",), 1.0)]).submitted(job("/a/0", "a"))
    assert ahead.deployed == ["a"]


class SlowDocker(DockerConnector):  # type: ignore[misc]
    """Plays an engine: what was asked of it happens, also when whoever has asked does not wait."""

    running: ClassVar[list[str]] = []

    async def deploy(self, external: bool) -> None:
        if self.image != "missing":
            asyncio.get_running_loop().call_later(0.1, self.running.append, self.deployment_name)
        await asyncio.sleep(0.15)
        if self.image == "missing":
            raise ValueError("there is no image missing")

    async def get_available_locations(self, service: str | None = None) -> Any:
        return {}

    async def undeploy(self, external: bool) -> None:
        self.running.remove(self.deployment_name)


async def test_what_is_half_deployed_at_the_end_is_not_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(connector_classes, "docker", SlowDocker)
    context: Any = SimpleNamespace(config={"path": str(tmp_path / "file"), "deployments": {}})
    manager = context.deployment_manager = DefaultDeploymentManager(context)
    for name in ("image", "missing"):
        await manager.deploy(DeploymentConfig(name=name, type="docker", config={"image": name}, lazy=True))
    deployments = Deployments(context)
    for name in ("image", "missing", "__LOCAL__", "unknown"):
        deployments.deploy_ahead(name)
    await asyncio.sleep(0.01)
    await asyncio.gather(manager.undeploy_all(), deployments.release())
    assert SlowDocker.running == []
    assert manager.deployments_map == {}
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "The container of missing cannot be deployed: there is no image missing"
    ]


class Host(LocalConnector):  # type: ignore[misc]
    """Notes what runs in its containers when it goes."""

    left: ClassVar[list[str]] = []

    async def undeploy(self, external: bool) -> None:
        self.left.extend(["host", *StoppedSlowly.running])


class StoppedSlowly(SlowDocker):
    running: ClassVar[list[str]] = []

    async def undeploy(self, external: bool) -> None:
        await asyncio.sleep(0.05 * len(self.running))
        await super().undeploy(external)


async def test_containers_end_before_the_host_that_jobs_run_on_beside_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(connector_classes, "docker", StoppedSlowly)
    monkeypatch.setitem(connector_classes, "ssh", Host)
    context: Any = SimpleNamespace(config={"path": str(tmp_path / "file"), "deployments": {}})
    manager = context.deployment_manager = DefaultDeploymentManager(context)
    await manager.deploy(DeploymentConfig("host", "ssh", {}, lazy=False))
    deployments = Deployments(context)
    host = ExecutionLocation("host1", "host")
    for name in ("first", "second"):
        config = DeploymentConfig(name, "docker", {"image": name}, lazy=False, wraps=WrapsConfig("host"))
        await manager.deploy(config)
        deployments.hold(ExecutionLocation(name, name, stacked=True, wraps=host))
    deployments.hold(host)
    await manager.undeploy_all()
    assert len(StoppedSlowly.running) == 2
    await deployments.release()
    assert (StoppedSlowly.running, Host.left) == ([], ["host"])
    assert manager.deployments_map == {}


class Killed(StoppedSlowly):
    """One of them is gone when it is to be stopped."""

    running: ClassVar[list[str]] = []

    async def undeploy(self, external: bool) -> None:
        if self.deployment_name == "killed":
            raise ValueError("No such container")
        await super().undeploy(external)


async def test_a_container_that_is_gone_does_not_keep_others_from_being_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(connector_classes, "docker", Killed)
    context: Any = SimpleNamespace(config={"path": str(tmp_path / "file"), "deployments": {}})
    manager = context.deployment_manager = DefaultDeploymentManager(context)
    deployments = Deployments(context)
    for name in ("killed", "other"):
        await manager.deploy(DeploymentConfig(name, "docker", {"image": name}, lazy=False))
        deployments.hold(ExecutionLocation(name, name))
    await manager.undeploy_all()
    await asyncio.sleep(0.15)
    with pytest.raises(ValueError, match="No such container"):
        await deployments.release()
    assert Killed.running == ["killed"]


class Silent(StoppedSlowly):
    """One of them does not answer when it is to be stopped."""

    running: ClassVar[list[str]] = []

    async def undeploy(self, external: bool) -> None:
        if self.deployment_name == "silent":
            await asyncio.Event().wait()
        await super().undeploy(external)


@pytest.mark.parametrize(("kind", "bound"), [("docker", "_UNDEPLOY_SECONDS"), ("ssh", "_DISCONNECT_SECONDS")])
async def test_a_deployment_that_does_not_answer_is_named_and_others_are_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, bound: str
) -> None:
    monkeypatch.setattr(Silent, "running", [])
    monkeypatch.setitem(connector_classes, kind, Silent)
    monkeypatch.setattr(f"streamflow_io.runtime.deployments.{bound}", 1)
    context: Any = SimpleNamespace(config={"path": str(tmp_path / "file"), "deployments": {}})
    manager = context.deployment_manager = DefaultDeploymentManager(context)
    deployments = Deployments(context)
    for name in ("silent", "other"):
        await manager.deploy(DeploymentConfig(name, kind, {"image": name}, lazy=False))
        deployments.hold(ExecutionLocation(name, name))
    await manager.undeploy_all()
    await asyncio.sleep(0.15)
    await asyncio.wait_for(deployments.release(), 30)
    assert Silent.running == ["silent"]
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "The deployment silent has not ended within 1 s. Its containers, its jobs or its connections may be left there"
    ]


async def test_what_a_job_waits_for_when_the_run_is_interrupted_is_not_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(connector_classes, "docker", SlowDocker)
    context: Any = SimpleNamespace(config={"path": str(tmp_path / "file"), "deployments": {}})
    manager = context.deployment_manager = DefaultDeploymentManager(context)
    await manager.deploy(DeploymentConfig(name="image", type="docker", config={"image": "image"}, lazy=True))
    deployments = Deployments(context)
    deployment = GangDeployment(deployments.deploy_ahead, {}, [])

    async def schedule() -> None:
        deployment.submitted(job("/a/0", "image"))
        connector = manager.get_connector("image")
        assert connector is not None
        await connector.get_available_locations()

    scheduling = asyncio.create_task(schedule())
    await asyncio.sleep(0.01)
    scheduling.cancel()
    await asyncio.gather(manager.undeploy_all(), deployments.release(), scheduling, return_exceptions=True)
    await asyncio.sleep(0.15)
    assert SlowDocker.running == []
    assert manager.deployments_map == {}
