"""StreamFlow's scheduler as ours extends it, for containers: locations of their own, with the cores of their hosts."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from streamflow.core.deployment import DeploymentConfig, Target, WrapsConfig
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.scheduling import AvailableLocation, Hardware
from streamflow.deployment.wrapper import ConnectorWrapper

from lab.node import wait_for
from lab.wording import uncoded
from tests.integration.test_gang_placement import WIDE, Cluster, Hosts

MEMORY = 1000.0  # of each host


class Container(ConnectorWrapper):  # type: ignore[misc]
    """The one of a deployment; nothing is run in it."""

    def __init__(self, name: str, host: Hosts, cores: float, memory: float) -> None:
        super().__init__(name, "", host, None, 2**16)
        self.container = uuid.uuid4().hex
        self._hardware = Hardware(cores, memory)

    async def get_available_locations(self, service: str | None = None) -> MutableMapping[str, AvailableLocation]:
        (host,) = (await self.connector.get_available_locations()).values()
        location = AvailableLocation(
            name=self.container,
            deployment=self.deployment_name,
            hostname="",
            hardware=self._hardware,
            stacked=True,
            wraps=host,
        )
        return {self.container: location}

    @classmethod
    def get_schema(cls) -> str:
        raise NotImplementedError


class Containers(Cluster):
    """Hosts with two cores each, and containers of DockerRequirements on them."""

    def __init__(self, directory: Path, *hosts: str, **config: Any) -> None:
        super().__init__(directory, {host: {f"{host}.example": 2} for host in hosts}, WIDE, **config)

    def on(self, *hosts: str, image: str = "debian:12", cores: float = 2, memory: float = MEMORY) -> Mapping[str, str]:
        """Bind the steps of the jobs that start from now on to containers of their own.

        :return: the hosts, by the name of the container
        """
        manager, self.targets, found = self.context.deployment_manager, [], {}
        for host in hosts:
            name = str(uuid.uuid4())
            container = Container(name, manager.deployments_map[host], cores, memory)
            manager.deployments_map[name] = container
            config = DeploymentConfig(name, "docker", {"image": image}, wraps=WrapsConfig(host))
            self.targets.append(Target(config, service=image))
            found[container.container] = host
        return found


async def test_of_several_hosts_the_containers_on_that_of_the_producer(tmp_path: Path) -> None:
    cluster = Containers(tmp_path, "one", "other")
    cluster.on("other")
    await cluster.start("/a/0")
    there = cluster.on("one", "other")
    assert there[await cluster.start("/b/0", "/a/0")] == "other"
    there = cluster.on("one", "other")
    assert there[await cluster.start("/alone/0")] == "one"


async def test_containers_share_the_cores_of_their_host(tmp_path: Path) -> None:
    """Jobs of a gang start beside their producer; others wait for a core of the host, though theirs are free."""
    cluster = Containers(tmp_path, "one")
    cluster.on("one")
    await cluster.start("/a/0", cores=2)
    cluster.on("one")
    await asyncio.wait_for(cluster.start("/b/0", "/a/0", cores=2), 10)
    cluster.on("one")
    waiting = asyncio.create_task(cluster.start("/alone/0", cores=1))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await cluster.end("/a/0")
    await asyncio.wait_for(waiting, 10)


async def test_without_oversubscription_a_member_waits_for_a_core_of_the_host(tmp_path: Path) -> None:
    cluster = Containers(tmp_path, "one", oversubscribe="never")
    cluster.on("one")
    await cluster.start("/a/0", cores=2)
    cluster.on("one")
    waiting = asyncio.create_task(cluster.start("/b/0", "/a/0", cores=1))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await cluster.end("/a/0")
    await asyncio.wait_for(waiting, 10)


async def test_what_waits_for_memory_says_of_what(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Containers(tmp_path, "one")
    cluster.on("one")
    await cluster.start("/a/0", memory=600)
    cluster.on("one")
    waiting = asyncio.create_task(cluster.start("/b/0", "/a/0", memory=600))
    await until_said(
        caplog, "Job /b/0 needs no free core, and waits for memory on one.example: it asks for 600 MiB, and 400"
    )
    await cluster.end("/a/0")
    await asyncio.wait_for(waiting, 10)


async def test_a_container_with_less_memory_than_its_host(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Containers(tmp_path, "one")
    cluster.on("one")
    await cluster.start("/a/0")
    cluster.on("one", memory=500)
    await cluster.start("/b/0", "/a/0", memory=300)
    waiting = asyncio.create_task(cluster.start("/b/1", "/a/0", memory=300))
    await until_said(caplog, "waits for memory on a container of debian:12: it asks for 300 MiB, and 200 of 500")
    await cluster.end("/b/0")
    await asyncio.wait_for(waiting, 10)


@pytest.mark.parametrize(
    ("asked", "container", "there"),
    [
        ({"cores": 3}, {"cores": 8}, "there are 2 cores and 1,000 MiB of memory on a container of debian:12"),
        ({"cores": 2}, {"cores": 1}, "there are 1 core and 1,000 MiB of memory on a container of debian:12"),
        ({"memory": 1500}, {"memory": 4000.0}, "there are 2 cores and 1,000 MiB of memory on a container"),
    ],
)
async def test_a_job_that_no_container_has_room_for_ends_the_run(
    tmp_path: Path, asked: dict[str, float], container: dict[str, float], there: str
) -> None:
    """The job takes its request from its container, and from the host."""
    cluster = Containers(tmp_path, "one")
    names = cluster.on("one", **container)  # type: ignore[arg-type]
    with pytest.raises(WorkflowExecutionException, match=r"No job of /alone can start") as raised:
        await asyncio.wait_for(cluster.start("/alone/0", **asked), 10)
    message = uncoded(str(raised.value))
    assert there in message
    assert message.endswith("(debian:12)")
    assert not [name for name in names if name in message]


async def until_said(caplog: pytest.LogCaptureFixture, words: str) -> None:
    """Wait until a message has these words."""
    await asyncio.to_thread(
        wait_for, lambda: any(words in record.getMessage() for record in caplog.records), f"a message: {words}"
    )
