"""A few commands on a node answer all that StreamFlow asks about the files of a job, as the node would."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Coroutine, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.exception import WorkflowExecutionException
from streamflow.data.remotepath import RemoteStreamFlowPath

from streamflow_io.runtime.allocation.connector import Batches, answers_of
from streamflow_io.runtime.allocation.prefetched_answers import PrefetchedAnswers
from streamflow_io.runtime.allocation.shared_files import FileCommand, Said, SharedFiles
from tests.unit.test_allocation_type import Here

NODE = ExecutionLocation("n1", "nodes")


class Node(Here):
    """A node that shares no files with the driver.

    :ivar scripts: what its shell was given
    """

    def __init__(self) -> None:
        super().__init__("nodes", "/")
        self.scripts: list[str] = []
        self._files = cast(SharedFiles, SimpleNamespace(answer=self._is_not_shared, proofs=()))

    async def _is_not_shared(self, *_: Any) -> None:
        return None

    async def _in_shell(self, node: str, script: str) -> Said:
        self.scripts.append(script)
        return await super()._in_shell(node, script)

    async def said(self, text: str) -> Said:
        said = await self.run(NODE, [text], capture_output=True)
        assert said is not None
        return said

    def path(self, path: Path) -> RemoteStreamFlowPath:
        found = SimpleNamespace(get_connector=lambda _: self)
        data = SimpleNamespace(get_data_locations=lambda *_, **__: [])
        context = cast(StreamFlowContext, SimpleNamespace(deployment_manager=found, data_manager=data))
        return RemoteStreamFlowPath(path, context=context, location=NODE)


@pytest.fixture
async def node() -> Any:
    connector = Node()
    yield connector
    await connector.undeploy(False)


async def all_of(work: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    return list(await asyncio.gather(*map(asyncio.create_task, work)))


async def test_the_directories_of_a_job_take_one_command(node: Node, tmp_path: Path) -> None:
    """StreamFlow makes all three at once, and asks twice for the real path of each."""
    (tmp_path / "link").symlink_to(tmp_path)
    paths = [node.path(tmp_path / "link" / str(uuid.uuid4())) for _ in range(3)]
    await all_of([path.mkdir(mode=0o777, parents=True, exist_ok=True) for path in paths])
    for _ in range(2):
        assert [str(path) for path in await all_of([path.resolve() for path in paths])] == [
            os.path.realpath(path) for path in paths
        ]
    assert len(node.scripts) == 1
    assert {os.stat(path).st_mode & 0o7777 for path in paths} == {0o777}


async def test_a_link_to_an_input_takes_two_commands(node: Node, tmp_path: Path) -> None:
    directory = node.path(tmp_path / str(uuid.uuid4()) / str(uuid.uuid4()))
    await directory.mkdir(mode=0o777, parents=True, exist_ok=True)
    assert not await (directory / "in").is_dir()
    await (directory / "in").symlink_to(tmp_path)
    assert await (directory / "in").is_symlink()
    assert len(node.scripts) == 2
    # Now the node is asked.
    assert await (directory / "in").is_dir()
    assert len(node.scripts) == 3


async def looked_at(path: RemoteStreamFlowPath) -> list[object]:
    """Ask all that StreamFlow asks about an output that a glob names."""
    found = [each async for each in path.parent.glob(path.name)]
    resolved = [await path.resolve() for _ in range(3)]
    return [found, resolved, await path.is_file(), await path.size(), await path.checksum()]


async def test_the_outputs_of_a_job_take_one_command(node: Node, tmp_path: Path) -> None:
    paths = []
    for name, text in (("a.txt", "abc"), ("b", ""), ("c,d=1", "x" * 65_000)):
        (tmp_path / name).write_text(text)
        paths.append(node.path(tmp_path / name))
    assert not await node.path(tmp_path / "cwl.output.json").exists()
    ahead = [await looked_at(path) for path in paths]
    assert len(node.scripts) == 1
    assert ahead == [await looked_at(path) for path in paths]
    assert len(node.scripts) > 1
    assert ahead[0][3:] == [3, "a9993e364706816aba3e25717850c26c9cd0d89d"]


async def test_what_is_not_plain_is_asked_of_the_node(node: Node, tmp_path: Path) -> None:
    (outside := tmp_path / "outside").write_text("outside")
    (directory := tmp_path / "out").mkdir()
    (directory / "link").symlink_to(outside)
    (directory / "large").write_bytes(bytes(2**17))
    (directory / "sub").mkdir()
    (directory / "a b").touch()
    os.mkfifo(directory / "fifo")
    (directory / "cwl.output.json").write_text("{}")
    assert await node.path(directory / "cwl.output.json").exists()
    link = len(os.readlink(directory / "link"))
    expected = {"link": (True, link), "sub": (False, 0), "fifo": (False, 0), "a b": (True, 0), "large": (True, 2**17)}
    for name, found in expected.items():
        path = node.path(directory / name)
        assert (await path.is_file(), await path.size()) == found
        assert str(await path.resolve()) == os.path.realpath(path)


@pytest.mark.parametrize("entries", [17, 2000])
async def test_a_large_directory_is_not_looked_at_ahead(node: Node, tmp_path: Path, entries: int) -> None:
    for number in range(entries):
        (tmp_path / str(number)).touch()
    assert not await node.path(tmp_path / "cwl.output.json").exists()
    assert await node.path(tmp_path / "0").is_file()
    assert len(node.scripts) == 2


async def test_a_directory_behind_a_link_is_not_looked_at_ahead(node: Node, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").touch()
    (tmp_path / "link").symlink_to("real")
    assert not await node.path(tmp_path / "link" / "cwl.output.json").exists()
    assert await node.path(tmp_path / "link" / "a").resolve() == node.path(tmp_path / "real" / "a")


@pytest.mark.parametrize("change", ["rm -f {0}/a", "sh -c 'echo more >> {0}/a'", "ln -snf /b {0}/a"])
async def test_a_command_that_may_change_a_file_lets_the_answers_be_forgotten(
    node: Node, tmp_path: Path, change: str
) -> None:
    (tmp_path / "a").write_text("abc")
    assert not await node.path(tmp_path / "cwl.output.json").exists()
    await node.said(change.format(tmp_path))
    assert await node.path(tmp_path / "a").size() != 3


def test_an_answer_is_given_for_two_seconds() -> None:
    now = [0.0]
    answers = PrefetchedAnswers(lambda: now[0])
    look = FileCommand("test", ("/out/cwl.output.json",), "e")
    size = FileCommand("size", ("/out/a",))
    for later, expected in ((1.9, ("3", 0)), (2.1, None)):
        assert answers.note("n1", look, ("/out\nsize 3 a", 1)) == ("", 1)
        now[0] += later
        assert answers.take("n2", size) is None
        assert answers.take("n1", size) == expected
        assert answers.take("n1", size) is None


async def test_what_waits_goes_together() -> None:
    given: list[str] = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def run(node: str, script: str) -> Said:
        given.append(script)
        begun.set()
        await go_on.wait()
        ran = await asyncio.create_subprocess_exec("sh", "-c", script, stdout=asyncio.subprocess.PIPE)
        printed, _ = await ran.communicate()
        return printed.decode().strip(), 0

    batches = Batches(run)
    first = asyncio.create_task(batches.run("n1", "echo first"))
    await begun.wait()
    texts = ["echo a; exit 3", "true", "cd /; pwd", "pwd; set -- b c; echo; echo $#"]
    asked = [asyncio.create_task(batches.run("n1", text)) for text in texts]
    left = asyncio.create_task(batches.run("n1", "echo left"))
    await asyncio.sleep(0)
    left.cancel()
    go_on.set()
    assert await first == ("first", 0)
    here = os.getcwd()
    assert await asyncio.gather(*asked) == [("a", 3), ("", 0), ("/", 0), (f"{here}\n\n2", 0)]
    assert len(given) == 2
    assert "left" not in given[1]


@pytest.mark.parametrize("ends", [True, False])
async def test_a_shell_that_ends_is_told_to_all(ends: bool) -> None:
    async def run(node: str, script: str) -> Said:
        if ends:
            raise WorkflowExecutionException("it has ended")
        return "something else", 0

    batches = Batches(run)
    said = await asyncio.gather(*(batches.run("n1", "true") for _ in range(2)), return_exceptions=True)
    assert [type(each) for each in said] == [WorkflowExecutionException] * 2


def test_the_answers_of_a_batch() -> None:
    assert answers_of("\nm 0\n\nm 1\na\nb\n\nm 2", "m") == [("", 0), ("", 1), ("a\nb", 2)]


@pytest.mark.timeout(60)
async def test_a_large_file_keeps_no_other_command_waiting(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checksum is that of a stand-in, which waits."""
    (tmp_path / "sha1sum").write_text(f"#!/bin/sh\nuntil test -e {tmp_path}/go; do sleep 0.02; done\necho sum\n")
    (tmp_path / "sha1sum").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    summing = asyncio.create_task(node.path(tmp_path / "sha1sum").checksum())
    await node.path(tmp_path / "go").mkdir()
    assert await summing == "sum"
