"""A host that is lost while StreamFlow looks at the hosts where a job may run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.exception import WorkflowExecutionException
from streamflow.scheduling.scheduler import DefaultScheduler

from streamflow_io.engine import scheduler as module
from streamflow_io.engine.scheduler import IOAwareScheduler


class Hosts:
    """Two hosts of the plugin, and the hosts that the test has lost."""

    def __init__(self) -> None:
        self.lost: set[str] = set()

    def is_lost(self, name: str) -> bool:
        return name in self.lost

    async def get_available_locations(self, service: str | None) -> dict[str, None]:
        return {name: None for name in ("n1", "n2") if name not in self.lost}


@pytest.mark.parametrize(("lost", "looks"), [((), 1), (("n1",), 2), (("n1", "n2"), 3)])
async def test_a_job_is_placed_once_more_for_each_loss(
    monkeypatch: pytest.MonkeyPatch, lost: tuple[str, ...], looks: int
) -> None:
    hosts, losses, seen = Hosts(), iter(lost), []

    async def process_target(self: Any, target: Any, *_: Any) -> None:
        seen.append(target)
        if (name := next(losses, None)) is not None:
            hosts.lost.add(name)
            raise WorkflowExecutionException(f"node {name} has failed")

    monkeypatch.setattr(DefaultScheduler, "_process_target", process_target)
    monkeypatch.setattr(module, "own_hosts", lambda connector: connector)
    scheduler = IOAwareScheduler.__new__(IOAwareScheduler)
    scheduler.context = cast(Any, SimpleNamespace(deployment_manager=SimpleNamespace(get_connector=lambda _: hosts)))
    target: Any = SimpleNamespace(deployment=SimpleNamespace(name="hpc"), service=None)
    await scheduler._choose_location(target, cast(Any, SimpleNamespace(job=SimpleNamespace(name="/a/0"))), None)
    assert len(seen) == looks


async def test_another_failure_is_none_of_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    async def process_target(self: Any, *_: Any) -> None:
        raise WorkflowExecutionException("no such directory")

    monkeypatch.setattr(DefaultScheduler, "_process_target", process_target)
    monkeypatch.setattr(module, "own_hosts", lambda connector: connector)
    scheduler = IOAwareScheduler.__new__(IOAwareScheduler)
    scheduler.context = cast(Any, SimpleNamespace(deployment_manager=SimpleNamespace(get_connector=lambda _: Hosts())))
    target: Any = SimpleNamespace(deployment=SimpleNamespace(name="hpc"), service=None)
    with pytest.raises(WorkflowExecutionException, match="no such directory"):
        await scheduler._choose_location(target, cast(Any, None), None)
