"""CAPIO as a node runtime: the embedded one, but for the jobs that write into CAPIO, or read from it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import time
from collections.abc import Awaitable, Collection, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from streamflow.core.utils import get_job_step_name

from streamflow_io.capio_cl.names import application_name
from streamflow_io.capio_cl.supported import COMMIT_CLOSES, CapioMapping, HeldOutputs, capio_configuration

from .activity import wait_until_idle
from .capio_installation import CapioError, Installation, UnfitPathError
from .capio_server import CapioServer, remove_leftovers
from .conversation import ProcessConversation
from .embedded import EmbeddedRuntime, serve
from .node_runtime import AttemptLostError, NodeJob, NodeRuntimeError, Waiting
from .protocol import Event, ExitEvent, JobSpec, OpenedEvent

logger = logging.getLogger("streamflow")

# A program that hangs under CAPIO uses no processor; one that only waits for something else loses no more than a start.
# With two looks, and the time that they take, it is seen in 20 seconds.
_IDLE_SECONDS = 14.0
_LOOK_SECONDS = 2.0
_COLLECT_SECONDS = 24 * 3600.0


class CapioJob(NodeJob):
    """A job that writes into CAPIO, reads from it, or both.

    Its last event is told when all that CAPIO holds of it is in its output directory. If CAPIO fails, it is ended, and
    was in vain.

    :param directory: in CAPIO, where its command is started, if it writes there
    :param outputs: what it writes there
    """

    def __init__(
        self,
        runtime: CapioRuntime,
        identifier: str,
        server: CapioServer,
        step: str,
        directory: Path | None,
        outputs: HeldOutputs | None,
        waiting: Waiting | None,
    ) -> None:
        super().__init__(runtime, identifier, waiting)
        self._capio = runtime
        self._server = server
        self._step = step
        self._application = application_name(step)
        self._directory = directory
        self._outputs = outputs or HeldOutputs({}, ())
        self._watches: list[asyncio.Task[None]] = []
        self._collecting: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._failure: str | None = None
        self._root = ""

    def held(self, port: str, path: str) -> PurePosixPath | None:
        if self._directory is None or port not in self._outputs.streamed:
            return None
        return PurePosixPath(self._directory, path)

    def sees(self, path: PurePosixPath) -> bool:
        return path.is_relative_to(self._server.directory)

    async def wrap(self, spec: JobSpec) -> list[str]:
        watched = tuple(output for output in spec.outputs if output.port not in self._outputs.streamed)
        words = await super().wrap(spec.model_copy(update={"outputs": watched}))
        self._root = next((output.root for output in spec.outputs if output not in watched), "")
        watches = [self._watch_server(), self._watch_activity()]
        watches += [self._announce(port, name) for port, name in self._outputs.streamed.items()]
        self._watches = [asyncio.create_task(self._until_it_fails(watch)) for watch in watches]
        if self._directory is not None:
            words += ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(self._directory)]
        return [*words, *self._server.application(self._application)]

    async def collected(self) -> None:
        with contextlib.suppress(NodeRuntimeError):
            await asyncio.shield(self.exit)

    def blame(self, failure: str) -> None:
        # Its program may do what CAPIO does not know.
        self._capio.give_up_step(self._step, failure)
        raise AttemptLostError("CAPIO", failure)

    async def cancel(self) -> None:
        self._end_watches()
        if self._collecting is not None:
            self._collecting.cancel()
        await super().cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)

    def receive(self, event: Event) -> None:
        if isinstance(event, ExitEvent):
            self._telling = asyncio.create_task(self._tell_end(event))
        else:
            super().receive(event)

    async def _tell_end(self, event: ExitEvent) -> None:
        """Tell of the end, when what CAPIO holds is in the output directory."""
        try:
            if event.success and self._failure is None and self._directory is not None:
                self._collecting = asyncio.create_task(self._collect(self._directory))
                await self._collecting
        except asyncio.CancelledError:
            event = event.model_copy(update={"success": False, "reason": "cancelled"})
        except Exception as error:  # Whatever it is: others wait for the end.
            self._give_up(str(error))
        self._end_watches()
        if self._failure is None:
            super().receive(event)
        else:
            self.lose(AttemptLostError("CAPIO", self._failure))

    async def _collect(self, directory: Path) -> None:
        """The job has succeeded: let its readers see the end of its files, and copy these into the file system."""
        pairs = [path for name in self._outputs.files for path in (str(directory / name), f"{self._root}/{name}")]
        await self._server.client(
            "collect", str(COMMIT_CLOSES), *pairs, application=self._application, seconds=_COLLECT_SECONDS
        )
        await asyncio.to_thread(_copy_what_is_not_in_capio, pairs)

    async def _until_it_fails(self, watch: Awaitable[None]) -> None:
        """End the job when that is told of which it is of no use any more."""
        try:
            await watch
        except NodeRuntimeError as error:
            self._give_up(str(error))
            await super().cancel()

    async def _announce(self, port: str, name: str) -> None:
        assert self._directory is not None
        await self._server.client("wait", str(self._directory / name), application=self._application, seconds=None)
        path = f"{self._root}/{name}"
        super().receive(OpenedEvent(job=self.identifier, time=time.time(), event="opened", port=port, path=path))

    async def _watch_server(self) -> None:
        await self._server.wait_for_end()
        raise CapioError(self._server.why_ended())

    async def _watch_activity(self) -> None:
        if self.waiting is not None:
            await self.waiting()  # Until then it may rightly wait for others.
        await wait_until_idle(lambda: self.pid, _IDLE_SECONDS, _LOOK_SECONDS)
        raise CapioError(
            f"a job of {self._step} has used no processor for {_IDLE_SECONDS:.0f} s, as if its program hung under CAPIO"
        )

    def _end_watches(self) -> None:
        for watch in self._watches:
            watch.cancel()

    def _give_up(self, reason: str) -> None:
        self._failure = reason
        self._capio.give_up(reason)


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
        self._held = mapping.held
        self._starting: asyncio.Task[CapioServer] | None = None
        self._without: set[str] = set()
        self._trouble: str | None = None

    @classmethod
    async def start_with(cls, installation: Installation, mapping: CapioMapping) -> CapioRuntime:
        """Start the embedded runtime; CAPIO's server is started when it is first needed.

        :param mapping: what CAPIO serves
        :raises NodeRuntimeError: if the embedded runtime cannot be started
        """
        return cls(installation, mapping, *await serve())

    async def create_job(
        self, name: str, reads: Collection[PurePosixPath] = (), waiting: Waiting | None = None
    ) -> NodeJob:
        """Begin a new job. One that CAPIO has no part in, or cannot serve any more, is one of the embedded runtime."""
        step = get_job_step_name(name)
        outputs = self._held.get(step)
        if step in self._without or not (outputs or reads) or (server := await self.server()) is None:
            return await super().create_job(name, reads, waiting)
        try:
            directory = await server.new_directory(application_name(step)) if outputs else None
        except UnfitPathError as error:
            self.give_up_step(step, str(error))
        except NodeRuntimeError as error:
            self.give_up(str(error))
        else:
            return self._add(name, lambda known: CapioJob(self, known, server, step, directory, outputs, waiting))
        return await super().create_job(name, reads, waiting)

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
            logger.warning(f"CAPIO is not used any more in this run, its jobs run without it: {reason}")

    def give_up_step(self, step: str, reason: str) -> None:
        """Do not use CAPIO again for the jobs of a step; one warning says why."""
        if step not in self._without and self._trouble is None:
            logger.warning(f"CAPIO is not used any more for the jobs of {step}, they run without it: {reason}")
        self._without.add(step)

    async def close(self) -> None:
        if self._starting is not None:
            with contextlib.suppress(NodeRuntimeError):
                await (await self._starting).close()
        await super().close()


def _copy_what_is_not_in_capio(pairs: Sequence[str]) -> None:
    """A program that does not load libraries has written past CAPIO, into what is a directory for the kernel, too."""
    for source, target in zip(pairs[::2], pairs[1::2], strict=True):
        if os.path.isfile(source) and not os.path.exists(target):
            shutil.copy2(source, target)
