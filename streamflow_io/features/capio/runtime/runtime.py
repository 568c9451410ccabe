"""CAPIO as a node runtime: the embedded one, but for the jobs that write into CAPIO, or read from it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection
from functools import partial
from pathlib import Path, PurePosixPath

from streamflow.core.utils import get_job_step_name

from streamflow_io.graph.capio_cl.configuration import application_name
from streamflow_io.messages import Code, coded
from streamflow_io.runtime.conversation import ProcessConversation
from streamflow_io.runtime.embedded import EmbeddedRuntime, serve
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import Globs, NodeJob, Waiting

from .installation import Installation, UnfitPathError
from .job import CapioJob
from .server import CapioServer, remove_leftovers
from .supported import CapioMapping, HeldOutputs, capio_configuration

logger = logging.getLogger("streamflow")


class CapioRuntime(EmbeddedRuntime):
    """The embedded node runtime, and CAPIO's server, as long as that can be used.

    After any trouble CAPIO is not used again: what still has to be done is done without it.
    """

    unlimited = "`runtime: capio`"

    def __init__(
        self,
        installation: Installation,
        mapping: CapioMapping,
        binary: Path,
        directory: Path,
        conversation: ProcessConversation,
    ) -> None:
        super().__init__(binary, directory, conversation)
        self._installation = installation
        self._configure = partial(capio_configuration, mapping=mapping)
        self._mapping = mapping
        self._starting: asyncio.Task[CapioServer] | None = None
        self._without: set[str] = set()
        self._probing: set[asyncio.Task[None]] = set()
        self._trouble: str | None = None

    @classmethod
    async def start_with(cls, installation: Installation, mapping: CapioMapping) -> CapioRuntime:
        """Start the embedded runtime; CAPIO's server is started when it is first needed.

        :raises NodeRuntimeError: if the embedded runtime cannot be started
        """
        return cls(installation, mapping, *await serve())

    async def create_job(
        self,
        name: str,
        reads: Collection[PurePosixPath] = (),
        waiting: Waiting | None = None,
        globs: Globs | None = None,
    ) -> NodeJob:
        """Begin a new job. One that CAPIO has no part in, or cannot serve any more, is one of the embedded runtime."""
        step = get_job_step_name(name)
        outputs = None if globs is None else self._outputs_of(step, globs)
        if step in self._without or not (outputs or reads) or (server := await self.server()) is None:
            return await super().create_job(name, reads, waiting)
        try:
            directory = await server.new_directory(application_name(step)) if outputs else None
        except UnfitPathError as error:
            self.give_up_step(step, str(error))
        except NodeRuntimeError as error:
            self.give_up(str(error))
        else:
            return self._add(name, lambda known: CapioJob(self, self, known, server, step, directory, outputs, waiting))
        return await super().create_job(name, reads, waiting)

    def _outputs_of(self, step: str, globs: Globs) -> HeldOutputs | None:
        try:
            return self._mapping.held(step, globs)
        except Exception as error:  # Of an expression: it is told where its value is needed.
            logger.debug(f"The outputs of a job of {step} have no names: {error}")
            return None

    async def server(self) -> CapioServer | None:
        """The server, started when first needed; None if CAPIO is not to be used any more."""
        if self._trouble is not None:
            return None
        if self._starting is None:
            remove_leftovers()
            self._starting = asyncio.create_task(CapioServer.start(self._installation, self, self._configure))
        try:
            server = await asyncio.shield(self._starting)
        except NodeRuntimeError as error:
            self.give_up(str(error))
            return None
        if server.has_ended:
            self.give_up(server.why_ended())
        return None if self._trouble is not None else server

    def give_up(self, reason: str) -> None:
        """Do not use CAPIO again in this run; one warning says why."""
        if self._trouble is None:
            self._trouble = reason
            message = f"CAPIO is not used any more in this run, its jobs run without it: {reason}"
            logger.warning(coded(message, Code.CAPIO_GIVEN_UP))

    def probe(self, server: CapioServer, application: str) -> None:
        """Ask a server soon whether it still answers; if not, it is ended, and what uses it was in vain."""

        async def ask() -> None:
            try:
                await server.probe(application)
            except NodeRuntimeError as error:
                self.give_up(str(error))
                await server.end()

        if self._trouble is None:
            task = asyncio.create_task(ask())
            self._probing.add(task)
            task.add_done_callback(self._probing.discard)

    def give_up_step(self, step: str, reason: str) -> None:
        """Do not use CAPIO again for the jobs of a step; one warning says why."""
        if step not in self._without and self._trouble is None:
            message = f"CAPIO is not used any more for the jobs of {step}, they run without it: {reason}"
            logger.warning(coded(message, Code.CAPIO_NOT_FOR_STEP))
        self._without.add(step)

    async def close(self) -> None:
        for task in self._probing:
            task.cancel()
        await asyncio.gather(*self._probing, return_exceptions=True)
        if self._starting is not None:
            with contextlib.suppress(NodeRuntimeError):
                await (await self._starting).close()
        await super().close()
