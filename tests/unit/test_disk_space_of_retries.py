"""Under a `diskLimit`, a job that has failed finds its space again, whatever was submitted meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest
from streamflow.core.deployment import LocalTarget
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.scheduling import AvailableLocation, Hardware
from streamflow.core.workflow import Job, Status
from streamflow.scheduling.scheduler import JobAllocation

from streamflow_io.adapters.jobs import JobState
from streamflow_io.runtime.locations import node_name
from streamflow_io.storage.intermediates.disk_ledger import StepSizes
from streamflow_io.storage.intermediates.disk_limit import DiskLimit
from streamflow_io.storage.intermediates.learned_sizes import JobSize
from tests.unit.test_disk_limit_of_nodes import alone

HERE = AvailableLocation("here", "local", "host", local=True)


class Run:
    """A run with a `diskLimit` of 100.

    :param placed: the jobs of an earlier run
    :param sizes: bytes that the jobs of each step write; the size of a step that is not there is not known
    """

    def __init__(self, placed: Mapping[str, JobAllocation] = MappingProxyType({}), **sizes: int) -> None:
        known = StepSizes()
        for step, written in sizes.items():
            known.measured(f"/{step}", 0, written)
        self.placed = dict(placed)
        self.limit = DiskLimit(100, (), (), known, lambda: None, self.placed, alone)

    def submit(self, name: str) -> JobState:
        job = JobState(Job(name, 0, {}, "/in", "/out", "/tmp"))
        job.keep(JobSize(0, 0))
        self.limit.submitted(job)
        return job

    def starts(self, job: JobState) -> bool:
        if not self.limit.may_start(job, HERE, "/work"):
            return False
        self.placed[job.name] = JobAllocation(job.name, LocalTarget(), [HERE.location], Status.RUNNING, Hardware())
        job.places = [HERE]
        self.limit.placed(job)
        return True

    def end(self, job: JobState, status: Status, held: int = 0) -> None:
        job.status = self.placed[job.name].status = status
        self.limit.ended(job)
        self.measure(held)

    def measure(self, held: int) -> None:
        self.limit.measured({node_name(HERE): held}, dict.fromkeys(self.limit.unmeasured(), 0))

    def fail(self, name: str) -> JobState:
        """Let a job fail that has all the space that it needs."""
        failed = self.submit(name)
        assert self.starts(failed)
        self.end(failed, Status.RECOVERY)
        return failed

    def wait(self) -> None:
        """Let the time pass after which a run ends if nothing can go on."""
        for _ in range(50):
            self.limit._look()


@pytest.mark.parametrize("step", ["known", "unknown"])
async def test_the_space_of_a_failed_job_is_for_its_next_attempt(step: str) -> None:
    run = Run(known=60, other=60)
    run.fail(f"/{step}/0")
    other = run.submit("/other/0")
    assert not run.starts(other)
    run.wait()
    assert not run.starts(other)
    again = run.submit(f"/{step}/0")
    assert not run.starts(other)
    assert run.starts(again)
    run.end(again, Status.COMPLETED)
    assert run.starts(other)


async def test_a_next_attempt_that_comes_before_the_failed_one_is_measured() -> None:
    run = Run(a=60, other=60)
    failed = run.submit("/a/0")
    assert run.starts(failed)
    failed.status = Status.RECOVERY
    run.limit.ended(failed)
    again, other = run.submit("/a/0"), run.submit("/other/0")
    run.measure(0)
    assert not run.starts(other)
    assert run.starts(again)


async def test_a_job_that_has_failed_and_succeeded_keeps_no_space() -> None:
    run = Run(a=60)
    run.fail("/a/0")
    again = run.submit("/a/0")
    assert run.starts(again)
    run.end(again, Status.COMPLETED)
    assert run.starts(run.submit("/a/1"))


async def test_a_producer_that_runs_again_for_a_failed_job_has_the_space() -> None:
    """The files of the producer are lost. The failed job waits for them, and another job for space."""
    run = Run(producer=60, reader=60, other=60)
    producer = run.submit("/producer/0")
    assert run.starts(producer)
    run.end(producer, Status.COMPLETED)
    run.fail("/reader/0")
    assert not run.starts(run.submit("/other/0"))
    assert run.starts(run.submit("/producer/0"))


async def test_the_run_ends_if_such_a_producer_has_too_little_space() -> None:
    run = Run(producer=60, reader=60)
    producer = run.submit("/producer/0")
    assert run.starts(producer)
    run.end(producer, Status.COMPLETED)
    run.fail("/reader/0")
    run.measure(50)
    again = run.submit("/producer/0")
    assert not run.starts(again)
    run.wait()
    with pytest.raises(WorkflowExecutionException, match="10 B are missing"):
        run.starts(again)


async def test_jobs_of_an_earlier_run_are_no_next_attempts() -> None:
    earlier = Run()
    assert earlier.starts(earlier.submit("/other/0"))
    run = Run(earlier.placed, a=60, other=60)
    run.fail("/a/0")
    assert not run.starts(run.submit("/other/0"))


async def test_no_space_of_a_failed_job_is_lent() -> None:
    run = Run(a=60)
    run.fail("/a/0")
    assert not await run.limit.lend("other", HERE, 60)
    assert await run.limit.lend("other", HERE, 40)
