"""What is delivered early is delivered once, whatever happens to the attempt that does it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.exception import UnrecoverableWorkflowException
from streamflow.core.workflow import Job, Token
from streamflow.cwl.processor import CWLCommandOutputProcessor
from streamflow.workflow.token import ListToken

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


def file_token(name: str) -> Token:
    return Token({"class": "File", "path": f"/out/{name}", "checksum": "sha1$0"})


async def test_what_is_committed_is_had_before_the_end_and_checked_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tested = publisher([], kind=OutputKind.FILE, deliveries=(Delivery.STREAM,))
    made = []

    async def make(_publisher: Publisher, port: str, file: str) -> Token:
        made.append(file)
        return file_token(file)

    monkeypatch.setattr(Publisher, "_file_token", make)
    token = await tested.final("out", "file")
    assert await tested.final("out", "file") is token
    assert made == ["file"]
    with pytest.raises(UnrecoverableWorkflowException, match="was written again afterwards"):
        await tested.commits.check({"out": token.update({**token.value, "checksum": "sha1$1"})})


async def test_what_is_final_at_the_end_is_the_regular_token() -> None:
    tested = publisher([], kind=OutputKind.FILES, elements=(Delivery.STREAM,))
    elements = [file_token("x"), file_token("deep/y")]
    await tested.finish({"out": ListToken(elements)})
    assert await tested.final("out", "deep/y") is elements[1]
    with pytest.raises(UnrecoverableWorkflowException, match="Job /a/0 has ended without z"):
        await tested.final("out", "z")
