"""The results of a workflow that are made from files which a running job has committed."""

from __future__ import annotations

import asyncio
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Mapping

from streamflow.core.workflow import Job, Status, Step, Token, Workflow
from streamflow.cwl.step import CWLTransferStep
from streamflow.workflow.token import TerminationToken
from typing_extensions import Self

from streamflow_io.adapters.outputs import is_early_port
from streamflow_io.adapters.steps import StreamingExecuteStep


class ConfirmedTransferStep(CWLTransferStep):  # type: ignore[misc]
    """Puts a result at its final place when all jobs have succeeded from whose files it was made.

    A commit may still turn out to be wrong before. Then the run fails, and the result is void.

    :ivar early: one port of each step whose early outputs this result is made from
    """

    # A step that is loaded from the database runs when its producers have ended.
    early: tuple[str, ...] = ()
    _confirmed: asyncio.Future[bool] | None = None

    @classmethod
    def like(cls, step: CWLTransferStep, early: Iterable[str]) -> Self:
        """Return the same step, which waits.

        :param early: the names of the ports
        """
        new = cls(step.name, step.workflow, step.get_input_port("__job__"), step.prefix_path, step.writable)
        new.input_ports, new.output_ports = dict(step.input_ports), dict(step.output_ports)
        new.early = tuple(early)
        return new

    async def transfer(self, job: Job, token: Token) -> Token:
        if self._confirmed is None:
            # Once for all results: a port tells each reader only once how it ended.
            self._confirmed = asyncio.ensure_future(self._have_ended_well())
        if not await asyncio.shield(self._confirmed):
            raise asyncio.CancelledError
        return await super().transfer(job, token)

    async def _have_ended_well(self) -> bool:
        return all(await asyncio.gather(*(self._has_ended_well(name) for name in self.early)))

    async def _has_ended_well(self, name: str) -> bool:
        port = self.workflow.ports[name]
        while not isinstance(
            token := await port.get(posixpath.join(self.name, "__confirmed__", name)), TerminationToken
        ):
            pass
        return token.value not in (Status.FAILED, Status.CANCELLED)


def confirm_results(workflow: Workflow, readers: Mapping[str, Iterable[tuple[Step, str]]]) -> None:
    """Let the results that are made from early outputs of a rewired workflow wait until these outputs are confirmed.

    :param readers: by port: the steps that read it, and the names of their input ports
    """
    awaited: dict[str, list[str]] = defaultdict(list)
    for step in workflow.steps.values():
        if isinstance(step, StreamingExecuteStep) and step.early_outputs:
            early = [port for name, port in step.output_ports.items() if is_early_port(name)]
            for name in _reached(early, readers):
                awaited[name].append(early[0])
    for output in workflow.output_ports:
        collector = workflow.steps.get(f"/{output}-collector")
        if isinstance(collector, CWLTransferStep) and collector.name in awaited:
            workflow.steps[collector.name] = ConfirmedTransferStep.like(collector, awaited[collector.name])


def _reached(ports: Iterable[str], readers: Mapping[str, Iterable[tuple[Step, str]]]) -> set[str]:
    """The names of the steps that get tokens from these ports, directly or through other steps."""
    steps: set[str] = set()
    known = set(ports)
    waiting = list(known)
    while waiting:
        for step, _ in readers[waiting.pop()]:
            steps.add(step.name)
            waiting.extend(set(step.output_ports.values()) - known)
            known.update(step.output_ports.values())
    return steps
