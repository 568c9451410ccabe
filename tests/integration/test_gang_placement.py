"""StreamFlow's scheduler as ours extends it, on hosts that there are not: where the jobs of gangs are put."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from streamflow.core.config import BindingConfig
from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import DeploymentConfig, ExecutionLocation, Target
from streamflow.core.persistence import Database, DatabaseLoadingContext
from streamflow.core.scheduling import AvailableLocation, Hardware, HardwareRequirement
from streamflow.core.workflow import Job, Status, Token, Workflow
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.step import CWLExecuteStep
from streamflow.deployment.connector.local import LocalConnector
from streamflow.ext.utils import load_extensions
from streamflow.main import build_context
from streamflow.workflow.port import JobPort
from typing_extensions import Self

from streamflow_io.adapters.tokens import StreamSource, StreamToken, file_value
from streamflow_io.engine.plan import GraphPlan, Plan, ProofsPlan, Service
from streamflow_io.engine.scheduler import IOAwareScheduler
from streamflow_io.graph.candidates import Candidate
from streamflow_io.graph.gangs import Gang
from streamflow_io.graph.io_graph import Step
from streamflow_io.hints.inheritance import StepAnnotations


class Hosts(LocalConnector):  # type: ignore[misc]
    """A deployment with hosts of some cores each; nothing is run on them."""

    def __init__(self, name: str, cores: Mapping[str, float]) -> None:
        super().__init__(name, "")
        self._cores = cores

    async def get_available_locations(self, service: str | None = None) -> MutableMapping[str, AvailableLocation]:
        return {
            name: AvailableLocation(
                name=name, deployment=self.deployment_name, hostname=name, hardware=Hardware(cores, 1000.0)
            )
            for name, cores in self._cores.items()
        }


def scheduling(directory: Path, **config: Any) -> tuple[StreamFlowContext, IOAwareScheduler]:
    """StreamFlow with the plugin's scheduler, without a run."""
    load_extensions()
    context = build_context(
        {
            "path": str(directory / "streamflow.yml"),
            "database": {"type": "default", "config": {"connection": ":memory:"}},
            "scheduling": {"scheduler": {"type": "sfio.io-aware", "config": config}},
        }
    )
    assert isinstance(context.scheduler, IOAwareScheduler)
    return context, context.scheduler


class Cores(HardwareRequirement):  # type: ignore[misc]
    def __init__(self, cores: float, memory: float = 0.0) -> None:
        self.cores = cores
        self.memory = memory

    def eval(self, job: Job) -> Hardware:
        return Hardware(self.cores, self.memory)

    @classmethod
    async def _load(cls, row: MutableMapping[str, Any], loading_context: DatabaseLoadingContext) -> Self:
        raise NotImplementedError

    async def _save_additional_params(self, database: Database) -> MutableMapping[str, Any]:
        raise NotImplementedError


STEPS = {path: Step(path) for path in ("/a", "/b", "/c", "/alone")}
GANG = Gang(("/a", "/b"), ("/a",), 1)
WIDE = Gang(("/a", "/b", "/c"), ("/a",), 1)


class Cluster:
    """A scheduler and its deployments.

    :ivar stdin: a step whose standard input is a stream without a hint
    """

    def __init__(
        self,
        directory: Path,
        deployments: Mapping[str, Mapping[str, float]],
        gang: Gang = GANG,
        annotations: Mapping[str, StepAnnotations] | None = None,
        stdin: str | None = None,
        **config: Any,
    ) -> None:
        self.context, self.scheduler = scheduling(directory, **{"oversubscribe": "gangs", **config})
        workflow = Workflow(self.context, {}, "main")
        graph = GraphPlan(STEPS, gangs=(gang,))
        proofs = ProofsPlan()
        if stdin is not None:
            step = workflow.create_step(
                CWLExecuteStep, stdin, job_port=workflow.create_port(JobPort), recoverable=False
            )
            step.command = CWLCommand(step=step, step_stdin="$(inputs.file.path)")
            proofs = ProofsPlan({stdin: Candidate("tool", ("file",))})
        service = Service(streams=True)
        self.scheduler.begin(Plan(workflow, annotations=annotations or {}, graph=graph, service=service, proofs=proofs))
        assert self.scheduler.run is not None
        self.run = self.scheduler.run
        self.targets = []
        for name, hosts in deployments.items():
            self.context.deployment_manager.deployments_map[name] = Hosts(name, hosts)
            self.targets.append(Target(DeploymentConfig(name, "ssh", {})))

    async def start(self, name: str, *producers: str, cores: float = 1, memory: float = 0) -> str:
        """Start a job that reads from others that run; return its host."""
        inputs = {producer: stream(producer) for producer in producers}
        job = Job(name, 1, inputs, "/in", "/out", "/tmp")
        await self.scheduler.schedule(job, BindingConfig(list(self.targets)), Cores(cores, memory))
        self.run.streaming_jobs.open(name, collect)
        await self.scheduler.notify_status(name, Status.RUNNING)
        (location,) = self.scheduler.get_locations(name)
        return str(location.name)

    async def end(self, name: str, status: Status = Status.COMPLETED) -> None:
        self.run.streaming_jobs.get(name).close()
        await self.scheduler.notify_status(name, status)


