"""When rehearsals begin and end: on cores that StreamFlow's accounts have free, one at a time, and never for ever."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.scheduling import AvailableLocation, Hardware
from streamflow.core.workflow import Job, Token
from streamflow.cwl.command import CWLCommand
from streamflow.workflow.token import FileToken

from streamflow_io.adapters.attempts import StreamingJobs
from streamflow_io.adapters.jobs import JobState
from streamflow_io.graph.candidates import Candidate
from streamflow_io.jobs.programs import Programs
from streamflow_io.proofs import rehearsals as module
from streamflow_io.proofs.findings import Findings, RememberedInconclusive
from streamflow_io.proofs.rehearsable_jobs import RehearsableJobs
from streamflow_io.proofs.rehearsal import Lend, Rehearsal
from streamflow_io.proofs.rehearsal_rules import Finding, unknown
from streamflow_io.proofs.rehearsals import Rehearsals
from streamflow_io.proofs.repeated_job import NotApartError, RepeatedJob
from streamflow_io.records.jobs import RehearsedRecord
from streamflow_io.records.learned.extents import Extent
from streamflow_io.records.learned.proofs import Proof, RememberedProofs, Shown, Way
from streamflow_io.records.records import Record
from streamflow_io.runtime.protocol import ExitEvent

NET = Finding("net", read=(1,))


class File(FileToken):  # type: ignore[misc]
    async def get_paths(self, context: Any) -> list[str]:
        return []


@dataclass(eq=False)
class Runtime:
    """Where jobs run.

    :ivar cat: which program that is there
    """

    is_here: bool = False
    wrapper: str = "exec"
    cat: str = "-"
    binary: str = "sfio-node"
    asked: int = 0

    async def run(self, words: list[str], seconds: float) -> tuple[str, int]:
        assert words[-1] == "cat"
        self.asked += 1
        return self.cat, 0


async def nothing(*_: object) -> None:
    return None


class Stage:
    """A run with a host of two cores, whose rehearsals last until the test ends them.

    :ivar begun: the inputs that were rehearsed, in order
    :ivar ended: those of them that were ended before they had shown anything
    :ivar beside: the inputs that were streams, too, by rehearsed input
    """

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_SETTLING", 0.0)
        self.are_compared = False
        self.shown_at_the_end: Finding | None = None
        monkeypatch.setattr(Rehearsal, "run", lambda rehearsal: self._run(rehearsal))
        monkeypatch.setattr(RepeatedJob, "has_changed_files", nothing)
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.beside: dict[str, dict[str, Way]] = {}
        self.findings: dict[str, asyncio.Future[Finding | None]] = {}
        self.records: list[Record] = []
        self.used = {"host": Hardware(0, 0)}
        self.host = AvailableLocation(name="host", deployment="d", hostname="host", hardware=Hardware(2, 1000))
        self.proofs = RememberedProofs(directory / "learned", ())
        self.inconclusive = RememberedInconclusive(directory / "learned", ())
        for remembered in self.proofs, self.inconclusive:
            monkeypatch.setattr(remembered, "_use", nothing)  # A file takes its time.
        programs: Any = (("cat", (9, 8, "libc")),)
        writers = {"text": {"/make"}, "more": {"/write", "/rewrite"}}
        self._candidates = {
            f"/{name}": Candidate(f"tool {name}", ("text", "more"), programs, writers=writers) for name in "abc"
        }
        self.context = SimpleNamespace(
            deployment_manager=SimpleNamespace(get_connector=lambda name: object()),
            scheduler=SimpleNamespace(get_hardware=lambda name: Hardware(1, 600)),
        )
        self.rehearsals = self.next_run()

    def next_run(self) -> Rehearsals:
        """The rehearsals of a run that knows what was learned before."""
        return Rehearsals(
            RehearsableJobs(self._candidates, True, Programs(), StreamingJobs()),
            Findings(self.proofs, self.inconclusive, "recover", self.records.append),
            self.used,
        )

    async def _run(self, rehearsal: Rehearsal) -> Finding | None:
        rehearsal.job.is_compared = self.are_compared
        name = rehearsal.original.step.name + "/" + rehearsal.port
        self.begun.append(name)
        self.beside[name] = dict(rehearsal.beside)
        self.findings[name] = asyncio.get_running_loop().create_future()
        try:
            finding = await self.findings[name]
            if finding is not None and finding.way is not None:
                rehearsal._proven = finding
            return finding
        except asyncio.CancelledError:
            self.ended.append(name)
            if self.shown_at_the_end is None:
                raise
            return self.shown_at_the_end

    async def runs(
        self,
        step: str,
        size: int = 9,
        option: int = 0,
        runtime: Runtime | None = None,
        seconds: float = 60.0,
        taken: float = 0,
        **fields: Any,
    ) -> None:
        """A job of a step succeeds; on the driver's node if no other one is given. This many cores are taken then."""
        job = self.begins(step, size, option, runtime, **fields)
        await self.succeeds(job, seconds, taken)

    async def writes(self, step: str, seconds: float) -> None:
        """A job succeeds that writes files for others, and reads none."""
        exit_event = ExitEvent(job="0", time=0, success=True, reason="exited", started=50, ended=50 + seconds)
        self.rehearsals.succeeded(JobState(Job(f"/{step}/0", 0, {}, "/in", "/out", "/tmp")), {}, exit_event)

    def begins(
        self, step: str, size: int = 9, option: int = 0, runtime: Runtime | None = None, **fields: Any
    ) -> JobState:
        """A job of a step is about to run."""
        more = fields.pop("more", None)
        command = CWLCommand(step=cast(Any, None))
        vars(command).update(fields)
        workflow = SimpleNamespace(context=self.context)
        each = SimpleNamespace(name=f"/{step}", command=command, output_connectors={}, workflow=workflow)
        value = {"class": "File", "path": "/f", "basename": "f", "size": size}
        job = JobState(Job(f"/{step}/0", 0, {}, "/in", "/out", "/tmp"))
        target = SimpleNamespace(deployment=SimpleNamespace(name="d"))
        job.allocation, job.places = cast(Any, SimpleNamespace(target=target)), [self.host]
        self.rehearsals.placed(job)
        inputs: dict[str, Token] = {"text": File(value), "option": Token(option)}
        if more is not None:
            inputs["more"] = File({**value, "path": "/m", "size": more})
        runtime = runtime or Runtime(is_here=True)
        self.rehearsals.begins(cast(Any, each), job, cast(Any, runtime), inputs)
        return job

    async def succeeds(self, job: JobState, seconds: float = 60.0, taken: float = 0) -> None:
        """The job has ended well."""
        exit_event = ExitEvent(job="0", time=0, success=True, reason="exited", started=0, ended=seconds)
        self.rehearsals.succeeded(job, {}, exit_event)
        self.rehearsals.attempt_ended(job)
        await self.account(taken)

    async def fails(self, job: JobState) -> None:
        self.rehearsals.attempt_ended(job)
        await settled()

    async def account(self, cores: float, memory: float = 0) -> None:
        """The amount that is taken now."""
        self.used["host"] = Hardware(cores, memory)
        self.rehearsals.look()
        await settled()

    async def finds(self, name: str, finding: Finding | None) -> None:
        self.findings[name].set_result(finding)
        await settled()

    @property
    def told(self) -> list[tuple[str, str | None, str | None]]:
        records = [record for record in self.records if isinstance(record, RehearsedRecord)]
        return [(record.input, record.way, record.reason) for record in records]


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0.001)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


