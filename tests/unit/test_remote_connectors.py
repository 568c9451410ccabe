"""Node runtimes through StreamFlow's connectors: which commands are run, and what they do where they are run."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable, MutableSequence
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.json import decode
from streamflow.core.deployment import Connector, DeploymentConfig, ExecutionLocation, WrapsConfig
from streamflow.deployment.connector import connector_classes
from streamflow.deployment.connector.base import BatchConnector
from streamflow.deployment.connector.container import DockerConnector, SingularityConnector
from streamflow.deployment.connector.queue_manager import SlurmConnector
from streamflow.deployment.manager import DefaultDeploymentManager

from lab.connectors import CERTIFICATE, Host, exited, say, serving, stand_in
from streamflow_io.runtime import node_runtimes
from streamflow_io.runtime.access import Access
from streamflow_io.runtime.deployments import Deployments, Manner
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.node_runtimes import NodeRuntimes
from streamflow_io.runtime.protocol import JobSpec
from streamflow_io.runtime.remote import RemoteRuntime

pytestmark = pytest.mark.timeout(30)

# `docker exec [-i] NAME COMMAND...` and `singularity exec instance://NAME COMMAND...`, in no container.
ENGINE = '#!/bin/sh\nshift; case $1 in -*) shift ;; esac; shift; exec "$@"\n'
INNER = ExecutionLocation("host", "host")


@pytest.fixture(autouse=True)
def _engines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "tmp").mkdir()
    for name in ("docker", "singularity"):
        (tmp_path / "bin" / name).write_text(ENGINE)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))


def docker(inner: Host) -> tuple[Connector, ExecutionLocation]:
    return DockerConnector("d", "/", inner, None, image="i"), ExecutionLocation("box", "d", wraps=INNER)


def singularity(inner: Host) -> tuple[Connector, ExecutionLocation]:
    return SingularityConnector("s", "/", inner, None, image="i"), ExecutionLocation("box", "s", wraps=INNER)


def slurm(inner: Host) -> tuple[Connector, ExecutionLocation]:
    connector = SlurmConnector("hpc", "/", inner, None, maxConcurrentJobs=2)
    return connector, ExecutionLocation("host/slurmctld", "hpc", wraps=INNER)


ENGINES = {
    docker: ("docker exec --interactive box sh", "docker exec -i box sh -c "),
    singularity: ("singularity exec instance://box sh", "singularity exec   instance://box sh -c "),
    slurm: ("sh", "sh -s ", "sh -c 'umask 077"),
}


@pytest.mark.parametrize("make", ENGINES, ids=lambda make: make.__name__)
async def test_the_same_everywhere(make: Callable[[Host], tuple[Connector, ExecutionLocation]], tmp_path: Path) -> None:
    """The node runtime is delivered, started, told of a job, and leaves nothing."""
    inner = Host()
    connector, location = make(inner)
    access = Access(connector, location)
    manner = Manner(shared=make is slurm, listen=True)
    try:
        async with serving(access, tmp_path / "it's work", manner=manner) as runtime:
            job = await runtime.create_job("j")
            words = await job.wrap(JobSpec(name="it's j"))
            assert words == [runtime.binary, runtime.wrapper, "--job", str(job.directory), "--"]
            assert decode(Path(job.directory, "job.json").read_text(), type=JobSpec).name == "it's j"
            assert Path(runtime.certificate_path).read_bytes() == CERTIFICATE.certificate
            assert Path(runtime.directory, "words").read_text().split()[0] == "serve"
            say(runtime, exited(job.identifier))
            assert (await asyncio.wait_for(job.exit, 10)).success
    finally:
        await connector.undeploy(True)
        await inner.undeploy(True)
    assert list((tmp_path / "tmp").iterdir()) == []
    for words_of in ENGINES[make]:
        assert any(command.startswith(words_of) for command in inner.commands), words_of
    assert not any(CERTIFICATE.key.splitlines()[1].decode() in command for command in inner.commands)


class Ending(Host):
    """A host where the run ends while a file is on its way: the node runtime removes the directory of the job."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory

    async def run(self, location: ExecutionLocation, command: MutableSequence[str], **arguments: Any) -> Any:
        if "until test" in " ".join(command):
            shutil.rmtree(self.directory)
        return await super().run(location, command, **arguments)


