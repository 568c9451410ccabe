"""Streams where there is no node runtime, where it cannot be reached, and on queue managers."""

from __future__ import annotations

import asyncio
import logging
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import to_builtins
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.exception import UnrecoverableWorkflowException, WorkflowExecutionException
from streamflow.core.recovery import RecoveryRequest
from streamflow.core.workflow import Job, Status, Token
from streamflow.cwl.step import CWLTransferStep
from streamflow.workflow.step import BaseStep, TransferStep

from lab.fakes import (
    FakeConnector,
    FakeRun,
    FakeRuntime,
    FakeScheduler,
    FakeStep,
    commit,
    stream_token,
    until,
)
from lab.jobs import job_state
from streamflow_io._streamflow import RetryPolicy
from streamflow_io.adapters import connector
from streamflow_io.adapters.attempts import Attempt, ProducerFailedError, ProducerMovesError, StreamingJob
from streamflow_io.adapters.connector import JobConnector
from streamflow_io.adapters.inputs import gated_input, input_stream
from streamflow_io.adapters.tokens import StreamSource, StreamToken, file_value
from streamflow_io.graph.io_graph import Delivery
from streamflow_io.jobs import ending, execution
from streamflow_io.jobs.ending import JobFailedError, RewrittenError, check_parts, in_time
from streamflow_io.jobs.streaming_run import MovesFirst
from streamflow_io.jobs.transfer import StreamingTransferStep
from streamflow_io.records.files import FallbackRecord
from streamflow_io.runtime.locations import Place
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import FirstBytes, JobSpec, StreamPart

OUT = PurePosixPath("/out")
HERE = ExecutionLocation("here", "site")


async def never(_: int) -> int:
    await asyncio.sleep(60)
    return 0


async def at_once(_: int) -> int:
    return 0


async def attempt_at(runtime: FakeRuntime, run: FakeRun | None = None) -> Attempt:
    """A producer that runs."""

    async def collect(port: str, path: str) -> Token:
        return Token({"final": (port, path)})

    jobs = (run or FakeRun()).streaming_jobs
    attempt = jobs.open("/a/0", collect).begin(OUT, await runtime.create_job("/a/0"))
    attempt.start()
    return attempt


async def test_a_location_without_a_runtime_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    run = FakeRun(here=FakeRuntime("here"))
    run.places.put("/c/0", "there")
    reach = run.reach
    assert await reach.runtime(run.state("/b/0")) is not None
    with caplog.at_level(logging.WARNING):
        assert await reach.runtime(run.state("/c/0")) is None
        assert await reach.runtime(run.state("/c/0")) is None
        assert not await reach.can_read(run.state("/c/0"), stream_token(), await attempt_at(FakeRuntime("here")))
    (told,) = caplog.messages
    assert "not for this architecture" in told
    assert "site/there" in told
    (record,) = [record for record in run.records if isinstance(record, FallbackRecord)]
    assert (record.job, record.output) == ("/c/0", None)
    assert "not for this architecture" in record.reason


@pytest.mark.parametrize("which", ["here", "there"])
async def test_a_place_that_ends_while_it_is_tried_is_no_obstacle(caplog: pytest.LogCaptureFixture, which: str) -> None:
    runtimes = {"here": FakeRuntime("here"), "there": FakeRuntime("there")}
    run = FakeRun(**runtimes)
    run.places.put("/b/0", "there")
    runtimes["there"].obstacles["here"] = "no certificate"
    attempt = await attempt_at(runtimes["here"])
    runtimes[which].lose("the run has ended")
    assert not await run.reach.can_read(run.state("/b/0"), stream_token(), attempt)
    assert (caplog.messages, run.records, run.kept_together) == ([], [], [])


