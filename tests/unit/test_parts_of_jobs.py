"""The description of parts that a job gets, and the meaning of a part that it could not get."""

from __future__ import annotations

from pathlib import PurePosixPath
from unittest.mock import Mock

import pytest
from msgspec import convert
from streamflow.core.exception import UnrecoverableWorkflowException
from streamflow.core.workflow import CommandOutput, Job, Status, Token

from streamflow_io.adapters.attempts import Attempt
from streamflow_io.adapters.inputs import part_inputs
from streamflow_io.adapters.tokens import PartToken, SaidBy, StreamSource, StreamToken, file_value
from streamflow_io.jobs.ending import JobFailedError, ProducerRestartError, check_exit
from streamflow_io.runtime.protocol import ExitEvent, FileIdentity, FilePart, Link

PART = FilePart(file="/data/all", identity=FileIdentity(inode=1, size=9, mtime=2), pieces=((0, 4), "eA=="))
TOKEN = PartToken(file_value("/in/1.part"), PART, "chunks", SaidBy("/split/0", "host", "000001-split", 7))
LINK = Link(address="10.0.0.1:5000", job="000001-split", certificate="/run/certificate")


def test_by_a_link_a_part_has_its_number() -> None:
    (here,) = part_inputs({"chunk": TOKEN}, (), lambda _: None)
    (there,) = part_inputs({"chunk": TOKEN}, ("chunk",), lambda _: LINK)
    assert (here.link, here.number, here.target) == (None, None, {"file": "/in/1.part"})
    assert (there.link, there.number, there.target) == (LINK, 7, {"fifo": "/in/1.part"})
    assert here.part == there.part == PART


async def test_who_has_said_it_stays_with_a_token() -> None:
    row = {"value": await TOKEN._save_value(Mock()), "tag": "0.3"}
    loaded = await PartToken._load(row, Mock())
    assert (loaded.part, loaded.said_by, loaded.value) == (PART, TOKEN.said_by, TOKEN.value)
    assert loaded.retag("0.4").update(loaded.value).said_by == TOKEN.said_by


@pytest.mark.parametrize(
    ("reason", "error"), [("producer", JobFailedError), ("rewritten", UnrecoverableWorkflowException)]
)
async def test_a_part_that_cannot_be_had_fails_the_attempt(reason: str, error: type[Exception]) -> None:
    """No other job is to start again for it: the job is tried again in place, if retries are left."""
    job = Job("/align/0", 1, {"chunk": TOKEN}, "/in", "/out", "/tmp")
    event = convert(
        {"event": "exit", "job": "j", "time": 0.0, "ended": 0.0, "success": False, "reason": reason}
        | {"input": "chunk", "message": "m"}
        | {"started": 0.0, "ended": 1.0},
        ExitEvent,
    )
    with pytest.raises(error, match=r"m(?: \[SFIO-P006\])?$"):
        await check_exit(job, event, CommandOutput("", Status.FAILED), Attempt(PurePosixPath("/out")), [])


@pytest.mark.parametrize(
    ("is_there", "error"),
    [(True, JobFailedError), (False, UnrecoverableWorkflowException), (None, ProducerRestartError)],
)
async def test_a_job_that_cannot_read_blames_another_one_that_has_failed(
    is_there: bool | None, error: type[Exception]
) -> None:
    """Where the other job has succeeded with the file, the reader is tried again, and says why."""
    token = StreamToken(file_value("/in/x"), StreamSource("/a/0", "o", "x"))
    producer = Attempt(PurePosixPath("/a"))
    producer.end(is_there is not None)

    async def collect(port: str, path: str) -> Token:
        if not is_there:
            raise UnrecoverableWorkflowException(f"Job /a/0 has ended without {path}")
        return token

    producer.collect = collect
    event = convert(
        {"event": "exit", "job": "j", "time": 0.0, "ended": 0.0, "success": False, "reason": "producer"}
        | {"input": "/a/0", "message": "cannot read x: no space"},
        ExitEvent,
    )
    job, output = Job("/b/0", 1, {"x": token}, "/in", "/out", "/tmp"), CommandOutput("", Status.FAILED)
    with pytest.raises(error) as raised:
        await check_exit(job, event, output, Attempt(PurePosixPath("/out")), [(token, producer)])
    assert is_there is None or "cannot read x: no space" in str(raised.value)
    assert ("has ended without x" in str(raised.value)) == (is_there is False)
