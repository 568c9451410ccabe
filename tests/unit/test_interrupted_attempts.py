"""An attempt that has failed is interrupted while its processes are ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.exception import WorkflowExecutionException

from streamflow_io.adapters.attempts import Attempt
from streamflow_io.jobs.execution import Execution
from streamflow_io.parts.splitting import Split


class NodeJob:
    """A job of a node runtime whose processes end when they are let go."""

    def __init__(self) -> None:
        self.exit = asyncio.get_running_loop().create_future()
        self.is_ending, self.lets_go = asyncio.Event(), asyncio.Event()

    async def cancel(self) -> None:
        self.is_ending.set()
        await self.lets_go.wait()
        self.exit.set_result(None)


async def forever(*_: object) -> None:
    await asyncio.get_running_loop().create_future()


async def no_events(_: object) -> AsyncIterator[Any]:
    await forever()
    yield


async def fail(_: object) -> None:
    raise WorkflowExecutionException("the command cannot run")


async def test_ctrl_c_while_a_failed_attempt_is_ended_ends_its_job() -> None:
    """Otherwise the job would be tried again."""
    node_job, attempt = NodeJob(), Attempt(PurePosixPath("/out"))
    execution = cast(Any, Execution.__new__(Execution))
    runner = SimpleNamespace(events=lambda *_: no_events(_), running=lambda *_: nullcontext())
    execution._run = SimpleNamespace(runner=runner, proofs=SimpleNamespace(awaited=None, rehearsals=None))
    execution._run.proofs.awaited = SimpleNamespace(permitted=forever)
    execution._job = SimpleNamespace(name="/a/0")
    execution._step = SimpleNamespace(name="/a", tells_paths=False)
    execution._state = execution._learned = execution._writes = SimpleNamespace(told=lambda events: events)
    execution._deliverer = SimpleNamespace(follow=forever)
    execution._windows = ()

    async def prepare(*_: object) -> Any:
        command = SimpleNamespace(execute=fail)
        return SimpleNamespace(node_job=node_job, attempt=attempt, split=Split(), command=command, spec=None)

    execution._prepare = prepare
    running = asyncio.create_task(execution._run_under(SimpleNamespace(wrapper="exec"), None, ()))
    await asyncio.wait_for(node_job.is_ending.wait(), 30)
    running.cancel()
    await asyncio.sleep(0)
    assert not running.done()
    node_job.lets_go.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 30)
    assert node_job.exit.done()
    assert attempt.has_failed