async def test_who_can_read_what(caplog: pytest.LogCaptureFixture) -> None:
    here, there = FakeRuntime("here"), FakeRuntime("there")
    run = FakeRun(here=here, there=there)
    run.places.put("/c/0", "there")
    reach = run.reach
    attempt = await attempt_at(here)
    assert await reach.can_read(run.state("/b/0"), stream_token(), attempt)
    assert await reach.can_read(run.state("/b/0"), stream_token(gate="file"), attempt)
    assert await reach.can_read(run.state("/c/0"), stream_token(), attempt)
    with caplog.at_level(logging.WARNING):
        assert not await reach.can_read(run.state("/c/0"), stream_token(gate="file"), attempt)
        there.obstacles["here"] = "connection refused"
        assert not await run.new_reach({"here": here, "there": there}).can_read(
            run.state("/c/0"), stream_token(), attempt
        )
        assert not await reach.can_read(run.state("/c/0"), stream_token(), Attempt(OUT))
    assert run.kept_together == 2 * [("/c/0", stream_token().source.job)]
    assert len(caplog.messages) == 2
    assert "connection refused" in caplog.messages[1]
    told = [record for record in run.records if isinstance(record, FallbackRecord)]
    assert [(one.step, one.output) for one in told] == 2 * [("/c", "/a/out")]
    assert told[1].reason.endswith("connection refused [SFIO-S016]")


async def test_a_stream_is_read_from_events_or_by_a_link() -> None:
    here, there = FakeRuntime("here"), FakeRuntime("there")
    attempt = await attempt_at(here)
    own = input_stream(stream_token(), attempt, here)
    assert (own.events, own.link, own.path) == (
        f"/run/here/jobs/{here.jobs[0].identifier}/events.jsonl",
        None,
        "/out/out.txt",
    )
    other = input_stream(stream_token(), attempt, there)
    assert other.events is None
    assert other.link is not None
    assert to_builtins(other.link) == {
        "address": "10.0.0.1:7000",
        "job": here.jobs[0].identifier,
        "certificate": "/run/there/certificate.pem",
    }
    assert gated_input(stream_token(gate="file"), attempt, here).events == own.events


async def test_what_is_final_is_waited_for_over_the_attempts_of_a_job() -> None:
    async def collect(port: str, path: str) -> Token:
        return Token((port, path))

    job = StreamingJob("/a/0", collect)
    first = job.begin(OUT)
    waiting = asyncio.create_task(job.final("out", "file"))
    first.end(False)
    await asyncio.sleep(0)
    second = job.begin(OUT)
    await asyncio.sleep(0.002)
    assert not waiting.done()
    commit(second, "out", "file")
    assert (await waiting).value == ("out", "file")
    waiting = asyncio.create_task(job.final("out", "other"))
    await asyncio.sleep(0)
    job.close()
    with pytest.raises(ProducerFailedError):
        await waiting


async def test_who_holds_a_place_does_not_wait_for_a_job_without() -> None:
    async def collect(port: str, path: str) -> Token:
        return Token((port, path))

    job = StreamingJob("/a/0", collect)
    first = job.begin(OUT)
    from_place = asyncio.create_task(job.final("out", "file", from_place=True))
    without = asyncio.create_task(job.final("out", "file"))
    await asyncio.sleep(0)
    first.end(False)
    job.move()
    with pytest.raises(ProducerMovesError):
        await from_place
    job.begin(OUT).end(True)
    assert (await without).value == (await job.final("out", "file", from_place=True)).value == ("out", "file")


@pytest.fixture
def transfers(monkeypatch: pytest.MonkeyPatch) -> list[Token]:
    """The requests to StreamFlow's own transfer."""
    asked: list[Token] = []

    async def transfer(_step: Any, _job: Job, token: Token) -> Token:
        asked.append(token)
        return token

    async def place(_step: Any, _job: Job, token: StreamToken) -> StreamToken:
        return token

    monkeypatch.setattr(CWLTransferStep, "transfer", transfer)
    monkeypatch.setattr(StreamingTransferStep, "_place", place)
    return asked


def transfer_step(run: FakeRun) -> StreamingTransferStep:
    step = object.__new__(StreamingTransferStep)
    step.workflow = cast(Any, SimpleNamespace(context=SimpleNamespace(scheduler=FakeScheduler(run))))
    step._waiting = []
    return step


def reading(name: str = "/b/0") -> Job:
    return Job(name, 1, {}, "/in", "/out", "/tmp")


