"""The node runtimes of one run: one for each location where a job needs it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from .embedded import EmbeddedRuntime
from .node_runtime import NodeRuntime, NodeRuntimeError

if TYPE_CHECKING:
    from streamflow.core.context import StreamFlowContext
    from streamflow.core.deployment import ExecutionLocation

_LOCAL = ("", "")


class NodeRuntimes:
    """Starts them when they are first needed, and ends them together."""

    def __init__(self, context: StreamFlowContext) -> None:
        self._context = context
        self._runtimes: dict[tuple[str, str], asyncio.Task[NodeRuntime]] = {}

    async def at(self, location: ExecutionLocation) -> NodeRuntime:
        """The node runtime at a location.

        :raises NodeRuntimeError: if there can be none, with one reason. It is remembered, and not tried again
        """
        key = _LOCAL if location.local else (location.deployment, location.name)
        if key not in self._runtimes:
            self._runtimes[key] = asyncio.create_task(self._start(location))
        return await asyncio.shield(self._runtimes[key])

    async def close(self) -> None:
        """End all of them; nothing is left."""
        await asyncio.gather(*map(_close, self._runtimes.values()))

    async def _start(self, location: ExecutionLocation) -> NodeRuntime:
        if location.local:
            return await EmbeddedRuntime.start()
        raise NodeRuntimeError(f"there is no node runtime for {location.deployment} yet")


async def _close(starting: asyncio.Task[NodeRuntime]) -> None:
    with contextlib.suppress(Exception):
        await (await starting).close()
