"""File commands that the driver carries out itself say what a shell says, and only where a node sees the same."""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from asyncio.subprocess import PIPE
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import ExecutionLocation
from streamflow.data.remotepath import RemoteStreamFlowPath, _size

from streamflow_io.runtime.allocation import shared_files
from streamflow_io.runtime.allocation.shared_files import FileCommand, SharedFiles, file_command

Said = tuple[str, int]


class Node:
    """A node that the driver's machine stands for.

    :ivar asked: the commands that it was asked
    :ivar view: the directory that is the root of its file system
    """

    def __init__(self, view: Callable[[str], str] = lambda text: text) -> None:
        self.asked: list[str] = []
        self.view = view

    async def ask(self, text: str) -> Said:
        self.asked.append(text)
        words = ("sh", "-c", self.view(text))
        ran = await asyncio.create_subprocess_exec(*words, stdout=PIPE, stderr=PIPE)
        printed, _ = await ran.communicate()
        assert ran.returncode is not None
        return printed.decode().strip(), ran.returncode


class Connector:
    """A connector whose commands the driver carries out, and the node, too: both must say the same."""

    deployment_name = "hpc"

    def __init__(self) -> None:
        self.node = Node()
        self.files = SharedFiles()
        self.left: list[str] = []

    async def run(self, location: ExecutionLocation, command: list[str], capture_output: bool = False) -> Said:
        text = " ".join(command)
        ours = await self.files.answer(location.name, text, self.node.ask)
        if ours is None:
            self.left.append(text)
            return await self.node.ask(text)
        if not text.startswith(("mkdir", "ln")):
            assert ours == await self.node.ask(text), text
        return ours


def path_of(connector: Connector, path: Path | str) -> RemoteStreamFlowPath:
    found = SimpleNamespace(get_connector=lambda _: connector)
    data = SimpleNamespace(get_data_locations=lambda **_: [])
    context = cast(StreamFlowContext, SimpleNamespace(deployment_manager=found, data_manager=data))
    return RemoteStreamFlowPath(path, context=context, location=ExecutionLocation("n1", "hpc"))


def ended(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_what_streamflow_asks_is_answered_as_a_shell_does(tmp_path: Path) -> None:
    """The commands are those of StreamFlow itself. A version that asks in other words makes this test fail."""
    connector = Connector()

    async def look() -> None:
        job = path_of(connector, tmp_path / "job")
        await job.mkdir(mode=0o777, parents=True, exist_ok=True)
        assert os.stat(job).st_mode & 0o7777 == 0o777
        await (job / "sub").mkdir(mode=0o755)
        Path(job / "sub" / "b").write_text("12345")
        Path(job / "a").write_text("abc")
        await (job / "link").symlink_to(job / "a")
        for path in (job, job / "a", job / "sub", job / "link", job / "none"):
            assert await path.exists() == os.path.exists(path)
            assert await path.is_file() == os.path.isfile(path)
            assert await path.is_dir() == os.path.isdir(path)
            assert await path.is_symlink() == os.path.islink(path)
            assert await path.resolve() == (
                path_of(connector, os.path.realpath(path)) if os.path.exists(path) else None
            )
        assert [str(each) async for each in job.glob("a")] == [str(job / "a")]
        assert [str(each) async for each in job.glob("none")] == []
        assert await (job / "a").size() == 3
        assert await (job / "sub").size() == 5
        await (job / "link").size()
        assert await _size(job.context, job.location, [str(job / "a"), str(job / "sub")]) == 8
        assert await (job / "a").checksum() == "a9993e364706816aba3e25717850c26c9cd0d89d"

    ended(look())
    assert connector.left == []


def test_what_is_not_plain_is_left_to_the_node(tmp_path: Path) -> None:
    connector = Connector()

    async def look() -> None:
        job = path_of(connector, tmp_path / "job")
        await job.mkdir()
        (tmp_path / "outside").write_text("outside")
        (tmp_path / "job" / "out").symlink_to(tmp_path / "outside")
        (tmp_path / "job" / "ring").symlink_to(tmp_path / "job")
        (tmp_path / "job" / "large").write_bytes(b"x" * 2**17)
        assert [str(each) async for each in job.glob("l*e")] == [str(job / "large")]
        assert await (job / "out").exists()
        assert await path_of(connector, tmp_path / "outside").exists()
        assert await (job / "large").checksum() is not None
        await job.size()
        assert not await (job / "a b").exists()
        await (job / "sub" / "deep").mkdir(parents=True, exist_ok=True)
        await job.mkdir(parents=True, exist_ok=True)

    ended(look())
    assert len(connector.left) == 8


def test_whether_there_is_a_link_needs_no_look_at_where_it_leads(tmp_path: Path) -> None:
    """An input is a link to the directory of another job, which the driver may not see."""
    connector = Connector()

    async def look() -> None:
        job = path_of(connector, tmp_path / "job")
        await job.mkdir()
        await (job / "input").symlink_to(tmp_path / "elsewhere")
        assert await (job / "input").is_symlink()
        assert not await job.is_symlink()
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "link").symlink_to("/")
        (tmp_path / "job" / "out").symlink_to(tmp_path / "other")
        assert connector.left == []
        assert await (job / "out" / "link").is_symlink()

    ended(look())
    assert len(connector.left) == 1


