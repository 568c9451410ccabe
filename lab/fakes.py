"""A run, node runtimes, a step and its jobs that only remember what was done; no process runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

from streamflow.core.deployment import Connector, ExecutionLocation
from streamflow.core.workflow import Job, Status, Token
from streamflow.cwl.processor import CWLCommandOutput, CWLCommandOutputProcessor
from streamflow.scheduling.scheduler import JobAllocation

from lab.jobs import allocation
from streamflow_io.adapters.attempts import Attempt, StreamingJobs
from streamflow_io.adapters.jobs import Jobs, JobState, Listener
from streamflow_io.adapters.outputs import EarlyOutput
from streamflow_io.adapters.tokens import PartToken, StreamSource, StreamToken, file_value
from streamflow_io.engine.context import JobWarnings
from streamflow_io.graph.io_graph import Delivery, OutputKind
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.models import StreamingRule
from streamflow_io.jobs.awaited_streams import AwaitedStreams
from streamflow_io.jobs.execution import Execution
from streamflow_io.jobs.failure import Failure
from streamflow_io.jobs.full_disks import FullDisks
from streamflow_io.jobs.job_runner import JobRunner
from streamflow_io.jobs.learned_streams import LearnedStreams
from streamflow_io.jobs.programs import Programs
from streamflow_io.jobs.reach import Reach
from streamflow_io.jobs.recorder import JobRecorder
from streamflow_io.jobs.short_jobs import ShortJobs
from streamflow_io.parts.splitting import Cuts
from streamflow_io.records.learned.proofs import RememberedProofs
from streamflow_io.records.records import Record
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeJob, NodeRuntime
from streamflow_io.runtime.protocol import PartitionedInput


class FakeRuntime(NodeRuntime):
    """A node runtime whose jobs do what the test says.

    :ivar jobs: those that were created
    :ivar specs: what they were told, by identifier
    :ivar limits: what they were told later, as identifier and limits
    :ivar obstacles: why a runtime is not reached, by its location
    :ivar ran: the commands that were run there
    :ivar answer: what each of these says, and its exit code
    """

    def __init__(self, location: str, wrapper: Any = "exec") -> None:
        super().__init__(location, "/bin/sfio-node", PurePosixPath("/run", location), "10.0.0.1:7000")
        self.wrapper = wrapper
        self.jobs: list[NodeJob] = []
        self.specs: dict[str, Any] = {}
        self.limits: list[tuple[str, Any]] = []
        self.obstacles: dict[str, str] = {}
        self.ran: list[list[str]] = []
        self.answer = ("", 0)

    async def check_workdir(self, workdir: str) -> None:
        pass

    async def create_job(self, name: str, *options: Any) -> NodeJob:
        self.jobs.append(await super().create_job(name, *options))
        return self.jobs[-1]

    async def _obstacle_of_link(self, other: NodeRuntime, why: str | None) -> str | None:
        return self.obstacles.get(other.location)

    async def close(self) -> None:
        self.lose("closed")

    async def write_spec(self, job: NodeJob, text: str) -> None:
        self.specs[job.identifier] = json.loads(text)

    async def has_events(self, job: NodeJob) -> bool:
        return False

    async def run(self, words: list[str], seconds: float) -> tuple[str, int]:
        self.ran.append(words)
        return self.answer

    async def request_cancel(self, job: NodeJob) -> None:
        self.exit(job, reason="cancelled")

    async def write_limits(self, job: NodeJob, text: str) -> None:
        self.limits.append((job.identifier, json.loads(text)))

    def tell(self, job: NodeJob, event: str, **fields: Any) -> None:
        self.receive(json.dumps({"job": job.identifier, "time": 0, "event": event, **fields}).encode())

    def start(self, job: NodeJob) -> None:
        self.tell(job, "started", pid=1)

    def exit(self, job: NodeJob, **fields: Any) -> None:
        self.tell(job, "exit", **{"ended": 0.0, "success": False, "reason": "exited", **fields})


class FakeConnector(Connector):  # type: ignore[misc]
    """Runs a command by asking the test.

    :ivar commands: those that ran
    """

    def __init__(self, act: Callable[[int], Awaitable[int]]) -> None:
        super().__init__("fake", "", 1)
        self.commands: list[dict[str, Any]] = []
        self._act = act

    async def run(self, location: ExecutionLocation, command: list[str], **options: Any) -> tuple[str, int]:
        self.commands.append({"command": command, **options})
        return "said", await self._act(len(self.commands))


for _name in Connector.__abstractmethods__ - {"run"}:
    setattr(FakeConnector, _name, lambda *_, **__: NotImplemented)
FakeConnector.__abstractmethods__ = frozenset()


class Places(dict[str, JobAllocation]):
    """Where jobs run: at the location `here`, unless a test puts them elsewhere."""

    def put(self, job_name: str, location: str) -> None:
        self[job_name] = allocation(job_name, location)

    def __missing__(self, job_name: str) -> JobAllocation:
        self.put(job_name, "here")
        return self[job_name]


class FakeRun:
    """A run on node runtimes of a test. Its jobs tell the recorder, the warnings, and the listeners of the test.

    :ivar kept_together: the jobs that were not to be put so that one cannot read from the other
    :ivar records: what was recorded

    :param annotations: the hints, by step
    :param listeners: of the test
    :param runtimes: by the name of a location; where there is none, none can be started
    """

    def __init__(
        self,
        annotations: Mapping[str, StepAnnotations] | None = None,
        /,
        *listeners: Listener,
        **runtimes: FakeRuntime,
    ) -> None:
        self.places = Places()
        self.kept_together: list[tuple[str, str]] = []
        self.records: list[Record] = []
        self.config = SchedulerConfig()
        self.failure = Failure(cast(Any, None), self.places)
        self.full_disks = FullDisks(lambda _: None, lambda _, path: path)
        self.scheduled_space = None
        self.streaming_jobs = StreamingJobs()
        self.reach = self.new_reach(runtimes)
        self.recorder = JobRecorder(cast(Any, None), False, self.records.append)
        self.part_ways = NoParts()
        self.cuts = Cuts(cast(Any, self.part_ways), self.records.append)
        self.jobs = Jobs(annotations or {}, (self.recorder, *listeners, JobWarnings(), self.reach))
        self.runner = JobRunner(self.jobs, self.reach, self.recorder, self.cuts)
        self.sessions = NoSessions()
        streams = LearnedStreams({}, {}, (), RememberedProofs(Path("/nowhere"), ()), Programs())
        awaited = AwaitedStreams(streams, self.streaming_jobs, ())
        self.proofs = SimpleNamespace(streams=streams, short_jobs=ShortJobs(()), awaited=awaited, rehearsals=None)

    def new_reach(self, runtimes: Mapping[str, FakeRuntime]) -> Reach:
        return Reach(
            cast(Any, FakeRuntimes(runtimes)),
            lambda reader, producer: self.kept_together.append((reader.name, producer)),
            self.records.append,
        )

    def state(self, job: Job | str) -> JobState:
        """A job that has been placed."""
        if isinstance(job, str):
            job = Job(job, 1, {}, "/in", "/out", "/tmp")
        if (state := self.jobs.find(job.name)) is None:
            state = self.jobs.new(job)
            self.jobs.submitted(state, 0.0)
            self.jobs.placed(state, self.places[job.name], (), 1.0)
        return state


class NoSessions:
    """Nothing is read ahead."""

    async def split(self, job: JobState, partitions: Sequence[PartitionedInput], runtime: NodeRuntime) -> None:
        pass

    def split_ended(self, job: JobState) -> None:
        pass


class NoParts:
    """No job reads a part."""

    def link(self, reader: NodeRuntime, token: PartToken) -> None:
        raise AssertionError(token)


class FakeRuntimes:
    """The node runtimes of a test, by the name of a location."""

    def __init__(self, runtimes: Mapping[str, FakeRuntime]) -> None:
        self._runtimes = runtimes

    @property
    def deployments(self) -> FakeRuntimes:
        return self

    def where(self, location: ExecutionLocation) -> str:
        return f"on {location}"

    async def at(self, location: ExecutionLocation, workdir: str | None = None) -> NodeRuntime:
        if location.name not in self._runtimes:
            raise NodeRuntimeError("not for this architecture")
        return self._runtimes[location.name]

    for_streams_at = at


class FakeScheduler:
    """The part of StreamFlow's scheduler that steps and commands use."""

    def __init__(self, run: FakeRun) -> None:
        self.run = run
        self.connectors: dict[str, Connector] = {}

    def get_locations(self, job_name: str) -> list[ExecutionLocation]:
        return list(self.run.places[job_name].locations)

    def get_connector(self, job_name: str) -> Connector:
        return self.run.runner.connector(self.run.state(job_name), self.connectors[job_name])

    def get_hardware(self, job_name: str) -> None:
        return None