class Disks(Hosts):
    """Hosts of two cores, with KiB of free space."""

    def __init__(self, free: Mapping[str, int], **cores: float) -> None:
        super().__init__("hosts", {name: cores.get(name, 2) for name in free})
        self.free = dict(free)

    async def run(self, location: ExecutionLocation, *_: Any, **__: Any) -> tuple[str, int]:
        return f"none 1000000 0 {self.free[location.name]} 0% /", 0


async def collect(port: str, path: str) -> Token:
    raise NotImplementedError("nobody waits here for what is final")


def stream(producer: str) -> Token:
    return StreamToken(file_value("/out/a.txt"), StreamSource(producer, "out", "a.txt"))


pytestmark = pytest.mark.usefixtures("own_data")


TWO = {"hosts": {"n1": 2, "n2": 2}}


async def test_gangs_are_on_one_host_each(tmp_path: Path) -> None:
    """StreamFlow alone fills the first host with heads, and sends their consumers to the other."""
    cluster = Cluster(tmp_path, TWO)
    assert [await cluster.start("/a/0.0"), await cluster.start("/a/0.1")] == ["n1", "n2"]
    assert await cluster.start("/b/0.1", "/a/0.1") == "n2"
    assert await cluster.start("/b/0.0", "/a/0.0") == "n1"


async def test_a_neighbour_where_no_core_is_free(tmp_path: Path) -> None:
    """Members hold no cores, but use them: what they use is counted for those that come later."""
    cluster = Cluster(tmp_path, TWO, WIDE)
    assert await cluster.start("/a/0") == "n1"
    assert await cluster.start("/b/0", "/a/0") == "n1"
    assert await cluster.start("/c/0", "/b/0") == "n2"
    # The cores of `/b` are given back.
    await cluster.end("/b/0")
    assert await cluster.start("/c/1", "/a/0") == "n1"
    for name in ("/a/0", "/c/0", "/c/1"):
        await cluster.end(name)
    assert [await cluster.start(name) for name in ("/a/2", "/alone/0")] == ["n1", "n1"]


async def test_a_standard_input_without_a_hint_is_read_where_it_is_written(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, TWO, WIDE, stdin="/c")
    assert await cluster.start("/a/0") == "n1"
    assert await cluster.start("/b/0", "/a/0") == "n1"
    assert await cluster.start("/c/0", "/b/0") == "n1"


async def test_gangs_are_not_parted_where_they_cannot_read(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, TWO, WIDE)
    assert await cluster.start("/a/0") == "n1"
    assert await cluster.start("/b/0", "/a/0") == "n1"
    assert await cluster.start("/c/0", "/a/0") == "n2"
    reader = cluster.run.jobs.find("/c/0")
    assert reader is not None
    cluster.run.gangs.keep_together(reader, "/a/0")
    assert await cluster.start("/c/1", "/a/0") == "n1"


async def test_with_its_producer_where_no_core_is_free_at_all(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, {"hosts": {"n1": 1, "n2": 1}})
    assert [await cluster.start(f"/a/{number}") for number in range(2)] == ["n1", "n2"]
    assert await cluster.start("/b/1", "/a/1") == "n2"
    assert await cluster.start("/b/0", "/a/0") == "n1"


