"""Outputs that are other files in the end than those that others have begun to read, which had temporary names."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import cast

from streamflow.core.workflow import Job, Token
from streamflow.cwl.step import CWLExecuteStep, CWLTransferStep
from streamflow.workflow.token import ListToken

from .attempts import Attempt, StreamingJobs
from .tokens import StreamToken, stream_tokens


class ReplacedError(Exception):
    """An output that the job reads is another file in the end than the one that it has read."""


def check_replaced(producers: Sequence[tuple[StreamToken, Attempt]]) -> None:
    """Return if what a job reads of others, as far as they have ended, is what their outputs are.

    :raises ReplacedError: if it is not
    """
    for token, attempt in producers:
        source = token.source
        if (final := attempt.replacement(source.port, source.path)) is not None:
            raise ReplacedError(
                f"job {source.job} has made {final.value['basename']} of its output `{source.port}`, from which it has "
                f"read {source.path}: take `streamable` and rules off that output, or give it a glob that temporary "
                "names do not match"
            )


async def with_replacements(
    step: CWLExecuteStep, job: Job, inputs: Mapping[str, Token], jobs: StreamingJobs
) -> dict[str, Token]:
    """The inputs of a job, with the files that it is to read instead, as it would have got them at their end."""

    async def replace(port: str, token: Token) -> Token:
        if isinstance(token, ListToken) and next(stream_tokens(token), None) is not None:
            return token.update([await replace(port, element) for element in token.value])
        if not isinstance(token, StreamToken):
            return token
        source = token.source
        if (final := jobs.get(source.job).latest.replacement(source.port, source.path)) is None:
            return token
        transfer = cast(CWLTransferStep, step.workflow.steps[posixpath.join(step.name, "__transfer__", port)])
        placed = await transfer.transfer(job, final.retag(token.tag))
        placed.persistent_id = final.persistent_id
        return placed

    return {port: await replace(port, token) for port, token in inputs.items()}