async def transfer(run: FakeRun, location: str, token: Token) -> Token:
    run.places.put("/b/0", location)
    job = reading()
    run.state(job)
    return await transfer_step(run).transfer(job, token)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_reader_that_waits_keeps_no_other_waiting(cancelled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    here = FakeRuntime("here")
    run = FakeRun(here=here)
    run.places.put("/b/0", "there")
    attempt = await attempt_at(here, run)
    done: list[str] = []
    ended: list[Status] = []

    async def transfers(step: StreamingTransferStep, job: Job, token: StreamToken, **_: Any) -> None:
        if not await step._is_read_early(job, token):
            await step._final(job, token)
        done.append(job.name)

    async def terminate(_: Any, status: Status) -> None:
        ended.append(status)

    monkeypatch.setattr(TransferStep, "_run_transfer", transfers)
    monkeypatch.setattr(BaseStep, "terminate", terminate)
    step = transfer_step(run)
    for name in ("/b/0", "/b/1"):
        run.state(name)
        await step._run_transfer(job=reading(name), inputs={}, port_name="x", token=stream_token())
    assert done == ["/b/1"]
    ending = asyncio.create_task(step.terminate(Status.CANCELLED if cancelled else Status.SKIPPED))
    if cancelled:
        await asyncio.wait_for(asyncio.shield(ending), 10)
    else:
        await asyncio.sleep(0.002)
        assert not ending.done()
    attempt.end(True)
    await ending
    assert (done, ended) == ((["/b/1"], [Status.CANCELLED]) if cancelled else (["/b/1", "/b/0"], [Status.COMPLETED]))


async def test_a_reader_that_reaches_its_producer_does_not_wait(transfers: list[Token]) -> None:
    here = FakeRuntime("here")
    run = FakeRun(here=here)
    await attempt_at(here, run)
    assert isinstance(await transfer(run, "here", stream_token()), StreamToken)
    assert transfers == []


async def test_a_reader_that_does_not_gets_the_file_when_it_is_committed(transfers: list[Token]) -> None:
    here = FakeRuntime("here")
    run = FakeRun(here=here)
    attempt = await attempt_at(here, run)
    waiting = asyncio.create_task(transfer(run, "there", stream_token().retag("0.7")))
    await asyncio.sleep(0.002)
    assert not waiting.done()
    commit(attempt, "out", "out.txt")
    token = await waiting
    assert not isinstance(token, StreamToken)
    assert (token.value, token.tag) == ({"final": ("out", "out.txt")}, "0.7")
    assert transfers == [token]


async def test_a_reader_that_waits_moves_before_it_runs_if_its_producer_moves(transfers: list[Token]) -> None:
    here = FakeRuntime("here")
    run = FakeRun(here=here)
    attempt = await attempt_at(here, run)
    waiting = asyncio.create_task(transfer(run, "there", stream_token()))
    await asyncio.sleep(0.002)
    attempt.end(False)
    run.streaming_jobs.get("/a/0").move()
    assert isinstance(await waiting, StreamToken)
    assert run.jobs.of(reading()).kept(MovesFirst) is not None
    assert transfers == []


async def test_a_reader_that_waits_is_told_by_its_own_job_that_its_producer_has_failed(transfers: list[Token]) -> None:
    here = FakeRuntime("here")
    run = FakeRun(here=here)
    await attempt_at(here, run)
    waiting = asyncio.create_task(transfer(run, "there", stream_token()))
    await asyncio.sleep(0.002)
    run.streaming_jobs.get("/a/0").close()
    token = await waiting
    assert isinstance(token, StreamToken)
    step = FakeStep(run, never)
    with pytest.raises(UnrecoverableWorkflowException, match="job /a/0, from which it reads, has failed"):
        await step.job("/b/0", x=token).run()


async def test_without_a_runtime_a_job_runs_plainly_and_delivers_all_at_its_end() -> None:
    step = FakeStep(FakeRun(), at_once, Delivery.STREAM)
    await step.job("/a/0").run()
    assert step.delivered == ["out", "__stream__out"]
    assert not isinstance(step.tokens["__stream__out"], StreamToken)
    (ran,) = step.connector.commands
    assert (ran["command"], ran["stdout"]) == (["tool"], "out.txt")
    with pytest.raises(ProducerFailedError):  # No reader can have a stream of it.
        step.run.streaming_jobs.get("/a/0")


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (3, " with error:\n\tsaid"),
        (WorkflowExecutionException("no such host"), " with error:\n\tno such host"),
        (asyncio.TimeoutError(), ": a time limit has ended the command"),
    ],
)
async def test_without_a_runtime_a_job_fails_plainly(failure: int | Exception, said: str) -> None:
    """The failure manager is asked for another attempt, whatever has failed."""

    async def fail(_: int) -> int:
        if isinstance(failure, Exception):
            raise failure
        return failure

    step = FakeStep(FakeRun(), fail, Delivery.STREAM)
    with pytest.raises(UnrecoverableWorkflowException, match=f"FAILED Job /a/0{said}"):
        await step.job("/a/0").run()
    assert step.delivered == []


