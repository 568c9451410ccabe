"""The jobs of a gang under a `diskLimit`, when some of them come late."""

from __future__ import annotations

from typing import cast

from streamflow.core.deployment import LocalTarget
from streamflow.core.scheduling import AvailableLocation, Hardware
from streamflow.core.workflow import Job, Status
from streamflow.scheduling.scheduler import JobAllocation

from streamflow_io.adapters.jobs import JobState
from streamflow_io.graph.gangs import Gang
from streamflow_io.graph.io_graph import Input, Output, OutputKind, Route
from streamflow_io.runtime.locations import node_name
from streamflow_io.storage.intermediates.disk_ledger import StepSizes
from streamflow_io.storage.intermediates.disk_limit import DiskLimit
from streamflow_io.storage.intermediates.learned_sizes import JobSize
from tests.unit.test_disk_limit_of_nodes import alone

HERE = AvailableLocation("here", "local", "host", local=True)
EDGES = (("/a", "/b"), ("/a", "/c"))


def made(limit: int, *earlier: str) -> DiskLimit:
    """A limit for a producer /a that writes 40, and two readers of its stream that write 30 each.

    :param earlier: jobs of a workflow that has run before
    """
    sizes = StepSizes()
    for step, written in (("/a", 40), ("/b", 30), ("/c", 30)):
        sizes.measured(step, 0, written)
    routes = [
        Route(Output(step=step, port="o", kind=OutputKind.FILE), (), Input(step=reader, port="i"))
        for step, reader in EDGES
    ]
    allocations = {name: allocated(name) for name in earlier}
    return DiskLimit(limit, routes, [Gang(("/a", "/b", "/c"), ("/a",), 1.0)], sizes, lambda: None, allocations, alone)


def allocated(name: str) -> JobAllocation:
    return JobAllocation(name, LocalTarget(), [HERE.location], Status.RUNNING, Hardware())


def submitted(limit: DiskLimit, step: str, *sources: str) -> JobState:
    job = JobState(Job(f"{step}/0", 0, {}, "/in", "/out", "/tmp"))
    job.sources = sources
    job.keep(JobSize(0, 0))
    limit.submitted(job)
    return job


def placed(limit: DiskLimit, job: JobState) -> None:
    assert limit.may_start(job, HERE, "/work")
    cast("dict[str, JobAllocation]", limit._placed)[job.name] = allocated(job.name)
    job.places = [HERE]
    limit.placed(job)


def end(limit: DiskLimit, job: JobState, held: int) -> None:
    job.status = Status.COMPLETED
    limit.ended(job)
    limit.measured({node_name(HERE): held}, dict.fromkeys(limit.unmeasured(), 0))


async def test_a_reader_that_comes_when_its_producer_has_ended_needs_its_own_space() -> None:
    limit = made(140)
    a = submitted(limit, "/a")
    placed(limit, a)
    end(limit, a, 90)
    b, c = (submitted(limit, step, "/a/0") for step in ("/b", "/c"))
    placed(limit, b)
    # /c does not start together with /b: there is space for one of them only.
    assert not limit.may_start(c, HERE, "/work")
    end(limit, b, 80)
    placed(limit, c)


async def test_a_reader_that_comes_while_its_producer_runs_has_its_space_already() -> None:
    limit = made(130)
    a = submitted(limit, "/a")
    placed(limit, a)
    (ledger,) = limit._ledgers.values()
    assert ledger.free == 30
    for step in ("/b", "/c"):
        placed(limit, submitted(limit, step, "/a/0"))
    assert ledger.free == 30


async def test_a_producer_that_runs_again_needs_the_space_of_its_readers_again() -> None:
    limit = made(200)
    a = submitted(limit, "/a")
    placed(limit, a)
    end(limit, a, 40)
    placed(limit, submitted(limit, "/a"))
    (ledger,) = limit._ledgers.values()
    assert ledger.free == 60


async def test_a_producer_that_runs_again_when_its_readers_have_ended_needs_its_own_space() -> None:
    limit = made(200)
    for step, *sources in (("/a",), ("/b", "/a/0"), ("/c", "/a/0")):
        job = submitted(limit, step, *sources)
        placed(limit, job)
        end(limit, job, 100)
    placed(limit, submitted(limit, "/a"))
    (ledger,) = limit._ledgers.values()
    assert ledger.free == 60


async def test_a_producer_that_moves_needs_the_space_of_readers_that_move_with_it() -> None:
    limit = made(200)
    for step, *sources in (("/a",), ("/b", "/a/0")):
        placed(limit, submitted(limit, step, *sources))
    for job in [*limit._open.values()]:
        limit._placed[job.name].status = job.status = Status.ROLLBACK
        limit.ended(job)
    limit.measured({}, dict.fromkeys(limit.unmeasured(), 0))
    placed(limit, submitted(limit, "/a"))
    (ledger,) = limit._ledgers.values()
    assert ledger.free == 100


async def test_nothing_is_kept_of_a_gang_that_has_ended() -> None:
    limit = made(200)
    a = submitted(limit, "/a")
    placed(limit, a)
    end(limit, a, 0)
    assert not limit._running


async def test_jobs_of_an_earlier_workflow_are_others() -> None:
    limit = made(200, "/b/0", "/c/0")
    placed(limit, submitted(limit, "/a"))
    (ledger,) = limit._ledgers.values()
    assert ledger.free == 100
