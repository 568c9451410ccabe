"""Streams that were not read to their end: what was read is compared with the file when that is final."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamflow_io.runtime.protocol import StreamPart

from .attempts import Attempt
from .tokens import StreamToken


class RewrittenError(Exception):
    """What the job has read of another was changed afterwards: it has to read again what is final."""

    def __init__(self, job: str | None, how: str | None) -> None:
        super().__init__(
            f"of job {job}, from which it reads, {how}: that output is not written front to back, take `streamable`, "
            "or `mode: no_update`, off it"
        )


async def check_parts(parts: Iterable[StreamPart], producers: Sequence[tuple[StreamToken, Attempt]]) -> None:
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
                how = f"{part.path} was written again after {part.bytes} bytes of it had been streamed"
                raise RewrittenError(token.source.job, how)
            break
