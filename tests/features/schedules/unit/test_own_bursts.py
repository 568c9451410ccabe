"""A run knows its own bursts while the run goes on."""

from __future__ import annotations

import pytest
from streamflow.core.workflow import Job, Status

from streamflow_io.adapters.jobs import JobState
from streamflow_io.features.schedules import policy
from streamflow_io.features.schedules.policy import OwnBursts
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.errors import Level, Located, Source
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.models import IOTask
from streamflow_io.records.records import LeaseRecord
from streamflow_io.runtime.usage import JobUsage
from streamflow_io.storage.admission.demand import Grant, Placement

BEGIN = 1_700_000_000.0
DISK, TAPE = (StorageConfig(name=name, path=f"/{name}", write=100) for name in ("disk", "tape"))


class Shared(OwnBursts):
    """The bursts of a run that has begun to share its storages.

    :ivar now: the time of its clock
    """

    def __init__(self) -> None:
        self.now = BEGIN
        super().__init__(lambda: self.now)
        assert self.profile(DISK) is None
        self.follow()

    def burst(self, number: int, storage: StorageConfig, begin: float, jobs: int, measured: bool = False) -> None:
        """Jobs with 10 MB/s each, one after the other for 2 s; each moves for 1.5 s."""
        step = f"/save-{storage.name}-{number}"
        hints = StepAnnotations(step, Located(IOTask(), Level.TOOL, "sfio:IOTask", Source("save.cwl")))
        for index in range(jobs):
            job = JobState(Job(f"{step}/0.{index}", 0, {}, None, None, None), hints)
            job.submitted = BEGIN + begin
            self.submitted(job)
            self.now = BEGIN + begin + 2 * index
            self.placed(job)
            job.keep(Grant(job.name, step, Placement("here", storage), ("here",), 10, 10, 1))
            job.started = self.now + 0.5
            self.running(job)
            job.ended, job.status = self.now + 2, Status.COMPLETED
            job.usage = usage(job.started, job.ended) if measured else None
            self.now = job.ended
            self.ended(job)

    def lease(self, time: float, others: float) -> None:
        amounts = {"held": 10.0, "used": 10.0, "others": others, "wanted": 0.0}
        self.leased(LeaseRecord(time=BEGIN + time, storage="disk", direction="write", **amounts))


def usage(started: float, ended: float) -> JobUsage:
    """The usage of a job that writes 15 MB."""
    counts = {"bytes_read": 0, "storage_bytes_read": 0, "storage_bytes_written": 15_000_000}
    return JobUsage(started=started, ended=ended, bytes_written=15_000_000, cpu_seconds=0, **counts)


@pytest.mark.parametrize("most", [2_000, 20])
def test_the_bursts_on_each_storage_are_told_apart(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "_MOST_JOBS", most)
    bursts = Shared()
    assert bursts.profile(DISK) is None
    for number in range(12):
        bursts.burst(number, DISK, 10.0 * number, 2)
        bursts.burst(number, TAPE, 10.0 * number + 5, 1)
    disk, tape = bursts.profile(DISK), bursts.profile(TAPE)
    assert disk is not None
    assert tape is not None
    assert (disk.jobs, disk.work, disk.rate) == (2, pytest.approx(6.0), 20.0)
    # What the jobs have, for as long as they have it: not what they move.
    assert (disk.volume, tape.volume) == (pytest.approx(40.0), pytest.approx(20.0))
    assert disk.bursts == (12 if most > 100 else disk.bursts)
    assert disk.bursts >= 4


@pytest.mark.parametrize("most", [2_000, 5])
def test_others_are_told_how_fast_the_storage_was_while_the_run_had_it_for_itself(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "_MOST_JOBS", most)
    bursts = Shared()
    bursts.lease(0.0, 0.0)
    for number in range(11):
        if number == 5:
            bursts.lease(50.0, 30.0)
        bursts.burst(number, DISK, 10.0 * number, 1, measured=True)
    profile = bursts.profile(DISK)
    assert profile is not None
    assert (profile.moved, profile.volume, profile.latency) == (15, 20, 0.5)
    # Of few jobs it keeps only those since others are there.
    expected = [(1, 10, pytest.approx(7.5))] if most > 100 else []
    assert [(seen.jobs, seen.rate, seen.seconds) for seen in profile.seen] == expected
