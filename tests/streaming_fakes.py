"""A scheduler, node runtimes, a step and its jobs that only remember what was done; no process runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

from streamflow.core.deployment import Connector, ExecutionLocation
from streamflow.core.workflow import Job, Status, Token
from streamflow.cwl.processor import CWLCommandOutput, CWLCommandOutputProcessor

from streamflow_io.graph.io_graph import Delivery, OutputKind
from streamflow_io.hints.models import StreamingRule
from streamflow_io.run.attempts import StreamingJobs
from streamflow_io.run.execution import Execution
from streamflow_io.run.outputs import EarlyOutput
from streamflow_io.run.reach import Reach
from streamflow_io.run.tokens import StreamSource, StreamToken, file_value
from streamflow_io.runtime import NodeJob, NodeRuntime, NodeRuntimeError


class FakeRuntime(NodeRuntime):
    """A node runtime whose jobs do what the test says.

    :ivar jobs: those that were created
    :ivar specs: what they were told, by identifier
    :ivar obstacles: why a runtime is not reached, by its location
    :ivar ran: the commands that were run there
    :ivar answer: what each of these says, and its exit code
    """

    def __init__(self, location: str, wrapper: Any = "exec") -> None:
        super().__init__(location, "/bin/sfio-node", PurePosixPath("/run", location), "10.0.0.1:7000")
        self.wrapper = wrapper
        self.jobs: list[NodeJob] = []
        self.specs: dict[str, Any] = {}
        self.obstacles: dict[str, str] = {}
        self.ran: list[list[str]] = []
        self.answer = ("", 0)

    async def create_job(self, name: str, *options: Any) -> NodeJob:
        self.jobs.append(await super().create_job(name, *options))
        return self.jobs[-1]

    async def obstacle(self, other: NodeRuntime) -> str | None:
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

    def tell(self, job: NodeJob, event: str, **fields: Any) -> None:
        self.receive(json.dumps({"job": job.identifier, "time": 0, "event": event, **fields}).encode())

    def start(self, job: NodeJob) -> None:
        self.tell(job, "started", pid=1)

    def exit(self, job: NodeJob, **fields: Any) -> None:
        self.tell(job, "exit", **{"success": False, "reason": "exited", **fields})


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


class FakeScheduler:
    """All jobs of a test are on one location, unless :attr:`places` says another.

    :param runtimes: by the name of a location; where there is none, none can be started
    """

    def __init__(self, **runtimes: FakeRuntime) -> None:
        self.runtimes = runtimes
        self.places: dict[str, str] = {}
        self.connectors: dict[str, Connector] = {}
        self.kept_together: list[tuple[str, str]] = []
        self.streaming_jobs = StreamingJobs()
        self.reach = Reach(cast(Any, self))
        self.capio = None
        self.config = SimpleNamespace(verify="full")

    async def node_runtime(self, job_name: str) -> NodeRuntime:
        (location,) = self.get_locations(job_name)
        if location.name not in self.runtimes:
            raise NodeRuntimeError("not for this architecture")
        return self.runtimes[location.name]

    def get_locations(self, job_name: str) -> list[ExecutionLocation]:
        return [ExecutionLocation(self.places.get(job_name, "here"), "site")]

    def keep_together(self, reader: str, producer: str) -> None:
        self.kept_together.append((reader, producer))

    def get_connector(self, job_name: str) -> Connector:
        return self.connectors[job_name]

    def get_hardware(self, job_name: str) -> None:
        return None

    @contextlib.contextmanager
    def connected(self, job_name: str, connector: Connector) -> Iterator[None]:
        inner, self.connectors[job_name] = self.connectors[job_name], connector
        yield
        self.connectors[job_name] = inner

    def is_measured(self, job_name: str) -> bool:
        return False

    def observed(self, spec: Any, step: Any, job: Job) -> Any:
        return spec

    def measured(self, job_name: str, exit_event: Any) -> None:
        pass

    happened = measured

    def fails(self, job_name: str, reason: str) -> None:
        pass


class FakeStep:
    """A step with one output, `out.txt`.

    :ivar delivered: the ports on which something was delivered, in order
    :ivar tokens: what was delivered on each
    """

    def __init__(self, scheduler: FakeScheduler, act: Callable[[int], Awaitable[int]], *deliveries: Delivery) -> None:
        self.connector = FakeConnector(act)
        self.scheduler = scheduler
        manager = SimpleNamespace()
        self.workflow = SimpleNamespace(context=SimpleNamespace(scheduler=scheduler, failure_manager=manager))
        rule = StreamingRule(port="out", mode="no_update")
        self.early_outputs = (EarlyOutput(port="out", kind=OutputKind.FILE, rules=(rule,), deliveries=deliveries),)
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
        return Execution(cast(Any, self), job, {})

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


def stream_token(job: str = "/a/0", **source: Any) -> StreamToken:
    """A stream of `out.txt`."""
    return StreamToken(file_value("/out/out.txt"), StreamSource(job, "out", "out.txt", **source))


async def until(condition: Callable[[], object]) -> None:
    """Let others run until something holds; a minute at most."""
    for _ in range(60_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it does not come to hold")
