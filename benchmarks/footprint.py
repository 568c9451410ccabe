"""The memory that the driver's decisions need for a job, by what the job does."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from streamflow_io.hints.bandwidth import StaticConstraint
from streamflow_io.hints.config import StorageConfig
from streamflow_io.scheduling.admission import Admission
from streamflow_io.scheduling.demand import Demand, Placement, Request
from streamflow_io.scheduling.observations import Observation
from streamflow_io.streaming.jobs import StreamingJobs

JOBS = 2_000
_POOL = "cluster"


def footprints() -> dict[str, float]:
    """Bytes per job: an I/O task that waits, runs, has ended; a job that streams, and one that has ended."""
    return _admission() | asyncio.run(_streaming())


def _admission() -> dict[str, float]:
    admission = Admission(JOBS)
    admission.set_locations(_POOL, {"node": 1.0})
    storage = StorageConfig(name="shared", path="/shared", write=float(JOBS))
    demand = Demand("/step", True, StaticConstraint(1.0), "write", (Placement(_POOL, storage),))

    def submit() -> None:
        for number in range(JOBS):
            # A demand of its own for each job, as the adapter makes it.
            admission.submit(Request(f"/step/0.{number}", replace(demand)), 0.0)

    def start() -> None:
        assert len(admission.decide(0.0)) == JOBS

    def end() -> None:
        for number in range(JOBS):
            admission.release(f"/step/0.{number}", 1.0, Observation(1.0))

    waiting, taken, ended = (_allocated(action) for action in (submit, start, end))
    return {
        "bytes_per_waiting_job": waiting / JOBS,
        "bytes_per_running_job": (waiting + taken) / JOBS,
        "bytes_per_ended_job": (waiting + taken + ended) / JOBS,
    }


async def _streaming() -> dict[str, float]:
    jobs = StreamingJobs()

    def begin() -> None:
        for number in range(JOBS):
            directory = Path(f"/scratch/step/0.{number}")
            jobs.open(f"/step/0.{number}").begin(directory, directory / "events.jsonl")

    def end() -> None:
        for number in range(JOBS):
            record = jobs.get(f"/step/0.{number}")
            record.latest.commit("output", "data")
            record.latest.end(True)
            record.close()

    begun, ended = (_allocated(action) for action in (begin, end))
    return {"bytes_per_streaming_job": begun / JOBS, "bytes_per_ended_streaming_job": (begun + ended) / JOBS}


def _allocated(action: Callable[[], None]) -> int:
    """Bytes that an action allocates and does not free."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        action()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before
