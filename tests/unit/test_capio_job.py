"""A job that writes into CAPIO: its events, its end, and what CAPIO is to blame for; nothing runs."""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pytest

from streamflow_io.capio_cl.supported import HeldOutputs
from streamflow_io.runtime import AttemptLostError, JobSpec, OutputRule, WatchedOutput
from streamflow_io.runtime.capio import CapioJob
from streamflow_io.runtime.capio_installation import CapioError
from tests.streaming_fakes import FakeRuntime, until

DIRECTORY = Path("/capio/a-1")


class Server:
    """CAPIO's server, whose clients do what the test says.

    :ivar asked: what they were to do
    :ivar answers: when they have done it
    """

    directory = Path("/capio")

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.answers: dict[str, asyncio.Future[None]] = {}
        self.end = asyncio.Event()

    def application(self, name: str) -> list[str]:
        return ["env", f"CAPIO_APP_NAME={name}"]

    async def client(self, *arguments: str, **_: Any) -> None:
        self.asked.append(arguments)
        await self.answers.setdefault(arguments[0], asyncio.get_running_loop().create_future())

    async def wait_for_end(self) -> None:
        await self.end.wait()

    def why_ended(self) -> str:
        return "it has ended"


class Runtime(FakeRuntime):
    """:ivar without: what is not to be done with CAPIO any more"""

    def __init__(self) -> None:
        super().__init__("here")
        self.without: list[str] = []
        self.server = Server()

    def give_up(self, reason: str) -> None:
        self.without.append(reason)

    def give_up_step(self, step: str, reason: str) -> None:
        self.without.append(f"{step}: {reason}")

    async def writing_job(self) -> CapioJob:
        """A job that runs, and writes `out.txt` into CAPIO."""
        outputs = HeldOutputs({"out": "out.txt"}, ("out.txt", "more.txt"))
        server = cast(Any, self.server)
        made = self._add("/a/0", lambda known: CapioJob(cast(Any, self), known, server, "/a", DIRECTORY, outputs, None))
        assert isinstance(made, CapioJob)
        rules = (OutputRule(globs=("*",), committed="on_termination"),)
        watched = tuple(
            WatchedOutput(port=port, root="/out", globs=("*",), kind="file", rules=rules) for port in ("out", "more")
        )
        self.words = await made.wrap(JobSpec(name="/a/0", outputs=watched))
        self.start(made)
        await until(lambda: "wait" in self.server.answers)
        return made


async def test_a_command_is_started_in_capio_and_what_it_opens_is_told() -> None:
    runtime = Runtime()
    job = await runtime.writing_job()
    assert runtime.words[-6:] == [
        "/bin/sh",
        "-c",
        'cd "$0" && exec "$@"',
        str(DIRECTORY),
        "env",
        "CAPIO_APP_NAME=a",
    ]
    assert [output["port"] for output in runtime.specs[job.identifier]["outputs"]] == ["more"]
    assert job.held("out", "out.txt") == PurePosixPath(DIRECTORY, "out.txt")
    assert job.held("more", "more.txt") is None
    assert job.sees(PurePosixPath("/capio/b-2/x"))
    assert not job.sees(PurePosixPath("/out/x"))
    runtime.server.answers["wait"].set_result(None)
    events = job.events()
    assert [(await anext(events)).event for _ in range(2)] == ["started", "opened"]
    await job.cancel()


async def test_the_end_is_told_when_all_is_in_the_output_directory() -> None:
    runtime = Runtime()
    job = await runtime.writing_job()
    runtime.exit(job, success=True)
    await until(lambda: "collect" in runtime.server.answers)
    pairs = ("/capio/a-1/out.txt", "/out/out.txt", "/capio/a-1/more.txt", "/out/more.txt")
    assert runtime.server.asked[-1] == ("collect", "1000", *pairs)
    assert not job.exit.done()
    runtime.server.answers["collect"].set_result(None)
    await job.collected()
    assert job.exit.result().success
    assert runtime.without == []


async def test_a_job_that_cannot_be_collected_was_in_vain() -> None:
    runtime = Runtime()
    job = await runtime.writing_job()
    runtime.exit(job, success=True)
    await until(lambda: "collect" in runtime.server.answers)
    runtime.server.answers["collect"].set_exception(CapioError("no answer"))
    await job.collected()
    with pytest.raises(AttemptLostError, match="no answer") as raised:
        await job.exit
    assert raised.value.without == "CAPIO"
    assert runtime.without == ["no answer"]


async def test_a_job_that_is_cancelled_while_it_is_collected_has_not_succeeded() -> None:
    runtime = Runtime()
    job = await runtime.writing_job()
    runtime.exit(job, success=True)
    await until(lambda: "collect" in runtime.server.answers)
    await job.cancel()
    assert (job.exit.result().success, job.exit.result().reason) == (False, "cancelled")
    assert runtime.server.answers["collect"].cancelled()


async def test_a_job_is_ended_with_its_server_and_was_in_vain() -> None:
    runtime = Runtime()
    job = await runtime.writing_job()
    runtime.server.end.set()
    with pytest.raises(AttemptLostError, match="it has ended"):
        await asyncio.wait_for(asyncio.shield(job.exit), 10)
    assert runtime.without == ["it has ended"]


async def test_a_job_that_fails_may_have_failed_for_capio() -> None:
    runtime = Runtime()
    job = await runtime.writing_job()
    runtime.exit(job, code=3)
    assert (await job.exit).code == 3
    with pytest.raises(AttemptLostError, match="it says so"):
        job.blame("it says so")
    assert runtime.without == ["/a: it says so"]