class AwayHost:
    """Answers as the paths of a host that is away when it is first asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def exists(self) -> bool:
        self.asked += 1
        if self.asked == 1:
            raise WorkflowExecutionException("no connection")
        return False

    async def mkdir(self, **_: object) -> None:
        pass


@pytest.mark.parametrize(
    "what", ["command", "outputs", "checksums", "directories", "preparation", "inputs", "work directory"]
)
async def test_a_host_that_does_not_answer_once_costs_an_attempt(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Once the command, its outputs, those of a failed attempt, the next directories, or the inputs are away."""
    runtime, request, host = FakeRuntime("here"), RecoveryRequest("/a/0"), AwayHost()
    monkeypatch.setattr(execution, "retry_policy", lambda *_: RetryPolicy(0, 5, request))
    monkeypatch.setattr(execution, "job_path", lambda *_: host)
    host.asked = 0 if what == "directories" else 1

    async def act(number: int) -> int:
        if number == 1 and what in ("command", "checksums", "directories"):
            raise WorkflowExecutionException("no connection")
        job = runtime.jobs[-1]
        runtime.start(job)
        runtime.exit(job, success=True, code=0)
        return 0

    def silent_at_first(of: str, call: Any, error: Exception) -> Any:
        called = list[int]()

        async def answer(*arguments: Any) -> Any:
            called.append(1)
            if what == of and len(called) == 1:
                raise error
            return await call(*arguments)

        return answer

    step = FakeStep(FakeRun(here=runtime), act, Delivery.STREAM)
    step.workflow.context.data_manager = SimpleNamespace(register_path=lambda **_: None)
    silence, refusal = asyncio.TimeoutError(), WorkflowExecutionException("no connection")
    for of, owner, name, error in (
        ("preparation", runtime, "create_job", silence),
        ("inputs", execution, "place_inputs", refusal),
        ("work directory", step.run.reach, "runtime", refusal),
        ("outputs", step, "collect", silence),
    ):
        monkeypatch.setattr(owner, name, silent_at_first(of, getattr(owner, name), error))
    job = step.job("/a/0")
    failed = silent_at_first("checksums", job._deliverer.failed, refusal)
    monkeypatch.setattr(job._deliverer, "failed", failed)
    first = job._job.output_directory
    await job.run()
    assert request.version == (3 if what in ("checksums", "directories") else 2)
    assert job._job.output_directory != first, "the first attempt may have put files into the first directory"


@pytest.mark.parametrize(("reads", "does"), [(False, "delivers before its end"), (True, "reads a stream")])
async def test_a_job_whose_node_is_lost_says_why_it_stays(
    monkeypatch: pytest.MonkeyPatch, reads: bool, does: str
) -> None:
    runtime, request = FakeRuntime("here"), RecoveryRequest("/b/0")
    monkeypatch.setattr(execution, "retry_policy", lambda *_: RetryPolicy(0, 5, request))

    async def act(number: int) -> int:
        runtime.start(runtime.jobs[-1])
        runtime.lose("node n1 has failed")
        return 0

    step = FakeStep(FakeRun(here=runtime), act, Delivery.STREAM)
    inputs = {}
    if reads:
        step.early_outputs = ()
        producer = step.run.streaming_jobs.open("/a/0", cast(Any, never))
        producer.begin(OUT, await runtime.create_job("/a/0"))
        inputs["file"] = stream_token()
    with pytest.raises(
        UnrecoverableWorkflowException,
        match=f"^node n1 has failed. A job that {does} is tried again only where it ran$",
    ):
        await step.job("/b/0", **inputs).run()


