"""Periodic bursts are found in the records of real runs (`recorded/`, without what is not read), and of made ones."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import pytest
from msgspec import convert
from msgspec.structs import replace

from lab.telemetry import BANDWIDTH, BEGIN, SSD, STORAGE, job, usage
from streamflow_io.features.schedules.burst_profile import BurstProfile
from streamflow_io.features.schedules.profile import find_profile
from streamflow_io.hints.config import StorageConfig
from streamflow_io.records.history import History, read_history
from streamflow_io.records.jobs import EndedRecord
from streamflow_io.records.records import (
    LeaseRecord,
    Record,
    RunRecord,
    RunStorage,
    StepRecord,
    record_decoder,
)

RECORDED = Path(__file__).with_name("recorded")


def recorded(name: str) -> History:
    lines = gzip.decompress((RECORDED / f"{name}.jsonl.gz").read_bytes()).splitlines()
    return read_history(name, map(record_decoder().decode, lines))


def profile_on(history: History, storage: RunStorage = STORAGE) -> BurstProfile | None:
    return find_profile(history, StorageConfig(name=storage.name, path="/s", write=storage.write, read=storage.read))


def found(history: History, storage: RunStorage = STORAGE) -> BurstProfile:
    profile = profile_on(history, storage)
    assert profile is not None
    return profile


@pytest.mark.parametrize(
    ("name", "bursts", "jobs", "megabytes", "work"),
    [
        # An unrolled chain: sleep 2, then a job of 8 MB, eight times.
        ("chain", 8, 1, 8, 2),
        # Bursts of 16 jobs of 4 MB, four move at once; the works are 4 s.
        ("bursts-of-16", 5, 16, 64, 4),
        # Two runs of 12 times 2 s and 8 MB, and two of 5 times 6 s and 16 jobs of 4 MB. All are at once on one slow
        # disk.
        ("congested-small", 12, 1, 8, 2),
        ("congested-large", 5, 16, 64, 6),
    ],
)
def test_a_real_run(name: str, bursts: int, jobs: int, megabytes: float, work: float) -> None:
    history = recorded(name)
    profile = found(history, history.run.storages[0])
    assert (profile.bursts, profile.jobs) == (bursts, jobs)
    assert (profile.storage_bw, profile.rate) == (4, min(16, 4 * jobs))
    assert profile.moved == pytest.approx(megabytes, rel=0.001)
    assert profile.work == pytest.approx(work, rel=0.05)
    assert profile.error < 0.01
    assert 0.02 < profile.latency < 0.5


@pytest.mark.parametrize("name", ["kmeans", "profile-search"])
def test_bursts_that_overlap_with_compute_and_a_single_scatter_are_not_periodic(name: str) -> None:
    history = recorded(name)
    assert any(job.storage is not None for job in history.jobs)
    assert [profile_on(history, storage) for storage in history.run.storages] == [None]


def run(records: Iterable[Sequence[Record]], *steps: str, direction: str = "write") -> History:
    started: list[Record] = [RunRecord(time=BEGIN, name="made", workflow="main.cwl", storages=(STORAGE, SSD))]
    fields = {"ioTask": True, "storageBW": "8", "direction": direction}
    started += [convert({"time": BEGIN, "step": step, **fields}, StepRecord) for step in steps or ("/save",)]
    return read_history("made", [*started, *sorted(chain.from_iterable(records), key=lambda record: record.time)])


def burst(begin: float, name: str, seconds: float = 2, megabytes: float = 16, measured: bool = True) -> list[Record]:
    end = begin + seconds
    used = usage(begin, end, round(megabytes * 1e6)) if measured else None
    return job(name, begin, begin, end, 8, used)


def test_bytes_that_were_not_measured_are_storage_bw_times_seconds() -> None:
    profile = found(run(burst(6.0 * index, f"/save/0.{index}", measured=False) for index in range(5)))
    assert (profile.moved, profile.work, profile.rate) == (pytest.approx(16), pytest.approx(4), 8)


def test_the_first_and_the_last_burst_are_left_out_if_enough_are_left() -> None:
    odd = {0: 100.0, 9: 1.0}
    profile = found(run(burst(6.0 * index, f"/save/0.{index}", 2, odd.get(index, 16)) for index in range(10)))
    assert (profile.bursts, profile.moved, profile.error) == (10, 16, pytest.approx(0, abs=1e-6))


def test_a_burst_that_is_not_over_does_not_count() -> None:
    jobs = [burst(6.0 * index, f"/save/0.{index}") for index in range(5)]
    jobs[-1].pop()
    assert found(run(jobs)).bursts == 4
    assert profile_on(run([job for job in jobs if job is not jobs[0]])) is None


def test_jobs_of_two_steps_by_turns_are_irregular() -> None:
    begins = [0, 3, 10, 13, 20, 23, 30, 33]
    jobs = [burst(begin, f"/{'ab'[index % 2]}/0.{index // 2}") for index, begin in enumerate(begins)]
    assert profile_on(run(jobs, "/a", "/b")) is None


def test_an_attempt_that_is_made_again_is_part_of_its_burst() -> None:
    jobs = [burst(10.0 * index, f"/save/0.{index}.{element}") for index in range(5) for element in range(2)]
    again = burst(22, "/save/0.2.1")
    profile = found(run([*jobs, again]))
    assert (profile.bursts, profile.jobs, profile.rate) == (5, 2, 16)
    assert profile.moved == 32


def test_a_run_that_needs_no_bandwidth_has_no_profile() -> None:
    assert profile_on(run([job("/save/0", 0, 0, 1)])) is None


def test_the_rate_is_at_most_the_bandwidth_and_each_storage_has_its_own_profile() -> None:
    jobs = [burst(20.0 * index, f"/save/0.{index}.{element}") for index in range(5) for element in range(16)]
    other = [job(f"/log/0.{index}", 20.0 * index, 20.0 * index, 20.0 * index + 1, 8, storage=SSD) for index in range(3)]
    history = run([*jobs, *other], "/save", "/log")
    assert (found(history).rate, found(history).jobs) == (BANDWIDTH, 16)
    assert profile_on(history, SSD) is None


def test_jobs_that_read_and_write_have_no_profile() -> None:
    used = usage(0, 1, 4_000_000, 4_000_000)
    jobs = [
        job(f"/save/0.{index}.{element}", 5.0 * index, 5.0 * index, 5.0 * index + 1, 8, used, storage=SSD)
        for index in range(4)
        for element in range(3)
    ]
    assert found(run(jobs), SSD).moved == 12
    assert profile_on(run(jobs, direction="both"), SSD) is None


def test_works_that_are_next_to_nothing_are_regular_whatever_they_are() -> None:
    begins = [0, 10.1, 20.3, 30.35, 40.6]
    profile = found(run(burst(begin, f"/save/0.{index}", 10, 80) for index, begin in enumerate(begins)))
    assert profile.error < 1.25 * 0.2 / 5**0.5


def test_how_fast_the_storage_was_by_the_number_of_jobs() -> None:
    """Four at a time, 2 s each, with 0.1 s of compute; the last is alone, for less than a fifth of the time."""
    jobs = [
        job(f"/save/0.{index}.{element}", begin, begin, begin + 2, 8, usage(begin, begin + 2, written))
        for index in range(4)
        for element in range(21)
        for begin, written in [(20.0 * index + 2 * (element // 4), 8_000_000)]
    ]
    (seen,) = found(run(jobs)).seen
    assert (seen.jobs, seen.rate, seen.seconds) == (4, pytest.approx(4 * 8 / 1.9), pytest.approx(4 * 5 * 1.9))


def test_times_in_which_others_used_the_storage_say_nothing_of_it() -> None:
    jobs = [burst(10.0 * index, f"/save/0.{index}") for index in range(4)]
    assert [one.rate for one in found(run(jobs)).seen] == [pytest.approx(16 / 1.9)]

    def lease(time: float, others: float, storage: str = STORAGE.name) -> list[Record]:
        fields = {"time": BEGIN + time, "storage": storage, "direction": "write"}
        return [convert({**fields, "held": 8, "used": 8, "others": others, "wanted": 0}, LeaseRecord)]

    slower = burst(0, "/save/0.0", 4)
    told = [lease(0, 8), lease(4, 0), lease(12, 8, "other")]
    (seen,) = found(run([slower, *jobs[1:], *told])).seen
    assert (seen.rate, seen.seconds) == (pytest.approx(16 / 1.9), pytest.approx(3 * 1.9))
    assert found(run([*jobs, lease(0, 8)])).seen == ()


def test_jobs_that_are_held_to_their_storage_bw_say_nothing_of_the_storage() -> None:
    jobs = [burst(10.0 * index, f"/save/0.{index}") for index in range(4)]
    paused = [
        replace(record, usage=replace(record.usage, paused_seconds=0.5))
        if isinstance(record, EndedRecord) and record.usage is not None
        else record
        for record in chain.from_iterable(jobs)
    ]
    assert found(run([paused])).seen == ()


def test_a_job_with_several_threads_computes_no_longer_than_it_runs() -> None:
    def threaded(index: int) -> list[Record]:
        used = replace(usage(10.0 * index, 10.0 * index + 2, 16_000_000), cpu_seconds=7.0)
        return job(f"/save/0.{index}", 10.0 * index, 10.0 * index, 10.0 * index + 2, 8, used)

    profile = found(run(threaded(index) for index in range(5)))
    assert (profile.latency, profile.seen) == (pytest.approx(2), ())
