"""Jobs that StreamFlow runs and the node runtime measures: measuring lets none fail, and nothing of them is left."""

from __future__ import annotations

import asyncio
import logging

import pytest
from msgspec.structs import replace
from streamflow.core.workflow import Status

from lab.fakes import FakeConnector, FakeRun, FakeRuntime
from lab.wording import uncoded
from streamflow_io.adapters import connector
from streamflow_io.adapters.connector import JobConnector
from streamflow_io.adapters.deployment_sites import Sites
from streamflow_io.adapters.jobs import JobState
from streamflow_io.bandwidth.rates import Limits
from streamflow_io.hints.errors import Level, Located, Source
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.models import IOTask, StorageBandwidth
from streamflow_io.records.jobs import EndedRecord
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.protocol import JobSpec
from streamflow_io.storage.storages import Storages

NAME = "/write/0"
ANNOTATIONS = {"/write": StepAnnotations("/write", Located(IOTask(), Level.TOOL, "sfio:IOTask", Source("write.cwl")))}
UNMEASURED = "The bytes of I/O tasks are not measured"


class FakeRates:
    """No rate is known, and what is told of jobs is kept.

    :ivar told: what was told of jobs
    """

    def __init__(self) -> None:
        self.told: list[tuple[str, int | str]] = []

    def rate(self, job: JobState) -> float | None:
        return None

    def expected_bytes(self, job: JobState) -> float | None:
        return 1e6

    def moved(self, job: JobState, moved: int) -> None:
        self.told.append((job.name, moved))

    def unheld(self, job: JobState) -> None:
        self.told.append((job.name, "not held"))

    def exited(self, job: JobState) -> None:
        self.told.append((job.name, "exited"))

    def repeated(self, job: JobState) -> None:
        self.told.append((job.name, "repeated"))


async def at_once(_: int) -> int:
    return 0


def limited(rates: FakeRates) -> Limits:
    """Make the listener that gives each job its limit."""
    return Limits(Storages((), Sites({})), True, rates)


def run_on(**runtimes: FakeRuntime) -> FakeRun:
    run = FakeRun(ANNOTATIONS, **runtimes)
    run.jobs.running(run.state(NAME), 0.0)
    return run


async def execute(run: FakeRun, inner: FakeConnector) -> tuple[str, int] | None:
    """Run the command as StreamFlow does."""
    through = run.runner.connector(run.state(NAME), inner)
    place = run.places[NAME].locations[0]
    result: tuple[str, int] | None = await through.run(place, ["tool"], workdir="/out", job_name=NAME)
    return result


def ended(run: FakeRun, status: Status = Status.COMPLETED) -> EndedRecord:
    run.jobs.ended(run.state(NAME), status, 1.0)
    record = run.records[-1]
    assert isinstance(record, EndedRecord)
    return record


async def test_what_the_runtime_measures_is_recorded() -> None:
    runtime = FakeRuntime("here")
    run = run_on(here=runtime)

    async def act(_: int) -> int:
        (job,) = runtime.jobs
        runtime.start(job)
        runtime.exit(job, success=True, code=0, started=1.0, ended=3.0, usage={"wchar": 7})
        return 0

    await run.runner.measure(run.state(NAME), UNMEASURED)
    inner = FakeConnector(act)
    assert await execute(run, inner) == ("said", 0)
    assert inner.commands[0]["command"][:3] == ["exec", "/bin/sfio-node", "exec"]
    (spec,) = runtime.specs.values()
    assert spec["observation"]["io"]
    await run.runner.end(run.state(NAME), succeeded=True)
    assert run.runner.connector(run.state(NAME), inner) is inner
    usage = ended(run).usage
    assert usage is not None
    assert (usage.bytes_written, usage.ended - usage.started) == (7, 2.0)


async def test_a_runtime_that_has_ended_measures_nothing(caplog: pytest.LogCaptureFixture) -> None:
    runtime = FakeRuntime("here")
    run = run_on(here=runtime)
    await runtime.close()
    with caplog.at_level(logging.WARNING):
        await run.runner.measure(run.state(NAME), UNMEASURED)
        assert await execute(run, FakeConnector(at_once)) == ("said", 0)
    assert caplog.messages == [f"{UNMEASURED} on site/here: closed"]


async def test_a_job_that_is_given_up_is_ended() -> None:
    runtime = FakeRuntime("here")
    run = run_on(here=runtime)
    await run.runner.measure(run.state(NAME), UNMEASURED)
    (job,) = runtime.jobs

    async def act(_: int) -> int:
        runtime.start(job)
        return 0

    await execute(run, FakeConnector(act))
    assert not job.exit.done()
    await run.runner.end(run.state(NAME), succeeded=False)
    assert (await job.exit).reason == "cancelled"
    assert ended(run, Status.CANCELLED).status == "cancelled"


