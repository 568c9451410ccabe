"""A job that writes into CAPIO: its events, its end, and what CAPIO is to blame for; nothing runs."""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pytest

from lab.fakes import FakeRuntime, until
from streamflow_io.features.capio.runtime.installation import CapioError
from streamflow_io.features.capio.runtime.job import CapioJob
from streamflow_io.features.capio.runtime.reports import Content
from streamflow_io.features.capio.runtime.server import Collected
from streamflow_io.features.capio.runtime.supported import HeldOutputs
from streamflow_io.runtime.node_commands import AttemptLostError
from streamflow_io.runtime.node_runtime import Waiting
from streamflow_io.runtime.protocol import JobSpec, OpenedEvent, OutputRule, StartedEvent, WatchedOutput

DIRECTORY = Path("/capio/a-1")


class Guard:
    """A guard with the digests that the test names."""

    def __init__(self) -> None:
        self.contents: dict[Path, Content] = {}

    def content(self, path: Path, count: int | None = None) -> Content:
        return self.contents[path]


class Server:
    """CAPIO's server, whose clients do what the test says.

    :ivar asked: what they were to do
    :ivar answers: when they have done it
    """

    directory = Path("/capio")

    def __init__(self) -> None:
        self.collected: dict[str, object] = {}
        self.guard = Guard()
        self.asked: list[tuple[str, ...]] = []
        self.answers: dict[str, asyncio.Future[None]] = {}
        self.end = asyncio.Event()

    def application(self, name: str, guarded: object) -> list[str]:
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
        self.probed: list[str] = []
        self.server = Server()

    def probe(self, server: object, application: str) -> None:
        self.probed.append(application)

    def give_up(self, reason: str) -> None:
        self.without.append(reason)

    def give_up_step(self, step: str, reason: str) -> None:
        self.without.append(f"{step}: {reason}")

    async def reading_job(self, waiting: Waiting) -> CapioJob:
        server = cast(Any, self.server)
        return self._add(
            "/b/0", lambda known: CapioJob(cast(Any, self), self, known, server, "/b", None, None, waiting)
        )

    async def writing_job(self, root: Path = Path("/out")) -> CapioJob:
        """A job that runs, and writes `out.txt` into CAPIO."""
        outputs = HeldOutputs({"out": "out.txt"}, ("out.txt", "more.txt"))
        server = cast(Any, self.server)
        made = self._add(
            "/a/0", lambda known: CapioJob(cast(Any, self), self, known, server, "/a", DIRECTORY, outputs, None)
        )
        assert isinstance(made, CapioJob)
        rules = (OutputRule(globs=("*",), committed="on_termination"),)
        watched = tuple(
            WatchedOutput(port=port, root=str(root), globs=("*",), kind="file", rules=rules) for port in ("out", "more")
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
    assert [type(await anext(events)) for _ in range(2)] == [StartedEvent, OpenedEvent]
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
    assert runtime.probed == ["a"]
    with pytest.raises(AttemptLostError, match="it says so"):
        job.blame("it says so")
    assert runtime.without == ["/a: it says so"]


def report(job: CapioJob, text: str) -> None:
    """The reports of the guard about its programs."""
    reports = Path(job.directory, "capio-reports")
    reports.parent.mkdir(parents=True, exist_ok=True)
    reports.write_text(text)


@pytest.mark.parametrize("success", [True, False])
async def test_a_program_that_does_what_capio_cannot_was_in_vain(tmp_path: Path, success: bool) -> None:
    runtime = Runtime()
    runtime.directory = tmp_path
    job = await runtime.writing_job()
    report(job, "armed\nwrites 644 a-1/out.txt\nunfit it seeks in a-1/out.txt, which it writes\n")
    runtime.exit(job, success=success)
    with pytest.raises(AttemptLostError, match="it seeks in a-1/out"):
        await asyncio.wait_for(asyncio.shield(job.exit), 10)
    assert runtime.without == ["/a: CAPIO cannot do what its program does: it seeks in a-1/out.txt, which it writes"]


@pytest.mark.parametrize("kept", [True, False])
async def test_what_capio_has_kept_is_compared_with_what_was_written(tmp_path: Path, kept: bool) -> None:
    runtime = Runtime()
    runtime.directory = tmp_path
    job = await runtime.writing_job(tmp_path)
    report(job, "armed\nwrites 750 a-1/out.txt\nwrote 5 2a a-1/out.txt\n")
    runtime.exit(job, success=True)
    await until(lambda: "collect" in runtime.server.answers)
    copy = tmp_path / "out.txt"
    copy.write_text("bytes")
    runtime.server.guard.contents[copy] = Content(5, 42 if kept else 43)
    runtime.server.answers["collect"].set_result(None)
    await job.collected()
    if kept:
        assert job.exit.result().success
        assert list(runtime.server.collected) == ["a-1/out.txt"]
        assert copy.stat().st_mode & 0o777 == 0o750
    else:
        with pytest.raises(AttemptLostError, match=r"CAPIO has not kept a-1/out.txt as it was written"):
            await job.exit


@pytest.mark.parametrize(
    ("digest", "settled", "why"),
    [("2a", True, None), ("2b", True, "other bytes of a-1/out.txt"), ("2b", False, None)],
)
async def test_what_was_read_is_compared_when_its_writer_has_succeeded(
    tmp_path: Path, digest: str, settled: bool, why: str | None
) -> None:
    """If the writer fails, this one starts again anyway."""
    runtime = Runtime()
    runtime.directory = tmp_path
    written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    job = await runtime.reading_job(lambda: written)
    assert job.sees(PurePosixPath("/capio/a-1/out.txt"))
    runtime.start(job)
    report(job, f"armed\nopens a-1/out.txt\nread 5 {digest} 1 a-1/out.txt\n")
    runtime.exit(job, success=True)
    await asyncio.sleep(0.05)
    assert not job.exit.done()
    runtime.server.collected["a-1/out.txt"] = Collected(tmp_path / "out.txt", Content(5, 42))
    written.set_result(settled)
    await job.collected()
    if why is None:
        assert job.exit.result().success
    else:
        with pytest.raises(AttemptLostError, match=why):
            await job.exit
