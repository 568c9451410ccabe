"""The barrier before a job's outputs are handed on: all that the job has read of other jobs is final and unchanged."""

from __future__ import annotations

from collections.abc import Iterable

from streamflow_io.adapters.attempts import Attempt
from streamflow_io.adapters.inputs import Producers
from streamflow_io.runtime.protocol import StreamPart

from .replacing import check_replaced


class RewrittenError(Exception):
    """A file was changed after the job has read it as a stream. The job has to read the final file.

    :ivar job: the job that writes the file
    :ivar how: what has happened to the file
    """

    def __init__(self, job: str | None, how: str | None) -> None:
        super().__init__(
            f"job {job} has not written its output front to back: {how}. Remove `streamable`, or `mode: "
            "no_update`, from that output"
        )
        self.job = job
        self.how = how


class OutgrownError(Exception):
    """A proof does not hold for a stream that the job has read. The job has to read the complete file.

    :ivar job: the job that writes the file
    :ivar asks: the job asks for more bytes than are proven; otherwise the file is larger than its proof allows
    """

    def __init__(self, job: str | None, *, asks: bool = False) -> None:
        super().__init__(job)
        self.job = job
        self.asks = asks


async def _check_sizes(attempt: Attempt, producers: Producers) -> None:
    """Check the sizes of the files that an attempt has read as streams. All of the files are final.

    :raises OutgrownError: if a file is larger than its proof allows
    """
    for token, producer in producers:
        largest = attempt.largest.get(id(token))
        if largest is not None and producer.collect is not None:
            final = await producer.collect(token.source.port, token.source.path)
            size = final.value.get("size")
            if size is None or size > largest:
                raise OutgrownError(token.source.job)


async def check_parts(parts: Iterable[StreamPart], producers: Producers) -> None:
    """Check that the parts that were read of streams are in the final files. Reads these parts of the files.

    :param parts: of streams that were not read to their end
    :raises RewrittenError: if a file has other bytes
    :raises NodeRuntimeError: if a file cannot be compared
    """
    for part in parts:
        for token, producer in producers:
            node_job = producer.node_job
            if node_job is None or str(producer.output_directory / token.source.path) != part.path:
                continue
            if not await node_job.runtime.begins_with(part):
                when = "it was closed" if part.first.whole else f"{part.first.bytes} bytes of it had been streamed"
                how = f"{part.path} was written again after {when}"
                raise RewrittenError(token.source.job, how)
            break


async def check_read(attempt: Attempt, producers: Producers) -> None:
    """Check that all that an attempt has read of other jobs is unchanged. All of the files are final.

    Streams that were read to their end have been compared by the node runtime.

    :raises ReplacedError: if an output is another file
    :raises OutgrownError: if a file is larger than its proof allows
    :raises RewrittenError: if a file has other bytes
    """
    check_replaced(producers)
    await _check_sizes(attempt, producers)
    parts = list(attempt.parts)
    await check_parts(parts, producers)
    attempt.parts = [part for part in attempt.parts if part not in parts]


async def settled(producers: Producers) -> bool:
    """Wait until all that a job reads of others is final: the barrier.

    :return: whether it is; false: a producer has failed
    """
    # One after the other: all have to be waited for, and a task for each would cost more.
    return all([await attempt.settled(token.source.port, token.source.path) for token, attempt in producers])
