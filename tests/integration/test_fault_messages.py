"""A run that fails says why, also when the tool says nothing or the disk is full."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest

from streamflow_io.runtime import EmbeddedRuntime, JobSpec, NodeRuntimeError
from tests.campaign.verdict import clear_error
from tests.cwl import Bench
from tests.integration.test_faults import LINES, noted, pipeline, wait_for


@pytest.mark.parametrize(
    ("death", "words"),
    [
        ("exit 3", "exit code 3"),
        ("kill -9 $$", "ended by signal 9, Killed"),
        ("echo 'no luck' >&2; exit 4", "exit code 4"),
    ],
)
def test_a_silent_death(bench: Bench, death: str, words: str) -> None:
    run = bench.run(pipeline(f"{LINES}; {death}"))
    assert not run.ok
    assert f"FAILED Job /a/0 with error: {words}" == clear_error(run.log)


def test_a_killed_exec(bench: Bench) -> None:
    path = bench.write(pipeline(f"note start; {LINES}"), {}, True)
    process = bench.start(path)
    wait_for(noted(path, "read"))
    (pid,) = [int(line.split()[1].rstrip(":")) for line in bench.leftovers() if "-a-0 --" in line]
    os.kill(pid, signal.SIGKILL)
    run = bench.finish(process, path)
    assert not run.ok
    assert clear_error(run.log) == "FAILED Job /a/0 with error: sfio-node exec, which ran it, was killed"


async def test_a_runtime_that_is_gone_is_not_a_job_that_never_started(tmp_path: Path) -> None:
    """When `serve` is killed, the last job removes the run directory, maybe before the driver knows."""
    runtime = await EmbeddedRuntime.start(tmp_path)
    try:
        job = await runtime.create_job("/a/0")
        assert not await job.has_started()
        Path(job.events_path).touch()
        assert await job.has_started()
        shutil.rmtree(runtime.directory)
        with pytest.raises(NodeRuntimeError, match="sfio-node serve has ended"):
            await job.has_started()
    finally:
        await runtime.close()


async def test_a_job_is_ended_also_when_its_cancel_file_cannot_be_written(tmp_path: Path) -> None:
    """As on a full disk."""
    runtime = await EmbeddedRuntime.start(tmp_path)
    try:
        job = await runtime.create_job("/a/0")
        command = await job.wrap(JobSpec(name="/a/0", success_codes=(0,), outputs=(), inputs=()))
        process = await asyncio.create_subprocess_exec(*command, "sleep", "60")
        async for _ in job.events():
            break
        Path(job.directory, "cancel").symlink_to(tmp_path / "nowhere" / "cancel")
        await job.cancel()
        assert job.exit.done()
        assert job.exit.result().reason == "cancelled"
        assert await process.wait() == -signal.SIGTERM
    finally:
        await runtime.close()
