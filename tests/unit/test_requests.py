"""The writers of the files that a job reads, and since when they are there: between jobs and required ends."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.workflow import Job, Status, Token
from streamflow.workflow.combinator import LoopCombinator
from streamflow.workflow.step import LoopCombinatorStep
from streamflow.workflow.token import ListToken

from lab.jobs import allocation
from lab.telemetry import BEGIN, usage
from streamflow_io.adapters.jobs import Jobs, JobState, usage_of
from streamflow_io.adapters.tokens import StreamSource, StreamToken, file_value
from streamflow_io.bandwidth import requests
from streamflow_io.bandwidth.rates import Rates, RememberedWindows, storages_of_steps
from streamflow_io.bandwidth.requests import Requests
from streamflow_io.graph.io_graph import Delivery, Input, Output, OutputKind, Route, StreamEdge
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.errors import Level, Located, Source
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.models import IOTask, StreamingRule
from streamflow_io.records.records import Record, RequestRecord
from streamflow_io.runtime.node_runtime import NodeJob
from streamflow_io.runtime.protocol import ExitEvent
from streamflow_io.runtime.protocol import Usage as NodeUsage
from streamflow_io.runtime.usage import JobUsage
from streamflow_io.storage.admission.demand import Capacity, Grant, Placement

SIZE = 40_000_000
DISK = StorageConfig(name="disk", path="/", write=100)
HINTS = {
    path: StepAnnotations(path, io_task=Located(IOTask(), Level.TOOL, "sfio:IOTask", Source("a")) if is_io else None)
    for path, is_io in (
        ("/compute", False),
        ("/loop/compute", False),
        ("/save", True),
        ("/loop/save", True),
        ("/other", False),
    )
}


class Driver:
    """Jobs of a run that never was. Times are seconds since it began."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        hints: dict[str, StepAnnotations] | None = None,
        limits: bool = True,
        delivered: tuple[StreamEdge, ...] = (),
        steps: dict[str, Any] | None = None,
    ) -> None:
        self.records: list[Record] = []
        self.now = 0.0
        monkeypatch.setattr(requests, "time", SimpleNamespace(time=lambda: BEGIN + self.now))
        workflow = SimpleNamespace(steps=steps or {})
        annotations = {**HINTS, **(hints or {})}
        self.capacity: Capacity | None = Capacity(100_000_000, True, 8, 8)
        self.more_jobs = True
        self.adapter = Rates(
            cast(Any, workflow),
            annotations,
            limits,
            RememberedWindows(
                Path("/nowhere/learned.db"),
                dict.fromkeys(annotations, "tool"),
                storages_of_steps(annotations, None, ()),
            ),
            lambda place, way: self.capacity,
            lambda step: 0,
            lambda name: self.bus.find(name),
            lambda step: self.more_jobs,
            self.records.append,
        )
        self.requests = Requests(
            cast(Any, workflow),
            annotations,
            delivered,
            self.adapter,
            self.records.append,
        )
        self.bus = Jobs(annotations, [self.requests])
        self.jobs: dict[str, JobState] = {}
        self.rates: list[tuple[str, float | None]] = []

    def submit(self, at: float, name: str, *inputs: Token | str) -> None:
        """A job reads files, which are named by their paths, and other tokens; its output directory is its name."""
        self.now = at
        tokens = {str(n): Token(file_value(one)) if isinstance(one, str) else one for n, one in enumerate(inputs)}
        job = self.jobs[name] = self.bus.new(Job(name, 0, tokens, None, None, None))
        limit = partial(self._limit, name)
        job.node_job = cast(NodeJob, SimpleNamespace(limit=limit))
        self.bus.submitted(job, BEGIN + at)
        job.job.output_directory = f"/out{name}"
        job.keep(Grant(name, job.step, Placement("pool", DISK), ("here",), 1, None, None))
        self.bus.placed(job, allocation(name), (), 1.0)
        self.bus.running(job, BEGIN + at)

    def end(self, at: float, name: str, status: Status = Status.COMPLETED, used: JobUsage | None = None) -> None:
        self.now = at
        job, used = self.jobs[name], used or usage(at - 1, at, SIZE)
        exit_event = ExitEvent(
            job="1",
            time=0,
            success=True,
            reason="exited",
            started=used.started,
            ended=used.ended,
            usage=NodeUsage(wchar=used.bytes_written, rchar=used.bytes_read),
        )
        job.usage = usage_of(exit_event)
        self.bus.ended(job, status, BEGIN + at)

    def _limit(self, job: str, rate: float | None) -> None:
        self.rates.append((job, rate))

    async def close(self) -> dict[str, RequestRecord]:
        await self.requests.run_closed()
        told = [record for record in self.records if isinstance(record, RequestRecord)]
        assert len({one.job for one in told}) == len(told)
        return {one.job: one for one in told}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


def edge(source: str, target: str, by_element: bool) -> StreamEdge:
    route = Route(Output(source, "out", OutputKind.FILES), (), Input(target, "in"))
    return StreamEdge(route, StreamingRule(port="out"), Delivery.COMMIT, by_element)


def loop_combinator(entered: str) -> LoopCombinatorStep:
    """A step of StreamFlow that has counted iterations.

    :param entered: the tag with which the loop was entered
    """
    combinator = LoopCombinator("loop", SimpleNamespace())  # type: ignore[arg-type]
    combinator.iteration_map = {entered: 2}
    step = LoopCombinatorStep.__new__(LoopCombinatorStep)
    step.combinator = combinator
    return step