class FakeStep:
    """A step with one output, `out.txt`.

    :ivar delivered: the ports on which something was delivered, in order
    :ivar tokens: what was delivered on each
    """

    name = "/step"
    tells_paths = False

    def __init__(self, run: FakeRun, act: Callable[[int], Awaitable[int]], *deliveries: Delivery) -> None:
        self.connector = FakeConnector(act)
        self.run = run
        self.scheduler = scheduler = FakeScheduler(run)
        deployments = SimpleNamespace(get_connector=lambda name: None)
        self.workflow = SimpleNamespace(
            context=SimpleNamespace(
                scheduler=scheduler, failure_manager=SimpleNamespace(), deployment_manager=deployments
            )
        )
        rule = StreamingRule(port="out", mode="no_update")
        self.early_outputs = (EarlyOutput(port="out", kind=OutputKind.FILE, rules=(rule,), deliveries=deliveries),)
        self.streamable: tuple[str, ...] = ()
        processor = CWLCommandOutputProcessor("out", cast(Any, None), token_type="File", glob="out.txt", single=True)
        self.output_processors = {"out": processor}
        self.command = SimpleNamespace(
            success_codes=None, failure_codes=None, initial_work_dir=None, execute=self._execute
        )
        self.delivered: list[str] = []
        self.tokens: dict[str, Token] = {}

    def job(self, name: str, **inputs: Token) -> Execution:
        """The execution of a job."""
        self.scheduler.connectors[name] = self.connector
        job = Job(name, 1, inputs, "/in", "/out", "/tmp")
        self.run.state(job)
        return Execution(cast(Any, self.run), cast(Any, self), job, {})

    async def _execute(self, job: Job) -> CWLCommandOutput:
        connector = self.scheduler.get_connector(job.name)
        location = self.scheduler.get_locations(job.name)[0]
        streams = {"stdout": "out.txt", "stderr": "out.txt"}
        result, code = await connector.run(location, ["tool"], workdir="/out", job_name=job.name, **streams)
        return CWLCommandOutput(result, Status.COMPLETED if code == 0 else Status.FAILED)

    async def collect(self, job: Job, *_: Any) -> dict[str, Token]:
        value = {**file_value(f"{job.output_directory}/out.txt"), "checksum": "sha1$0", "size": 1}
        return {"out": Token(value)}

    async def deliver_regular(self, job: Job, tokens: dict[str, Token]) -> None:
        for port, token in tokens.items():
            await self.deliver(job, port, token)

    async def deliver(self, job: Job, port: str, token: Token) -> None:
        self.delivered.append(port)
        self.tokens[port] = token


def stream_token(**source: Any) -> StreamToken:
    """A stream of `out.txt`."""
    return StreamToken(file_value("/out/out.txt"), StreamSource("/a/0", "out", "out.txt", **source))


def commit(attempt: Attempt, port: str, path: str | None = None) -> None:
    """An attempt commits a file, or an output as a whole."""
    attempt.committed = {*attempt.committed, (port, path)}
    attempt.settle(port, path)


async def until(condition: Callable[[], object]) -> None:
    """Let others run until something holds; a minute at most."""
    for _ in range(60_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it does not come to hold")
