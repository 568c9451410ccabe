"""A job of a streaming step gets the inputs of its own tag, in whatever order they come."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from streamflow.core.workflow import Job, Port, Status, Token
from streamflow.workflow.port import JobPort
from streamflow.workflow.token import TerminationToken

from streamflow_io.adapters.steps import StreamingExecuteStep


class Step(StreamingExecuteStep):
    """:ivar ran: the jobs that were run, with the values of their inputs"""

    def __init__(self, jobs: JobPort, inputs: dict[str, Port]) -> None:
        self.name, self.status, self.terminated = "/b", Status.WAITING, False
        self.ran: list[tuple[str, dict[str, Any]]] = []
        self.output_connectors: dict[str, str] = {}
        self.output_processors = {}
        self._ports = {"__job__": jobs, **inputs}

    def get_input_ports(self) -> dict[str, Port]:
        return self._ports

    def get_output_ports(self) -> dict[str, Port]:
        return {}

    def get_input_port(self, name: str | None = None) -> Port:
        return self._ports[name or "__job__"]

    async def _set_status(self, status: Status) -> None:
        self.status = status

    async def _run_job(self, job: Job, inputs: dict[str, Token], connectors: Any) -> Status:
        self.ran.append((job.name, {name: token.value for name, token in inputs.items()}))
        return Status.COMPLETED

    async def terminate(self, status: Status) -> None:
        self.status = status


def port(cls: type[Port], tokens: list[Token]) -> Any:
    made = cls(cast(Any, SimpleNamespace()), "p")
    for token in [*tokens, TerminationToken(Status.COMPLETED)]:
        made.put(token)
    return made


def step(count: int, **orders: list[int]) -> Step:
    jobs = [Token(Job(f"/b/0.{number}", 1, {}, "/in", "/out", "/tmp")) for number in range(count)]
    inputs = {
        name: port(Port, [Token(f"{name}{number}", tag=f"0.{number}") for number in order])
        for name, order in orders.items()
    }
    return Step(port(JobPort, jobs), inputs)


ORDER = st.permutations(range(5))


@given(ORDER, ORDER)
def test_each_job_runs_once_with_its_own_inputs(one: list[int], other: list[int]) -> None:
    tested = step(5, x=one, y=other)
    asyncio.run(tested.run())
    assert sorted(tested.ran) == [(f"/b/0.{n}", {"x": f"x{n}", "y": f"y{n}"}) for n in range(5)]
    assert tested.status is Status.COMPLETED


async def test_a_job_does_not_wait_for_the_inputs_of_others() -> None:
    tested = step(3, x=[])
    late = Port(cast(Any, SimpleNamespace()), "x")
    tested._ports["x"] = late
    running = asyncio.create_task(tested.run())
    late.put(Token("x2", tag="0.2"))
    for _ in range(100):  # turns of the loop; a busy machine makes as many
        await asyncio.sleep(0)
    assert tested.ran == [("/b/0.2", {"x": "x2"})]
    for number in (1, 0):
        late.put(Token(f"x{number}", tag=f"0.{number}"))
    late.put(TerminationToken(Status.COMPLETED))
    await running
    assert [name for name, _ in tested.ran] == ["/b/0.2", "/b/0.1", "/b/0.0"]
