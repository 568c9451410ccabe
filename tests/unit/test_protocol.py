"""Messages between driver and `sfio-node` survive whatever a path is; an unknown message is no silence."""

from __future__ import annotations

import json
import os
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import ValidationError, convert

from lab.fakes import FakeRuntime
from streamflow_io.runtime.protocol import ChangedEvent, CommandSpec, ExitEvent, InputStream, JobSpec, StartedEvent
from streamflow_io.runtime.values import readable
from streamflow_io.runtime.wire import is_from_outside, parse_event, text_of

PATHS = st.binary(min_size=1, max_size=40).filter(lambda path: 0 not in path).map(os.fsdecode)


@given(PATHS)
def test_a_path_is_the_same_on_both_sides(path: str) -> None:
    spec = JobSpec(
        name="/a/0",
        command=CommandSpec(stdout=path),
        streams=(InputStream(name="i", port="o", path=path, events="/e", target={"fifo": path}),),
    )
    said = json.loads(text_of(spec))
    (stream,) = said["streams"]
    assert (said["command"]["stdout"], stream["path"], stream["target"]) == (path, path, {"fifo": path})
    assert text_of(spec).isascii()
    event = {"job": "1", "time": 0, "event": "changed", "port": "o", "path": path, "how": "written"}
    for ascii_only in (True, False):
        line = json.dumps(event, ensure_ascii=ascii_only).encode(errors="surrogatepass")
        assert cast(ChangedEvent, parse_event(line)).path == path
    readable(path).encode()


@pytest.mark.parametrize("fields", [{"stdout": "/log"}, {"command": {"codes": (0,)}}])
def test_the_driver_writes_no_unknown_field(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="unknown field"):
        convert({"name": "/a/0", **fields}, JobSpec)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"code": 1}, False),
        ({"code": 9}, False),
        ({"code": 137}, True),
        ({"code": 143}, True),
        ({"code": 139}, False),
        ({"signal": 9}, True),
        ({"signal": 15}, True),
        ({"signal": 11}, False),
        ({"signal": 13}, False),
        ({"reason": "lost"}, True),
        ({"reason": "cancelled", "code": 75}, True),
        ({"reason": "unstreamable", "code": 75}, False),
    ],
)
def test_the_cause_of_an_end(fields: dict[str, object], expected: bool) -> None:
    exit_event = convert(
        {"event": "exit", "job": "1", "time": 0, "ended": 0, "success": False, "reason": "exited", **fields},
        ExitEvent,
    )
    assert is_from_outside(exit_event) is expected


def test_a_path_for_people() -> None:
    assert [readable(path) for path in ("café", "caf\udce9", "a\nb")] == ["café", r"caf\xe9", "a\nb"]


@pytest.mark.parametrize(
    "line",
    [b"", b"[]", b"{", b'{"event":"opened"}', b"[" * 100_000, b"\xff", b'{"job":"1","time":0,"event":"new"}'],
)
def test_what_is_no_event(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_event(line)


async def test_a_job_of_which_something_is_not_understood_fails() -> None:
    runtime = FakeRuntime("host")
    job, other = await runtime.create_job("a"), await runtime.create_job("b")
    await job.wrap(JobSpec(name="a"))
    runtime.start(job)
    runtime.receive(b'{"nothing": 1}')
    assert not job.exit.done()
    # The job is cancelled, and says why.
    runtime.tell(job, "changed", port="out", path=1, how="written")
    ended = await job.exit
    assert not ended.success
    assert "has sent an unknown message" in str(ended.message)
    assert [type(event) async for event in job.events()] == [StartedEvent, ExitEvent]
    assert not other.exit.done()
