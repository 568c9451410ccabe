"""Following one attempt of a job: what the node runtime tells of it is delivered early."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from streamflow.core.workflow import Job

from streamflow_io.graph.io_graph import OutputKind
from streamflow_io.runtime import Event, ExitEvent
from streamflow_io.runtime.protocol import (
    ChangedEvent,
    ClosedEvent,
    CommittedEvent,
    CompleteEvent,
    OpenedEvent,
    StartedEvent,
    StreamEvent,
)

from .attempts import Attempt
from .barrier import Producers, RewrittenError, check_read, settled
from .outputs import relative
from .publisher import Publisher
from .replacing import ReplacedError

if TYPE_CHECKING:
    from .steps import StreamingExecuteStep

_Commit = ChangedEvent | ClosedEvent | CommittedEvent | CompleteEvent


class Following:
    """Delivers early what the events of an attempt say; what is committed waits until its producers have succeeded."""

    def __init__(
        self,
        step: StreamingExecuteStep,
        job: Job,
        publisher: Publisher,
        attempt: Attempt,
        producers: Producers,
    ) -> None:
        self._output_directory: str = job.output_directory
        self._publisher = publisher
        self._attempt = attempt
        self._producers = producers
        self._outputs = {output.port: output for output in step.early_outputs}

    async def run(self, events: AsyncIterator[Event], is_queued: bool) -> None:
        """Returns when the attempt has ended, and all that can be is delivered.

        :param events: of the attempt
        :param is_queued: it waits in the queue of a queue manager until it starts
        :raises NodeRuntimeError: if the node runtime ends before it
        """
        commits: asyncio.Queue[_Commit | None] = asyncio.Queue()
        committing = asyncio.create_task(self._commit(commits))
        try:
            if is_queued:
                await self._publisher.submitted()
            async for event in events:
                if isinstance(event, OpenedEvent | _Commit) and event.port not in self._outputs:
                    continue
                if isinstance(event, StartedEvent):
                    self._attempt.start()
                    await self._publisher.started()
                elif isinstance(event, OpenedEvent):
                    await self._publisher.opened(event.port, event.path)
                elif isinstance(event, _Commit):
                    commits.put_nowait(event)
                elif isinstance(event, StreamEvent) and event.part is not None:
                    self._attempt.parts.append(event.part)
                elif isinstance(event, ExitEvent):
                    commits.put_nowait(None)
            await committing
        finally:
            committing.cancel()

    async def _commit(self, commits: asyncio.Queue[_Commit | None]) -> None:
        if not await settled(self._producers):
            return
        try:
            await check_read(self._attempt, self._producers)
        except (ReplacedError, RewrittenError):
            return  # It starts again.
        committed: dict[str, set[str]] = {port: set() for port in self._outputs}
        while (event := await commits.get()) is not None:
            output = self._outputs[event.port]
            is_directory = output.kind is OutputKind.DIRECTORY
            if isinstance(event, CompleteEvent):
                if output.completes_early and output.kind is not OutputKind.FILE:
                    await self._publisher.complete(event.port, committed[event.port])
                    if is_directory:
                        self._attempt.commit(event.port)
                continue
            file = relative(event.path, self._output_directory)
            if isinstance(event, ChangedEvent):
                self._publisher.commits.change(event.port, file, event.how)
                continue
            if isinstance(event, ClosedEvent):
                # Of the files of a Directory it is not told here when they are committed: there may be many.
                if file in committed[event.port] or (is_directory and output.closes_enough(file, event.closes - 1)):
                    self._publisher.commits.close_again(event.port, file)
                continue
            committed[event.port].add(file)
            if not is_directory and output.commits_early(file):
                await self._publisher.committed(event.port, event.path)
                self._attempt.commit(event.port, file)
