"""Facts that a run records about its bursts while it runs."""

from __future__ import annotations

import pytest

from streamflow_io.features.schedules import policy
from streamflow_io.features.schedules.policy import RecordedBursts
from streamflow_io.hints.config import StorageConfig
from streamflow_io.records.jobs import AdmittedRecord, EndedRecord, StartedRecord, SubmittedRecord
from streamflow_io.records.records import LeaseRecord, StepRecord
from streamflow_io.runtime.usage import JobUsage

BEGIN = 1_700_000_000.0
DISK, TAPE = (StorageConfig(name=name, path=f"/{name}", write=100) for name in ("disk", "tape"))


def burst(bursts: RecordedBursts, number: int, storage: str, begin: float, jobs: int, measured: bool = False) -> None:
    """Jobs with 10 MB/s each, one after the other for 2 s; each moves for 1.5 s."""
    step = f"/save-{storage}-{number}"
    bursts.told(StepRecord(time=BEGIN, step=step, io_task=True, storage_bw="10", direction="write"))
    for job in range(jobs):
        name = {"job": f"{step}/0.{job}", "step": step}
        bursts.told(SubmittedRecord(time=BEGIN + begin, **name))
        admitted = BEGIN + begin + 2 * job
        bursts.told(
            AdmittedRecord(
                time=admitted, **name, location="here", storage=storage, constraint=10, allocated=10, running=1
            )
        )
        bursts.told(StartedRecord(time=admitted + 0.5, **name, location="here"))
        used = usage(admitted + 0.5, admitted + 2)
        bursts.told(EndedRecord(time=admitted + 2, **name, status="completed", usage=used if measured else None))


def usage(started: float, ended: float) -> JobUsage:
    """The usage of a job that writes 15 MB."""
    counts = {"bytes_read": 0, "storage_bytes_read": 0, "storage_bytes_written": 15_000_000}
    return JobUsage(started=started, ended=ended, bytes_written=15_000_000, cpu_seconds=0, **counts)


def lease(bursts: RecordedBursts, time: float, others: float) -> None:
    amounts = {"held": 10.0, "used": 10.0, "others": others, "wanted": 0.0}
    bursts.told(LeaseRecord(time=BEGIN + time, storage="disk", direction="write", **amounts))


@pytest.mark.parametrize("most", [2_000, 20])
def test_the_bursts_on_each_storage_are_told_apart(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "_MOST_JOBS", most)
    bursts = RecordedBursts()
    assert bursts.profile(DISK) is None
    for number in range(12):
        burst(bursts, number, "disk", 10.0 * number, 2)
        burst(bursts, number, "tape", 10.0 * number + 5, 1)
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
    bursts = RecordedBursts()
    lease(bursts, 0.0, 0.0)
    for number in range(11):
        if number == 5:
            lease(bursts, 50.0, 30.0)
        burst(bursts, number, "disk", 10.0 * number, 1, measured=True)
    profile = bursts.profile(DISK)
    assert profile is not None
    assert (profile.moved, profile.volume, profile.latency) == (15, 20, 0.5)
    # Of few jobs it keeps only those since others are there.
    expected = [(1, 10, pytest.approx(7.5))] if most > 100 else []
    assert [(seen.jobs, seen.rate, seen.seconds) for seen in profile.seen] == expected
