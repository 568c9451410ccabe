"""The cost of each of many jobs: the work for each, and the state that is kept of each. Counts, not times."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from lab.fakes import FakeRun, FakeRuntime, FakeStep
from streamflow_io.graph.io_graph import Delivery
from streamflow_io.jobs.short_jobs import ENOUGH, SAMPLED, SHORT, ShortJobs
from streamflow_io.runtime.node_runtime import NodeJob

MANY = 4 * SAMPLED


class CountingRuntime(FakeRuntime):
    """A node runtime whose jobs end at once.

    :ivar created: how many it has had
    :ivar kept: the jobs that something is still kept of

    :param seconds: that each command takes
    """

    def __init__(self, seconds: float = 0.01) -> None:
        super().__init__("here")
        self.created = 0
        self.kept: weakref.WeakSet[NodeJob] = weakref.WeakSet()
        self._seconds = seconds

    async def create_job(self, name: str, *options: object) -> NodeJob:
        job = await super().create_job(name, *options)
        self.jobs.clear()
        self.created += 1
        self.kept.add(job)
        return job

    async def act(self, _: int) -> int:
        for job in [*self._jobs.values()]:
            self.start(job)
            self.tell(job, "opened", port="out", path="/out/out.txt")
            self.exit(job, success=True, code=0, started=1.0, ended=1.0 + self._seconds)
        return 0


async def run_many(runtime: CountingRuntime, delivery: Delivery, run: FakeRun, jobs: int = MANY) -> None:
    step = FakeStep(run, runtime.act, delivery)
    for number in range(jobs):
        await step.job(f"/step/{number}").run()
    step.tokens.clear()
    await asyncio.sleep(0)
    gc.collect()


async def test_of_jobs_that_have_ended_and_have_not_streamed_nothing_is_kept() -> None:
    runtime = CountingRuntime()
    run = FakeRun(here=runtime)
    await run_many(runtime, Delivery.COMMIT, run, jobs=20)
    assert runtime.created == 20
    assert not runtime.kept
    assert not run.streaming_jobs.is_running("/step/0")


async def test_a_job_that_has_streamed_may_be_read_after_its_end() -> None:
    runtime = CountingRuntime()
    run = FakeRun(here=runtime)
    await run_many(runtime, Delivery.STREAM, run, jobs=20)
    assert len(runtime.kept) == 20
    assert run.streaming_jobs.get("/step/7").latest.succeeded.result()


async def test_a_job_without_other_limits_has_no_task_for_them() -> None:
    runtime = CountingRuntime()
    before = len(asyncio.all_tasks())
    job = await runtime.create_job("/step/0")
    job._limits.begin()
    assert len(asyncio.all_tasks()) == before


@pytest.mark.parametrize(("seconds", "created"), [(0.01, ENOUGH + (MANY - ENOUGH) // SAMPLED), (SHORT, MANY)])
async def test_of_many_short_jobs_few_run_under_the_node_runtime(seconds: float, created: int) -> None:
    runtime = CountingRuntime(seconds)
    run = FakeRun(here=runtime)
    run.proofs.short_jobs = ShortJobs([FakeStep.name])
    await run_many(runtime, Delivery.STREAM, run)
    assert runtime.created == created


async def test_where_a_hint_asks_for_streams_every_job_runs_under_the_node_runtime() -> None:
    runtime = CountingRuntime()
    run = FakeRun(here=runtime)
    await run_many(runtime, Delivery.STREAM, run, jobs=2 * ENOUGH)
    assert runtime.created == 2 * ENOUGH
