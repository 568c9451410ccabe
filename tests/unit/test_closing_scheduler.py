"""A job whose inputs come while the run closes: its connectors are gone."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.config import BindingConfig
from streamflow.core.scheduling import Hardware
from streamflow.core.workflow import Job

from streamflow_io.engine.scheduler import IOAwareScheduler


@pytest.mark.parametrize("has_begun", [True, False])
async def test_a_job_that_comes_while_the_run_closes_is_cancelled(has_begun: bool) -> None:
    """StreamFlow says nothing of a step that is cancelled, and logs any other exception."""
    scheduler = IOAwareScheduler.__new__(IOAwareScheduler)

    def get_connector(_: str) -> None:
        scheduler._is_closing = True

    scheduler.context = cast(Any, SimpleNamespace(deployment_manager=SimpleNamespace(get_connector=get_connector)))
    scheduler.run, scheduler._is_closing, scheduler._roomy = None, has_begun, set()
    target = SimpleNamespace(deployment=SimpleNamespace(name="local"), service=None)
    asked = SimpleNamespace(cores=1.0, memory=1.0, eval=lambda _: Hardware(1, 1))
    with pytest.raises(asyncio.CancelledError):
        await scheduler.schedule(
            Job("/a/0", 0, {}, "/in", "/out", "/tmp"), BindingConfig([cast(Any, target)]), cast(Any, asked)
        )
