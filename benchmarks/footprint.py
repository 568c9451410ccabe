"""The memory that the driver's decisions need for a job, by what the job does."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

from streamflow_io.admission.admission import Admission
from streamflow_io.admission.demand import Demand, Placement, Request
from streamflow_io.admission.observations import Observation
from streamflow_io.hints.bandwidth import StaticConstraint
from streamflow_io.hints.config import StorageConfig
from streamflow_io.run.attempts import StreamingJobs

from .simulated_work import begin_streaming, end_streaming

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

    waiting, running, ended = _allocated(submit, start, end)
    return {"bytes_per_waiting_job": waiting, "bytes_per_running_job": running, "bytes_per_ended_job": ended}


async def _streaming() -> dict[str, float]:
    jobs = StreamingJobs()

    def begin() -> None:
        for number in range(JOBS):
            begin_streaming(jobs, f"/step/0.{number}")

    def end() -> None:
        for number in range(JOBS):
            end_streaming(jobs, f"/step/0.{number}")

    begun, ended = _allocated(begin, end)
    return {"bytes_per_streaming_job": begun, "bytes_per_ended_streaming_job": ended}


def _allocated(*actions: Callable[[], None]) -> list[float]:
    """Bytes for a job after each of the actions."""
    after: list[float] = []
    tracemalloc.start()
    try:
        for action in actions:
            action()
            gc.collect()
            after.append(tracemalloc.get_traced_memory()[0] / JOBS)
    finally:
        tracemalloc.stop()
    return after