async def test_a_reader_that_moves_is_cancelled_if_its_producer_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    moving = asyncio.Event()

    async def move(_: Any, __: Any, inputs: Any, may_take_place: Any) -> Any:
        moving.set()
        await may_take_place()

    monkeypatch.setattr(execution, "move", move)
    runtime = FakeRuntime("here")
    step = FakeStep(FakeRun(here=runtime), never, Delivery.STREAM)
    producer = step.run.streaming_jobs.open("/a/0", cast(Any, never))
    producer.begin(OUT, await runtime.create_job("/a/0")).end(False)
    producer.move()
    running = asyncio.create_task(step.job("/b/0", file=stream_token()).run())
    await moving.wait()
    producer.close()
    with pytest.raises(UnrecoverableWorkflowException, match=r"^CANCELLED Job /b/0: job /a/0, from which"):
        await running


async def test_a_reader_without_the_file_of_a_producer_moves_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The producer has moved meanwhile, and runs."""
    done: list[str] = []

    async def move(_: Any, __: Any, inputs: Any, may_take_place: Any) -> Any:
        await may_take_place()
        done.append("moved")
        return inputs

    async def run(_: int) -> int:
        done.append("ran")
        producer.latest.end(True)
        runtime.start(runtime.jobs[-1])
        runtime.exit(runtime.jobs[-1], success=True, code=0)
        return 0

    monkeypatch.setattr(execution, "move", move)
    runtime = FakeRuntime("here")
    step = FakeStep(FakeRun(here=runtime), run)
    producer = step.run.streaming_jobs.open("/a/0", cast(Any, never))
    producer.begin(OUT, await runtime.create_job("/a/0"))
    job = step.job("/b/0", file=stream_token())
    step.run.jobs.of(job._job).keep(MovesFirst())
    await job.run()
    assert done == ["moved", "ran"]


def test_a_host_that_does_not_answer_is_not_blamed_on_a_stream() -> None:
    with (
        pytest.raises(JobFailedError, match="does not answer") as failed,
        in_time(cast(Any, SimpleNamespace(name="/a/0"))),
    ):
        raise asyncio.TimeoutError
    assert failed.value.is_from_outside


def queue() -> tuple[FakeRuntime, FakeRun]:
    runtime = FakeRuntime("here", "run")
    return runtime, FakeRun(here=runtime)


async def test_on_a_queue_manager_a_stream_is_delivered_before_its_job_runs() -> None:
    _, run = queue()
    step = FakeStep(run, never, Delivery.STREAM)
    running = asyncio.create_task(step.job("/a/0").run())
    await until(lambda: step.delivered)
    assert step.delivered == ["__stream__out"]
    assert isinstance(step.tokens["__stream__out"], StreamToken)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_elsewhere_it_is_delivered_when_the_file_is_there() -> None:
    runtime = FakeRuntime("here")
    step = FakeStep(FakeRun(here=runtime), never, Delivery.STREAM)
    running = asyncio.create_task(step.job("/a/0").run())
    await until(lambda: step.connector.commands)
    runtime.start(runtime.jobs[0])
    await asyncio.sleep(0.005)
    assert step.delivered == []
    runtime.tell(runtime.jobs[0], "opened", port="out", path="/out/out.txt")
    await until(lambda: step.delivered)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("exits", "message"),
    [
        ([{"reason": "cancelled", "signal": 15}], "ended by signal 15, Terminated"),
        ([{"reason": "cancelled", "code": 0}], "the command was cancelled"),
        ([{"reason": "lost"}], "was killed"),
        ([], "without an exit code"),
    ],
    ids=["terminated", "cancelled", "lost", "silent"],
)
async def test_a_job_that_was_killed_in_its_queue_manager_has_failed(
    exits: list[dict[str, Any]], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For Slurm it has ended with 0."""
    monkeypatch.setattr(connector, "_EXIT_SECONDS", 0.01)
    runtime, run = queue()

    async def killed(_: int) -> int:
        runtime.start(runtime.jobs[0])
        for fields in exits:
            runtime.exit(runtime.jobs[0], **fields)
        return 0

    step = FakeStep(run, killed)
    with pytest.raises(UnrecoverableWorkflowException, match=message):
        await step.job("/a/0").run()
    assert step.delivered == []


async def test_a_job_that_was_killed_before_it_ran_has_failed() -> None:
    _, run = queue()
    step = FakeStep(run, at_once)
    with pytest.raises(UnrecoverableWorkflowException, match="FAILED Job /a/0"):
        await step.job("/a/0").run()