async def test_a_file_whose_directory_goes_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "bin" / "sleep").write_text(f"#!/bin/sh\necho slept >> {tmp_path}/slept\n")
    (tmp_path / "bin" / "sleep").chmod(0o755)
    inner = Ending(tmp_path / "job")
    access = Access(inner, INNER)
    try:
        with pytest.raises(NodeRuntimeError, match=r"session\.json cannot be written"):
            await access.write(PurePosixPath(tmp_path / "job/session.json"), b"{}", parent=0o700)
    finally:
        await inner.undeploy(True)
    assert not (tmp_path / "slept").exists()


class Batch(Host, BatchConnector):
    """A queue manager that the plugin does not know."""


class Deployed:
    """Deployments as StreamFlow keeps them."""

    def __init__(self, directory: Path) -> None:
        self.context: Any = SimpleNamespace(config={"path": str(directory / "file"), "deployments": {}})
        self.manager = self.context.deployment_manager = DefaultDeploymentManager(self.context)

    async def deploy(self, kind: str, config: dict[str, Any] | None = None, **options: Any) -> ExecutionLocation:
        wraps = options.pop("wraps", None)
        await self.manager.deploy(
            DeploymentConfig(
                name=kind,
                type=kind,
                config=config or {},
                lazy=options.pop("lazy", False),
                wraps=None if wraps is None else WrapsConfig(wraps.deployment),
                **options,
            )
        )
        return ExecutionLocation(f"node of {kind}", kind, wraps=wraps)


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployed:
    monkeypatch.setitem(connector_classes, "host", Host)
    monkeypatch.setitem(connector_classes, "batch", Batch)
    (tmp_path / "sfio-node").write_bytes(stand_in().content)
    (tmp_path / "sfio-node").chmod(0o755)
    monkeypatch.setenv("SFIO_NODE", str(tmp_path / "sfio-node"))
    return Deployed(tmp_path)


SSH = {"nodes": ["somewhere"], "username": "me"}


async def test_the_manner_of_each(deployed: Deployed) -> None:
    ssh = await deployed.deploy("ssh", SSH)
    hpc = await deployed.deploy("slurm", {"maxConcurrentJobs": 2}, wraps=ssh)
    deployments = Deployments(deployed.context)
    assert deployments.manner(ssh) == Manner(listen=True)
    assert deployments.manner(hpc) == Manner(shared=True)
    assert deployments.manner(await deployed.deploy("host")) == Manner()
    assert deployments.workdir(ssh) == "/tmp/streamflow"


@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        ("batch", {}, "not known how batch runs jobs"),
        ("ssh", {**SSH, "maxConcurrentSessions": 2}, "maxConcurrentSessions of ssh is less than 3"),
        ("ssh", {**SSH, "dataTransferConnection": {"hostname": "other"}}, "ssh has a dataTransferConnection"),
    ],
)
async def test_where_there_can_be_none(deployed: Deployed, kind: str, config: dict[str, Any], message: str) -> None:
    location = await deployed.deploy(kind, config)
    with pytest.raises(NodeRuntimeError, match=message):
        await NodeRuntimes(deployed.context).at(location)


async def test_there_is_none_in_containers_where_it_is_off(deployed: Deployed) -> None:
    box = await deployed.deploy("docker", {"image": "i"}, lazy=True)
    with pytest.raises(NodeRuntimeError, match="`containers: off`"):
        await NodeRuntimes(deployed.context, contained=False).at(box)


async def test_what_is_not_deployed_any_more_still_has_a_name(deployed: Deployed) -> None:
    box = await deployed.deploy("docker", {"image": "i"}, lazy=True)
    runtimes = NodeRuntimes(deployed.context)
    assert runtimes.deployments.where(box) == "in a container of i"
    await deployed.manager.undeploy_all()
    assert runtimes.deployments.where(box) == f"on {box}"


