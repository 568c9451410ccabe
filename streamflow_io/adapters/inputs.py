"""Inputs that are read before their producers have ended, and parts of files, as the node runtime is told of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import PurePosixPath

from msgspec.structs import asdict
from streamflow.core.workflow import Token

from streamflow_io.runtime.node_runtime import NodeJob, NodeRuntime
from streamflow_io.runtime.protocol import GatedInput, InputStream, Link, PartInput

from .attempts import Attempt
from .tokens import PartToken, StreamToken, parts_of, stream_tokens, with_files

_MB = 10**6

# The stream tokens that a job reads, each with the attempt that writes its file.
Producers = Sequence[tuple[StreamToken, Attempt]]


def held(token: StreamToken, attempt: Attempt) -> PurePosixPath | None:
    """The path where the runtime of an attempt holds a file; None: the file is streamed, or waited for at the gate."""
    return None if attempt.node_job is None else attempt.node_job.held(token.source.port, token.source.path)


def held_now(producers: Producers) -> list[PurePosixPath]:
    """The paths where attempts that have not ended hold files."""
    places = [held(token, attempt) for token, attempt in producers if not attempt.succeeded.done()]
    return [place for place in places if place is not None]


def numbered_streams(producers: Producers) -> dict[str, tuple[StreamToken, Attempt]]:
    """The byte streams that a job reads, each by a number as its name."""
    return {str(number): one for number, one in enumerate(one for one in producers if one[0].source.gate is None)}


def written_to(token: StreamToken, attempt: Attempt) -> PurePosixPath:
    """The path to which an attempt writes the file of a token."""
    return attempt.output_directory / token.source.path


def input_stream(
    token: StreamToken,
    attempt: Attempt,
    reader: NodeRuntime,
    stream: str | None = None,
    net: int | None = None,
    closes: int | None = None,
    most: int | None = None,
    window: bool = False,
) -> InputStream:
    """The spec of an input whose bytes are fed to the job while one attempt of its producer writes them.

    :param reader: the node runtime of the job that reads; it reaches the producer's runtime
    :param stream: the name of the stream in the reading job
    :param net: the bytes after which the stream is under the net, and a pipe before. No hint says then that the job
        reads it front to back. None: the stream is always a pipe
    :param closes: the file counts as complete after this many closes after writing; None: only after its commit
    :param most: the most bytes that the job may get as a stream; None: all
    :param window: whether the producer may discard what the job has read
    """
    assert attempt.node_job is not None, "only a job under a node runtime has stream tokens"
    path = written_to(token, attempt)
    shared = attempt.node_job.shared_with(reader, path)
    link = attempt.node_job.link_to(reader)
    return InputStream(
        **({"path": str(path)} if shared is None else asdict(shared)),
        name=token.source.job,
        port=token.source.port,
        link=link,
        target={"fifo": token.value["path"]},
        id=stream,
        progress=True,
        net=net is not None,
        pipe=net or 0,
        closes=None if link is not None else closes,
        most=most,
        window=window,
    )


def part_inputs(
    inputs: Mapping[str, Token], streamable: Collection[str], link: Callable[[PartToken], Link | None]
) -> tuple[PartInput, ...]:
    """The specs of the inputs of a job that are parts of files.

    :param streamable: the names of the inputs that are read front to back, once
    :param link: returns the link over which a part is fetched from its host; None: the job reads the file
    """
    return tuple(
        _part_input(name, token, "fifo" if name in streamable else "file", link(token))
        for name, token in parts_of(inputs)
    )


def _part_input(name: str, token: PartToken, target: str, link: Link | None) -> PartInput:
    number = None if link is None else token.said_by.number
    return PartInput(
        name=name, port=token.port, part=token.part, target={target: token.value["path"]}, link=link, number=number
    )


def byte_streams(inputs: Mapping[str, Token], producers: Producers, streamable: Collection[str]) -> list[str]:
    """The names of the inputs that the command of a job gets as byte streams.

    :param streamable: the names of the inputs that are byte streams if they are parts of files
    """
    streamed = {id(token) for token, attempt in producers if token.source.gate is None and held(token, attempt) is None}
    streams = {name for name, value in inputs.items() if any(id(token) in streamed for token in stream_tokens(value))}
    streams |= {name for name, _ in parts_of(inputs) if name in streamable}
    return [name for name in inputs if name in streams]


async def place_inputs(inputs: Mapping[str, Token], producers: Producers, reader: NodeJob) -> dict[str, Token] | None:
    """Return the inputs of an attempt, with the present paths of files that producers hold.

    Such a file is at the place where it is held, or in the file system. Waits for the end of a producer that holds a
    file which the reader does not see.

    :return: None: such a producer has failed
    """
    placed: dict[int, Token] = {}
    for token, attempt in producers:
        if (place := held(token, attempt)) is None:
            continue
        if attempt.succeeded.done() or not reader.sees(place):
            if not await asyncio.shield(attempt.succeeded):
                return None
            place = written_to(token, attempt)
        paths = {"path": str(place), "location": f"file://{place}", "dirname": str(place.parent)}
        placed[id(token)] = token.update({**token.value, **paths})
        placed[id(token)].persistent_id = token.persistent_id
    return {name: with_files(token, placed) for name, token in inputs.items()}


def growing_file(token: Token | None, producers: Producers, reader: NodeRuntime) -> PurePosixPath | None:
    """The growing file of a stream, if the file is where the reader runs; None: no such stream or place.

    :param reader: the node runtime of the job that reads
    """
    for read, attempt in producers:
        if read is token and read.source.gate is None and held(read, attempt) is None:
            is_here = attempt.node_job is not None and attempt.node_job.runtime is reader
            return written_to(read, attempt) if is_here else None
    return None


def gated_input(token: StreamToken, attempt: Attempt, reader: NodeRuntime) -> GatedInput:
    """The spec of an input that holds the job at the gate until one attempt of its producer has committed the input.

    :param reader: the node runtime of the job that reads; it shares the files of the producer's runtime
    """
    assert token.source.gate is not None
    assert attempt.node_job is not None, "only a job under a node runtime has stream tokens"
    shared = attempt.node_job.shared_with(reader, written_to(token, attempt))
    assert shared is not None, "files at the gate do not leave their host"
    return GatedInput(
        **asdict(shared),
        name=token.source.job,
        port=token.source.port,
        target=token.value["path"],
        kind=token.source.gate,
        mode=token.source.listing if token.source.gate == "directory" else "update",
    )
