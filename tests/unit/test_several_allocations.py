"""Several allocations that are one to their deployment."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from collections.abc import Sequence

import pytest
from streamflow.core.exception import WorkflowExecutionException

from streamflow_io._streamflow import HostJobs
from streamflow_io.runtime.allocation import find_allocation
from streamflow_io.runtime.allocation.allocation import Allocation, Loss, Node
from streamflow_io.runtime.allocation.find_allocation import AskingLimits, SeveralAllocations


class Made(Allocation):
    """An allocation of one node, which is always the same one."""

    def __init__(self, number: int) -> None:
        self.nodes = {"n1": Node("n1", "10.0.0.1", 2, 100)}
        self.number = number
        self.closed = asyncio.Event()

    def __str__(self) -> str:
        return f"allocation {self.number}"

    @property
    def seconds_left(self) -> float | None:
        return 100.0 * self.number

    async def close(self) -> None:
        self.closed.set()

    async def start(self, node: str, words: Sequence[str], stdin: int, stdout: int, stderr: int) -> Process:
        raise WorkflowExecutionException(f"{node} of {self}")

    async def clear(self, node: str) -> None:
        raise NotImplementedError

    async def why(self, node: str, code: int) -> Loss | None:
        self.over = f"{self} has ended"
        return Loss(self.over)


class Deployment:
    """A deployment whose jobs a test chooses."""

    deployment_name = "nodes"

    def __init__(self, most: int, idle: float | None = None) -> None:
        self.jobs = HostJobs(frozenset(), waits=False, lacks=False)
        self.made: list[Made] = []
        self.refused = False
        self.lost: list[str] = []
        self.change = asyncio.Event()
        self.several = SeveralAllocations(AskingLimits(most, idle, 0.0), self, self.ask)

    async def ask(self) -> Allocation:
        if self.refused:
            raise WorkflowExecutionException("the queue is closed")
        self.made.append(Made(len(self.made) + 1))
        return self.made[-1]

    def host_jobs(self) -> HostJobs:
        return self.jobs

    def sees_all_of(self, node: str) -> bool:
        return True

    def lose(self, node: str, reason: str) -> None:
        self.lost.append(node)
        self.several.lost(node)

    async def release(self, node: str) -> None:
        assert node in self.lost

    def changed(self) -> None:
        self.change.set()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_allocation, "_PAUSE_SECONDS", 0.01)


async def test_nodes_of_two_allocations_have_two_names() -> None:
    deployment = Deployment(2)
    several = deployment.several
    await several.begin()
    assert [*several.nodes] == ["n1"]
    deployment.jobs = HostJobs(frozenset({"n1"}), waits=True, lacks=True)
    await asyncio.wait_for(deployment.change.wait(), 20)
    assert [*several.nodes] == ["n1", "n1-2"]
    assert (several.seconds_of("n1"), several.seconds_of("n1-2"), several.seconds_left) == (100, 200, 200)
    with pytest.raises(WorkflowExecutionException, match="n1 of allocation 2"):
        await several.start("n1-2", [], 0, 0, 0)
    assert not several.comes
    await several.close()
    assert all(made.closed.is_set() for made in deployment.made)


async def test_the_next_one_comes_when_the_last_has_ended() -> None:
    deployment = Deployment(2)
    several = deployment.several
    await several.begin()
    for name in ("n1", "n1-2"):
        await several.wait()
        assert [*several.nodes] == [name]
        loss = await several.why(name, 1)
        assert loss is not None
        deployment.lose(name, loss.reason)
        assert [*several.nodes] == []
    await several.wait()
    assert several.over == "allocation 2 has ended, and no more than 2 may be asked for (`max`)"
    await several.close()


async def test_a_refusal_is_named() -> None:
    deployment = Deployment(3)
    several = deployment.several
    await several.begin()
    deployment.refused = True
    loss = await several.why("n1", 1)
    assert loss is not None
    deployment.lose("n1", loss.reason)
    await asyncio.wait_for(several.wait(), 20)
    assert several.over == "allocation 1 has ended, and there is no other: the queue is closed"
    await several.close()


async def test_the_idle_one_is_given_back() -> None:
    deployment = Deployment(2, idle=0.05)
    several = deployment.several
    await several.begin()
    await asyncio.wait_for(deployment.made[0].closed.wait(), 20)
    assert deployment.lost == ["n1"]
    assert several.over is None
    await asyncio.wait_for(several.wait(), 20)
    assert [*several.nodes] == ["n1-2"]
    await several.close()