async def test_a_runtime_that_does_not_say_how_a_job_has_ended_lets_it_not_fail(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "_EXIT_SECONDS", 0.01)
    runtime = FakeRuntime("here")
    run = run_on(here=runtime)
    await run.runner.measure(run.state(NAME), UNMEASURED)
    runtime.start(runtime.jobs[0])
    assert isinstance(run.runner.connector(run.state(NAME), FakeConnector(at_once)), JobConnector)
    with caplog.at_level(logging.WARNING):
        await run.runner.end(run.state(NAME), succeeded=True)
    assert list(map(uncoded, caplog.messages)) == [f"Job {NAME} was not measured: the node runtime does not answer"]
    assert ended(run).usage is None


async def test_a_job_that_cannot_be_told_to_the_runtime_runs_plainly(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = FakeRuntime("here")

    async def write_spec(*_: object) -> None:
        raise NodeRuntimeError("no space left")

    monkeypatch.setattr(runtime, "write_spec", write_spec)
    run, inner = run_on(here=runtime), FakeConnector(at_once)
    await run.runner.measure(run.state(NAME), UNMEASURED)
    with caplog.at_level(logging.WARNING):
        assert await execute(run, inner) == ("said", 0)
        await run.runner.end(run.state(NAME), succeeded=True)
    assert list(map(uncoded, caplog.messages)) == [f"Job {NAME} is not measured: no space left"]
    assert inner.commands[0]["command"] == ["tool"]
    assert ended(run).usage is None


LIMITED = {
    "/write": StepAnnotations(
        "/write",
        ANNOTATIONS["/write"].io_task,
        Located(
            StorageBandwidth.model_validate({"storageBW": 0.5, "limited": True}),
            Level.TOOL,
            "sfio:StorageBandwidth",
            Source("write.cwl"),
        ),
    )
}


async def test_the_limit_of_a_job_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Where the node runtime does not pause jobs, that is said once."""
    for unlimited in (None, "jobs in containers are not paused"):
        runtime = FakeRuntime("here")
        runtime.unlimited = unlimited
        rates = FakeRates()
        run = FakeRun(LIMITED, limited(rates), here=runtime)
        for _ in range(2):
            await run.runner.measure(run.state(NAME), UNMEASURED)
            await execute(run, FakeConnector(at_once))
        limits = [spec.get("limit") for spec in runtime.specs.values()]
        limit = {"rate": 500_000, "direction": "write", "path": "/out"}
        assert limits == [None if unlimited else limit] * 2
        assert ((NAME, "not held") in rates.told) is (unlimited is not None)
    held = f"/write is not held to its storageBW on {runtime.location}: {unlimited}"
    assert list(map(uncoded, caplog.messages)) == [held]


async def test_a_rate_that_is_found_while_a_job_runs() -> None:
    """The rate is told with the job, as far as it is known, and then as it changes; the bytes that the job has moved
    are told back.
    """
    runtime = FakeRuntime("here")
    hint = Located(StorageBandwidth.model_validate({"storageBW": "required"}), Level.TOOL, "a", Source("write.cwl"))
    rates = FakeRates()
    hints = {"/write": replace(LIMITED["/write"], storage_bandwidth=hint)}
    run = FakeRun(hints, limited(rates), here=runtime)
    run.state(NAME).limit(3e6)

    async def act(_: int) -> int:
        [job] = runtime.jobs
        runtime.start(job)
        run.state(NAME).limit(3e6)
        await asyncio.sleep(0.01)
        runtime.tell(job, "moved", bytes=5)
        runtime.exit(job, success=True, code=0)
        return 0

    await run.runner.measure(run.state(NAME), UNMEASURED)
    await execute(run, FakeConnector(act))
    await run.runner.end(run.state(NAME), succeeded=True)
    assert [spec["limit"] for spec in runtime.specs.values()] == [
        {"direction": "write", "path": "/out", "expected": 1_000_000}
    ]
    assert [limits["rate"] for _, limits in runtime.limits] == [3_000_000]
    assert rates.told == [(NAME, 5), (NAME, "exited")]


async def test_the_next_attempt_of_a_job_that_streams_is_told() -> None:
    runtime = FakeRuntime("here")
    rates = FakeRates()
    run = FakeRun(LIMITED, limited(rates), here=runtime)
    for _ in range(2):
        with run.runner.running(run.state(NAME), await runtime.create_job(NAME), JobSpec(name=NAME)):
            run.runner.connector(run.state(NAME), FakeConnector(at_once))
    assert rates.told == [(NAME, "repeated")]


async def test_of_many_locations_with_the_same_reason_some_are_named(caplog: pytest.LogCaptureFixture) -> None:
    run = FakeRun(ANNOTATIONS)
    for number in range(12):
        run.places.put(f"/write/{number}", f"n{number % 6}")
        assert await run.reach.measured_job(run.state(f"/write/{number}"), UNMEASURED) is None
    named = [f"{UNMEASURED} on site/n{number}: not for this architecture" for number in range(3)]
    more = "The same holds for other locations of site: `streamflow-io doctor --location site` looks at all"
    assert caplog.messages == [*named, more]
    # Another matter has warnings of its own.
    caplog.clear()
    assert await run.reach.runtime(run.state("/write/0")) is None
    (told,) = map(uncoded, caplog.messages)
    assert told == "Nothing streams on site/n0, all is as with plain StreamFlow: not for this architecture"
