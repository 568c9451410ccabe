"""Files of nodes that are lost, in directories that each node has for itself."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import DEVNULL
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import AsyncMock

import pytest
from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.scheduling import Hardware
from streamflow.data.manager import DefaultDataManager
from streamflow.deployment.connector.local import LocalConnector

from lab.node import wait_for
from lab.processes import of_processes
from streamflow_io._streamflow import HostScheduler
from streamflow_io.engine.scheduler import IOAwareScheduler
from streamflow_io.runtime.allocation import connector
from streamflow_io.runtime.allocation.allocation import Node
from streamflow_io.runtime.allocation.connector import AllocationConnector
from streamflow_io.runtime.allocation.launched_allocation import LaunchedAllocation
from streamflow_io.runtime.allocation.seen_files import SeenFiles
from streamflow_io.runtime.allocation.shared_files import SharedFiles

HERE = ExecutionLocation("__LOCAL__", "__LOCAL__", local=True)


class Apart(AllocationConnector):
    """Nodes that see no file of each other, and none of the driver's."""

    async def _is_same(self, path: str, one: str, other: str) -> bool:
        return False


# Starts nothing on the node n2 until there is a file `answers`.
WAITS = "until [ $1 != n2 ] || [ -e {}/answers ]; do sleep 0.05; done; "


def launcher(directory: Path, first: str = "") -> str:
    """A launcher for nodes that are this machine.

    :param first: commands of a shell that run before each program, with the name of the node as `$1`
    """
    (program := directory / "launch").write_text(f'#!/bin/sh\n{first.format(directory)}shift; exec "$@"\n')
    program.chmod(0o755)
    return f"{program} {{node}}"


class Run:
    """StreamFlow's data manager, with a node for each name."""

    def __init__(self, directory: Path, *names: str) -> None:
        self.directory = directory
        self.nodes = Apart("nodes", "/", None, launcher(directory), names)
        connectors = {"nodes": self.nodes, "__LOCAL__": LocalConnector("__LOCAL__", "/")}
        context = SimpleNamespace(
            deployment_manager=SimpleNamespace(get_connector=connectors.get),
            checkpoint_manager=SimpleNamespace(register=lambda _: None),
        )
        self.data = context.data_manager = DefaultDataManager(cast(StreamFlowContext, context))
        copies = partial(IOAwareScheduler.copies, SimpleNamespace(context=context))
        self.nodes.scheduler = cast(HostScheduler, SimpleNamespace(copies=copies, hosts_changed=lambda _: None))

    async def fetch(self, path: Path, where: ExecutionLocation, source: ExecutionLocation) -> Path:
        """Copy a file as StreamFlow does for a job."""
        (chosen,) = self.data.get_data_locations(str(path), source.deployment, source.name)
        (target := self.directory / where.name).mkdir(exist_ok=True)
        await self.data.transfer_data(chosen.location, chosen.path, [where], str(target / "file"))
        return target / "file"


def node(name: str) -> ExecutionLocation:
    return ExecutionLocation(name, "nodes")


@pytest.mark.parametrize("origin", [HERE, node("n0")], ids=["driver", "node"])
@pytest.mark.parametrize("reader", [HERE, node("n3")], ids=["to the driver", "to a node"])
async def test_a_file_comes_from_a_place_that_is_left(
    origin: ExecutionLocation, reader: ExecutionLocation, tmp_path: Path
) -> None:
    """StreamFlow does not know that a node is lost, and may choose any place as the source."""
    run = Run(tmp_path, "n0", "n1", "n2", "n3")
    (first := tmp_path / "first").write_text("content")
    await run.nodes.deploy(False)
    try:
        run.data.register_path(origin, str(first))
        for name in ("n1", "n2"):
            await run.fetch(first, node(name), origin)
        for name in ("n0", "n1"):
            run.nodes.lose(name, f"node {name} is DOWN")
        assert (await run.fetch(first, reader, node("n1"))).read_text() == "content"
    finally:
        await run.nodes.undeploy(False)


async def test_the_only_place_of_a_file_is_named_when_it_is_lost(tmp_path: Path) -> None:
    run = Run(tmp_path, "n1", "n2")
    (first := tmp_path / "first").write_text("content")
    await run.nodes.deploy(False)
    try:
        run.data.register_path(node("n1"), str(first))
        run.nodes.lose("n1", "node n1 is DOWN")
        with pytest.raises(WorkflowExecutionException, match=f"{first} cannot be .* on nodes/n1, and node n1 is DOWN"):
            await asyncio.wait_for(run.fetch(first, node("n2"), node("n1")), 60)
    finally:
        await run.nodes.undeploy(False)


