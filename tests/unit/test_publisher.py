"""What is delivered early is delivered once, whatever happens to the attempt that does it."""

from __future__ import annotations

import asyncio
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.exception import UnrecoverableWorkflowException
from streamflow.core.workflow import Job, Token
from streamflow.cwl.processor import CWLCommandOutputProcessor
from streamflow.workflow.token import ListToken

from streamflow_io.graph.io_graph import Delivery, OutputKind
from streamflow_io.hints.models import StreamingRule
from streamflow_io.run.attempts import Attempt
from streamflow_io.run.outputs import EarlyOutput
from streamflow_io.run.publisher import Publisher
from streamflow_io.run.tokens import file_value


def attempt() -> Attempt:
    return Attempt("/a/0", 1, PurePosixPath("/out"))


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
    delivering = asyncio.create_task(tested.opened("out", "/out/file"))
    await asyncio.sleep(0.005)
    assert delivered == []
    delivering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await delivering
    assert len(delivered) == 1
    await tested.opened("out", "/out/file")
    assert len(delivered) == 1


def file_token(name: str) -> Token:
    return Token({**file_value(f"/out/{name}"), "checksum": "sha1$0"})


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
        await tested.commits.check({"out": token.update({**token.value, "checksum": "sha1$1"})}, attempt())


async def test_what_is_final_at_the_end_is_the_regular_token() -> None:
    tested = publisher([], kind=OutputKind.FILES, elements=(Delivery.STREAM,))
    elements = [file_token("x"), file_token("deep/y")]
    await tested.finish({"out": ListToken(elements)})
    assert await tested.final("out", "deep/y") is elements[1]
    with pytest.raises(UnrecoverableWorkflowException, match="Job /a/0 has ended without z"):
        await tested.final("out", "z")


async def test_another_file_takes_the_place_of_one_that_others_have_begun_to_read() -> None:
    for delivery in (Delivery.STREAM, Delivery.GATE):
        tested = publisher([], kind=OutputKind.FILE, deliveries=(delivery,))
        await tested.opened("out", "/out/file.tmp")
        final = file_token("file")
        await tested.commits.check({"out": final}, attempt())
        assert tested.replacement("out", "file.tmp") is None
        await tested.finish({"out": final})
        assert tested.replacement("out", "file.tmp") is await tested.final("out", "file.tmp") is final
        assert tested.replacement("out", "file") is None


@pytest.mark.parametrize("why", ["committed", "no file", "the name counts", "a list", "delivered otherwise"])
async def test_no_other_file_takes_the_place_of_one_that_others_have(why: str) -> None:
    kinds = {"kind": OutputKind.FILES if why == "a list" else OutputKind.FILE}
    tested = publisher([], **kinds, deliveries=(Delivery.STREAM,), fixed_name=why == "the name counts")
    ended = attempt()
    await tested.opened("out", "/out/file.tmp")
    if why == "committed":
        ended.commit("out", "file.tmp")
    if why == "delivered otherwise":
        tested.commits.deliver("out", file_token("file.tmp"))
    final = Token(None) if why == "no file" else file_token("file")
    with pytest.raises(UnrecoverableWorkflowException, match=r"file.tmp was delivered early, but the output is"):
        await tested.commits.check({"out": final}, ended)


async def test_a_file_of_the_same_name_elsewhere_takes_the_place_of_one_whose_name_counts() -> None:
    tested = publisher([], kind=OutputKind.FILE, deliveries=(Delivery.STREAM,), fixed_name=True)
    await tested.opened("out", "/out/draft/file")
    await tested.commits.check({"out": file_token("final/file")}, attempt())