@pytest.mark.parametrize("view", ["exit 1; #", "echo /elsewhere; #", "cd / && pwd; #"])
def test_a_node_with_a_directory_of_its_own_makes_it_itself(tmp_path: Path, view: str) -> None:
    """The driver leaves nothing in its own directory of that name, and does not ask again."""
    node, files = Node(lambda text: view + text), SharedFiles()
    for name in "ab":
        assert ended_answer(files, node, f"mkdir -m 777 -p {tmp_path}/{name}") is None
    assert list(tmp_path.iterdir()) == []
    assert len(node.asked) == 1


def ended_answer(files: SharedFiles, node: Node, text: str, name: str = "n1") -> Said | None:
    async def answered() -> Said | None:
        return await files.answer(name, text, node.ask)

    return asyncio.run(answered())


def test_each_node_has_to_see_the_directory(tmp_path: Path) -> None:
    files, node = SharedFiles(), Node()
    assert ended_answer(files, node, f"mkdir -m 777 -p {tmp_path}/a") == ("", 0)
    assert ended(files.sees("n1", f"{tmp_path}/a"))
    assert not ended(files.sees("n2", f"{tmp_path}/a"))
    assert ended_answer(files, node, f"test -d {tmp_path}/a", "n2") is None


def test_a_directory_in_the_place_of_the_shared_one_is_not_believed(tmp_path: Path) -> None:
    """The driver may lose a mount."""
    files, node = SharedFiles(), Node()
    (work := tmp_path / "work").mkdir()
    assert ended_answer(files, node, f"mkdir -m 777 -p {work}/a") == ("", 0)
    work.rename(tmp_path / "old")
    (work / "a").mkdir(parents=True)
    assert ended_answer(files, node, f"test -d {work}/a") is None
    assert ended_answer(files, node, f"mkdir -m 777 -p {work}/b") is None
    assert not (work / "b").exists()


def test_where_attributes_are_cached_the_driver_looks_at_new_names_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node may remember that a file with another name is missing."""
    monkeypatch.setattr(shared_files, "_COHERENT", frozenset())
    files, node = SharedFiles(), Node()
    assert ended_answer(files, node, f"mkdir -m 777 -p {tmp_path}/a") == ("", 0)
    assert ended_answer(files, node, f"mkdir -m 777 -p {tmp_path}/a/{uuid.uuid4()}") == ("", 0)
    directory = tmp_path / str(uuid.uuid4())
    assert ended_answer(files, node, f"test -e {directory} && readlink -f {directory}") is None
    assert ended_answer(files, node, f"mkdir -m 777 -p {directory}") == ("", 0)
    assert ended_answer(files, node, f"test -e {directory} && readlink -f {directory}") == (str(directory), 0)
    assert ended_answer(files, node, f"test -e {tmp_path}/a && readlink -f {tmp_path}/a") is None
    assert ended_answer(files, node, f"mkdir -m 777 -p {tmp_path}/a/b") is None
    assert ended_answer(files, node, f"ln -snf {tmp_path}/x {tmp_path}/a/y") is None
    assert ended_answer(files, node, f"test -d {tmp_path}/a") is None
    assert not ended(files.sees("n1", f"{tmp_path}/a"))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", ["mkdir -m 777 -p {0}/a", "test -e {0}/known", "mkdir -m 777 -p {0}/known/b"])
async def test_a_file_system_that_does_not_answer_is_left_to_the_node(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop goes on, and what the file system would still do later is one command at most."""
    # A look at a local file system takes no thread.
    monkeypatch.setattr(shared_files, "_LOCAL", frozenset())
    files, node, answers = SharedFiles(), Node(), threading.Event()
    assert await files.answer("n1", f"mkdir -m 777 -p {tmp_path}/known", node.ask) == ("", 0)
    text = text.format(tmp_path)
    real = shared_files._carry_out
    with monkeypatch.context() as patched:
        patched.setattr(shared_files, "_LOOK_SECONDS", 0.05)
        patched.setattr(shared_files, "_carry_out", lambda *command: answers.wait() and real(*command))
        said = await asyncio.gather(*(files.answer("n1", each, node.ask) for each in (text, f"{text}x")))
        assert said == [None, None]
        answers.set()
    answer = await files.answer("n1", f"mkdir -m 777 -p {tmp_path}/known/{uuid.uuid4()}", node.ask)
    assert answer == ("", 0)
    assert not any(file.name.endswith("x") for file in tmp_path.glob("**/*"))