async def test_a_member_goes_where_its_memory_is(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, TWO)
    assert await cluster.start("/a/0", memory=600) == "n1"
    assert await cluster.start("/b/0", "/a/0", memory=600) == "n2"


async def test_without_oversubscription_a_member_takes_a_free_core(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, TWO, WIDE, oversubscribe="never")
    assert await cluster.start("/a/0") == "n1"
    assert await cluster.start("/b/0", "/a/0") == "n1"
    assert await cluster.start("/c/0", "/a/0") == "n2"


async def test_of_several_deployments_that_of_its_producer(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, {"one": {"n1": 2}, "other": {"n2": 2}})
    cluster.targets.reverse()
    assert await cluster.start("/a/0") == "n2"
    cluster.targets.reverse()
    assert await cluster.start("/b/0", "/a/0") == "n2"
    assert await cluster.start("/alone/0", "/a/0") == "n1"


async def test_a_job_that_fails_gives_back_what_it_used(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, TWO)
    assert await cluster.start("/a/0") == "n1"
    for number in range(5):
        assert await cluster.start(f"/b/{number}", "/a/0") == "n1"
        await cluster.end(f"/b/{number}", Status.FAILED)


async def test_a_host_is_busy_while_a_job_reads_from_it(tmp_path: Path) -> None:
    """The node runtime there serves the stream, also when its job has ended."""
    cluster = Cluster(tmp_path, {"hosts": {"h1": 1, "h2": 1}})
    producer = await cluster.start("/alone/0", memory=600)
    reader = await cluster.start("/c/0", "/alone/0", memory=600)
    assert producer != reader
    await cluster.end("/alone/0")
    assert cluster.scheduler.host_jobs("hosts").busy == {"h1", "h2"}
    await cluster.end("/c/0")
    assert cluster.scheduler.host_jobs("hosts").busy == set()


def with_disks(directory: Path, disks: Disks) -> Cluster:
    cluster = Cluster(directory, TWO)
    cluster.context.deployment_manager.deployments_map["hosts"] = disks
    return cluster


WARNED = "Job /alone/0 is tried again on another location. Its file system is full: 0 B are left for "


async def test_a_job_that_has_failed_on_a_full_disk_waits_for_a_host_with_space(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = with_disks(tmp_path, Disks({"n1": 0, "n2": 900_000, "n3": 2000}))
    assert await cluster.start("/alone/0") == "n1"
    # On a host with space, another failure is another matter.
    assert await cluster.start("/a/1", cores=2) == "n2"
    await cluster.end("/alone/0", Status.RECOVERY)
    again = asyncio.create_task(cluster.start("/alone/0"))
    # Starts where there is a core, after the other job has looked.
    assert await cluster.start("/alone/1") == "n1"
    assert not again.done()
    await cluster.end("/a/1")
    assert await again == "n2"
    (told,) = (record.message for record in caplog.records if "/alone/0 is tried" in record.message)
    assert told.startswith(f"{WARNED}/tmp/streamflow on hosts/n1. Remove files")


@pytest.mark.parametrize(
    "disks",
    [
        Disks({"n1": 900_000, "n2": 900_000}),
        Disks({"n1": 0, "n2": 0}),
        Disks({"n1": 0, "n2": 900_000}, n2=0.5),
    ],
    ids=["another failure", "all are full", "the other is too small"],
)
async def test_a_job_does_not_wait_for_another_host_in_vain(
    disks: Disks, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = with_disks(tmp_path, disks)
    assert await cluster.start("/alone/0") == "n1"
    await cluster.end("/alone/0", Status.RECOVERY)
    assert await cluster.start("/alone/0") == "n1"
    assert "is tried again" not in caplog.text


async def test_a_job_leaves_each_host_whose_disk_is_full(tmp_path: Path) -> None:
    disks = Disks({"n1": 0, "n2": 900_000, "n3": 800_000})
    cluster = with_disks(tmp_path, disks)
    for host in ("n1", "n2", "n3", "n1"):
        assert await cluster.start("/alone/0") == host
        disks.free[host] = 0
        await cluster.end("/alone/0", Status.RECOVERY)
