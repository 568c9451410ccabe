"""The barrier before what a job makes is handed on: all that it has read of others is final, and the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from streamflow_io.adapters.attempts import Attempt
from streamflow_io.adapters.inputs import Producers as Producers
from streamflow_io.runtime.protocol import StreamPart

from .replacing import check_replaced


class RewrittenError(Exception):
    """What the job has read of another was changed afterwards: it has to read again what is final.

    :ivar job: the other one
    :ivar how: what has happened
    """

    def __init__(self, job: str | None, how: str | None) -> None:
        super().__init__(
            f"of job {job}, from which it reads, {how}: that output is not written front to back, take `streamable`, "
            "or `mode: no_update`, off it"
        )
        self.job = job
        self.how = how


class OutgrownError(Exception):
    """The job has read a stream of a file that is larger than its proof holds for: it has to read the file.

    :ivar job: that writes the file
    """

    def __init__(self, job: str | None) -> None:
        super().__init__(job)
        self.job = job


async def _check_sizes(attempt: Attempt, producers: Producers) -> None:
    """Return if no file is larger than it may be, of what an attempt has read as streams. All are final.

    :raises OutgrownError: if one is
    """
    for token, producer in producers:
        largest = attempt.largest.get(id(token))
        if largest is not None and producer.collect is not None:
            final = await producer.collect(token.source.port, token.source.path)
            size = final.value.get("size")
            if size is None or size > largest:
                raise OutgrownError(token.source.job)


async def check_parts(parts: Iterable[StreamPart], producers: Producers) -> None:
    """Return if what was read of streams is in their files, which are final now. Reads these parts.

    :param parts: of streams that were not read to their end
    :raises RewrittenError: if it is not
    :raises NodeRuntimeError: if that cannot be told
    """
    for part in parts:
        for token, producer in producers:
            node_job = producer.node_job
            if node_job is None or str(producer.output_directory / token.source.path) != part.path:
                continue
            if not await node_job.runtime.begins_with(part):
                when = "it was closed" if part.whole else f"{part.bytes} bytes of it had been streamed"
                how = f"{part.path} was written again after {when}"
                raise RewrittenError(token.source.job, how)
            break


async def check_read(attempt: Attempt, producers: Producers) -> None:
    """Return if all that an attempt has read of others is what is final.

    What it has read to the end its node runtime has compared.

    :raises ReplacedError: if an output is another file
    :raises OutgrownError: if it is larger than it may be
    :raises RewrittenError: if it has other bytes
    """
    check_replaced(producers)
    await _check_sizes(attempt, producers)
    parts = list(attempt.parts)
    await check_parts(parts, producers)
    attempt.parts = [part for part in attempt.parts if part not in parts]


async def settled(producers: Producers) -> bool:
    """The barrier: wait until all that is read is final. False: a producer failed."""
    results = await asyncio.gather(
        *(attempt.settled(token.source.port, token.source.path) for token, attempt in producers)
    )
    return all(results)
