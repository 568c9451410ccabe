"""The state that admission keeps of jobs."""

from __future__ import annotations

import gc
import tracemalloc

from msgspec.structs import replace

from streamflow_io.hints.bandwidth import StaticConstraint
from streamflow_io.hints.config import StorageConfig
from streamflow_io.storage.admission.admission import Admission
from streamflow_io.storage.admission.demand import AdmissionRequest, Demand, Placement
from streamflow_io.storage.admission.epochs import Observation

JOBS = 200


def test_an_ended_job_leaves_nothing() -> None:
    admission = Admission(JOBS)
    admission.set_locations("cluster", {"node": 1.0})
    storage = StorageConfig(name="shared", path="/shared", write=float(JOBS))
    demand = Demand("/step", True, StaticConstraint(1.0), "write", (Placement("cluster", storage),))

    def run(jobs: range) -> tuple[int, int]:
        """Let jobs wait, run and end.

        :return: bytes while all jobs wait, and after their end
        """
        for number in jobs:
            # A demand of its own for each job, as the adapter makes it.
            admission.submit(AdmissionRequest(f"/step/0.{number}", replace(demand)), 0.0)
        waiting, _ = tracemalloc.get_traced_memory()
        assert len(admission.decide(0.0)) == len(jobs)
        for number in jobs:
            admission.release(f"/step/0.{number}", 1.0, Observation(1.0))
        gc.collect()
        return waiting, tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        _, before = run(range(JOBS))
        # An emptied dictionary keeps its size: later jobs find room in it.
        waiting, ended = run(range(JOBS, 2 * JOBS))
    finally:
        tracemalloc.stop()
    assert ended - before < (waiting - before) / 10