@pytest.mark.parametrize(("success", "code"), [(True, 0), (False, 255), (None, 255)])
async def test_a_measured_job_on_a_queue_manager_has_succeeded_only_if_the_runtime_says_so(
    success: bool | None, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "_EXIT_SECONDS", 0.01)
    runtime, _ = queue()
    job = await runtime.create_job("/a/0")

    async def run(_: int) -> int:
        if success is not None:
            runtime.exit(job, success=success, reason="exited" if success else "cancelled")
        return 0

    tested = JobConnector(FakeConnector(run), job, JobSpec(name="/a/0"), is_optional=True)
    result = await tested.run(HERE, ["tool"], workdir="/out", job_name="/a/0")
    assert result is not None
    assert result[1] == code


async def test_a_queue_manager_leaves_no_file_of_its_own_among_the_outputs() -> None:
    runtime, _ = queue()
    job = await runtime.create_job("/a/0")
    inner = FakeConnector(at_once)
    tested = JobConnector(inner, job, JobSpec(name="/a/0"))
    await tested.run(HERE, ["tool"], workdir="/out", stdout="x", stderr="x", job_name="/a/0")
    await tested.run(HERE, ["tool"], workdir="/out", job_name="/a/0")
    assert inner.commands[0]["stdout"] == inner.commands[0]["stderr"] == f"{job.directory}/printed"
    assert inner.commands[0]["command"][:3] == ["exec", "/bin/sfio-node", "run"]
    assert inner.commands[1]["stdout"] == asyncio.subprocess.STDOUT


