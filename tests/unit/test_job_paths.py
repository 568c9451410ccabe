"""What is in the directories of a job is the same wherever it is looked at."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.workflow import Job

from streamflow_io.streaming.paths import checksums_below, files_below, job_path

NAMES = (
    "a",
    "deep/b c",
    "deep/er/d\\e",
    ".hidden",
    "deep/two\nlines\\n\r",
    "deep/caf\udce9",
    "deep/" + 255 * "x",
    "café ",
)


class ShellConnector:
    """Runs commands as connectors do, in a shell here."""

    deployment_name = "site"

    async def run(self, location: ExecutionLocation, command: list[str], capture_output: bool) -> tuple[str, int]:
        shell = await asyncio.create_subprocess_shell(
            f"{' '.join(command)} 2>&1", stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
        )
        said, _ = await shell.communicate()
        return said.decode().strip(), shell.returncode or 0


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    root = tmp_path / "it's a directory"
    (root / "deep" / "er").mkdir(parents=True)
    for name in NAMES:
        (root / name).write_bytes(os.fsencode(name))
    (root / "link").symlink_to("a")
    (root / "dangling").symlink_to("nowhere")
    (root / "again").symlink_to("deep")
    return root


@pytest.mark.parametrize("look", [files_below, checksums_below])
async def test_files_and_checksums_are_the_same_elsewhere(directory: Path, look: Any) -> None:
    found = []
    for local in (True, False):
        location = ExecutionLocation("host", "site", local=local)
        manager = SimpleNamespace(get_connector=lambda _: ShellConnector())
        scheduler = SimpleNamespace(get_locations=lambda _, location=location: [location])
        context = cast(Any, SimpleNamespace(deployment_manager=manager, scheduler=scheduler))
        job = Job("/a/0", 1, {}, "/in", "/out", "/tmp")
        below = await look(job_path(context, job, str(directory)))
        found.append(below if isinstance(below, dict) else dict.fromkeys(below))
        assert not await look(job_path(context, job, str(directory / "nowhere")))
    here, there = found
    assert here == there
    assert set(here) == {*NAMES, "link"}
