"""What the node runtime is told of the inputs that are read before their producers have ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from streamflow.core.workflow import Token

from streamflow_io.runtime import GatedInput, InputStream, NodeRuntime

from .attempts import Attempt
from .tokens import StreamToken, stream_tokens


def input_stream(
    token: StreamToken, attempt: Attempt, reader: NodeRuntime, verify: Literal["full", "samples"] = "full"
) -> InputStream:
    """An input whose bytes are fed to the job as one attempt of its producer writes them.

    :param reader: where the job runs that reads; it reaches the producer's runtime
    :param verify: how much of what was fed is compared with the file at the commit
    """
    assert attempt.node_job is not None, "only a job under a node runtime has stream tokens"
    link = attempt.node_job.link_to(reader)
    return InputStream(
        name=token.source.job,
        port=token.source.port,
        path=str(attempt.output_directory / token.source.path),
        events=str(attempt.node_job.events_path) if link is None else None,
        link=link,
        target={"fifo": token.value["path"]},
        verify=verify,
    )


def byte_streams(inputs: Mapping[str, Token]) -> list[str]:
    """The inputs of a job that its command gets as byte streams."""
    return [
        name
        for name, value in inputs.items()
        if any(token.source.gate is None and token.source.runtime == "embedded" for token in stream_tokens(value))
    ]


def gated_input(token: StreamToken, attempt: Attempt) -> GatedInput:
    """An input that the job is held at until one attempt of its producer has committed it, under the same runtime."""
    assert token.source.gate is not None
    assert attempt.node_job is not None, "only a job under a node runtime has stream tokens"
    return GatedInput(
        name=token.source.job,
        port=token.source.port,
        path=str(attempt.output_directory / token.source.path),
        events=str(attempt.node_job.events_path),
        target=token.value["path"],
        kind=token.source.gate,
        mode=token.source.listing if token.source.gate == "directory" else None,
    )