async def test_a_job_gives_its_node_up_to_the_one_that_it_reads_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job starts again when the other one runs, and that is no attempt: there is none to spare here."""
    monkeypatch.setattr(ending, "_PATIENCE_SECONDS", 0.01)
    runtime, run = queue()
    producer = run.streaming_jobs.open("/a/0", cast(Any, None)).begin(OUT, await runtime.create_job("/a/0"))
    patient = asyncio.Event()

    async def act(number: int) -> int:
        job = runtime.jobs[number]
        runtime.start(job)
        if number == 2:
            await patient.wait()
            runtime.exit(job, success=True, code=0)
        await asyncio.wait([job.exit])
        return 0

    monkeypatch.setattr(execution, "job_path", lambda *_: NewPath("/out-2"))
    step = FakeStep(run, act)
    step.workflow.context.data_manager = SimpleNamespace(register_path=lambda **_: None)
    running = asyncio.create_task(step.job("/b/0", x=stream_token()).run())
    await until(lambda: len(runtime.jobs) == 2 and runtime.jobs[1].exit.done())
    await asyncio.sleep(0.005)
    assert len(step.connector.commands) == 1
    producer.start()
    await until(lambda: len(step.connector.commands) == 2)
    await asyncio.sleep(0.02)
    patient.set()
    producer.end(True)
    await running
    assert step.delivered == ["out"]


class NewPath(PurePosixPath):
    async def exists(self) -> bool:
        return False

    async def mkdir(self, **_: Any) -> None:
        pass


async def test_a_job_whose_producer_fails_while_it_is_in_the_queue_starts_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime, run = queue()
    producer = run.streaming_jobs.open("/a/0", cast(Any, None))
    first = producer.begin(OUT, await runtime.create_job("/a/0"))

    async def act(number: int) -> int:
        if number == 1:
            first.end(False)
            return 0  # As if it had been taken from the queue.
        runtime.start(runtime.jobs[-1])
        runtime.exit(runtime.jobs[-1], success=True, code=0)
        return 0

    monkeypatch.setattr(execution, "job_path", lambda *_: NewPath("/out-2"))
    step = FakeStep(run, act)
    step.workflow.context.data_manager = SimpleNamespace(register_path=lambda **_: None)
    running = asyncio.create_task(step.job("/b/0", x=stream_token()).run())
    await until(lambda: first.has_failed)
    await asyncio.sleep(0.005)
    assert len(step.connector.commands) == 1
    second = producer.begin(OUT, await runtime.create_job("/a/0"))
    second.end(True)
    await running
    assert step.delivered == ["out"]


@pytest.mark.parametrize(("answer", "found"), [(("", 0), True), (("", 1), False), (("Input/output error", 2), None)])
async def test_what_was_read_is_compared_where_the_file_is(answer: tuple[str, int], found: bool | None) -> None:
    runtime = FakeRuntime("there")
    runtime.answer = answer
    part = StreamPart(path="/out/out.txt", first=FirstBytes(bytes=7, digest="0f"))
    if found is None:
        with pytest.raises(NodeRuntimeError, match="cannot be compared with what was read of it: Input/output error"):
            await runtime.begins_with(part)
    else:
        assert await runtime.begins_with(part) is found
    text = '{"bytes":7,"digest":"0f"}'
    assert runtime.ran == [["/bin/sfio-node", "compare", "--file", "/out/out.txt", "--first", text]]


async def test_only_the_file_of_which_a_part_was_read_is_compared() -> None:
    here, there = FakeRuntime("here"), FakeRuntime("there")
    there.answer = ("", 1)
    other = StreamToken(file_value("/out/other"), StreamSource("/z/0", "out", "other"))
    producers = [(other, await attempt_at(there)), (stream_token(), await attempt_at(here))]
    parts = [StreamPart(path="/out/out.txt", first=FirstBytes(bytes=7, digest="0f"))]
    await check_parts(parts, producers)
    here.answer = ("", 1)
    with pytest.raises(
        RewrittenError,
        match=r"job /a/0 has not written its output front to back: /out/out\.txt was written again after 7",
    ):
        await check_parts(parts, producers)
    assert there.ran == []


class Linked(FakeRuntime):
    """Has a link, and tries it."""

    async def _obstacle_of_link(self, other: NodeRuntime, why: str | None) -> str | None:
        return await self._once(other, self._try_link)

    async def _try_link(self, other: NodeRuntime) -> str | None:
        return None


async def test_files_that_cannot_be_read_say_nothing_of_a_link_nor_this_of_them() -> None:
    reader, producer = Linked("here"), FakeRuntime("there")
    assert await reader.obstacle(producer) is None
    reader.place = producer.place = Place()
    reader.answer = ("sfio-node: serve is gone", 1)
    assert await reader.obstacle(producer) is None
    assert not reader.shares_files(producer)
    assert await reader.obstacle(producer, gate=True) == "sfio-node: serve is gone"


def test_what_is_made_for_a_job_is_in_its_work_directory() -> None:
    """Only that is closed to others: a `dockerOutputDirectory` may be a volume that all have."""
    reach = FakeRun().reach
    for output, made in [("/work/2", ("/work/1", "/work/2")), ("/data", ("/work/1",)), ("/work", ("/work/1",))]:
        job = job_state("/a/0")
        job.target.workdir, job.job.input_directory, job.job.output_directory = "/work", "/work/1", output
        assert reach.made_for(job) == made


@pytest.mark.parametrize("retries", [0, 1])
async def test_a_file_in_place_of_a_stream_that_cannot_be_copied_costs_an_attempt(
    monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    """StreamFlow cannot roll back a job that has read a stream."""
    runtime, request, copies, host = FakeRuntime("here"), RecoveryRequest("/b/0"), list[Job](), AwayHost()
    monkeypatch.setattr(execution, "job_path", lambda *_: host)
    host.asked = 1
    before = request.version
    monkeypatch.setattr(execution, "retry_policy", lambda *_: RetryPolicy(0, before + retries, request))

    async def act(_: int) -> int:
        runtime.start(runtime.jobs[-1])
        runtime.exit(runtime.jobs[-1], success=True, code=0)
        return 0

    async def transfer(job: Job, token: Token) -> Token:
        copies.append(job)
        if len(copies) == 1:
            raise WorkflowExecutionException("no connection")
        return token

    final = Token({**file_value("/out/final.txt"), "size": 1})
    step = FakeStep(FakeRun(here=runtime), act)
    step.early_outputs = ()
    step.workflow.context.data_manager = SimpleNamespace(register_path=lambda **_: None)
    cast(Any, step.workflow).steps = {"/step/__transfer__/text": SimpleNamespace(transfer=transfer)}
    producer = step.run.streaming_jobs.open("/a/0", cast(Any, never), lambda port, path: final)
    producer.begin(OUT).end(True)
    reader = step.job("/step/0", text=stream_token())
    if retries == 0:
        with pytest.raises(UnrecoverableWorkflowException, match="no connection"):
            await asyncio.wait_for(reader.run(), 60)
        return
    await asyncio.wait_for(reader.run(), 60)
    assert (len(copies), request.version) == (2, before + 1)
    assert reader._job.inputs["text"].value["path"] == "/out/final.txt"
