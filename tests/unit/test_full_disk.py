"""The answers of `df` about the file system of a failed job."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path
from typing import Any, cast

import pytest
from streamflow.core.deployment import ExecutionLocation

from lab.fakes import FakeRun
from lab.fuse import may_mount, served
from streamflow_io.jobs.full_disks import FullDisks, space_of, told_if_full

BLOCKS = "Filesystem     1024-blocks     Used Available Capacity Mounted on\n{}\n"
FILES = "Filesystem Inodes IUsed IFree IUse% Mounted on\n{}\n"
ROOMY = BLOCKS.format("none 9000 1 8999 1% /")


class Host:
    """A connector to a host that prints a text for every command."""

    def __init__(self, said: str) -> None:
        self.said = said

    async def run(self, **options: Any) -> tuple[str, int]:
        return self.said, 0


@pytest.mark.parametrize(
    ("blocks", "files", "free"),
    [
        ("/dev/vda 1000 400 600 40% /", "/dev/vda 50 20 30 40% /", (614_400, 30)),
        ("nfs:/a b 1000 1000 0 100% /a 1 2 3 4% b", None, (0, 1)),
        ("none 1000 1000 -5 101% /", "btrfs 0 0 0 - /", (-5120, 1)),
    ],
)
def test_what_df_prints(blocks: str, files: str | None, free: tuple[int, int]) -> None:
    space = space_of(BLOCKS.format(blocks) + ("" if files is None else FILES.format(files)))
    assert (space.bytes, space.files, space.refusal) == (*free, None)


def test_what_df_prints_here(tmp_path: Path) -> None:
    said = subprocess.run(["df", "-Pk", tmp_path], capture_output=True, check=True, text=True).stdout
    assert space_of(said).bytes > 0


@pytest.mark.parametrize("said", ["", "df: /gone: No such file or directory"])
def test_what_is_no_answer_of_df(said: str) -> None:
    with pytest.raises(ValueError, match="df has printed"):
        space_of(said)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (BLOCKS.format("none 9000 8990 10 99% /"), "Its file system is full: 10.2 kB are left for /w on hosts/host"),
        (BLOCKS.format("none 9000 1 8999 1% /") + FILES.format("none 9 9 0 100% /"), "out of inodes: /w on hosts/host"),
        (BLOCKS.format("none 9000 1 8999 1% /"), None),
        ("no df", None),
        (
            ROOMY + "probe: dd: failed to open '/w/.x': Disk quota exceeded",
            "takes no more files (Disk quota exceeded): /w on hosts/host",
        ),
        (
            ROOMY + "probe: 2+0 records in\nprobe: dd: error writing '/w/.x': Quota exceeded",
            "takes no more files (Quota exceeded): /w on hosts/host",
        ),
        (ROOMY + "probe: sh: dd: not found", None),
        (ROOMY + "probe: dd: failed to open '/w/.x': Permission denied", None),
        (
            ROOMY + "probe above: sh: cannot create /.x: Permission denied",
            "takes no more files (Permission denied): /w on hosts/host",
        ),
    ],
)
def test_a_host_is_asked(said: str, told: str | None) -> None:
    location = ExecutionLocation("host", "hosts", local=False)
    found = asyncio.run(told_if_full(cast(Any, Host(said)), location, "/w", "/w"))
    end = ". Remove files, as with `streamflow-io clean`, or set another `workdir`"
    assert found == "" if told is None else found.endswith(told + end)


async def test_a_directory_in_a_container_is_named_as_on_its_node() -> None:
    """The user cannot find the path of the container there."""
    location, said = ExecutionLocation("host", "hosts", local=False), BLOCKS.format("none 9000 9000 0 100% /")
    found = await told_if_full(cast(Any, Host(said)), location, "/tmp/streamflow/x", "/data/x")
    assert found.startswith("Its file system is full: 0 B are left for /data/x on hosts/host. ")


async def test_the_full_disk_of_a_job_that_moves_is_named_as_on_its_node(caplog: pytest.LogCaptureFixture) -> None:
    host = Host(BLOCKS.format("none 9000 9000 0 100% /"))
    disks, job = FullDisks(lambda _: cast(Any, host), lambda _, path: f"/data{path}"), FakeRun().state("/a/0")
    await disks.failed(job, None)
    disks.tell(job.name)
    (message,) = caplog.messages
    assert f" are left for /data{job.target.workdir} on " in message


class Node:
    """A connector to a host that this machine stands for."""

    async def run(self, command: list[str], **options: Any) -> tuple[str, int]:
        ran = await asyncio.create_subprocess_exec("sh", "-c", " ".join(command), stdout=PIPE, stderr=STDOUT)
        printed, _ = await ran.communicate()
        return printed.decode(), await ran.wait()


PLACES = pytest.mark.parametrize("location", [ExecutionLocation("h", "hosts"), ExecutionLocation("l", "l", local=True)])


@PLACES
@pytest.mark.parametrize("name", [".", "missing"])
async def test_nothing_is_left_where_space_is_looked_for(
    tmp_path: Path, location: ExecutionLocation, name: str
) -> None:
    place = str(tmp_path / name)
    assert await told_if_full(cast(Any, Node()), location, place, place) == ""
    assert [*tmp_path.iterdir()] == []


@PLACES
async def test_nothing_is_left_if_a_look_for_space_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: ExecutionLocation
) -> None:
    (place := tmp_path / "place").mkdir()
    (programs := tmp_path / "programs").mkdir()
    seen = tmp_path / "seen"
    (programs / "dd").write_text(f'#!/bin/sh\n{shutil.which("dd")} "$@"\nls -A {place} > {seen}\n')
    (programs / "dd").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "fsync", lambda _: seen.write_text("".join(os.listdir(place))))
    assert await told_if_full(cast(Any, Node()), location, str(place), str(place)) == ""
    assert seen.read_text() == ""


@PLACES
@pytest.mark.parametrize("name", [".", "missing"])
async def test_a_quota_is_seen(tmp_path: Path, location: ExecutionLocation, name: str) -> None:
    """`df` tells of free space all the same. A work directory that cannot be made is missing."""
    if not may_mount():
        pytest.skip("no file system can be served")
    (backing := tmp_path / "backing").touch()
    (place := tmp_path / "place").mkdir()
    with served(backing, place, "quota", 0, tmp_path / "flag"):
        said = await told_if_full(cast(Any, Node()), location, str(place / name), str(place / name))
    assert said.startswith(f"Its file system takes no more files (Disk quota exceeded): {place / name} on ")
