"""Ends an attempt of a job before its command ends by itself."""

from __future__ import annotations

import asyncio
import contextlib

from streamflow_io.adapters.attempts import Attempt
from streamflow_io.adapters.inputs import Producers, held
from streamflow_io.adapters.tokens import StreamToken
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeJob

# Seconds in which `exec` may end the job itself.
_NOTICE_SECONDS = 2.0
# Seconds for which a job of a queue manager may hold its node while a job that it reads from is still in the queue.
_PATIENCE_SECONDS = 60.0


async def end_with(node_job: NodeJob, token: StreamToken, attempt: Attempt) -> None:
    """End a job when a job that it reads from fails.

    The job's `exec` ends it, too, unless the failure could not be written to the events, as on a full disk.
    """
    if not await attempt.settled(token.source.port, token.source.path):
        if held(token, attempt) is None:
            with contextlib.suppress(asyncio.TimeoutError, NodeRuntimeError):
                await asyncio.wait_for(asyncio.shield(node_job.exit), _NOTICE_SECONDS)
        await node_job.cancel()


async def end_when_lost(node_job: NodeJob, attempt: Attempt) -> None:
    """End a job when a reader needs the file of its window once more."""
    if attempt.windows:
        await asyncio.wait((attempt.lost,))
        await node_job.cancel()


async def give_way(node_job: NodeJob, attempt: Attempt, producers: Producers) -> None:
    """End a job if it has a node while a job that it reads from waits in the queue of a queue manager.

    The other job may need this very node. The job starts again when the other one runs. This does not count as a
    failed attempt.
    """
    waited_for = [producer for _, producer in producers if not producer.has_started]
    if not waited_for:
        return
    await attempt.started()
    try:
        await asyncio.wait_for(asyncio.gather(*(p.started() for p in waited_for)), _PATIENCE_SECONDS)
    except asyncio.TimeoutError:
        attempt.gave_way = True
        await node_job.cancel()