@given(st.text(), st.sampled_from(["test -e /a{}", "mkdir -m 777 -p /a{}", "ln -snf /b /a{}"]))
def test_a_command_is_what_a_shell_would_make_of_it(text: str, form: str) -> None:
    plain = all(letter.isascii() and (letter.isalnum() or letter in "_.:@%+=,-") for letter in text)
    found = file_command(form.format(text))
    path = f"/a{text}"
    expected = {
        "t": FileCommand("test", (path,), "e"),
        "m": FileCommand("make directory", (path,), "777"),
        "l": FileCommand("make link", (path,), "/b"),
    }[form[0]]
    if plain:
        assert found == expected
    elif found is not None:
        assert "/" in text
        assert found == expected


async def test_the_driver_looks_at_the_files_of_a_node_that_has_ended(tmp_path: Path) -> None:
    """Also at a file that takes long, but never through a link that leads out of the directory."""
    files, node = SharedFiles(), Node()
    directory = tmp_path / str(uuid.uuid4())
    assert await files.answer("n1", f"mkdir -m 777 -p {directory}", node.ask) == ("", 0)
    (directory / "large").write_bytes(bytes(2**20))
    (tmp_path / "other").touch()
    (directory / "link").symlink_to(tmp_path / "other")
    assert files.sees_all_of("n1")
    checksum = "test -f {0} && sha1sum {0} | awk '{{print $1}}'"
    said = await files.answer_for_lost("n1", checksum.format(directory / "large"))
    assert said == ("3b71f43ff30f4b15b5cd85dd9e95ebc7e84eb5a3", 0)
    assert await files.answer_for_lost("n1", f"test -e {directory / 'link'}") is None
    assert await files.answer_for_lost("n2", f"test -e {directory / 'large'}") is None
    assert await files.answer_for_lost("n1", f"mkdir -m 777 -p {directory / 'new'}") is None


@pytest.mark.parametrize("text", ["mkdir -m 777 -p {0}/a/b", "test -e '{0}/a b'", "ln -snf '/a b' {0}/c"])
async def test_a_node_may_have_files_that_the_driver_does_not_see(tmp_path: Path, text: str) -> None:
    files, node = SharedFiles(), Node()
    assert await files.answer("n1", text.format(tmp_path), node.ask) is None
    assert not files.sees_all_of("n1")
    assert files.sees_all_of("n2")


async def test_the_driver_reads_the_files_of_a_job(tmp_path: Path) -> None:
    """Also a file beside the directories of the job, but nothing that a node may have for itself."""
    files, node = SharedFiles(), Node()
    directory = tmp_path / str(uuid.uuid4())
    (beside := tmp_path / f"{directory.name}.err").write_text("beside")
    assert await files.carry_out("n1", str(beside), beside.read_text) is None
    assert await files.answer("n1", f"mkdir -m 777 -p {directory}", node.ask) == ("", 0)
    (below := directory / "err").write_text("below")
    (link := tmp_path / "link").symlink_to(beside)
    (within := directory / "within").symlink_to(beside)
    (tmp_path / "other").mkdir()
    (deeper := tmp_path / "other" / "err").touch()
    assert await files.carry_out("n1", str(beside), beside.read_text) == "beside"
    assert await files.carry_out("n1", str(below), below.read_text) == "below"
    for path in (link, within, deeper):
        assert await files.carry_out("n1", str(path), path.read_text) is None
    assert await files.carry_out("n2", str(beside), beside.read_text) is None
    beside.unlink()
    assert await files.carry_out("n1", str(beside), beside.read_text) is None


async def test_where_attributes_are_cached_the_node_reads_the_files_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_files, "_COHERENT", frozenset())
    files, node = SharedFiles(), Node()
    assert await files.answer("n1", f"mkdir -m 777 -p {tmp_path}/{uuid.uuid4()}", node.ask) == ("", 0)
    (beside := tmp_path / "err").write_text("beside")
    assert await files.carry_out("n1", str(beside), beside.read_text) is None


async def test_a_look_at_a_local_file_system_takes_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link may lead to another file system, which may not answer."""
    files, node = SharedFiles(), Node()
    assert await files.answer("n1", f"mkdir -m 777 -p {tmp_path}/a", node.ask) == ("", 0)
    aside, run = list[str](), files._thread.run

    async def run_aside(call: Callable[[], Any], seconds: float) -> Any:
        aside.append(repr(call))
        return await run(call, seconds)

    monkeypatch.setattr(files._thread, "run", run_aside)
    for text in (f"mkdir -m 777 -p {tmp_path}/b", f"mkdir -m 777 {tmp_path}/a/b", f"ln -snf /other {tmp_path}/a/link"):
        assert await files.answer("n1", text, node.ask) == ("", 0)
    assert await files.answer("n1", f"test -d {tmp_path}/a/b", node.ask) == ("", 0)
    assert await files.sees("n1", f"{tmp_path}/a/b")
    assert await files.carry_out("n1", f"{tmp_path}/beside", lambda: 1) == 1
    assert aside == []
    for path in (f"{tmp_path}/a/link", f"{tmp_path}/a/link/below"):
        assert await files.answer("n1", f"test -e {path}", node.ask) is None
    assert len(aside) == 2
