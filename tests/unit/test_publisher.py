"""What is delivered early is delivered once, whatever happens to the attempt that does it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.workflow import Job, Token
from streamflow.cwl.processor import CWLCommandOutputProcessor

from streamflow_io.coordination.graph import Delivery, OutputKind
from streamflow_io.hints.models import StreamingRule
from streamflow_io.streaming.outputs import EarlyOutput
from streamflow_io.streaming.publisher import Publisher


def publisher(delivered: list[str], **fields: Any) -> Publisher:
    """A publisher whose deliveries take a moment, as those into a database do."""

    async def deliver(_job: Job, port: str, _token: Token) -> None:
        await asyncio.sleep(0.02)
        delivered.append(port)

    output = EarlyOutput(port="out", rules=(StreamingRule(port="out", mode="no_update"),), **fields)
    processors = {"out": CWLCommandOutputProcessor("out", cast(Any, None))}
    workflow = SimpleNamespace(context=None)
    step = SimpleNamespace(deliver=deliver, output_processors=processors, workflow=workflow)
    job = Job("/a/0", 1, {}, "/in", "/out", "/tmp")
    return Publisher(cast(Any, step), job, [output], {})


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": OutputKind.FILE, "deliveries": (Delivery.STREAM,)},
        {"kind": OutputKind.FILES, "elements": (Delivery.STREAM,)},
    ],
    ids=["file", "element"],
)
async def test_a_cancelled_attempt_delivers_what_it_has_begun_to(fields: dict[str, Any]) -> None:
    delivered: list[str] = []
    tested = publisher(delivered, **fields)
    attempt = asyncio.create_task(tested.opened("out", "/out/file"))
    await asyncio.sleep(0.005)
    assert delivered == []
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert len(delivered) == 1
    await tested.opened("out", "/out/file")
    assert len(delivered) == 1
