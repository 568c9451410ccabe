"""A copy that has failed holds no job that needs the same file at the same location."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import streamflow.data.manager
from streamflow.core.data import DataLocation
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.exception import WorkflowExecutionException
from streamflow.data.manager import DefaultDataManager

from lab.node import wait_for
from streamflow_io import _streamflow
from tests.unit.test_lost_nodes import HERE, Run, node

pytestmark = pytest.mark.timeout(30)


class FullError(Exception):
    """A file system has no space left."""


class Failing(Run):
    """A run whose first copy to a node puts half a file there, and fails when the event says so."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "n1")
        self.begins, self.fails = asyncio.Event(), asyncio.Event()
        self._copy, self.nodes.copy_local_to_remote = self.nodes.copy_local_to_remote, self._fail_once
        (directory / "first").write_text("content")
        self.data.register_path(HERE, str(directory / "first"))

    async def _fail_once(self, src: str, dst: str, locations: list[ExecutionLocation], read_only: bool = False) -> None:
        if self.begins.is_set():
            await self._copy(src, dst, locations, read_only)
            return
        Path(dst).write_text("con")
        self.begins.set()
        await self.fails.wait()
        raise FullError

    async def bring(self, job: str) -> Path:
        """Copy the file to the directory of a job on the node."""
        (target := self.directory / job).mkdir(exist_ok=True)
        await self.data.transfer_data(HERE, str(self.directory / "first"), [node("n1")], str(target / "file"))
        return target / "file"


@pytest.fixture
async def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Failing]:
    monkeypatch.setattr(DefaultDataManager, "transfer_data", DefaultDataManager.transfer_data)
    monkeypatch.setattr(streamflow.data.manager, "DataLocation", DataLocation)
    _streamflow.mend_copies()
    made = Failing(tmp_path)
    await made.nodes.deploy(False)
    yield made
    await made.nodes.undeploy(False)


@pytest.mark.parametrize("again", ["a", "b"])
async def test_the_file_is_copied_again(run: Failing, again: str) -> None:
    """For the same job, and for another one."""
    run.fails.set()
    with pytest.raises(FullError):
        await run.bring("a")
    assert (await run.bring(again)).read_text() == "content"


@pytest.mark.parametrize("how", ["fails", "is given up"])
async def test_a_job_that_waits_for_the_copy_does_not_get_a_part(run: Failing, how: str) -> None:
    first = asyncio.create_task(run.bring("a"))
    await run.begins.wait()
    second = asyncio.create_task(run.bring("b"))
    (copied,) = run.data.get_data_locations(str(run.directory / "a" / "file"), "nodes")
    await asyncio.to_thread(wait_for, lambda: copied.available._waiters, "the second job")
    run.fails.set() if how == "fails" else first.cancel()
    with pytest.raises(WorkflowExecutionException, match=r"first was not copied to .*a/file on nodes/n1: (Full|Canc)"):
        await second
    await asyncio.gather(first, return_exceptions=True)
    assert (await run.bring("b")).read_text() == "content"


async def test_streamflow_itself_waits_for_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Once it does not, `mend_copies` can go."""
    monkeypatch.setattr(DefaultDataManager, "transfer_data", _streamflow._transfer_data)
    made = Failing(tmp_path)
    await made.nodes.deploy(False)
    made.fails.set()
    with pytest.raises(FullError):
        await made.bring("a")
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(made.bring("b"), 0.5)
    await made.nodes.undeploy(False)