async def test_it_is_ready_when_the_last_of_what_it_reads_is_there(driver: Driver) -> None:
    driver.submit(0, "/compute/0.0")
    driver.submit(0, "/compute/0.1")
    driver.end(3, "/compute/0.0")
    driver.end(5, "/compute/0.1")
    both = ListToken([Token(file_value(f"/out/compute/0.{n}/deep/file")) for n in (0, 1)])
    driver.submit(9, "/save/0", both, "/input/of/the/workflow")
    driver.end(11, "/save/0")
    found = (await driver.close())["/save/0"]
    assert (found.ready, found.started, found.ended) == (BEGIN + 5, BEGIN + 10, BEGIN + 11)
    assert (found.storage, found.direction, found.bytes) == ("disk", "write", SIZE)
    # No job computes any more.
    assert (found.required, found.rule) == (BEGIN + 5, "exposed")


async def test_what_has_not_ended_yet_is_there_now(driver: Driver) -> None:
    """The outputs are with others just before the job is told to have ended."""
    driver.submit(0, "/compute/0")
    driver.submit(3, "/save/0", "/out/compute/0/file")
    driver.end(3.1, "/compute/0")
    driver.end(4, "/save/0")
    assert (await driver.close())["/save/0"].ready == BEGIN + 3


async def test_without_a_job_before_it_is_ready_when_it_is_submitted(driver: Driver) -> None:
    driver.submit(2, "/save/0", "/input")
    driver.end(4, "/save/0")
    assert (await driver.close())["/save/0"].ready == BEGIN + 2


async def test_a_further_attempt_of_a_job_has_a_directory_of_its_own(driver: Driver) -> None:
    driver.submit(0, "/compute/0")
    driver.end(3, "/compute/0")
    driver.submit(9, "/save/0", "/out/compute/0-2/file")
    driver.end(11, "/save/0")
    assert (await driver.close())["/save/0"].ready == BEGIN + 3


async def test_a_job_that_reads_it_waits_from_when_all_else_was_there(driver: Driver) -> None:
    driver.submit(0, "/compute/0")
    driver.submit(0, "/save/0", "/input")
    driver.end(4, "/save/0")
    driver.end(6, "/compute/0")
    driver.submit(8, "/other/0", "/out/save/0/file", "/out/compute/0/file")
    found = (await driver.close())["/save/0"]
    assert (found.required, found.rule) == (BEGIN + 6, "need")


async def test_who_reads_the_stream_of_an_io_task_waits_at_once(driver: Driver) -> None:
    driver.submit(1, "/save/0", "/input")
    driver.submit(2, "/other/0", StreamToken(file_value("/anywhere"), StreamSource("/save/0", "out", "file")))
    driver.end(5, "/save/0")
    found = (await driver.close())["/save/0"]
    assert (found.required, found.rule) == (BEGIN + 1, "exposed")


async def test_jobs_of_streamflow_wait_for_nothing(driver: Driver) -> None:
    driver.submit(0, "/compute/0")
    driver.submit(0, "/save/0", "/input")
    driver.end(2, "/save/0")
    driver.submit(2, "/result-collector/0", "/out/save/0/file")
    driver.end(9, "/compute/0")
    found = (await driver.close())["/save/0"]
    assert (found.required, found.rule) == (BEGIN + 9, "end")


async def test_all_iterations_of_a_loop_are_a_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch, steps={"/loop-loop-combinator": loop_combinator("0.7")})
    for iteration in range(3):
        driver.submit(5 * iteration, f"/loop/save/0.7.{iteration}.3", "/input")
        driver.end(5 * iteration + 1, f"/loop/save/0.7.{iteration}.3")
    driver.submit(20, "/save/0.7", "/input")
    driver.end(21, "/save/0.7")
    found = (await driver.close()).values()
    assert [one.channel for one in found] == [*["/loop/save/0.7.*.3"] * 3, "/save/0.7"]
    assert [(one.phase, one.rule) for one in found][:2] == [(0, "next"), (1, "next")]


@pytest.mark.parametrize(("streams", "ready", "channel"), [(True, 2, "/save of /compute/0"), (False, 6, "/save/0.1")])
async def test_what_is_delivered_at_commit(
    monkeypatch: pytest.MonkeyPatch, streams: bool, ready: float, channel: str
) -> None:
    edges = (edge("/compute", "/save", by_element=True),)
    driver = Driver(monkeypatch, delivered=edges if streams else ())
    driver.submit(0, "/compute/0")
    driver.now = 2
    driver.requests.delivered(driver.jobs["/compute/0"], ListToken([Token(file_value("/out/compute/0/file"))]))
    driver.end(6, "/compute/0")
    driver.submit(8, "/save/0.1", "/out/compute/0/file")
    driver.end(9, "/save/0.1")
    found = (await driver.close())["/save/0.1"]
    assert (found.ready, found.channel) == (BEGIN + ready, channel)


async def test_a_repeated_job_counts_once(driver: Driver) -> None:
    driver.submit(0, "/compute/0")
    driver.submit(1, "/save/0", "/input")
    driver.end(2, "/save/0", status=Status.FAILED)
    driver.submit(3, "/save/0", "/input")
    driver.end(4, "/save/0")
    driver.end(9, "/compute/0")
    found = await driver.close()
    assert found.keys() == {"/save/0"}
    assert (found["/save/0"].ready, found["/save/0"].started) == (BEGIN + 1, BEGIN + 3)


async def test_the_clock_of_a_node_may_be_another(driver: Driver) -> None:
    driver.submit(0, "/compute/0")
    driver.submit(1, "/save/0", "/input")
    driver.end(5, "/save/0", used=usage(1000, 1003, SIZE))
    driver.end(9, "/compute/0")
    found = (await driver.close())["/save/0"]
    assert (found.started, found.ended) == (BEGIN + 2, BEGIN + 5)
