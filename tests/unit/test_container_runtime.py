"""The node runtime in a container: what is said with it, and what is left when one of its ends is gone.

The engine is played here; `sfio-node` is the real one. Real containers are in tests/e2e.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from msgspec.json import decode
from msgspec.structs import asdict
from streamflow.core.deployment import ExecutionLocation
from streamflow.deployment.connector.container import DockerConnector

from lab.connectors import Host, Pod
from lab.node import wait_for
from streamflow_io.graph.volumes import Bind
from streamflow_io.runtime.access import Access
from streamflow_io.runtime.binary import Binary
from streamflow_io.runtime.embedded import find_sfio_node
from streamflow_io.runtime.locations import Place
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeJob
from streamflow_io.runtime.protocol import FilePart, InputStream, JobSpec, PartInput, StartedEvent
from streamflow_io.runtime.remote import ContainerRuntime
from streamflow_io.runtime.wire import identity_of

pytestmark = pytest.mark.timeout(60)

# `docker exec [-i] NAME COMMAND...` in no container; its only parent is the process that talks with it.
ENGINE = '#!/bin/sh\nshift; case $1 in -*) shift ;; esac; shift; exec "$@"\n'
AT_HOME = ExecutionLocation("__LOCAL__", "__LOCAL__", local=True)
ELSEWHERE = ExecutionLocation("host", "host")
ANYWHERE = Place()
EVERYWHERE = pytest.mark.parametrize("wraps", [AT_HOME, ELSEWHERE, None], ids=["here", "elsewhere", "pod"])


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "docker").write_text(ENGINE)
    (tmp_path / "bin" / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")


@asynccontextmanager
async def started(
    workdir: Path, place: Place = ANYWHERE, wraps: ExecutionLocation | None = AT_HOME
) -> AsyncIterator[ContainerRuntime]:
    """A runtime; nothing but the binary is left of it at the end."""
    inner, pod = Host(), Pod()
    access = (
        Access(pod, ExecutionLocation("pod:box", "pods"), verbatim=True)
        if wraps is None
        else Access(DockerConnector("d", "/", inner, None, image="i"), ExecutionLocation("box", "d", wraps=wraps))
    )
    try:
        runtime = await ContainerRuntime.start(access, str(workdir), Binary.load(find_sfio_node()), place)
        try:
            yield runtime
        finally:
            await runtime.close()
    finally:
        # Also when it has not started: nothing else closes the pipes that were opened by then.
        await asyncio.gather(inner.undeploy(True), pod.undeploy(True))
    assert not Path(runtime.directory).exists()


async def execute(runtime: ContainerRuntime, script: str, name: str = "j") -> tuple[str, str]:
    """How a job has ended, and what it has printed."""
    job = await runtime.create_job(name)
    words = await job.wrap(JobSpec(name=name))
    said, code = await runtime.run_command(job, f"exec {shlex.join([*words, 'sh', '-c', script])}")
    exit_event = await asyncio.wait_for(job.exit, 10)
    assert code == exit_event.code
    return exit_event.reason, said


async def sleeping(runtime: ContainerRuntime) -> tuple[NodeJob, asyncio.subprocess.Process]:
    """A job that runs, and does not end by itself."""
    job = await runtime.create_job("j")
    process = await asyncio.create_subprocess_exec(*await job.wrap(JobSpec(name="j")), "sleep", "300")
    async for _ in job.events():
        break
    return job, process


@EVERYWHERE
async def test_a_job_with_any_spec_is_asked_for_and_runs(tmp_path: Path, wraps: ExecutionLocation | None) -> None:
    async with started(tmp_path / "it's work", wraps=wraps) as runtime:
        assert await execute(runtime, "echo said", "/it's/ä 0") == ("exited", "said")
        job = await runtime.create_job("j")
        await job.wrap(JobSpec(name="x" * 3_000_000))
        assert decode(Path(job.directory, "job.json").read_text(), type=JobSpec).name == "x" * 3_000_000
        mode = Path(runtime.directory).stat().st_mode & 0o777
        assert mode == 0o711


async def test_a_spec_that_is_too_large(tmp_path: Path) -> None:
    async with started(tmp_path) as runtime:
        job = await runtime.create_job("j")
        with pytest.raises(NodeRuntimeError, match=r"too many inputs: 33,\d\d\d,\d\d\d bytes"):
            await job.wrap(JobSpec(name="x" * 2**25))
        assert await execute(runtime, "true") == ("exited", "")


async def test_a_job_that_is_asked_for_twice_at_once_runs_once(tmp_path: Path) -> None:
    """StreamFlow executes the job of a list twice at the same time, now and then."""
    async with started(tmp_path) as runtime:
        job = await runtime.create_job("j")
        asked = (job.wrap(JobSpec(name="j")) for _ in range(2))
        words, refused = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 10)
        assert isinstance(words, list)
        assert isinstance(refused, NodeRuntimeError)


async def test_a_command_of_which_nobody_wants_to_know_any_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The time limit of a tool gives such a command: its end is no news that is not understood."""
    async with started(tmp_path) as runtime:
        job = await runtime.create_job("j")
        words = await job.wrap(JobSpec(name="j"))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(runtime.run_command(job, f"exec {shlex.join([*words, 'sleep', '60'])}"), 0.5)
        await job.cancel()
        assert await execute(runtime, "echo said", "k") == ("exited", "said")
    assert caplog.messages == []


