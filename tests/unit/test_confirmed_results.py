"""Results that wait until what they are made from is confirmed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.workflow import Port, Status, Token
from streamflow.cwl.step import CWLTransferStep
from streamflow.workflow.token import TerminationToken

from streamflow_io.engine.rewire import ConfirmedTransferStep


def step_behind(monkeypatch: pytest.MonkeyPatch) -> tuple[ConfirmedTransferStep, Port]:
    """A step that waits for a port."""

    async def transfer(self: Any, job: Any, token: Token) -> Token:
        return token

    monkeypatch.setattr(CWLTransferStep, "transfer", transfer)
    step = ConfirmedTransferStep.__new__(ConfirmedTransferStep)
    port = Port(cast(Any, None), "early")
    step.name, step.workflow, step.early = "/result-collector", SimpleNamespace(ports={"early": port}), ("early",)
    return step, port


async def test_each_result_comes_when_all_is_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there are several, as StreamFlow has them when it gathers a list once too often."""
    step, port = step_behind(monkeypatch)
    one = asyncio.create_task(step.transfer(cast(Any, None), Token("one")))
    port.put(Token("committed"))
    await asyncio.sleep(0.01)
    assert not one.done()
    port.put(TerminationToken(Status.COMPLETED))
    assert (await asyncio.wait_for(one, 5)).value == "one"
    two = await asyncio.wait_for(step.transfer(cast(Any, None), Token("two")), 5)
    assert two.value == "two"


async def test_no_result_comes_when_something_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    step, port = step_behind(monkeypatch)
    port.put(TerminationToken(Status.FAILED))
    for _ in range(2):
        with pytest.raises(asyncio.CancelledError):
            await step.transfer(cast(Any, None), Token("one"))
