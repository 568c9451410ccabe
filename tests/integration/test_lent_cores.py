"""Cores that a job holds and does not use are lent: in StreamFlow's accounts, on a node, and in a run."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from streamflow.core.workflow import Status

from lab.cwl import Document, found, streaming, tool, workflow
from lab.node import Job as NodeJob
from lab.node import Node, wait_for
from lab.runs import Bench
from streamflow_io.hints.errors import Level, Located, Source
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.models import StorageBandwidth
from streamflow_io.records.jobs import LentRecord
from streamflow_io.runtime.protocol import CoresEvent
from streamflow_io.storage.lent_cores import LentCores
from tests.integration.test_gang_placement import Cluster

CORES = len(os.sched_getaffinity(0))


pytestmark = pytest.mark.usefixtures("own_data")


class LendingCluster(Cluster):
    """One host."""

    def __init__(self, directory: Path, cores: int = 2, annotated: str = "") -> None:
        bandwidth = Located(StorageBandwidth(storageBW=1), Level.TOOL, "sfio:StorageBandwidth", Source("w.cwl"))
        annotations = {annotated: StepAnnotations(annotated, storage_bandwidth=bandwidth)} if annotated else {}
        super().__init__(directory, {"hosts": {"n1": cores}}, annotations=annotations, oversubscribe="idle")

    @property
    def lent(self) -> LentCores:
        assert self.run.lent_cores is not None
        return self.run.lent_cores

    @property
    def cores(self) -> float:
        return float(self.scheduler.hardware_locations["n1"].cores)

    def say(self, job: str, needed: int) -> None:
        """The node runtime of a job says how many cores it needs, and has done so for long."""
        self.lent.event(self.run.jobs.find(job), CoresEvent(job="x", time=0.0, needed=needed))

    def borrowed(self, job: str) -> int:
        state = self.run.jobs.find(job)
        return 0 if state is None else self.lent.borrowed(state)

    async def has_started(self, name: str, memory: float = 0) -> asyncio.Task[str]:
        """A job that is scheduled; looks whether it starts."""
        task = asyncio.create_task(self.start(name, memory=memory))
        for _ in range(20):
            await asyncio.sleep(0.01)
        return task

    async def a_job_waits(self, cores: float = 1) -> None:
        """A job waits, another one works, and it is known how long such jobs take."""
        await self.start("/c/0.0")
        await self.end("/c/0.0")
        await self.start("/a/0.0", cores=cores)
        await self.start("/c/0.1")


async def test_a_core_that_is_idle_is_lent_and_taken_back(tmp_path: Path) -> None:
    cluster = LendingCluster(tmp_path)
    await cluster.a_job_waits()
    borrower = await cluster.has_started("/c/0.2")
    assert not borrower.done()
    cluster.say("/a/0.0", 0)
    assert await asyncio.wait_for(borrower, 10) == "n1"
    # The job is told all its cores, and StreamFlow's accounts have no more than there is.
    assert (cluster.scheduler.get_hardware("/c/0.2").cores, cluster.cores) == (1, 2)
    # A core that it needs again goes to its borrower before it goes to another one.
    cluster.say("/a/0.0", 1)
    other = await cluster.has_started("/c/0.3")
    await cluster.end("/c/0.1")
    await asyncio.sleep(0.1)
    assert (other.done(), cluster.cores) == (False, 2)
    assert (cluster.scheduler.get_hardware("/c/0.2").cores, cluster.borrowed("/c/0.2")) == (1, 0)
    await cluster.end("/c/0.2")
    assert await asyncio.wait_for(other, 10) == "n1"
    await cluster.end("/a/0.0")
    await cluster.end("/c/0.3", Status.FAILED)
    assert cluster.cores == 0
    await cluster.context.close()


async def test_memory_is_never_lent(tmp_path: Path) -> None:
    cluster = LendingCluster(tmp_path)
    await cluster.a_job_waits()
    cluster.say("/a/0.0", 0)
    task = await cluster.has_started("/c/0.2", memory=2000)
    assert not task.done()
    task.cancel()
    await cluster.context.close()


async def test_of_more_cores_only_those_that_are_lacking_are_lent(tmp_path: Path) -> None:
    cluster = LendingCluster(tmp_path, cores=8)
    records: list[object] = []
    cluster.lent._record = records.append
    await cluster.a_job_waits(cores=4)
    cluster.say("/a/0.0", 1)
    assert await cluster.start("/c/0.2", cores=5) == "n1"
    (record,) = records
    assert isinstance(record, LentRecord)
    assert (record.cores, record.lenders, record.job) == (2, ("/a/0.0",), "/c/0.2")
    assert (cluster.cores, cluster.scheduler.get_hardware("/c/0.2").cores) == (8, 5)
    # One that ends leaves what it had lent to the borrower.
    await cluster.end("/a/0.0")
    assert (cluster.cores, cluster.borrowed("/c/0.2")) == (6, 0)
    await cluster.end("/c/0.1")
    await cluster.end("/c/0.2")
    assert cluster.cores == 0
    await cluster.context.close()


@pytest.mark.parametrize("annotated", ["/a", "/c"])
async def test_one_with_a_storage_bandwidth_neither_lends_nor_borrows(tmp_path: Path, annotated: str) -> None:
    """The job's usage may be learned from."""
    cluster = LendingCluster(tmp_path, annotated=annotated)
    more_jobs = SimpleNamespace(terminated=False, get_input_ports=dict)
    cluster.context.scheduler.run._plan.workflow.steps[f"{annotated}/__schedule__"] = more_jobs
    await cluster.a_job_waits()
    cluster.say("/a/0.0", 0)
    task = await cluster.has_started("/c/0.2")
    assert not task.done()
    task.cancel()
    await cluster.context.close()


