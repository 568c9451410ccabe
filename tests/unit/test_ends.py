"""Nothing that the driver has started is waited for without a bound, though a child holds its pipes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.exception import WorkflowExecutionException

from lab.node import wait_for
from streamflow_io.runtime.allocation.allocation import Allocation
from streamflow_io.runtime.allocation.commands import begin, said
from streamflow_io.runtime.allocation.connector import AllocationConnector
from streamflow_io.runtime.allocation.launched_allocation import HeldJob
from streamflow_io.runtime.allocation.managers import MANAGERS, Wanted
from streamflow_io.runtime.allocation.slurm_allocation import Submission
from streamflow_io.runtime.conversation import ProcessConversation
from streamflow_io.runtime.embedded import EmbeddedRuntime

NODE = ExecutionLocation("n1", "nodes")


class Held:
    """Scripts that leave a child, which holds the pipes of its script."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.touch()

    def words(self, script: str) -> list[str]:
        return ["sh", "-c", f"sleep 600 <&0 & echo $! >> {shlex.quote(str(self._file))}; {script}"]

    @property
    def children(self) -> list[str]:
        return self._file.read_text().split()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    yield (scripts := Held(tmp_path / "children"))
    assert scripts.children
    for child in scripts.children:
        os.kill(int(child), signal.SIGKILL)


class HoldingAllocation:
    """Starts the programs of nodes on this machine, with a child that holds their pipes.

    :ivar started: called when a program runs, and before the connector knows of it
    """

    def __init__(self, held: Held) -> None:
        self._held = held
        self.started: Callable[[], None] = lambda: None

    async def start(self, node: str, words: Sequence[str], stdin: int, stdout: int, stderr: int) -> Process:
        count = len(self._held.children)
        process = await begin(self._held.words(f"exec {shlex.join(words)}"), stdin, stdout, stderr)
        await asyncio.to_thread(wait_for, lambda: len(self._held.children) > count, "the child")
        self.started()
        return process

    def lost(self, node: str) -> None:
        pass

    async def close(self) -> None:
        pass

    over = None


@pytest.fixture
def allocation(held: Held) -> HoldingAllocation:
    return HoldingAllocation(held)


@pytest.fixture
async def connector(allocation: HoldingAllocation) -> AsyncIterator[AllocationConnector]:
    """A connector that leaves no process, although the children of its processes go on."""
    made = AllocationConnector("nodes", "/")
    made._allocation = cast(Allocation, allocation)
    yield made
    await asyncio.wait_for(made.undeploy(external=False), 30)
    assert all(process.returncode is not None for running in made._processes.values() for process in running)


async def test_a_command_of_a_queue_manager_has_said_all_when_it_has_ended(held: Held) -> None:
    assert await asyncio.wait_for(said(held.words("echo 7")), 30) == "7\n"


async def test_a_command_on_a_node(connector: AllocationConnector) -> None:
    ran = connector.run(NODE, ["echo", "7"], capture_output=True, job_name="job")
    assert await asyncio.wait_for(ran, 30) == ("7", 0)


async def test_a_command_on_a_node_that_is_dropped(connector: AllocationConnector, tmp_path: Path) -> None:
    script = f"echo $$ >> {tmp_path}/children; touch {tmp_path}/runs; exec sleep 600"
    running = asyncio.create_task(connector.run(NODE, ["sh", "-c", shlex.quote(script)], job_name="job"))
    await asyncio.to_thread(wait_for, (tmp_path / "runs").exists, "the command")
    await asyncio.to_thread(wait_for, lambda: bool(connector._processes), "that the connector knows")
    connector.drop(NODE)
    await asyncio.wait_for(running, 30)


async def test_a_command_on_a_node_that_is_dropped_meanwhile(
    connector: AllocationConnector, allocation: HoldingAllocation
) -> None:
    allocation.started = lambda: connector.drop(NODE)
    with pytest.raises(WorkflowExecutionException, match="does not answer"):
        await asyncio.wait_for(connector.run(NODE, ["exec", "sleep", "600"], job_name="job"), 30)
    assert [process.returncode for process in connector._processes["n1"]] == [-signal.SIGKILL]


@pytest.mark.parametrize("read_only", [True, False])
async def test_a_copy_to_a_place_that_is_the_same_file(
    connector: AllocationConnector, tmp_path: Path, read_only: bool
) -> None:
    """StreamFlow may transfer the files of a directory that is a link to their own directory."""
    (tmp_path / "directory").mkdir()
    (file := tmp_path / "directory" / "file").write_text("7")
    (link := tmp_path / "link").symlink_to("directory")
    copied = connector.copy_remote_to_remote(str(file), str(link / "file"), [NODE], NODE, read_only=read_only)
    await asyncio.wait_for(copied, 30)
    assert (file.read_text(), file.is_symlink()) == ("7", False)