async def test_what_cannot_be_started_is_not_tried_again(deployed: Deployed, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    location = await deployed.deploy("host", workdir=str(tmp_path / "file"))
    runtimes = NodeRuntimes(deployed.context)
    host = deployed.manager.get_connector("host")
    assert isinstance(host, Host)
    for _ in range(3):
        with pytest.raises(NodeRuntimeError, match="file cannot be used"):
            await runtimes.at(location)
    assert len([command for command in host.commands if "uname" in command]) == 1
    await runtimes.close()
    await deployed.manager.undeploy_all()


async def test_one_certificate_for_all_that_listen(
    deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = await deployed.deploy("host", workdir=str(tmp_path / "work"))
    runtimes = NodeRuntimes(deployed.context)
    monkeypatch.setattr(Deployments, "manner", lambda self, where: Manner(listen=where.name != "another"))
    names = (location.name, "neighbour", "another")
    found = await asyncio.gather(*(runtimes.at(ExecutionLocation(name, "host")) for name in names))
    files = [list(Path(runtime.directory).glob("certificate.*")) for runtime in found]
    assert [len(each) for each in files] == [2, 2, 0]
    assert len({file.read_bytes() for each in files for file in each}) == 2
    await runtimes.close()
    await deployed.manager.undeploy_all()


async def test_a_deployment_stays_until_its_runtime_has_ended(
    deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """StreamFlow ends deployments and scheduler at once, when a run ends."""
    location = await deployed.deploy("host", workdir=str(tmp_path / "work"))
    runtimes = NodeRuntimes(deployed.context)
    runtime = await runtimes.at(location)
    undeployed: list[bool] = []
    undeploy = Host.undeploy

    async def note(host: Host, external: bool) -> None:
        undeployed.append(Path(runtime.directory).exists())
        await undeploy(host, external)

    monkeypatch.setattr(Host, "undeploy", note)
    await asyncio.gather(deployed.manager.undeploy_all(), runtimes.close())
    assert undeployed == [False]


async def test_a_copy_that_ends_with_the_run_is_not_made_by_the_driver(
    deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """StreamFlow ends its steps after the node runtimes."""
    location = await deployed.deploy("host", workdir=str(tmp_path / "work"))
    runtimes, copies, ended = NodeRuntimes(deployed.context), asyncio.Event(), asyncio.Event()

    async def fetch(*_: object) -> str:
        copies.set()
        await ended.wait()
        return "sfio-node serve has ended"

    monkeypatch.setattr(RemoteRuntime, "fetch", fetch)
    copying = asyncio.create_task(runtimes.copy(location, "/file", location, ""))
    await copies.wait()
    await runtimes.close()
    ended.set()
    with pytest.raises(asyncio.CancelledError):
        await copying
    await deployed.manager.undeploy_all()


async def test_the_end_does_not_wait_for_a_start_that_loses_a_cancellation(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_runtimes, "_START_SECONDS", 0.05)

    async def start() -> NodeRuntime:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(60)
        raise AssertionError

    runtimes = NodeRuntimes(deployed.context, start_here=start)
    starting = asyncio.create_task(runtimes.at(ExecutionLocation("here", "here", local=True)))
    await asyncio.sleep(0)
    await asyncio.wait_for(runtimes.close(), 10)
    with pytest.raises(asyncio.CancelledError):
        await starting


async def test_the_end_does_not_wait_for_a_start_that_waits(
    deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs may have taken all sessions, for example."""
    monkeypatch.setattr(node_runtimes, "_START_SECONDS", 0.1)
    location = await deployed.deploy("host", workdir=str(tmp_path / "work"))

    waits = asyncio.Event()

    async def never(*_: object, **__: object) -> None:
        waits.set()
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(deployed.manager.get_connector("host"), "run", never)
    runtimes = NodeRuntimes(deployed.context)
    starting = asyncio.create_task(runtimes.at(location))
    await waits.wait()
    await asyncio.wait_for(runtimes.close(), 10)
    with pytest.raises(asyncio.CancelledError):
        await starting
    await deployed.manager.undeploy_all()
