"""Outputs that are another file in the end than the one that other jobs have begun to read.

As a rule, the file that these jobs read had a temporary name.
"""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import cast

from streamflow.core.workflow import Job, Token
from streamflow.cwl.step import CWLExecuteStep, CWLTransferStep

from streamflow_io.adapters.attempts import Attempt, StreamingJobs
from streamflow_io.adapters.tokens import StreamToken, stream_tokens, with_files


class ReplacedError(Exception):
    """An output that the job reads is another file in the end than the one that it has read.

    :ivar token: the token of the file that the job has read
    :ivar how: what has happened to the output
    """

    def __init__(self, token: StreamToken, final: Token) -> None:
        source = token.source
        made = "nothing" if final.value is None else final.value["basename"]
        super().__init__(
            f"the output `{source.port}` of job {source.job} is {made}, not {source.path}, which was "
            "read. Remove `streamable` and rules from that output, or give it a glob that temporary "
            "names do not match"
        )
        self.token = token
        self.how = f"was {source.path}, and is {made} at the end"


def check_replaced(producers: Sequence[tuple[StreamToken, Attempt]]) -> None:
    """Check that the outputs of the jobs that have ended are the files that a job has read of them.

    :raises ReplacedError: if an output is another file
    """
    for token, attempt in producers:
        source = token.source
        if (final := attempt.replacement(source.port, source.path)) is not None:
            raise ReplacedError(token, final)


async def with_replacements(
    step: CWLExecuteStep, job: Job, inputs: Mapping[str, Token], jobs: StreamingJobs
) -> dict[str, Token]:
    """Return the inputs of a job, in which final files replace those that are not outputs any more.

    The files are transferred as if the producers had ended before.
    """

    async def replacement(port: str, token: StreamToken) -> Token | None:
        source = token.source
        return jobs.get(source.job).latest.replacement(source.port, source.path)

    return await _with_files(step, job, inputs, replacement)


async def with_finals(
    step: CWLExecuteStep, job: Job, inputs: Mapping[str, Token], jobs: StreamingJobs, names: Collection[str]
) -> dict[str, Token]:
    """Return the inputs of a job, some with final files in place of streams, transferred as after the producers' end.

    Waits until these files are final.

    :param names: the inputs that get files
    :raises ProducerFailedError: if a file never will be final
    """

    async def final(port: str, token: StreamToken) -> Token | None:
        source = token.source
        return await jobs.get(source.job).final(source.port, source.path) if port in names else None

    return await _with_files(step, job, inputs, final)


async def _with_files(
    step: CWLExecuteStep,
    job: Job,
    inputs: Mapping[str, Token],
    file_of: Callable[[str, StreamToken], Awaitable[Token | None]],
) -> dict[str, Token]:
    """Return the inputs of a job with transferred files in place of some streams.

    :param file_of: returns the file for a stream of an input; None: the stream stays
    """

    placed: dict[int, Token] = {}
    for port, stream in ((port, stream) for port, token in inputs.items() for stream in stream_tokens(token)):
        if (file := await file_of(port, stream)) is not None:
            transfer = cast(CWLTransferStep, step.workflow.steps[posixpath.join(step.name, "__transfer__", port)])
            placed[id(stream)] = await transfer.transfer(job, file.retag(stream.tag))
            placed[id(stream)].persistent_id = file.persistent_id
    return {port: with_files(token, placed) for port, token in inputs.items()}