async def test_a_missing_file_is_not_copied(connector: AllocationConnector, tmp_path: Path) -> None:
    """StreamFlow would extract its empty archive, and a job would find an empty directory."""
    missing, there, other = str(tmp_path / "missing"), str(tmp_path / "there"), ExecutionLocation("n2", "nodes")
    with pytest.raises(WorkflowExecutionException, match=r"missing is missing on nodes/n1, and cannot be copied"):
        await asyncio.wait_for(connector.copy_remote_to_local(missing, there, NODE), 30)
    with pytest.raises(WorkflowExecutionException, match=r"missing is missing on nodes/n1, and cannot be copied"):
        await asyncio.wait_for(connector.copy_remote_to_remote(missing, there, [other], NODE), 30)
    assert not (tmp_path / "there").exists()


async def test_a_copy_whose_reader_fails(connector: AllocationConnector) -> None:
    stream = await connector.get_stream_reader(["exec", "cat", "/dev/zero"], NODE)
    assert len(await (await stream.__aenter__()).read(10)) == 10
    error = ValueError("no more")
    await asyncio.wait_for(stream.__aexit__(type(error), error, None), 30)


async def test_a_copy_from_a_node_that_is_dropped(connector: AllocationConnector) -> None:
    stream = await connector.get_stream_reader(["printf", "a;", "exec", "sleep", "600"], NODE)
    content = await stream.__aenter__()
    reading = asyncio.create_task(content.read())
    await asyncio.sleep(0)
    connector.drop(NODE)
    with pytest.raises(WorkflowExecutionException, match="is lost"):
        await asyncio.wait_for(reading, 30)
    error = ValueError("lost")
    await asyncio.wait_for(stream.__aexit__(type(error), error, None), 30)


async def test_a_whole_copy(connector: AllocationConnector, tmp_path: Path) -> None:
    async with await connector.get_stream_reader(["echo", "7"], NODE) as reader:
        assert await asyncio.wait_for(reader.read(), 30) == b"7\n"
    stream = await connector.get_stream_writer(["tee", str(tmp_path / "copy")], NODE)
    writer = await stream.__aenter__()
    await writer.write(b"content")
    await asyncio.wait_for(stream.__aexit__(None, None, None), 30)
    assert (tmp_path / "copy").read_bytes() == b"content"


async def test_a_copy_to_a_program_that_reads_nothing(
    connector: AllocationConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamflow_io._streamflow._END_SECONDS", 0.05)
    stream = await connector.get_stream_writer(["exec", "sleep", "600"], NODE)
    writer = await stream.__aenter__()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(writer.write(bytes(2**20)), 0.05)
    error = ValueError("no more")
    await asyncio.wait_for(stream.__aexit__(type(error), error, None), 30)
    # Python 3.11.2 logs the error of this pipe if the error is not asked for.
    with contextlib.suppress(BrokenPipeError):
        await asyncio.wait_for(stream.proc.stdin.wait_closed(), 30)


async def test_a_conversation(held: Held) -> None:
    conversation = await ProcessConversation.start(held.words("echo line; cat"))
    assert await conversation.line() == b"line"
    await asyncio.wait_for(conversation.close(30), 60)
    assert await asyncio.wait_for(conversation.line(), 30) in (b"", None)


async def test_a_command_beside_the_driver(held: Held) -> None:
    runtime = cast(EmbeddedRuntime, SimpleNamespace())
    assert await asyncio.wait_for(EmbeddedRuntime.run(runtime, held.words("echo 7; exit 3"), 60), 30) == ("7", 3)


@pytest.mark.parametrize("name", ["PBS", "LSF", "Flux", "Slurm"])
async def test_a_refusal_of_a_queue_manager(
    name: str, held: Held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    script = shlex.join(held.words("echo no such queue >&2; exit 1"))
    for program in ("qsub", "bsub", "flux", "salloc"):
        # The shell that asks reads the output to its end.
        (tmp_path / program).write_text(f"#!/bin/sh\nexec {script} > /dev/null\n")
        (tmp_path / program).chmod(0o755)
    wanted = Wanted(1, "1", cores=1)
    others: dict[str, Any] = {manager.name: manager for manager in MANAGERS}
    asking = HeldJob.ask("nodes", others[name], wanted) if name in others else Submission.ask("nodes", wanted)
    with pytest.raises(WorkflowExecutionException, match="no allocation to nodes: no such queue"):
        await asyncio.wait_for(asking, 30)
