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
    tracemalloc.start()
    try:
        for number in range(JOBS):
            # A demand of its own for each job, as the adapter makes it.
            admission.submit(AdmissionRequest(f"/step/0.{number}", replace(demand)), 0.0)
        waiting, _ = tracemalloc.get_traced_memory()
        assert len(admission.decide(0.0)) == JOBS
        for number in range(JOBS):
            admission.release(f"/step/0.{number}", 1.0, Observation(1.0))
        gc.collect()
        ended, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert ended < waiting / 4
