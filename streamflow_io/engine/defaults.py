"""Defaults of inputs that come early, and in another order than the other inputs of their step."""

from __future__ import annotations

from collections.abc import MutableMapping, MutableSequence

from streamflow.core.utils import get_tag
from streamflow.core.workflow import Port, Status, Token
from streamflow.cwl.transformer import DefaultRetagTransformer
from streamflow.cwl.workflow import CWLWorkflow
from streamflow.workflow.token import TerminationToken


class DefaultByTagTransformer(DefaultRetagTransformer):  # type: ignore[misc]
    """Gives each job the input of its own tag, or its default, and ends when no more can come.

    StreamFlow pairs an input that has a default with the others of its step by their order, and ends with the others.
    What is committed early comes in the order of commits; and if nobody waited for the end of the step that writes it,
    the run would end before.
    """

    def __init__(self, name: str, workflow: CWLWorkflow, default_port: Port, primary_port: str) -> None:
        super().__init__(name, workflow, default_port, primary_port)
        self._came: dict[str, Token] = {}
        self._end: Status | None = None

    async def transform(
        self, inputs: MutableMapping[str, Token]
    ) -> MutableMapping[str, Token | MutableSequence[Token]]:
        token: Token = await self._get_next_token(await self._primary(get_tag(inputs.values())), inputs)
        return {self.get_output_name(): token}

    async def terminate(self, status: Status) -> None:
        if not self.terminated and status not in (Status.FAILED, Status.CANCELLED):
            while self._end is None:
                await self._hear()
            status = self._end if self._end in (Status.FAILED, Status.CANCELLED) else status
        await super().terminate(status)

    async def _primary(self, tag: str) -> Token | None:
        """The token for a tag: its own, or one for all below it. None: there is none."""
        while (found := next((t for t in self._came if tag == t or tag.startswith(f"{t}.")), None)) is None:
            if self._end is not None:
                return None
            await self._hear()
        return self._came.pop(tag) if found == tag else self._came[found]

    async def _hear(self) -> None:
        name = self.primary_port
        token = (await self._get_inputs({name: self.get_input_port(name)}))[name]
        if isinstance(token, TerminationToken):
            self._end = token.value
        else:
            self._came[token.tag] = token
