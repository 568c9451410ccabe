"""The work of the simulation: lanes of steps that use all that is decided about, and how long their jobs take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from random import Random

from streamflow.core.workflow import Token

from streamflow_io.admission.demand import Demand, Placement
from streamflow_io.hints.bandwidth import AutoConstraint, Bounds, StaticConstraint, StorageBW
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.models import Direction
from streamflow_io.run.attempts import StreamingJobs

POOL = "cluster"
CORES_PER_NODE = 16
STEPS_PER_LANE = 8
_SHARED_PER_NODE = 50.0
_SSD = 400.0
_SSD_JOB = 200.0
_SSD_CONGESTION = 0.05
_VARIATION = 0.05


@dataclass(frozen=True)
class Size:
    """How large the simulated cluster and the run on it are.

    :ivar jobs: of all steps together; a multiple of :data:`STEPS_PER_LANE`, or some fewer are run
    :ivar lanes: chains of steps that run side by side
    """

    nodes: int
    jobs: int
    lanes: int = 3

    def __str__(self) -> str:
        return f"{self.nodes:,} nodes, {self.jobs:,} jobs, {self.lanes * STEPS_PER_LANE} steps"


@dataclass(frozen=True)
class Step:
    """A step of a lane; each of its jobs follows a job of the step before.

    :ivar demand: of its jobs; none: they have no storageBW, and StreamFlow alone decides
    :ivar seconds: how long a job computes
    :ivar megabytes: what it moves besides
    :ivar is_streamed: the job of the next step reads while this one writes
    """

    name: str
    demand: Demand | None
    seconds: float = 0.0
    megabytes: float = 0.0
    is_streamed: bool = False


def lanes(size: Size) -> list[Step]:
    """The steps of all lanes, :data:`STEPS_PER_LANE` in each. Lanes are alike but for their constraints.

    A cluster of twice as many nodes has a shared storage of twice the bandwidth.
    """
    total = _SHARED_PER_NODE * size.nodes
    shared = StorageConfig(name="shared", path="/shared", write=total, read=total)
    node = StorageConfig(name="ssd", path="/ssd", scope="node", write=_SSD, read=_SSD)
    return [step for number in range(size.lanes) for step in _lane(number, shared, node)]


def _lane(number: int, shared: StorageConfig, node: StorageConfig) -> list[Step]:
    def step(
        name: str,
        storage: StorageConfig,
        constraint: StorageBW,
        direction: Direction,
        megabytes: float,
        seconds: float = 0.0,
    ) -> Step:
        path, io_task = f"/lane{number}/{name}", seconds == 0
        demand = Demand(path, io_task, constraint, direction, (Placement(POOL, storage),))
        return Step(path, demand, seconds, megabytes)

    return [
        step("fetch", shared, StaticConstraint(20.0 + number % 10), "read", 1000),
        Step(f"/lane{number}/simulate", None, 300, is_streamed=True),
        Step(f"/lane{number}/analyse", None, 5),
        step("merge", node, StaticConstraint(30.0 + number % 10), "write", 500, seconds=60),
        step("checkpoint", node, AutoConstraint(), "write", 2000),
        Step(f"/lane{number}/index", None, 30),
        step("archive", shared, AutoConstraint(Bounds(5.0 + number % 10, 60.0, 2.0)), "write", 1000),
        step("publish", shared, StaticConstraint(10.0 + number % 10), "both", 500),
    ]


def begin_streaming(jobs: StreamingJobs, name: str) -> None:
    """The first attempt of a job that others read from begins."""
    jobs.open(name, _collect).begin(PurePosixPath("/scratch", name[1:]))


async def _collect(port: str, path: str) -> Token:
    raise NotImplementedError("nobody waits for the end of a whole file here")


def end_streaming(jobs: StreamingJobs, name: str) -> None:
    """It has committed its file, and succeeded."""
    job = jobs.get(name)
    job.latest.committed = {("output", "data")}
    job.latest.settle("output", "data")
    job.latest.end(True)
    job.close()


class Durations:
    """How long jobs take; the same for the same calls in the same order."""

    def __init__(self) -> None:
        self._random = Random(1)

    def seconds(self, step: Step, constraint: float | None, running: int) -> float:
        """Of a job that starts.

        A shared storage gives a job what it was admitted with; that of a node is congested by many jobs.

        :param constraint: MB/s that it was admitted with
        :param running: I/O tasks on its node, with this one
        """
        seconds = step.seconds
        if step.demand is not None and constraint is not None:
            storage = step.demand.placements[0].storage
            assert storage is not None
            rate = constraint
            if storage.scope == "node":
                congested = _SSD / (1 + _SSD_CONGESTION * max(0.0, running - _SSD / _SSD_JOB))
                rate = min(_SSD_JOB, congested / max(running, 1))
            seconds += step.megabytes / rate
        return seconds * self._random.uniform(1 - _VARIATION, 1 + _VARIATION)
