"""Files beside those of a first attempt: rehearsals and further attempts need space of their `diskLimit`, too."""

from __future__ import annotations

from streamflow.core.scheduling import AvailableLocation
from streamflow.core.workflow import Job

from streamflow_io.adapters.jobs import JobState
from streamflow_io.storage.intermediates.disk_ledger import DiskDemand, DiskLedger, StepSizes
from streamflow_io.storage.intermediates.disk_limit import DiskLimit
from streamflow_io.storage.intermediates.learned_sizes import JobSize
from tests.unit.test_disk_limit_of_nodes import alone

HERE = AvailableLocation("here", "local", "host", local=True)


async def test_lent_space() -> None:
    limit = DiskLimit(10, (), (), StepSizes(), lambda: None, {}, alone)
    assert not await limit.lend("too much", HERE, 11)
    assert await limit.lend("rehearsal", HERE, 6)
    (ledger,) = limit._ledgers.values()
    assert ledger.free == 4
    assert not await limit.lend("other", HERE, 5)
    limit.give_back("other")
    assert ledger.free == 4
    limit.give_back("rehearsal")
    assert ledger.free == 10
    assert not ledger.may_start(DiskDemand("job", 11))
    assert not await limit.lend("jobs go first", HERE, 1)


async def test_lent_space_is_asked_back_for_a_job_that_could_start_with_it() -> None:
    sizes, asked = StepSizes(), list[str]()
    for step, written in (("/large", 11), ("/small", 8)):
        sizes.measured(step, 0, written)
    limit = DiskLimit(10, (), (), sizes, lambda: None, {}, alone)
    jobs = {step: JobState(Job(f"{step}/0", 0, {}, "/in", "/out", "/tmp")) for step in ("/large", "/small")}
    for job in jobs.values():
        job.keep(JobSize(0, 0))
        limit.submitted(job)
    assert await limit.lend("rehearsal", HERE, 6, lambda: asked.append("rehearsal"))
    assert not limit.may_start(jobs["/large"], HERE, "/work")
    assert not asked
    assert not limit.may_start(jobs["/small"], HERE, "/work")
    assert asked == ["rehearsal"]
    limit.give_back("rehearsal")
    assert limit.may_start(jobs["/small"], HERE, "/work")
    await limit.run_closed()


def test_a_further_attempt_needs_further_space() -> None:
    ledger = DiskLedger[str](10)
    ledger.start(DiskDemand("job", 4, own=4))
    ledger.extend("job", 4)
    assert ledger.free == 2
    ledger.end("job")
    ledger.extend("job", 4)
    assert ledger.free == 10
