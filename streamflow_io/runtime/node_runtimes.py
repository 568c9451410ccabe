"""The node runtimes of one run: one for each location where a job needs it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from functools import cached_property

from msgspec.structs import replace
from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import ExecutionLocation

from .binary import Binary
from .conversing import Certificate, Links
from .deployments import Deployments
from .embedded import EmbeddedRuntime, find_sfio_node
from .locations import Place, location_node
from .node_commands import NodeRuntimeError
from .node_runtime import NodeRuntime
from .remote import ContainerRuntime, RemoteRuntime

StartRuntime = Callable[[], Awaitable[NodeRuntime]]

_START_SECONDS = 15.0


class NodeRuntimes:
    """Starts node runtimes when they are first needed, and ends them together.

    :ivar deployments: those of the run

    :param tls: whether streams between hosts are encrypted
    :param start_here: starts the node runtime of the driver's node; None: the embedded one is started
    :param contained: whether there are node runtimes in containers
    :param mixed: deployments of hosts where jobs in containers and jobs beside them read early of each other; "": the
        driver's node
    """

    def __init__(
        self,
        context: StreamFlowContext,
        tls: bool = False,
        start_here: StartRuntime | None = None,
        contained: bool = True,
        mixed: Collection[str] = (),
    ) -> None:
        self._tls = tls
        self._start_here = start_here
        self._mixed = frozenset(mixed) if contained else frozenset()
        self.deployments = Deployments(context, contained)
        self._runtimes: dict[str, asyncio.Task[NodeRuntime]] = {}
        self._checks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._is_closing = False

    async def at(self, location: ExecutionLocation, workdir: str | None = None) -> NodeRuntime:
        """Return the node runtime at a location.

        :param workdir: of the job that needs it first; None: the one of the deployment
        :raises NodeRuntimeError: if no node runtime can run there, with one reason. The reason is remembered, and
            nothing is tried again
        """
        node = location_node(location)
        if node not in self._runtimes:
            self._runtimes[node] = asyncio.create_task(self._start(location, workdir))
        return await asyncio.shield(self._runtimes[node])

    async def for_streams_at(self, location: ExecutionLocation, workdir: str) -> NodeRuntime:
        """Return the node runtime at a location, if jobs with this work directory may stream there.

        :raises NodeRuntimeError: also if another user could replace files that stream
        """
        runtime = await self.at(location, workdir)
        key = location_node(location), workdir
        if key not in self._checks:
            self._checks[key] = asyncio.create_task(runtime.check_workdir(workdir))
        await asyncio.shield(self._checks[key])
        return runtime

    async def copy(self, source: ExecutionLocation, path: str, target: ExecutionLocation, script: str) -> str | None:
        """Let a script at a location read the archive of a file or directory of another one; see
        :meth:`RemoteRuntime.fetch`.

        :raises CancelledError: if the run ends meanwhile
        """
        try:
            sender, receiver = await asyncio.gather(self.at(source), self.at(target))
        except NodeRuntimeError as error:
            return str(error)
        if not isinstance(receiver, RemoteRuntime):
            return f"{receiver.location} receives no files"
        why = await receiver.fetch(sender, path, script)
        if why is not None and self._is_closing:
            raise asyncio.CancelledError
        return why

    async def close(self) -> None:
        """End all node runtimes; nothing of them is left."""
        self._is_closing = True
        await asyncio.gather(*map(_close, self._runtimes.values()))
        await self.deployments.release()

    async def _start(self, location: ExecutionLocation, workdir: str | None) -> NodeRuntime:
        if location.local:
            if self._start_here is not None:
                return await self._start_here()
            if "" in self._mixed and workdir is not None:
                return await EmbeddedRuntime.start_beside(workdir)
            return await EmbeddedRuntime.start()
        manner = self.deployments.manner(location)
        binary = await asyncio.to_thread(Binary.load, find_sfio_node())
        self.deployments.hold(location)
        access, directory = self.deployments.access(location), self.deployments.workdir(location)
        links = Links(self._certificate, manner.address, self._tls) if manner.listen else None
        if links is not None and manner.starts_commands:
            self.deployments.offer_links(location, self.copy)
            links = replace(links, hand_out=(directory,) if workdir in (None, directory) else (directory, str(workdir)))
        if (place := await self.deployments.place(location)) is not None:
            owner = await self.deployments.owner(location)
            return await ContainerRuntime.start(access, directory, binary, place, links, owner)
        place = Place(location_node(location)) if location.deployment in self._mixed else None
        return await RemoteRuntime.start(
            access, workdir or directory, binary, manner.shared, links, place, manner.starts_commands
        )

    @cached_property
    def _certificate(self) -> Certificate:
        return Certificate.make()


async def _close(starting: asyncio.Task[NodeRuntime]) -> None:
    # A start that waits, as for a session that jobs have taken, is not waited for.
    await asyncio.wait({starting}, timeout=_START_SECONDS)
    # Before Python 3.12, `wait_for` loses a cancellation that comes as it ends.
    while not starting.done():
        starting.cancel()
        await asyncio.wait({starting}, timeout=_START_SECONDS)
    with contextlib.suppress(Exception, asyncio.CancelledError):
        await (await starting).close()
