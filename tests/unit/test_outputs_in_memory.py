"""The files of jobs in the memory of several nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
from streamflow.core.scheduling import AvailableLocation, Hardware

from lab.jobs import job_state
from streamflow_io.adapters.jobs import JobState
from streamflow_io.graph.memory_steps import MemoryPlan
from streamflow_io.runtime.node_runtime import NodeJob, NodeRuntime
from streamflow_io.runtime.protocol import Memory
from streamflow_io.storage.intermediates import memory
from streamflow_io.storage.intermediates.disk_ledger import StepSizes
from streamflow_io.storage.intermediates.learned_sizes import JobSize
from streamflow_io.storage.intermediates.memory import OutputsInMemory

GB = 2**30


class Node:
    """The node runtime of a node, where each job writes more than it was granted.

    :ivar answers: set while the node answers
    """

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.answers.set()

    def check(self) -> None:
        pass

    async def memory_of_run(self, names: Sequence[str] = ()) -> Memory:
        await self.answers.wait()
        return Memory(directory=Path("/dev/shm/run"), space=GB, free=GB, held=(GB,) * len(names))


class Attempt:
    def __init__(self) -> None:
        self.cancelled = asyncio.Event()

    async def cancel(self) -> None:
        self.cancelled.set()


async def test_a_node_that_is_silent_delays_no_look_at_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_PERIOD", 0.01)
    nodes = {"n1": Node(), "n2": Node()}
    sizes = StepSizes()
    sizes.measured("/a", 10, 10)

    async def runtime_of(job: JobState) -> NodeRuntime:
        return cast(NodeRuntime, nodes[job.places[0].name])

    used = {name: Hardware(1.0, 1.0) for name in nodes}
    outputs = OutputsInMemory(MemoryPlan(GB, {"/a": 0}), sizes, used, lambda: None, runtime_of)

    async def start(name: str, node: str) -> Attempt:
        job = job_state(name, location=node)
        job.job.output_directory = None
        job.places = [AvailableLocation(node, "site", node, hardware=Hardware(1.0, 2048.0))]
        job.keep(JobSize(10, 10))
        outputs.submitted(job)
        await outputs.choose_directory(job)
        job.node_job = cast(NodeJob, attempt := Attempt())
        return attempt

    try:
        first = await start("/a/0", "n1")
        await asyncio.wait_for(first.cancelled.wait(), 30)
        silent = await start("/a/1", "n1")
        nodes["n1"].answers.clear()
        for number in range(2, 5):
            other = await start(f"/a/{number}", "n2")
            await asyncio.wait_for(other.cancelled.wait(), 30)
        assert not silent.cancelled.is_set()
    finally:
        await outputs.run_closed()


async def test_what_a_job_was_granted_is_taken_back_when_it_has_run_again_elsewhere() -> None:
    sizes = StepSizes()
    sizes.measured("/a", 10, 10)
    nodes = {"n1": Node(), "n2": Node()}

    async def runtime_of(job: JobState) -> NodeRuntime:
        return cast(NodeRuntime, nodes[job.places[0].name])

    used = {name: Hardware(1.0, 1.0) for name in nodes}
    outputs = OutputsInMemory(MemoryPlan(GB, {"/a": 0}), sizes, used, lambda: None, runtime_of)
    jobs = []
    try:
        for node in nodes:
            job = job_state("/a/0", location=node)
            job.job.output_directory = None
            job.places = [AvailableLocation(node, "site", node, hardware=Hardware(1.0, 2048.0))]
            job.keep(JobSize(10, 10))
            outputs.submitted(job)
            await outputs.choose_directory(job)
            outputs.ended(job)
            jobs.append(job)
        directories = [job.job.output_directory for job in jobs]
        assert directories[0] is not None
        assert directories[1] is None, "the next attempt writes to the disk"
        charged = used["n1"].memory
        # The second attempt is smaller: this says nothing about the files of the first one.
        outputs.measured({}, {jobs[1]: 5})
        assert used["n1"].memory == charged > 1.0
        outputs.measured({}, {jobs[0]: 2**20})
        assert used["n1"].memory == 2.0
        outputs.removed(directories[:1])
        outputs.measured({}, {})
        assert {name: hardware.memory for name, hardware in used.items()} == {"n1": 1.0, "n2": 1.0}
    finally:
        await outputs.run_closed()
