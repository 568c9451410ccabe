"""What the node runtime is told of the inputs that are read before their producers have ended."""

from __future__ import annotations

from streamflow_io.runtime import GatedInput, InputStream

from .jobs import Attempt
from .token import StreamToken


def input_stream(token: StreamToken, attempt: Attempt) -> InputStream:
    """An input whose bytes are fed to the job as one attempt of its producer writes them."""
    return InputStream(
        name=token.source.job,
        port=token.source.port,
        path=str(attempt.output_directory / token.source.path),
        events=str(attempt.events),
        target={"fifo": token.value["path"]},
    )


def gated_input(token: StreamToken, attempt: Attempt) -> GatedInput:
    """An input that the job is held at until one attempt of its producer has committed it."""
    assert token.source.gate is not None
    return GatedInput(
        name=token.source.job,
        port=token.source.port,
        path=str(attempt.output_directory / token.source.path),
        events=str(attempt.events),
        target=token.value["path"],
        kind=token.source.gate,
        mode=token.source.listing if token.source.gate == "directory" else None,
    )