async def test_commands_wait_until_a_node_is_cleared_that_still_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two of its programs are killed. A command that comes meanwhile finds the files of the node."""
    begun, cleared = asyncio.Event(), asyncio.Event()

    async def clear(*_: object) -> None:
        begun.set()
        await cleared.wait()

    monkeypatch.setattr(LaunchedAllocation, "clear", clear)
    nodes = AllocationConnector("nodes", "/", None, launcher(tmp_path), ("n1",))
    await nodes.deploy(False)
    try:
        programs = [await nodes.start(node("n1"), ["sleep", "600"], DEVNULL, DEVNULL, DEVNULL) for _ in range(2)]
        for program in programs:
            program.kill()
        losses = [asyncio.create_task(nodes.explain(node("n1"), program)) for program in programs]
        await begun.wait()
        command = asyncio.create_task(nodes.run(node("n1"), ["echo", "here"], capture_output=True))
        for _ in range(20):
            await asyncio.sleep(0)
        cleared.set()
        assert await command == ("here", 0)
        found = await asyncio.gather(*losses, return_exceptions=True)
        assert [type(loss) for loss in found] == [WorkflowExecutionException] * 2
        assert caplog.text.count("No more jobs start at nodes/n1") == 1
    finally:
        await nodes.undeploy(False)


async def test_a_command_that_was_cancelled_ends_with_the_deployment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An example is the checksum of a large file after Ctrl-C."""
    nodes = AllocationConnector("nodes", "/", None, launcher(tmp_path), ("n1",))
    await nodes.deploy(False)
    begun = tmp_path / "begun"
    command = asyncio.create_task(nodes.run(node("n1"), [f"touch {begun}; exec sleep 600"], capture_output=True))
    await asyncio.to_thread(wait_for, begun.exists, "a command that runs")
    command.cancel()
    await asyncio.wait({command})
    await nodes.undeploy(False)
    assert [record.levelname for record in caplog.records if record.levelname != "INFO"] == []
    assert not [words for _, (words,) in of_processes("cmdline") if str(begun).encode() in words]


async def test_nothing_is_left_of_a_look_at_what_nodes_share_when_the_run_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, released, does = asyncio.Event(), asyncio.Event(), SeenFiles._does

    async def wait_and_do(seen: SeenFiles, name: str, script: str) -> bool:
        if script.startswith("test"):
            begun.set()
            await released.wait()
        return await does(seen, name, script)

    monkeypatch.setattr(SeenFiles, "_does", wait_and_do)
    # The driver does not tell what the nodes see.
    monkeypatch.setattr(SharedFiles, "sees", AsyncMock(return_value=False))
    (directory := tmp_path / "files").mkdir()
    (path := directory / "file").touch()
    nodes = AllocationConnector("nodes", "/", None, launcher(tmp_path), ("n1", "n2"))
    await nodes.deploy(False)
    copying = asyncio.create_task(
        nodes.copy_remote_to_remote(str(path), str(tmp_path / "copy"), [node("n2")], node("n1"))
    )
    await begun.wait()
    copying.cancel()
    await asyncio.wait({copying})
    undeploying = asyncio.create_task(nodes.undeploy(False))
    for _ in range(20):
        await asyncio.sleep(0)
    released.set()
    await undeploying
    assert os.listdir(directory) == ["file"]


async def test_a_node_that_does_not_answer_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """StreamFlow asks for the nodes while all jobs wait. A node that answers late is found later."""
    monkeypatch.setattr(connector, "_PATIENCE_SECONDS", 0.1)
    nodes = AllocationConnector("nodes", "/", None, launcher(tmp_path, WAITS), ("n1", "n2"))
    changed = asyncio.Event()
    nodes.scheduler = cast(HostScheduler, SimpleNamespace(hosts_changed=lambda _: changed.set()))
    await nodes.deploy(False)
    try:
        await asyncio.wait_for(nodes.wait(), 60)
        found = await asyncio.wait_for(nodes.get_available_locations(), 60)
        assert (list(found), list(nodes.left), changed.is_set()) == (["n1"], ["n1"], False)
        (tmp_path / "answers").touch()
        await asyncio.wait_for(changed.wait(), 60)
        await asyncio.wait_for(nodes.all_known(), 60)
        assert list(await nodes.get_available_locations()) == ["n1", "n2"]
    finally:
        await nodes.undeploy(False)


async def test_a_shell_that_has_ended_says_why(tmp_path: Path) -> None:
    run = Run(tmp_path, "n1")
    await run.nodes.deploy(False)
    try:
        shell = await run.nodes.get_shell(["sh"], node("n1"))
        (process,) = run.nodes._processes["n1"]
        process.kill()
        await process.wait()
        with pytest.raises(WorkflowExecutionException, match=r"n1 .*signal 9"):
            await shell.execute(["true"], capture_output=True)
        assert run.nodes.is_lost("n1")
    finally:
        await run.nodes.undeploy(False)


class Losing(AllocationConnector):
    """A connector that loses the node n2 while the scheduler asks for the nodes."""

    async def _hardware_of(self, node: Node) -> Hardware | None:
        self.lose("n2", "node n2 is DOWN")
        return await super()._hardware_of(node)


async def test_a_node_is_lost_while_nodes_are_asked(tmp_path: Path) -> None:
    nodes = Losing("nodes", "/", None, launcher(tmp_path), ("n1", "n2"))
    await nodes.deploy(False)
    try:
        assert list(await asyncio.wait_for(nodes.get_available_locations(), 60)) == ["n1"]
    finally:
        await nodes.undeploy(False)
