"""One session against a reader that the test controls: no job waits for it for ever."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest
from msgspec import convert

from streamflow_io.parts import read_session
from streamflow_io.parts.director import Director
from streamflow_io.parts.read_session import ReadAheadSession
from streamflow_io.parts.selected_parts import selected
from streamflow_io.records.files import ConsumedRecord, SessionEndRecord, SessionRecord
from streamflow_io.records.records import Record
from streamflow_io.runtime.extents import Span
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.protocol import ChunkEvent, Event, ExitEvent, StartedEvent
from streamflow_io.runtime.session_job import SessionJob

CHUNK = 100


class Reader:
    """Reads what it is told to, unless it hangs, or is full."""

    def __init__(self, hangs: bool = False, is_full: bool = False) -> None:
        self.told: list[str] = []
        self.hangs, self._is_full = hangs, is_full
        self._events: asyncio.Queue[Event | NodeRuntimeError] = asyncio.Queue()
        self.say(StartedEvent(job="s", time=0, pid=1, cached=0))

    def say(self, event: Event | NodeRuntimeError) -> None:
        self._events.put_nowait(event)

    async def events(self) -> AsyncIterator[Event]:
        while True:
            event = await self._events.get()
            if isinstance(event, NodeRuntimeError):
                raise event
            yield event
            if isinstance(event, ExitEvent):
                return

    def read(self, chunk: int, spans: Sequence[Span]) -> None:
        self.told.append("read")
        if self._is_full:
            raise NodeRuntimeError("no space")
        if not self.hangs:
            size = sum(end - begin for begin, end in spans)
            found = {"chunk": chunk, "bytes": size, "cached": 0, "resident": size, "seconds": 0, "requests": 1}
            self.say(convert({"event": "chunk", "job": "s", "time": 0, **found}, ChunkEvent))

    def watch(self, spans: Sequence[Span]) -> None:
        pass

    def drop(self, spans: Sequence[Span]) -> None:
        self.told.append("drop")

    def end(self) -> None:
        self.told.append("end")

    async def cancel(self) -> None:
        self.told.append("cancel")


def session(reader: Reader, records: list[Record], window: int = 1000, readers: int = 1) -> ReadAheadSession:
    facts = SessionRecord(
        time=time.time(), session=1, step="/s", file="/f", size=400, form="said", readers=1, chunk=CHUNK, window=window
    )
    return ReadAheadSession(facts, Director(400, CHUNK, window, readers), cast(SessionJob, reader), records.append)


def ends(records: list[Record]) -> list[str]:
    return [record.reason for record in records if isinstance(record, SessionEndRecord)]


@pytest.mark.asyncio
async def test_parts_arrive(caplog: pytest.LogCaptureFixture) -> None:
    reader, records = Reader(), list[Record]()
    found = session(reader, records)
    parts = [found.announce([(start, start + CHUNK)]) for start in range(0, 400, CHUNK)]
    found.all_announced()
    await asyncio.wait_for(asyncio.gather(*map(found.arrived, parts)), 5)
    assert reader.told == ["read"] * 4 + ["end"]
    for part in parts:
        found.consume(part)
    await found.close()
    assert ends(records) == ["done"]
    # The file fits into the window. The session has ended before, and still knows what is consumed.
    assert [record.held for record in records if isinstance(record, ConsumedRecord)] == [300, 200, 100, 0]
    assert reader.told[-1] == "end"
    assert not caplog.records


@pytest.mark.asyncio
async def test_a_reader_that_hangs(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_session, "PATIENCE_SECONDS", 0.05)
    reader, records = Reader(hangs=True), list[Record]()
    found = session(reader, records)
    parts = [found.announce([(start, start + CHUNK)]) for start in range(0, 400, CHUNK)]
    await asyncio.wait_for(asyncio.gather(*map(found.arrived, parts)), 5)
    await asyncio.sleep(0)
    assert reader.told == ["read", "cancel"]
    assert ends(records) == ["stalled"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    await asyncio.wait_for(found.arrived(found.announce([(0, 10)])), 1)
    await found.close()


@pytest.mark.asyncio
async def test_a_reader_that_had_nothing_to_read_for_long_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that says the parts may pause, or the window be full. Then the reader has nothing to say."""
    monkeypatch.setattr(read_session, "PATIENCE_SECONDS", 0.3)
    reader, records = Reader(), list[Record]()
    found = session(reader, records)
    await asyncio.wait_for(found.arrived(found.announce([(0, CHUNK)])), 5)
    await asyncio.sleep(0.4)
    reader.hangs = True
    began = asyncio.get_running_loop().time()
    await asyncio.wait_for(found.arrived(found.announce([(CHUNK, 2 * CHUNK)])), 5)
    assert asyncio.get_running_loop().time() - began > 0.25
    assert ends(records) == ["stalled"]
    await found.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["gone", "exit", "full"])
async def test_a_reader_that_is_lost(how: str, caplog: pytest.LogCaptureFixture) -> None:
    reader, records = Reader(hangs=True, is_full=how == "full"), list[Record]()
    found = session(reader, records)
    part = found.announce([(0, 400)])
    if how == "gone":
        reader.say(NodeRuntimeError("sfio-node serve has ended"))
    elif how == "exit":
        reader.say(ExitEvent(job="s", time=0, ended=0, success=False, reason="error", message="/f was changed"))
    await asyncio.wait_for(found.arrived(part), 5)
    (warning,) = caplog.records
    reason = {"gone": "serve has ended", "exit": "/f was changed", "full": "no space"}[how]
    assert warning.getMessage().startswith("/f is not read ahead any more, its readers read the file themselves: ")
    assert reason in warning.getMessage()
    await found.close()
    assert ends(records) == ["lost"]


@pytest.mark.asyncio
async def test_the_end_of_a_run_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    reader, records = Reader(hangs=True), list[Record]()
    found = session(reader, records)
    part = found.announce([(0, 400)])
    await asyncio.sleep(0.01)
    await found.close()
    await asyncio.wait_for(found.arrived(part), 1)
    assert ends(records) == ["lost"]
    assert not caplog.records


@pytest.mark.parametrize(
    ("value", "parts", "expected"),
    [("1of3", None, (0, 33)), ("3of3", None, (66, 100)), (2, 3, (33, 66)), ("1of1", None, (0, 100))],
)
def test_what_jobs_select(value: object, parts: object, expected: Span) -> None:
    assert selected(value, parts, 100) == expected


@pytest.mark.parametrize(
    ("value", "parts", "message"),
    [
        ("4of3", None, "there is no part 4 of 3: 1 to 3 are allowed"),
        ("0of3", None, "there is no part 0 of 3"),
        ("third", None, "'third' is not KofN, as 2of16"),
        (3, None, "3 is not KofN"),
        ("1of3", 3, "'1of3' of 3 are not two whole numbers"),
        (True, 3, "True of 3"),
        (1, 0, "there is no part 1 of 0: there is at least one part"),
    ],
)
def test_what_there_is_not(value: object, parts: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        selected(value, parts, 100)
