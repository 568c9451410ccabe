"""Whether two nodes see the same file, and how a file is written from its archive."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from streamflow_io._streamflow import NOT_WRITTEN
from streamflow_io.runtime.allocation import seen_files
from streamflow_io.runtime.allocation.connector import unpacking
from streamflow_io.runtime.allocation.seen_files import DRIVER, SeenFiles


class Nodes:
    """Nodes whose file systems are directories of this one.

    :ivar scripts: that have run
    """

    def __init__(self, **roots: Path) -> None:
        self._roots = roots
        self.scripts: list[str] = []

    async def run(self, node: str, script: str) -> tuple[str, int]:
        self.scripts.append(script)
        done = await asyncio.to_thread(
            subprocess.run,
            ["sh", "-c", script.replace("/shown", str(self._roots[node]))],
            capture_output=True,
            text=True,
        )
        return done.stdout, done.returncode


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (path := tmp_path / "a" / "file").parent.mkdir()
    path.write_text("content")
    return path


def test_a_shared_file_is_the_same_and_proven_once(file: Path) -> None:
    (other := file.with_name("other")).write_text("another")
    nodes = Nodes(n1=file.parent, n2=file.parent)
    seen = SeenFiles(nodes.run)

    async def ask() -> list[bool]:
        return [await seen.is_same(f"/shown/{name}", "n1", "n2") for name in ("file", "other", "missing")]

    assert asyncio.run(ask()) == [True, True, False]
    assert len([script for script in nodes.scripts if "mkdir" in script]) == 1
    assert sorted(os.listdir(file.parent)) == ["file", other.name]


def test_the_driver_may_share_a_file(file: Path) -> None:
    nodes = Nodes(n1=file.parent)
    for one, other in ((DRIVER, "n1"), ("n1", DRIVER)):
        assert asyncio.run(SeenFiles(nodes.run).is_same(str(file), one, other))
    assert os.listdir(file.parent) == ["file"]


def test_a_file_that_looks_the_same_is_not_believed(file: Path, tmp_path: Path) -> None:
    """A hard link has the same inode, size and times, in a directory that the other node does not have."""
    (tmp_path / "b").mkdir()
    os.link(file, tmp_path / "b" / "file")
    nodes = Nodes(n1=file.parent, n2=tmp_path / "b")
    assert not asyncio.run(SeenFiles(nodes.run).is_same("/shown/file", "n1", "n2"))
    assert os.listdir(file.parent) == os.listdir(tmp_path / "b") == ["file"]


def test_a_copy_with_the_same_times_is_another_file(file: Path, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    shutil.copy2(file, tmp_path / "b" / "file")
    nodes = Nodes(n1=file.parent, n2=tmp_path / "b")
    assert not asyncio.run(SeenFiles(nodes.run).is_same("/shown/file", "n1", "n2"))
    assert not any("mkdir" in script for script in nodes.scripts)


def unpack(source: Path, target: Path) -> int:
    """Run the script with the archive of a file or directory; return its exit code."""
    archive = subprocess.run(["tar", "chf", "-", "-C", source.parent, "--", source.name], stdout=subprocess.PIPE)
    return subprocess.run(["sh", "-c", unpacking(str(source), str(target))], input=archive.stdout).returncode


@pytest.mark.parametrize("name", ["file", 'it\'s "b" $c'])
def test_a_file_is_written_from_its_archive(file: Path, tmp_path: Path, name: str) -> None:
    file.chmod(0o750)
    (to := tmp_path / "to").mkdir()
    assert unpack(file, to / name) == 0
    assert ((to / name).read_text(), (to / name).stat().st_mode & 0o777) == ("content", 0o750)
    assert os.listdir(to) == [name]


def test_a_directory_is_written_from_its_archive(file: Path, tmp_path: Path) -> None:
    (to := tmp_path / "to").mkdir()
    assert unpack(file.parent, to / "new") == 0
    assert unpack(file.parent, to) == 0
    assert (to / "new" / "file").read_text() == (to / "a" / "file").read_text() == "content"
    assert sorted(os.listdir(to)) == ["a", "new"]


def test_nothing_is_left_of_half_an_archive(file: Path, tmp_path: Path) -> None:
    (to := tmp_path / "to").mkdir()
    for target in (to / "new", to):
        script = unpacking(str(file), str(target))
        ended = subprocess.run(["sh", "-c", script], input=b"no archive", stderr=subprocess.DEVNULL)
        assert ended.returncode == NOT_WRITTEN
        assert os.listdir(to) == []


async def test_a_file_system_of_the_driver_that_does_not_answer(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = threading.Event()
    nodes = Nodes(n1=file.parent)
    with monkeypatch.context() as patched:
        patched.setattr(seen_files, "_LOOK_SECONDS", 0.05)
        patched.setattr(seen_files, "_look_here", lambda _: answers.wait())
        assert not await asyncio.wait_for(SeenFiles(nodes.run).is_same(str(file), DRIVER, "n1"), 30)
    answers.set()
    assert caplog.messages == [f"The file system of {file} has not answered the driver within 0 s"]
    assert await SeenFiles(nodes.run).is_same(str(file), DRIVER, "n1")
