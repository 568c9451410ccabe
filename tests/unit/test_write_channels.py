"""The rest of a storage beside compute jobs that write there in a rhythm."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import convert
from streamflow.core.workflow import Status

from lab.fakes import FakeRuntime
from lab.jobs import job_state
from streamflow_io.adapters.deployment_sites import Sites
from streamflow_io.adapters.jobs import JobState
from streamflow_io.bandwidth.write_channels import WriteBursts, WriteChannels, Written
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.hints.errors import Level, Located, Source
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.models import IOTask
from streamflow_io.records.records import Record, RequestRecord
from streamflow_io.runtime.protocol import Event, JobSpec
from streamflow_io.storage.admission.demand import Capacity, StoragePlace
from streamflow_io.storage.storages import Storages

IO_TASK = Located(IOTask(), Level.TOOL, "sfio:IOTask", Source("write.cwl"))
DISK: dict[str, Any] = {"name": "disk", "path": "/out", "write": 100}
MB = 10**6


HINTS = {"/compute": StepAnnotations("/compute"), "/save": StepAnnotations("/save", IO_TASK)}


def compute() -> JobState:
    return job_state("/compute/0", HINTS["/compute"])


def channels(records: list[Record] | None = None) -> WriteChannels:
    config = SchedulerConfig.model_validate({"storages": [DISK]})
    return WriteChannels(Storages(config.storages, Sites({})), [].append if records is None else records.append)


def asked(found: WriteChannels, job: JobState) -> JobSpec:
    return found.starting(job, JobSpec(name=job.name), FakeRuntime("here"))


def burst(found: WriteChannels, job: JobState, start: float) -> None:
    event = {"event": "phase", "job": "000001-compute-0", "time": start + 0.5, "number": 0, "start": start}
    found.event(job, convert({**event, "last": start + 0.2, "bytes": 30 * MB, "end": 1}, Event))


def test_compute_jobs_are_asked_and_io_tasks_are_not() -> None:
    found = channels()
    phases = asked(found, compute()).observation.writes
    assert phases is not None
    assert phases == "/out"
    assert asked(found, job_state("/save/0", HINTS["/save"])).observation.writes is None
    # The step has no hints, and is observed.
    assert asked(found, job_state("/unknown/0")).observation.writes is not None


def test_a_storage_has_less_while_a_job_writes_there_in_a_rhythm(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Record] = []
    found, job = channels(told), compute()
    asked(found, job)
    here, all_of_it = StoragePlace("disk", "here"), Capacity(100 * MB, True, 4, 4)
    assert found.left(None, here, "write") is None
    for start in (0.0, 3.0, 6.0, 9.0):
        assert found.left(all_of_it, here, "write") == all_of_it
        monkeypatch.setattr("streamflow_io.bandwidth.write_channels.time.time", lambda start=start: start + 0.5)
        burst(found, job, start)
    left = found.left(all_of_it, here, "write")
    assert left is not None
    assert left.bandwidth == pytest.approx(90 * MB)
    assert found.left(all_of_it, here, "read") == all_of_it
    assert found.left(all_of_it, StoragePlace("other", "here"), "write") == all_of_it
    assert found.left(Capacity(5 * MB, True, 4, 4), here, "write") == Capacity(0, True, 4, 4)
    job.status = Status.COMPLETED
    found.ended(job)
    assert [(one.kind, one.storage, one.rule) for one in told if isinstance(one, RequestRecord)] == [
        ("write", "disk", "exposed")
    ] * 4
    assert found.left(all_of_it, here, "write") == all_of_it


def test_bursts_of_an_earlier_attempt_do_not_count() -> None:
    told: list[Record] = []
    found, job = channels(told), compute()
    asked(found, job)
    burst(found, job, 1.0)
    asked(found, job)
    burst(found, job, 5.0)
    job.status = Status.COMPLETED
    found.ended(job)
    burst(found, job, 9.0)
    found.ended(job)
    assert len(told) == 1


def test_what_a_failed_job_has_written_is_no_request() -> None:
    told: list[Record] = []
    found, job = channels(told), compute()
    asked(found, job)
    burst(found, job, 1.0)
    job.status = Status.FAILED
    found.ended(job)
    assert told == []


def bursts(*starts: float, holds: bool = False) -> WriteBursts:
    written = [Written(start, start + 0.5, 30 * MB) for start in starts]
    return WriteBursts("/a/0", "/a", "disk", "here", holds, written)


def test_bursts_are_exposed_requests() -> None:
    first, second = bursts(1.0, 4.0).records(9.0)
    facts = (first.kind, first.rule, first.channel, first.storage, first.direction)
    assert facts == ("write", "exposed", "/a/0", "disk", "write")
    assert [(one.phase, one.ready, one.ended, one.bytes) for one in (first, second)] == [
        (0, 1.0, 1.5, 30 * MB),
        (1, 4.0, 4.5, 30 * MB),
    ]


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        ((0, 3, 6, 9), 10 * MB),
        ((0, 3, 6), 0),
        ((0, 1, 6, 9.5), 0),
        ((0, 3, 6.2, 9, 12.1), pytest.approx(30 * MB / 3.05)),
    ],
)
def test_what_is_written_in_a_rhythm_is_expected_to_go_on(starts: tuple[float, ...], expected: float) -> None:
    assert bursts(*starts).mean == expected
    assert bursts(*starts, holds=True).mean == 0, "the bandwidth would count twice"
