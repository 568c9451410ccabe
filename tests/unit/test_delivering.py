"""An early delivery happens once, whatever happens to its attempt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.exception import UnrecoverableWorkflowException
from streamflow.core.workflow import Job, Token
from streamflow.cwl.processor import CWLCommandOutputProcessor
from streamflow.workflow.token import ListToken

from lab.fakes import FakeRuntime
from streamflow_io.adapters.attempts import Attempt
from streamflow_io.adapters.outputs import EarlyOutput
from streamflow_io.adapters.tokens import ScatterSize, file_value
from streamflow_io.graph.io_graph import Delivery, OutputKind
from streamflow_io.hints.models import StreamingRule
from streamflow_io.jobs.delivering import Deliverer
from streamflow_io.jobs.delivery import DeliverySource
from streamflow_io.runtime.protocol import Event, OpenedEvent

COMMITTED = StreamingRule.model_validate({"port": "out", "committed": "on_close"})


class Delivered(Deliverer):
    """A deliverer whose deliveries take a moment, as those into a database do; what it collects is made up.

    :ivar ports: on which something was delivered, in order
    :ivar tokens: what it was
    :ivar made: the files that were collected
    :ivar asked: one of them is wanted
    :ivar ready: it can be had
    """

    def __init__(self, rule: StreamingRule | None = None, processor: Any = None, **fields: Any) -> None:
        self.ports: list[str] = []
        self.tokens: list[Token] = []
        self.made: list[str | None] = []
        self.asked, self.ready = asyncio.Event(), asyncio.Event()
        self.ready.set()
        rules = (rule or StreamingRule(port="out", mode="no_update"),)
        output = EarlyOutput(port="out", rules=rules, **fields)
        processors = {"out": processor or CWLCommandOutputProcessor("out", cast(Any, None))}
        workflow = SimpleNamespace(context=SimpleNamespace(scheduler=SimpleNamespace(get_hardware=lambda _: None)))
        step = SimpleNamespace(
            deliver=self._deliver,
            deliver_regular=self._deliver_regular,
            early_outputs=(output,),
            output_processors=processors,
            workflow=workflow,
        )
        super().__init__(cast(Any, step), Job("/a/0", 1, {}, "/in", "/out", "/tmp"), {})
        self.attempt = Attempt(PurePosixPath("/out"))
        self.begin(self.attempt, {"out": ("*",)})

    async def opened(self, port: str, path: str) -> None:
        await self._handle(OpenedEvent(job="1", time=0, port=port, path=path))

    async def _deliver(self, _job: Job, port: str, token: Token) -> None:
        await asyncio.sleep(0.02)
        self.ports.append(port)
        self.tokens.append(token)

    async def _deliver_regular(self, job: Job, tokens: dict[str, Token]) -> None:
        for port, token in tokens.items():
            await self._deliver(job, port, token)

    async def _process(self, source: DeliverySource) -> Token:
        self.made.append(source.path)
        self.asked.set()
        await self.ready.wait()
        return ListToken([file_token("a"), file_token("b")]) if source.path is None else file_token(source.path)


def file_token(name: str) -> Token:
    return Token({**file_value(f"/out/{name}"), "checksum": "sha1$" + 40 * "0"})


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": OutputKind.FILE, "deliveries": (Delivery.STREAM, Delivery.GATE)},
        {"kind": OutputKind.FILES, "elements": (Delivery.STREAM, Delivery.GATE)},
    ],
    ids=["file", "element"],
)
async def test_a_cancelled_attempt_delivers_what_it_has_begun_to(fields: dict[str, Any]) -> None:
    tested = Delivered(**fields)
    delivering = asyncio.create_task(tested.opened("out", "/out/file"))
    await asyncio.sleep(0.005)
    assert tested.ports == []
    delivering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await delivering
    assert len(tested.ports) == 2
    await tested.opened("out", "/out/file")
    assert len(tested.ports) == 2


async def test_a_delivery_that_a_proof_allows_and_that_fails_fails_the_job() -> None:
    """Readers would wait for it for ever."""
    has_failed = asyncio.Event()
    tested = Delivered(kind=OutputKind.FILE, deliveries=(Delivery.STREAM,), when_proven=True)

    async def permitted(_: str) -> None:
        pass

    async def broken(*_: object) -> None:
        has_failed.set()
        raise UnrecoverableWorkflowException("the database is gone")

    async def events() -> AsyncIterator[Event]:
        yield OpenedEvent(job="1", time=0, port="out", path="/out/file")
        await has_failed.wait()

    tested._step.deliver = broken
    with pytest.raises(UnrecoverableWorkflowException, match="the database is gone"):
        await tested.follow(tested.attempt, events(), (), permitted=permitted)


def told(runtime: FakeRuntime, *events: dict[str, Any]) -> None:
    (job,) = runtime.jobs
    for event in events:
        runtime.tell(job, event.pop("event"), **event)


def committed(*names: str) -> list[dict[str, Any]]:
    return [{"event": "committed", "port": "out", "path": f"/out/{name}", "size": 1} for name in names]


async def test_an_attempt_that_ends_while_it_collects_leaves_the_delivery_to_the_next() -> None:
    tested = Delivered(COMMITTED, kind=OutputKind.FILE, deliveries=(Delivery.COMMIT,))
    runtime = FakeRuntime("here")
    tested.ready.clear()
    following = asyncio.create_task(tested.follow(tested.attempt, (await runtime.create_job("/a/0")).events(), []))
    await asyncio.sleep(0)
    told(runtime, *committed("file"))
    await tested.asked.wait()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    tested.ready.set()
    assert tested.ports == []
    runtime = FakeRuntime("here")
    tested.begin(Attempt(PurePosixPath("/out")), {"out": ("*",)})
    node_job = await runtime.create_job("/a/0")
    told(runtime, *committed("file"), {"event": "exit", "ended": 0.0, "success": True, "reason": "exited"})
    await tested.follow(tested.attempt, node_job.events(), [])
    assert tested.ports == ["__commit__out"]


async def test_what_an_attempt_has_committed_is_compared_with_the_file_of_the_next() -> None:
    """The next file is in another directory; readers have the first one."""
    tested = Delivered(COMMITTED, kind=OutputKind.FILE, deliveries=(Delivery.COMMIT,))
    token = await tested.final("out", "file")
    tested._job.output_directory = "/out-2"
    tested.begin(Attempt(PurePosixPath("/out-2")), {"out": ("*",)})
    runtime = FakeRuntime("here")
    node_job = await runtime.create_job("/a/0")
    again = {"event": "committed", "port": "out", "path": "/out-2/file", "size": 1}
    told(runtime, again, {"event": "exit", "ended": 0.0, "success": True, "reason": "exited"})
    await tested.follow(tested.attempt, node_job.events(), [])
    final = Token({**token.value, "path": "/out-2/file"})
    await tested.succeeded({"out": final})
    assert tested.ports == ["__commit__out", "out"]
    assert tested.tokens == [token, final]
    assert tested.made == ["file"]


async def test_a_list_is_delivered_with_its_committed_files_and_the_order_of_its_elements() -> None:
    rule = StreamingRule.model_validate({"port": "out", "committed": "on_file", "fileDeps": ["done"]})
    fields: dict[str, Any] = {"elements": (Delivery.COMMIT,), "deliveries": (Delivery.COMMIT,)}
    tested = Delivered(rule, kind=OutputKind.FILES, **fields)
    runtime = FakeRuntime("here")
    node_job = await runtime.create_job("/a/0")
    waiting = asyncio.create_task(tested.attempt.settled("out", "b"))
    told(runtime, *committed("b", "a"), {"event": "complete", "port": "out"})
    told(runtime, {"event": "exit", "ended": 0.0, "success": True, "reason": "exited"})
    await tested.follow(tested.attempt, node_job.events(), [])
    assert await waiting
    assert tested.ports == ["__commit_element__out", "__commit_element__out", "__commit__out", "__order__out"]
    assert [token.tag for token in tested.tokens] == ["0.0", "0.1", "0", "0"]
    whole, order = tested.tokens[2:]
    assert [token.value["basename"] for token in whole.value] == ["a", "b"]
    assert isinstance(order, ScatterSize)
    assert order.order == [1, 0]


async def test_what_is_committed_is_had_before_the_end_and_checked_at_it() -> None:
    tested = Delivered(kind=OutputKind.FILE, deliveries=(Delivery.STREAM,))
    token = await tested.final("out", "file")
    assert await tested.final("out", "file") is token
    assert tested.made == ["file"]
    with pytest.raises(UnrecoverableWorkflowException, match="was written again afterwards"):
        await tested.succeeded({"out": token.update({**token.value, "checksum": "sha1$" + 40 * "1"})})
    assert tested.ports == []


async def test_what_is_final_at_the_end_is_the_regular_token() -> None:
    tested = Delivered(kind=OutputKind.FILES, elements=(Delivery.STREAM,))
    elements = [file_token("x"), file_token("deep/y")]
    await tested.succeeded({"out": ListToken(elements)})
    assert await tested.final("out", "deep/y") is elements[1]
    with pytest.raises(UnrecoverableWorkflowException, match="Job /a/0 has ended without z"):
        await tested.final("out", "z")
    assert tested.ports == ["out", *2 * ["__stream_element__out"]]
    assert all(token is not element for token in tested.tokens[1:] for element in elements)
