"""The part of a job's time that the learner is told: a job that waits for its stream, or at the gate, does no I/O
meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from streamflow.core.scheduling import Hardware
from streamflow.core.workflow import Job, Status, Token
from streamflow.scheduling.scheduler import JobAllocation
from streamflow.workflow.token import ListToken

from lab.cluster import STEP, Cluster, target
from streamflow_io.adapters.deployment_sites import Sites
from streamflow_io.adapters.jobs import Jobs, usage_of
from streamflow_io.adapters.tokens import StreamSource, StreamToken, file_value
from streamflow_io.hints.config import SchedulerConfig, StorageConfig
from streamflow_io.hints.errors import Level, Located, Source
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.models import IOTask, StorageBandwidth
from streamflow_io.records.records import EpochRecord, Record
from streamflow_io.runtime.protocol import ExitEvent, Usage
from streamflow_io.runtime.usage import JobUsage
from streamflow_io.storage.admission.epochs import Observation
from streamflow_io.storage.learned_limits import RememberedLimits
from streamflow_io.storage.storage_admission import StorageAdmission
from streamflow_io.storage.storages import Storages

FILE = Token(file_value("/producer/out.txt"))
WRITTEN, DURATION, IO = 5_000_000, 60.0, 2.5
ANNOTATIONS = {
    STEP: StepAnnotations(
        STEP,
        io_task=Located(IOTask(), Level.TOOL, "sfio:IOTask", Source("step.cwl")),
        storage_bandwidth=Located(
            StorageBandwidth.model_validate({"storageBW": "auto"}),
            Level.TOOL,
            "sfio:StorageBandwidth",
            Source("step.cwl"),
        ),
    )
}


def written_now(**source: Any) -> StreamToken:
    """A File or Directory whose producer still runs."""
    return StreamToken(file_value("/producer/out.txt"), StreamSource("/producer/0", "out", "out.txt", **source))


def job(number: int, **inputs: Token) -> Job:
    return Job(f"{STEP}/0.{number}", 0, inputs, None, "/out", None)


def exited(io: float | None) -> ExitEvent:
    """A job of a minute has written 5 MB, and was so long in I/O; none: that was not measured."""
    usage = Usage(wchar=WRITTEN, io=io)
    return ExitEvent(
        job="1",
        time=0,
        success=True,
        reason="exited",
        started=1000.0,
        ended=1000.0 + DURATION,
        usage=usage,
    )


class Driver:
    """The storages of a run, told what the run tells them.

    :ivar records: of the run
    """

    def __init__(self, path: Path) -> None:
        self.records: list[Record] = []
        # A crowd of one: how long a job took by the driver's clock does not count.
        config = SchedulerConfig(storages=(StorageConfig(name="disk", path="/", scope="node", write=8),), ioExecutors=1)
        self.remembered = RememberedLimits(path / "learned.db", {STEP: "a1"})
        self.admission = StorageAdmission(
            Cluster(1).context,
            config,
            Storages(config.storages, Sites({})),
            self.remembered,
            more_jobs=lambda _: False,
            arrived=lambda _: 1,
            wake=lambda: None,
            record=self.records.append,
            spacing=lambda *_: None,
        )
        self.jobs = Jobs(ANNOTATIONS, [self.admission])
        self.observed: list[Observation | None] = []
        release = self.admission._admission.release

        def released(job: str, now: float, observation: Observation | None, *args: Any) -> None:
            self.observed.append(observation)
            release(job, now, observation, *args)

        self.admission._admission.release = released  # type: ignore[method-assign]

    async def observe(
        self, of: Job, exit_event: ExitEvent | None, status: Status = Status.COMPLETED
    ) -> Observation | None:
        """Return the observation of a job that the learner is told."""
        state = self.jobs.new(of, [target()])
        self.jobs.submitted(state, 0.0)
        await self.admission.admit(state, [target()])
        self.jobs.placed(state, JobAllocation(of.name, target(), [], Status.FIREABLE, Hardware()), (), 1.0)
        self.jobs.running(state, 0.0)
        state.usage = None if exit_event is None else usage_of(exit_event)
        self.jobs.ended(state, status, 1.0)
        return self.observed[-1]


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    driver = Driver(tmp_path)
    yield driver
    await driver.remembered.close()


@pytest.mark.parametrize(
    "token",
    [
        written_now(),
        written_now(gate="file"),
        written_now(gate="directory", listing="no_update"),
        ListToken([FILE, written_now(gate="file")]),
    ],
    ids=["stream", "gate", "directory", "list"],
)
async def test_the_time_of_a_reader_is_that_in_io(driver: Driver, token: Token) -> None:
    reader = job(0, part=Token(1), file=token)
    assert await driver.observe(reader, exited(IO)) == Observation(IO, WRITTEN)
    # The reader may have waited for nothing but its producer.
    assert await driver.observe(reader, exited(0.0)) == Observation(0.0, WRITTEN)


async def test_of_a_reader_whose_io_was_not_measured_nothing_is_learned(driver: Driver) -> None:
    reader = job(0, file=written_now())
    assert await driver.observe(reader, exited(None)) is None
    assert await driver.observe(reader, None) is None
    assert await driver.observe(reader, exited(IO), Status.FAILED) is None


async def test_the_time_of_another_job_is_its_duration(driver: Driver) -> None:
    for io in (IO, None):
        assert await driver.observe(job(0, file=FILE), exited(io)) == Observation(DURATION, WRITTEN)
    # A job that is run again reads what is there by now.
    assert await driver.observe(job(1, file=written_now()), exited(IO), Status.ROLLBACK) is None
    assert await driver.observe(job(1, file=FILE), exited(IO)) == Observation(DURATION, WRITTEN)
    abandoned = driver.jobs.new(job(2, file=written_now()))
    driver.jobs.submitted(abandoned, 0.0)
    driver.jobs.ended(abandoned, Status.CANCELLED, 1.0)
    assert await driver.observe(job(2, file=FILE), exited(IO)) == Observation(DURATION, WRITTEN)


@pytest.mark.parametrize(("token", "seconds"), [(written_now(), IO), (written_now(gate="file"), IO), (FILE, DURATION)])
async def test_what_is_learned_of_readers_is_their_time_in_io(driver: Driver, token: Token, seconds: float) -> None:
    await driver.observe(job(0, file=token), exited(IO))
    await driver.remembered.close()
    (epoch,) = (record for record in driver.records if isinstance(record, EpochRecord))
    assert (epoch.mean_seconds, epoch.jobs, epoch.registered) == (seconds, 1, True)


def test_each_measured_value_has_its_field_in_the_record() -> None:
    told = Usage(rchar=1, wchar=2, read_bytes=3, write_bytes=4, user=5, system=6, io=7, held=8, paused=9, pauses=10)
    assert usage_of(replace(exited(IO), usage=told)) == JobUsage(
        started=1000.0,
        ended=1000.0 + DURATION,
        bytes_read=1,
        bytes_written=2,
        storage_bytes_read=3,
        storage_bytes_written=4,
        cpu_seconds=11,
        io_seconds=7,
        held_seconds=8,
        paused_seconds=9,
        pauses=10,
    )