def needs(job: NodeJob) -> list[int]:
    return [int(str(event["needed"])) for event in job.events() if event["event"] == "cores"]


def test_a_node_says_how_many_cores_a_job_needs(runtime: Node) -> None:
    """The job sleeps, then all its processes compute, and so do processes of others that wait for them."""
    os.mkfifo(fifo := runtime.base / "in" / "go")
    busy = "timeout 2 sh -c 'while :; do :; done'"
    script = f"read go < {fifo}; ({busy} & {busy}; wait); sleep 5"
    began = time.monotonic()
    job = runtime.shell("j", script, observation={"cores": 3})
    wait_for(lambda: needs(job), "a job that sleeps")
    assert needs(job) == [0]
    assert time.monotonic() - began >= 1.5
    fifo.write_text("go\n")
    fifo.unlink()
    assert job.wait(60) == 0
    told = needs(job)
    # All three, if a program that starts was seen while it waited for a disk.
    assert max(told) >= 1
    assert told[-1] == 0


def test_a_source_that_waits_lends_its_core(bench: Bench) -> None:
    """Two jobs run at once on the one core that is left, while the job that they read from holds the others."""
    cores = {"class": "ResourceRequirement", "coresMin": max(1, CORES - 1)}
    # Without the plugin the source ends before they begin, and does not wait.
    wait = "until [ -z $SFIO_JOB ] || [ -e $TRACE.two ] || [ $((n += 1)) = 400 ]; do sleep 0.1; done; note waited"
    write = "for i in 1 2 3 4 5 6 7 8; do echo $i > $i.part; done"
    rule = streaming({"port": "parts", "committed": "on_close"})
    source = tool(f"{write}; {wait}", {}, {"parts": found("*.part", "File[]")}, [rule], requirements=[cores])
    here = "$TRACE.runs.$name"
    meet = f"mkdir {here}; sleep 0.8; set -- $TRACE.runs.*; [ $# = 1 ] || touch $TRACE.two; rmdir {here}"
    work = tool(
        f"name=$(cat $part); note begins; {meet}; note ends; cat $part",
        {"part": "File"},
        {"out": "stdout"},
        stdout="out.txt",
    )
    steps: dict[str, Document] = {
        "a": {"run": source, "in": {}},
        "b": {"run": work, "in": {"part": "a/parts"}, "scatter": "part"},
    }
    _, ours = bench.run_both(workflow({}, steps, {"out": "b/out"}))
    running = most = 0
    for when, what in ours.trace:
        running += {"begins": 1, "ends": -1}.get(what, 0)
        most = max(most, running) if when < ours.time("waited") else most
    assert most == 2
