"""What the node runtime is told of the inputs that are read before their producers have ended, and of parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import PurePosixPath

from streamflow.core.workflow import Token

from streamflow_io.hints.bandwidth import StaticConstraint, StreamBW, parse_stream_bw
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.runtime.node_runtime import NodeJob, NodeRuntime
from streamflow_io.runtime.protocol import GatedInput, InputStream, Link, PartInput, StreamLimit

from .attempts import Attempt
from .tokens import PartToken, StreamToken, inner_tokens, parts_of, stream_tokens, with_inner_tokens

_MB = 10**6

# What a job reads of others, each with the attempt that it reads.
Producers = Sequence[tuple[StreamToken, Attempt]]


def held(token: StreamToken, attempt: Attempt) -> PurePosixPath | None:
    """Where an attempt holds what a token stands for; None: nowhere, it is streamed, or waited for at the gate."""
    return None if attempt.node_job is None else attempt.node_job.held(token.source.port, token.source.path)


def held_now(producers: Producers) -> list[PurePosixPath]:
    """Where those hold what is read of them that have not ended."""
    places = [held(token, attempt) for token, attempt in producers if not attempt.succeeded.done()]
    return [place for place in places if place is not None]


def numbered_streams(producers: Producers) -> dict[str, tuple[StreamToken, Attempt]]:
    """What a job reads as byte streams, by what each of them is called there."""
    return {str(number): one for number, one in enumerate(one for one in producers if one[0].source.gate is None)}


def written_to(token: StreamToken, attempt: Attempt) -> PurePosixPath:
    """Where an attempt writes what a token stands for."""
    return attempt.output_directory / token.source.path


def input_stream(
    token: StreamToken,
    attempt: Attempt,
    reader: NodeRuntime,
    config: SchedulerConfig | None = None,
    stream: str | None = None,
    net: int | None = None,
    closes: int | None = None,
    most: int | None = None,
) -> InputStream:
    """An input whose bytes are fed to the job as one attempt of its producer writes them.

    What is required is told while it runs: see :mod:`.stream_rates`.

    :param reader: where the job runs that reads; it reaches the producer's runtime
    :param config: how much of what was fed is compared with the file at the commit, and whether its rate is limited
    :param stream: what it is called there
    :param net: no hint says that the job reads it front to back: it is under the net; after so many bytes, and a pipe
        before. None: it is a pipe
    :param closes: when it was closed after writing so often it is taken to be complete; None: when it is committed
    :param most: so many of its bytes the job may get as a stream; None: all
    """
    config = config or SchedulerConfig()
    bandwidth = stream_bw(token) if config.limits else None
    limit = None
    if isinstance(bandwidth, StaticConstraint):
        limit = StreamLimit(rate=max(1, round(bandwidth.value * _MB)))
    assert attempt.node_job is not None, "only a job under a node runtime has stream tokens"
    path = written_to(token, attempt)
    shared = attempt.node_job.shared_with(reader, path)
    link = attempt.node_job.link_to(reader)
    return InputStream(
        **({"path": str(path)} if shared is None else vars(shared)),
        name=token.source.job,
        port=token.source.port,
        link=link,
        target={"fifo": token.value["path"]},
        verify=config.verify,
        limit=limit,
        id=stream,
        phases=True,
        net=net is not None,
        pipe=net or 0,
        closes=None if link is not None else closes,
        most=most,
    )


def stream_bw(token: StreamToken) -> StreamBW | None:
    """With how much the bytes of an output are streamed to each reader at most; None: no limit."""
    return None if token.source.bandwidth is None else parse_stream_bw(token.source.bandwidth)


def part_inputs(
    inputs: Mapping[str, Token], streamable: Collection[str], link: Callable[[PartToken], Link | None]
) -> tuple[PartInput, ...]:
    """The inputs of a job that are parts of files.

    :param streamable: the names of those that are read front to back, once
    :param link: how a part is had from elsewhere; None: the job reads the file
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
    """The inputs of a job that its command gets as byte streams.

    :param streamable: the names of those that are, if they are parts of files
    """
    streamed = {id(token) for token, attempt in producers if token.source.gate is None and held(token, attempt) is None}
    streams = {name for name, value in inputs.items() if any(id(token) in streamed for token in stream_tokens(value))}
    streams |= {name for name, _ in parts_of(inputs) if name in streamable}
    return [name for name in inputs if name in streams]


async def place_inputs(inputs: Mapping[str, Token], producers: Producers, reader: NodeJob) -> dict[str, Token] | None:
    """The inputs of an attempt, with the paths where what producers hold is now: held, or in the file system.

    Waits for a producer that holds what the reader does not see.

    :return: None if such a producer has failed
    """
    paths: dict[int, PurePosixPath] = {}
    for token, attempt in producers:
        if (place := held(token, attempt)) is None:
            continue
        if attempt.succeeded.done() or not reader.sees(place):
            if not await asyncio.shield(attempt.succeeded):
                return None
            place = written_to(token, attempt)
        paths[id(token)] = place
    return {name: _placed(token, paths) for name, token in inputs.items()}


def _placed(token: Token, paths: Mapping[int, PurePosixPath]) -> Token:
    if (path := paths.get(id(token))) is not None:
        value = {**token.value, "path": str(path), "location": f"file://{path}", "dirname": str(path.parent)}
        placed = token.update(value)
    elif inner_tokens(token):
        placed = with_inner_tokens(token, lambda inner: _placed(inner, paths))
    else:
        return token
    placed.persistent_id = token.persistent_id
    return placed


def growing_file(token: Token | None, producers: Producers, reader: NodeRuntime) -> PurePosixPath | None:
    """The file in which the bytes of a stream are that is written where its reader runs; None: it is no such stream.

    :param reader: where the job runs that reads
    """
    for read, attempt in producers:
        if read is token and read.source.gate is None and held(read, attempt) is None:
            is_here = attempt.node_job is not None and attempt.node_job.runtime is reader
            return written_to(read, attempt) if is_here else None
    return None


def gated_input(token: StreamToken, attempt: Attempt, reader: NodeRuntime) -> GatedInput:
    """An input that the job is held at until one attempt of its producer has committed it.

    :param reader: where the job runs that reads; it shares the files of the producer's runtime
    """
    assert token.source.gate is not None
    assert attempt.node_job is not None, "only a job under a node runtime has stream tokens"
    shared = attempt.node_job.shared_with(reader, written_to(token, attempt))
    assert shared is not None, "files at the gate do not leave their host"
    return GatedInput(
        **vars(shared),
        name=token.source.job,
        port=token.source.port,
        target=token.value["path"],
        kind=token.source.gate,
        mode=token.source.listing if token.source.gate == "directory" else "update",
    )