async def test_a_command_ends_with_serve(tmp_path: Path) -> None:
    async with started(tmp_path) as runtime:
        job = await runtime.create_job("j")
        words = await job.wrap(JobSpec(name="j"))
        running = asyncio.create_task(runtime.run_command(job, f"exec {shlex.join([*words, 'sleep', '60'])}"))
        async for _ in job.events():
            break
        processes(runtime, "serve")[0].kill()
        with pytest.raises(NodeRuntimeError, match="has ended, or sfio-node serve in it"):
            await asyncio.wait_for(running, 10)


def processes(runtime: ContainerRuntime, word: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if word in words and any(str(runtime.directory) in each for each in words):
            found.append(process)
    return found


@EVERYWHERE
async def test_serve_is_killed(tmp_path: Path, wraps: ExecutionLocation | None) -> None:
    """`docker kill` does the same: waiters are told, and new jobs are refused."""
    async with started(tmp_path, wraps=wraps) as runtime:
        job, process = await sleeping(runtime)
        (serve,) = processes(runtime, "serve")
        serve.kill()
        with pytest.raises(NodeRuntimeError, match="has ended, or sfio-node serve in it"):
            await asyncio.wait_for(asyncio.shield(job.exit), 10)
        with pytest.raises(NodeRuntimeError, match="has ended, or sfio-node serve in it"):
            await runtime.create_job("another")
        await process.wait()


async def test_a_volume_that_is_open_for_all_who_have_it(tmp_path: Path) -> None:
    """Volumes of Kubernetes are mostly so: only where they are mounted, and not below."""
    (inner := tmp_path / "inner").mkdir()
    for path in (tmp_path, inner):
        path.chmod(0o777)
    with pytest.raises(NodeRuntimeError, match="others may write to"):
        async with started(tmp_path):
            pass
    volume = Place("node", (Bind(str(tmp_path), "volume:claim:ns:work"),))
    async with started(tmp_path, volume, wraps=None) as runtime:
        assert await execute(runtime, "true") == ("exited", "")
    with pytest.raises(NodeRuntimeError, match="others may write to"):
        async with started(inner, volume, wraps=None):
            pass


async def test_what_a_pod_says_comes_as_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """StreamFlow keeps what is more than it asks for until more comes."""
    async with started(tmp_path, wraps=None) as runtime:
        monkeypatch.setattr("streamflow_io.runtime.conversation._READ_SIZE", 10)
        assert await execute(runtime, "true") == ("exited", "")


def is_left(process: psutil.Process, before: set[psutil.Process]) -> bool:
    """Whether a process runs that none of the processes before has started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.parent() not in before
    return False


@pytest.mark.parametrize("wraps", [AT_HOME, ELSEWHERE], ids=["here", "elsewhere"])
async def test_a_start_in_vain_leaves_nothing(tmp_path: Path, wraps: ExecutionLocation) -> None:
    """Pipes that were opened meanwhile are closed."""
    before = set(psutil.Process().children(recursive=True))
    inner = Host()
    access = Access(DockerConnector("d", "/", inner, None, image="i"), ExecutionLocation("box", "d", wraps=wraps))
    with pytest.raises(NodeRuntimeError, match="cannot be run"):
        await ContainerRuntime.start(access, str(tmp_path), Binary(b"no program", None), ANYWHERE)
    await inner.undeploy(True)
    new = set(psutil.Process().children(recursive=True)) - before
    assert not [process for process in new if is_left(process, before)]
    assert list(tmp_path.rglob("streamflow-io-*")) == []


async def test_who_shares_files_with_whom(tmp_path: Path) -> None:
    """Two containers of one host that have a volume in common, one with another, one of another host."""
    volume = (Bind(str(tmp_path / "one"), str(tmp_path / "one")),)
    async with (
        started(tmp_path / "one", Place("", volume)) as one,
        started(tmp_path / "one", Place("", volume)) as another,
        started(tmp_path / "two", Place("", (Bind(str(tmp_path / "two"), str(tmp_path / "two")),))) as apart,
        started(tmp_path / "one", Place("host/host", volume)) as elsewhere,
    ):
        assert await one.obstacle(one, gate=True) is None
        assert await one.obstacle(another, tmp_path / "one" / "out") is None
        assert await one.obstacle(another, gate=True) is None
        assert await one.obstacle(another, tmp_path / "out") == "they share no directory of one host"
        for other in (apart, elsewhere):
            assert await one.obstacle(other) == await other.obstacle(one) == "they share no directory of one host"
        job = await another.create_job("j")
        path = tmp_path / "one" / "out" / "file"
        shared = job.shared_with(one, path)
        assert shared is not None
        assert asdict(shared) == {"path": str(path), "named": None, "events": str(job.events_path), "lock": True}
        own = job.shared_with(another, path)
        assert own is not None
        assert not own.lock
        assert job.link_to(one) is None
        assert job.shared_with(apart, path) is None


async def test_a_neighbour_that_has_ended_is_not_read_from(tmp_path: Path) -> None:
    async with started(tmp_path) as one, started(tmp_path) as another:
        for serve in processes(another, "serve"):
            serve.kill()
            serve.wait()
        said = await one.obstacle(another)
        assert said is not None
        assert another.directory.name in said
        await another.close()
        assert not Path(another.directory).exists()


async def test_the_fifos_of_a_killed_container_are_removed(tmp_path: Path) -> None:
    """No process in the container is left for that; another program would wait for a writer when it reads a FIFO."""
    (inputs := tmp_path / "inputs").mkdir()
    async with started(tmp_path, Place("", (Bind(str(tmp_path), str(tmp_path)),))) as runtime:
        job = await runtime.create_job("j")
        paths = [f"{tmp_path}/{name}" for name in ("a", "events", "b")]
        stream = InputStream(name="a", port="p", path=paths[0], events=paths[1], target={"fifo": f"{inputs}/a"})
        Path(paths[2]).write_text("text")
        cut = FilePart(file=paths[2], identity=identity_of(Path(paths[2]).stat()), pieces=((0, 4),))
        part = PartInput(name="b", port="p", part=cut, target={"fifo": f"{inputs}/b"})
        words = await job.wrap(JobSpec(name="j", streams=(stream,), parts=(part,)))
        process = await asyncio.create_subprocess_exec(*words, "sleep", "300")
        async for event in job.events():
            if isinstance(event, StartedEvent):
                break
        assert sorted(path.name for path in inputs.iterdir()) == ["a", "b"]
        (serve,) = processes(runtime, "serve")
        # A `serve` that runs would clean up for the `exec` that is killed.
        serve.suspend()
        for each in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True), serve]:
            each.kill()
        await process.wait()
        assert sorted(path.name for path in inputs.iterdir()) == ["a", "b"]
    assert list(inputs.iterdir()) == []


async def test_what_earlier_killed_containers_have_left_is_removed(tmp_path: Path) -> None:
    async with started(tmp_path) as living:
        dead = Path(living.directory).with_name("streamflow-io-1-deaddead")
        young = Path(living.directory).with_name("streamflow-io-1-facefeed")
        for directory in (dead, young):
            directory.mkdir()
        hours_ago = time.time() - 7200
        for old in (dead, Path(living.directory)):
            os.utime(old, (hours_ago, hours_ago))
        async with started(tmp_path):
            wait_for(lambda: not dead.exists(), "the end of what is left")
            assert young.exists()
            assert await execute(living, "true") == ("exited", "")
        young.rmdir()