async def test_what_is_found_is_kept_and_not_tried_again(stage: Stage) -> None:
    await stage.runs("a")
    await stage.finds("/a/text", NET)
    assert stage.told == [("/a/text", "net", None)]
    await stage.runs("a")
    assert stage.begun == ["/a/text"]
    await stage.rehearsals.close()


async def test_a_clock_that_is_set_back_makes_no_rehearsal_shorter(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", itertools.count(1e9, -3600.0).__next__)
    await stage.runs("a")
    await stage.finds("/a/text", NET)
    (record,) = stage.records
    assert isinstance(record, RehearsedRecord)
    assert record.seconds >= 0
    await stage.rehearsals.close()


async def test_one_at_a_time(stage: Stage) -> None:
    for step in "abc":
        await stage.runs(step)
    assert stage.begun == ["/a/text"]
    await stage.finds("/a/text", NET)
    assert stage.begun == ["/a/text", "/b/text"]
    await stage.rehearsals.close()


@pytest.mark.parametrize(("cores", "memory"), [(1.5, 0), (2, 0), (0, 401)])
async def test_one_ends_when_its_core_or_its_memory_is_given_to_a_job(
    stage: Stage, cores: float, memory: float
) -> None:
    await stage.runs("a")
    await stage.account(1, 400)
    assert not stage.ended
    await stage.account(cores, memory)
    assert stage.ended == ["/a/text"]
    await stage.account(cores, memory)
    assert stage.begun == ["/a/text"], "there is no room"
    await stage.account(0)
    assert stage.begun == ["/a/text"] * 2
    await stage.rehearsals.close()


async def test_one_that_is_ended_again_and_again_is_given_up(stage: Stage) -> None:
    await stage.runs("a")
    for _ in range(5):
        await stage.account(2)
        await stage.account(0)
    assert stage.begun == stage.ended == ["/a/text"] * 3
    assert stage.told == [("/a/text", None, "its core was wanted")]
    await stage.runs("a")
    await stage.finds("/a/text", NET)
    assert stage.told[1:] == [("/a/text", "net", None)], "a later job may have its core for longer"
    await stage.rehearsals.close()


async def test_one_ends_when_a_job_needs_its_space(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[Callable[[], None]] = []
    given_back: list[str] = []

    async def lend(name: str, place: object, size: int, end: Callable[[], None]) -> bool:
        wanted.append(end)
        return True

    async def run(rehearsal: Rehearsal, lend: Lend) -> Finding | None:
        assert await lend(5)
        return await stage._run(rehearsal)

    monkeypatch.setattr(Rehearsal, "run", run)
    monkeypatch.setattr(stage.rehearsals, "_space", SimpleNamespace(lend=lend, give_back=given_back.append))
    await stage.runs("a")
    for number in range(1, 4):
        wanted.pop()() if number < 3 else stage.rehearsals.end(["/a/0"])
        await settled()
        assert stage.ended == ["/a/text"] * number
    assert given_back == ["/a/0:text"] * 3
    assert stage.told == [("/a/text", None, "its space was wanted")]
    await stage.rehearsals.close()


async def test_one_whose_core_is_wanted_before_it_has_begun_is_tried_later(stage: Stage) -> None:
    def take_the_core() -> None:
        stage.used["host"] = Hardware(2, 0)
        stage.rehearsals.look()

    await stage.runs("a", taken=2)
    stage.used["host"] = Hardware(0, 0)
    stage.rehearsals.look()
    # Both happen at once: no task runs in between.
    asyncio.get_running_loop().call_later(0, take_the_core)
    await settled()
    assert stage.begun == []
    await stage.account(0)
    await stage.finds("/a/text", NET)
    assert stage.told == [("/a/text", "net", None)]
    await stage.rehearsals.close()


async def test_what_its_first_bytes_do_not_show_is_tried_with_all_of_the_file_after_all_else(stage: Stage) -> None:
    await stage.runs("a")
    await stage.runs("b", seconds=9.0)
    await stage.finds("/a/text", None)
    assert (stage.begun, stage.told) == (["/a/text", "/b/text"], [])
    await stage.finds("/b/text", replace(NET, excerpt=7))
    assert [(proof.step, proof.excerpt) for proof in stage.proofs._known.values()] == [("/b", 7)]
    await stage.finds("/a/text", Finding(None, "why"))
    assert stage.begun == ["/a/text", "/b/text", "/a/text"]
    assert stage.told == [("/b/text", "net", None), ("/a/text", None, "why")]
    await stage.rehearsals.close()


async def test_the_end_of_the_run_ends_all(stage: Stage) -> None:
    await stage.runs("a")
    await stage.runs("b")
    await stage.rehearsals.close()
    assert stage.ended == ["/a/text"]
    assert stage.told == []
    await stage.runs("c")
    assert stage.begun == ["/a/text"]


async def test_the_end_of_the_run_ends_what_one_shows_just_then(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    async def remember(proof: Proof) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(proof.step)

    monkeypatch.setattr(stage.proofs, "remember", remember)
    stage.shown_at_the_end = NET
    await stage.runs("a")
    await stage.rehearsals.close()
    assert ended == ["/a"], "the file is closed now"


async def test_what_was_found_is_kept_though_the_core_is_wanted(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[str] = []
    disk = asyncio.get_running_loop().create_future()

    async def remember(proof: Proof) -> None:
        await disk
        kept.append(proof.step)

    monkeypatch.setattr(stage.proofs, "remember", remember)
    await stage.runs("a")
    await stage.finds("/a/text", NET)
    await stage.account(2)
    closing = asyncio.create_task(stage.rehearsals.close())
    await settled()
    assert not closing.done()
    disk.set_result(None)
    await closing
    assert (kept, stage.ended) == (["/a"], [])


async def test_nobody_is_rehearsed_in_a_queue(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "streamflow"):
        for step in "aab":
            await stage.runs(step, runtime=Runtime(wrapper="run"))
    assert stage.begun == []
    assert [message.partition(",")[0] for message in caplog.messages] == ["Nothing is rehearsed on d"]
    await stage.rehearsals.close()


async def test_where_calls_are_not_told_one_is_tried(stage: Stage) -> None:
    gateless, other = Runtime(is_here=True), Runtime(is_here=True)
    for step in "ab":
        await stage.runs(step, runtime=gateless)
    await stage.finds("/a/text", Finding(None, "no gate", is_known=False, is_of_place=True))
    await stage.runs("c", runtime=gateless)
    assert stage.begun == ["/a/text"]
    await stage.runs("b", option=1, runtime=other)
    assert stage.begun == ["/a/text", "/b/text"]
    await stage.rehearsals.close()


async def test_what_is_proven_with_a_program_says_nothing_of_another_one_elsewhere(stage: Stage) -> None:
    same, other, none = (Runtime(cat=f'{{"size": {size}, "mtime": 8, "loads": "libc"}}') for size in (9, 5, 7))
    none.cat = "-"
    await stage.runs("a")
    await stage.finds("/a/text", NET)
    for runtime in (same, same, other, other, none):
        await stage.runs("a", runtime=runtime)
        await settled()
        for finding in stage.findings.values():
            if not finding.done():
                finding.set_result(Finding(None, "it is another one"))
        await settled()
    assert len(stage.begun) == 2, "where no program of the tool is known, nothing is proven"
    assert [runtime.asked for runtime in (same, other, none)] == [1, 1, 1]
    assert sorted(proof.way or "" for proof in stage.proofs._known.values()) == ["", "net"]
    await stage.rehearsals.close()


async def test_what_streamflow_asks_of_a_location_goes_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it goes through one shell: a caller that does not read the answer leaves it to the next one."""
    answer, answered = asyncio.get_running_loop().create_future(), list[str]()

    async def described() -> dict[str, Any]:
        answered.append(await answer)
        return {}

    monkeypatch.setattr(RepeatedJob, "has_changed_files", nothing)
    original = SimpleNamespace(ended=nothing, described=described)
    rehearsal = Rehearsal(cast(Any, original), "text", cast(Any, None))
    task = asyncio.create_task(rehearsal.confirmed(replace(NET, excerpt=5)))
    await settled()
    task.cancel()
    await settled()
    assert not task.done()
    answer.set_result("checksums")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert answered == ["checksums"]


async def test_what_is_shown_beside_a_job_counts_when_that_has_ended_well(stage: Stage) -> None:
    job = stage.begins("a")
    await stage.account(1)
    assert stage.begun == ["/a/text"]
    await stage.finds("/a/text", NET)
    assert stage.told == []
    await stage.runs("b")
    assert stage.begun == ["/a/text", "/b/text"], "nobody waits for the job"
    await stage.succeeds(job)
    assert stage.told == [("/a/text", "net", None)]
    await stage.rehearsals.close()


@pytest.mark.parametrize("has_shown", [True, False])
async def test_of_a_job_that_fails_nothing_counts(stage: Stage, has_shown: bool) -> None:
    job = stage.begins("a")
    await stage.account(1)
    if has_shown:
        await stage.finds("/a/text", Finding(None, "exit code 1 when it reads a stream"))
    await stage.fails(job)
    assert stage.told == []
    assert stage.ended == ([] if has_shown else ["/a/text"])
    # The next attempt of the job is another one.
    again = stage.begins("a")
    await stage.account(1)
    await stage.finds("/a/text", NET)
    await stage.succeeds(again)
    assert stage.told == [("/a/text", "net", None)]
    await stage.rehearsals.close()


async def test_who_cannot_be_kept_apart_waits_for_its_job(stage: Stage) -> None:
    job = stage.begins("a")
    await stage.account(1)
    stage.findings["/a/text"].set_exception(NotApartError())
    await settled()
    assert stage.begun == ["/a/text"]
    await stage.succeeds(job)
    assert stage.begun == ["/a/text"] * 2
    await stage.finds("/a/text", NET)
    assert stage.told == [("/a/text", "net", None)]
    await stage.rehearsals.close()


@pytest.mark.parametrize("has_ended", [True, False])
async def test_an_input_is_tried_together_with_those_that_are_proven(stage: Stage, has_ended: bool) -> None:
    job = stage.begins("a", more=9)
    await (stage.succeeds(job) if has_ended else stage.account(1))
    await stage.finds("/a/text", NET)
    assert stage.beside == {"/a/text": {}, "/a/more": {"text": "net"}}
    await stage.finds("/a/more", Finding("pipe", read=(9,)))
    if not has_ended:
        assert stage.told == []
        await stage.succeeds(job)
    await stage.runs("a", size=10, more=9)
    assert stage.beside["/a/text"] == {"more": "pipe"}
    await stage.finds("/a/text", Finding(None, "it is another one"))
    await stage.runs("a", size=10, more=10)
    assert stage.beside["/a/more"] == {}, "no job reads `text` as a stream"
    await stage.rehearsals.close()


@pytest.mark.parametrize(
    ("has_ended", "seconds", "first"),
    [
        (True, {"make": 14.0, "write": 15.0}, "more"),  # Of one writer of `more`, the time is not known.
        (True, {"make": 14.0, "write": 1.0, "rewrite": 15.0}, "more"),
        (True, {"make": 15.0, "write": 1.0, "rewrite": 14.0}, "text"),
        (True, {"make": 1.0, "write": 1.0, "rewrite": 1.0}, "more"),  # Both gain little.
        (True, {}, "more"),
        (False, {"make": 15.0, "write": 1.0, "rewrite": 3.0}, "text"),
        (False, {"make": 15.0, "write": 1.0, "rewrite": 4.0}, "more"),
        (False, {"make": 15.0}, "more"),
    ],
)
async def test_an_input_whose_file_was_written_in_no_time_comes_last(
    stage: Stage, has_ended: bool, seconds: dict[str, float], first: str
) -> None:
    """The larger file, `more`, comes first otherwise. The job takes 60 s, which are not known before its end."""
    for step, each in seconds.items():
        await stage.writes(step, each)
    stage.used["host"] = Hardware(2, 0)
    job = stage.begins("a", more=10)
    if has_ended:
        await stage.succeeds(job, seconds=60)
    else:
        await stage.account(1)
    assert stage.begun == [f"/a/{first}"]
    await stage.rehearsals.close()


async def test_one_that_gains_little_makes_room_for_another_as_often_as_needed(stage: Stage) -> None:
    for step, seconds in {"make": 60.0, "write": 1.0, "rewrite": 1.0}.items():
        await stage.writes(step, seconds)
    await stage.runs("a", more=10)
    await stage.finds("/a/text", NET)
    for number in range(5):
        await stage.runs("b", option=number)
        assert stage.begun[-2:] == ["/a/more", "/b/text"]
        await stage.runs("c", option=number)
        assert stage.begun[-1] == "/b/text", "both gain the same"
        await stage.finds("/b/text", Finding(None, "it is another one"))
        assert stage.begun[-1] == "/c/text"
        await stage.finds("/c/text", Finding(None, "it is another one"))
    assert stage.ended == ["/a/more"] * 5
    await stage.finds("/a/more", NET)
    assert ("/a/more", "net", None) in stage.told
    await stage.rehearsals.close()


async def test_one_that_had_to_end_beside_its_job_keeps_its_turn(stage: Stage) -> None:
    job = stage.begins("a")
    await stage.account(1)
    await stage.succeeds(job, seconds=1.0, taken=2)
    await stage.runs("b", taken=2)
    await stage.account(1)
    assert (stage.begun, stage.ended) == (["/a/text"] * 2, ["/a/text"])
    await stage.rehearsals.close()


async def test_inputs_that_two_hosts_try_at_once_are_tried_together_in_the_end(stage: Stage) -> None:
    await stage.runs("a", more=9)
    stage.host = AvailableLocation(name="other", deployment="d", hostname="other", hardware=Hardware(2, 1000))
    stage.used["other"] = Hardware(0, 0)
    await stage.runs("a", more=10)
    assert stage.begun == ["/a/text", "/a/more"]
    for finding in [*stage.findings.values()]:
        finding.set_result(NET)
    await settled()
    assert stage.told == [("/a/text", "net", None)]
    assert stage.begun[2:] == ["/a/more"] * 2
    assert stage.beside["/a/more"] == {"text": "net"}
    await stage.finds("/a/more", Finding(None, "the outputs differ"))
    assert stage.told[1:] == [("/a/more", None, "the outputs differ")]
    await stage.rehearsals.close()


async def test_inputs_that_two_runs_try_at_once_are_tried_together_in_the_end(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(stage.proofs, "_use")  # The file is shared.
    other = RememberedProofs(tmp_path / "learned", ())
    await stage.runs("a", more=9)
    keys = stage.rehearsals._running["host"].rehearsal.keys
    await other.remember(Proof(keys["more"], "/a", 1.0, "net", extents=(Extent(1, 9),)))
    await stage.finds("/a/text", NET)
    await stage.finds("/a/more", Finding(None, "its core was wanted", is_known=False))
    while len(stage.begun) < 3:
        await settled()
    assert (stage.begun[2], stage.beside["/a/text"]) == ("/a/text", {"more": "net"})
    assert [proof.key.port for proof in other.read()] == ["more"]
    await stage.finds("/a/text", NET)
    while "/a/text" not in {name for name, *_ in stage.told}:
        await settled()
    await stage.rehearsals.close()
    assert {proof.key.port for proof in other.read()} == {"more", "text"}
    await other.close()
    await stage.proofs.close()


async def test_a_proof_for_a_smaller_file_says_nothing_of_a_stream_beside(stage: Stage) -> None:
    await stage.runs("a", more=9)
    await stage.finds("/a/text", NET)
    await stage.finds("/a/more", NET)
    await stage.runs("a", size=10, more=10)
    assert stage.beside["/a/text"] == {}
    await stage.rehearsals.close()


async def test_what_is_not_known_beside_a_job_is_tried_after_it(stage: Stage) -> None:
    job = stage.begins("a")
    await stage.account(1)
    await stage.finds("/a/text", unknown("there is too little space"))
    assert (stage.told, stage.begun) == ([], ["/a/text"])
    await stage.succeeds(job)
    assert stage.begun == ["/a/text"] * 2
    await stage.rehearsals.close()


async def test_the_end_of_a_run_does_not_wait_for_one_that_takes_long(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AT_END_SECONDS", 40)
    await stage.runs("a", seconds=60)
    await asyncio.wait_for(stage.rehearsals.close(), 30)
    assert (stage.told, stage.ended) == ([], ["/a/text"])


async def test_the_end_of_a_run_waits_for_one_that_takes_little_longer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AT_END_SECONDS", 90)
    job = stage.begins("a")
    await stage.account(1)
    await stage.succeeds(job, seconds=60)
    closing = asyncio.create_task(stage.rehearsals.close())
    await settled()
    await stage.finds("/a/text", NET)
    await closing
    assert (stage.told, stage.ended) == ([("/a/text", "net", None)], [])


async def test_the_end_of_a_long_run_waits_longer(stage: Stage) -> None:
    stage.rehearsals._began -= 9000
    await stage.runs("a", seconds=60)
    closing = asyncio.create_task(stage.rehearsals.close())
    await settled()
    await stage.finds("/a/text", NET)
    await closing
    assert stage.told == [("/a/text", "net", None)]


async def test_runs_wait_in_vain_at_their_end_only_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AT_END_SECONDS", 0.05)
    await stage.runs("a", seconds=0.01)
    await stage.rehearsals.close()
    assert stage.told == [("/a/text", None, "the run ended first, which `rehearse: wait` prevents")]
    monkeypatch.setattr(module, "_AT_END_SECONDS", 60)
    stage.rehearsals = stage.next_run()
    await stage.runs("a", seconds=0.01)
    await asyncio.wait_for(stage.rehearsals.close(), 30)
    assert (len(stage.told), stage.ended) == (1, ["/a/text"] * 2)


async def test_the_next_run_goes_on_where_a_rehearsal_had_to_end(stage: Stage) -> None:
    await stage.runs("a")
    running = stage.rehearsals._running["host"].rehearsal
    running._proven = NET
    await stage.rehearsals.close()
    assert (stage.told, stage.ended) == ([], ["/a/text"])
    stage.rehearsals = stage.next_run()
    await stage.runs("a")
    assert stage.rehearsals._running["host"].rehearsal.shown == running.shown == Shown("net", (1,), (9,))
    await stage.finds("/a/text", NET)
    assert stage.told == [("/a/text", "net", None)]
    await stage.rehearsals.close()
    assert not stage.inconclusive.entries


async def test_nothing_is_kept_of_a_run_that_fails(stage: Stage) -> None:
    await stage.runs("a")
    stage.rehearsals._running["host"].rehearsal._proven = NET
    await stage.rehearsals.close(is_well=False)
    assert not stage.inconclusive.entries


async def test_after_three_runs_in_vain_only_runs_that_wait_try_again(stage: Stage) -> None:
    for _ in range(3):
        await stage.runs("a")
        await stage.rehearsals.close()
        stage.rehearsals = stage.next_run()
    assert stage.begun == stage.ended == ["/a/text"] * 3
    await stage.runs("a")
    assert len(stage.begun) == 3
    await stage.runs("a", size=10)
    assert len(stage.begun) == 4, "a larger file was not tried"
    await stage.rehearsals.close()
    stage.rehearsals = stage.next_run()
    stage.rehearsals._waits = True
    await stage.runs("a")
    assert len(stage.begun) == 5
    await stage.finds("/a/text", NET)
    await stage.rehearsals.close()


@pytest.mark.parametrize(("is_short_tried", "expected"), [(False, ["short", "together"]), (True, ["together"])])
async def test_what_is_known_of_an_input_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, is_short_tried: bool, expected: list[str]
) -> None:
    tried: list[str] = []

    def trying(name: str) -> Callable[..., Any]:
        async def run(*_: object) -> None:
            tried.append(name)

        return run

    for name, method in (("room", "_lack_of_room"), ("alone", "_tried"), ("short", "_refuted_by")):
        monkeypatch.setattr(Rehearsal, method, trying(name))
    monkeypatch.setattr(Rehearsal, "_refuted_together", trying("together"))
    monkeypatch.setattr(Rehearsal, "_short", (4096,))
    rehearsal = Rehearsal(cast(Any, SimpleNamespace(has_ended=True)), "text", cast(Any, None))
    rehearsal.go_on(Shown("net", (9,), (9,), is_short_tried))
    assert await rehearsal.run() == Finding("net", read=(9,))
    assert tried == ["room", *expected]
    assert rehearsal.shown == Shown("net", (9,), (9,), is_short_tried=True)


async def test_one_that_has_run_may_be_compared(stage: Stage) -> None:
    stage.are_compared = True
    await stage.runs("a")
    await stage.runs("b")
    closing = asyncio.create_task(stage.rehearsals.close())
    await settled()
    await stage.finds("/a/text", NET)
    await closing
    assert stage.told == [("/a/text", "net", None)]
    assert stage.begun == ["/a/text"], "no other one begins"


async def test_what_is_given_up_is_told_once_and_tried_with_a_later_job(stage: Stage) -> None:
    for number in range(3):
        await stage.runs("a", option=number, taken=2)
        assert stage.rehearsals.waiting() == {"/a/0": "host"}
        assert not stage.rehearsals.held()
        stage.rehearsals.give_up({"/b/0"})
        assert stage.rehearsals.waiting()
        stage.rehearsals.give_up({"/a/0"})
        assert not stage.rehearsals.waiting()
    assert stage.told == [("/a/text", None, "its files had to go before a core was free")]
    await stage.runs("a")
    assert stage.begun == ["/a/text"]
    assert stage.rehearsals.held() == {"/a/0"}
    await stage.rehearsals.close()
