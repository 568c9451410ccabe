"""Local jobs that StreamFlow runs itself end with their run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from streamflow.core.deployment import ExecutionLocation
from streamflow.deployment.connector.local import LocalConnector

from lab.node import wait_for
from streamflow_io.adapters.connector import LocalJobConnector


def running(directory: Path, script: str, timeout: int | None = None) -> asyncio.Task[tuple[str, int] | None]:
    connector = LocalJobConnector(LocalConnector("local", str(directory)), "/step/0")
    location = ExecutionLocation("local", "local", local=True)
    options = {"workdir": str(directory), "capture_output": True, "timeout": timeout, "job_name": "/step/0"}
    return asyncio.ensure_future(connector.run(location, ["sh", "-c", f"'{script}'"], **options))


async def test_output_and_exit_code_are_those_of_the_command(tmp_path: Path) -> None:
    assert await running(tmp_path, "echo said; echo more >&2; exit 3") == ("said\nmore", 3)


@pytest.mark.parametrize("ignores", ["", 'trap "" TERM'])
async def test_processes_of_a_cancelled_job_end(tmp_path: Path, ignores: str) -> None:
    (tmp_path / "child.sh").write_text(f"{ignores}\nsleep 300 &\necho $$ $! > started\nmv started child\nwait\n:\n")
    job = running(tmp_path, "sh child.sh & wait")
    await asyncio.to_thread(wait_for, (tmp_path / "child").exists, "the child")
    children = [Path("/proc", pid) for pid in (tmp_path / "child").read_text().split()]
    assert [child.exists() for child in children] == [True, True]
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    # While the loop goes on, which has the pipes of both.
    await asyncio.to_thread(wait_for, lambda: not any(child.exists() for child in children), "the end of the children")


async def test_processes_of_a_job_that_takes_too_long_end(tmp_path: Path) -> None:
    job = running(tmp_path, "echo $$ > started; sleep 300; :", timeout=1)
    with pytest.raises(asyncio.TimeoutError):
        await job
    process = Path("/proc", (tmp_path / "started").read_text().strip())
    await asyncio.to_thread(wait_for, lambda: not process.exists(), "the end of the command")
