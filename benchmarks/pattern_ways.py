"""The ways from producers to consumers: files in sequence, shell pipes, and the rules of the node runtime."""

from __future__ import annotations

import asyncio
import hashlib
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from streamflow_io.runtime.embedded import EmbeddedRuntime
from streamflow_io.runtime.node_runtime import NodeJob
from streamflow_io.runtime.protocol import (
    Committed,
    CompleteEvent,
    GatedInput,
    InputStream,
    JobSpec,
    Kind,
    OutputRule,
    WatchedOutput,
)

from .model import Sample
from .node import first_warning, with_runtime
from .processes import CommandError, run
from .workload import Outcome


@dataclass(frozen=True)
class Output:
    """The output of every producer.

    :ivar files: the number of files in the directory; None makes it a file
    """

    name: str
    files: int | None = None


@dataclass(frozen=True)
class Consumer:
    """Reads some outputs of every producer, and prints what follows from them alone.

    :ivar command: to which the paths of its inputs are added, producer by producer
    :ivar reads: names of outputs
    :ivar listing: the command that lists directories, where `command` reads files whose names it knows
    """

    command: tuple[str, ...]
    reads: tuple[str, ...]
    listing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pattern:
    """Producers, which all run at once, and consumers.

    :ivar producers: commands, to which the paths of the outputs are added
    """

    name: str
    producers: tuple[tuple[str, ...], ...]
    outputs: tuple[Output, ...]
    consumers: tuple[Consumer, ...]

    def inputs(self, consumer: Consumer) -> Iterator[tuple[int, Output]]:
        """Number of the producer, and output, in the order of the consumer's arguments."""
        for producer in range(len(self.producers)):
            for output in self.outputs:
                if output.name in consumer.reads:
                    yield producer, output


@dataclass(frozen=True)
class Way:
    """How the node runtime delivers. A file is committed when it is closed, a directory with its number of files.

    :ivar delivery: a byte stream; at commit, when the consumer starts; or the gate, which holds the consumer
    :ivar mode: of the gate, for directories
    :ivar listing: consumers list directories
    """

    name: str
    delivery: Literal["stream", "commit", "gate"]
    mode: Literal["update", "no_update"] = "update"
    listing: bool = False


BYTE_STREAM = Way("byte stream", "stream")
COMMIT = Way("commit", "commit")
GATE = Way("gate", "gate")
LISTING = Way("gate, listing", "gate", "no_update", listing=True)


def run_sequence(pattern: Pattern, directory: Path) -> Outcome:
    """First all producers, then all consumers, on plain files."""
    producing, consuming = _make(directory, "producing"), _make(directory, "consuming")
    first = run(_producers(pattern, directory), producing)
    last = run([_consume(pattern, consumer, directory) for consumer in pattern.consumers], consuming)
    return outcome(pattern, first.seconds + last.seconds, consuming)


def run_pipe(pattern: Pattern, directory: Path) -> Outcome:
    """A pipe from each producer to the one consumer; no file is written."""
    (consumer,) = pattern.consumers
    pipes = (f"<({shlex.join([*producer, '/dev/stdout'])})" for producer in pattern.producers)
    script = " ".join((shlex.join(consumer.command), *pipes))
    return outcome(pattern, run([["bash", "-c", script]], directory).seconds, directory)


def run_runtime(pattern: Pattern, way: Way, directory: Path) -> Outcome:
    """All jobs under the node runtime.

    :raises CommandError: if a job fails, or the runtime warns: then it did not do what is to be measured
    """
    return with_runtime(directory, lambda runtime: _Run(pattern, way, directory, runtime).run())


class _Run:
    def __init__(self, pattern: Pattern, way: Way, directory: Path, runtime: EmbeddedRuntime) -> None:
        self._pattern = pattern
        self._way = way
        self._directory = directory
        self._runtime = runtime
        self._producers: list[NodeJob] = []
        self._consumers: list[NodeJob] = []

    async def run(self) -> Outcome:
        self._producers = [await self._runtime.create_job("producer") for _ in self._pattern.producers]
        self._consumers = [await self._runtime.create_job("consumer") for _ in self._pattern.consumers]
        producer_commands = [
            [*await job.wrap(_producer_spec(self._pattern, number, self._directory)), *command]
            for number, (job, command) in enumerate(
                zip(self._producers, _producers(self._pattern, self._directory), strict=True)
            )
        ]
        consumer_commands = [await self._consumer(number) for number in range(len(self._pattern.consumers))]
        producing, consuming = _make(self._directory, "producing"), _make(self._directory, "consuming")
        start = time.monotonic()
        producers = asyncio.create_task(asyncio.to_thread(run, producer_commands, producing))
        if self._way.delivery == "commit":
            committed = await asyncio.gather(*(self._is_complete(job) for job in self._producers))
            if not all(committed):
                await producers
                raise CommandError("a producer has ended without having committed its outputs")
        await asyncio.gather(producers, asyncio.to_thread(run, consumer_commands, consuming))
        seconds = time.monotonic() - start
        for job in self._consumers:
            if (warning := await first_warning(job)) is not None:
                raise CommandError(f"the node runtime warns: {warning}")
        return outcome(self._pattern, seconds, consuming)

    async def _is_complete(self, job: NodeJob) -> bool:
        missing = {output.name for output in self._pattern.outputs}
        async for event in job.events():
            if isinstance(event, CompleteEvent):
                missing.discard(event.port)
                if not missing:
                    return True
        return False

    async def _consumer(self, number: int) -> list[str]:
        consumer, job = self._pattern.consumers[number], self._consumers[number]
        inputs = list(self._pattern.inputs(consumer))
        command = consumer.listing if self._way.listing else consumer.command
        if self._way.delivery == "commit":
            return [*await job.wrap(JobSpec(name="consumer")), *_consume(self._pattern, consumer, self._directory)]
        into = _make(self._directory, f"consumer.{number}")
        targets = [into / f"{producer}.{output.name}" for producer, output in inputs]
        if self._way.delivery == "stream":
            spec = JobSpec(name="consumer", streams=tuple(map(self._stream, inputs, targets)))
        else:
            spec = JobSpec(name="consumer", gates=tuple(map(self._gate, inputs, targets)))
        return [*await job.wrap(spec), *command, *map(str, targets)]

    def _stream(self, source: tuple[int, Output], target: Path) -> InputStream:
        producer, output = source
        return InputStream(
            name=target.name,
            port=output.name,
            path=str(output_path(self._directory, producer, output)),
            events=str(self._producers[producer].events_path),
            target={"fifo": str(target)},
        )

    def _gate(self, source: tuple[int, Output], target: Path) -> GatedInput:
        producer, output = source
        return GatedInput(
            name=target.name,
            port=output.name,
            path=str(output_path(self._directory, producer, output)),
            events=str(self._producers[producer].events_path),
            target=str(target),
            kind="file" if output.files is None else "directory",
            mode="update" if output.files is None else self._way.mode,
        )


def output_path(directory: Path, producer: int, output: Output) -> Path:
    """Where a producer writes an output, in the directory of a run."""
    return directory / f"producer.{producer}" / output.name


def outcome(pattern: Pattern, seconds: float, consuming: Path) -> Outcome:
    """Make the outcome, with a digest of the bytes that the consumers have printed.

    :param consuming: where they ran
    """
    digest = hashlib.sha256()
    for number in range(len(pattern.consumers)):
        digest.update((consuming / f"output.{number}").read_bytes())
    return Outcome(Sample(wall=seconds, window=seconds), {pattern.name: digest.hexdigest()})


def _producers(pattern: Pattern, directory: Path) -> list[list[str]]:
    commands = []
    for number, command in enumerate(pattern.producers):
        _make(directory, f"producer.{number}")
        commands.append([*command, *(str(output_path(directory, number, output)) for output in pattern.outputs)])
    return commands


def _consume(pattern: Pattern, consumer: Consumer, directory: Path) -> list[str]:
    paths = (output_path(directory, producer, output) for producer, output in pattern.inputs(consumer))
    return [*consumer.command, *map(str, paths)]


def _producer_spec(pattern: Pattern, number: int, directory: Path) -> JobSpec:
    outputs = tuple(_watched(output, directory / f"producer.{number}") for output in pattern.outputs)
    return JobSpec(name="producer", outputs=outputs)


def _watched(output: Output, root: Path) -> WatchedOutput:
    kind: Kind = "file" if output.files is None else "directory"
    committed: Committed = "on_close" if output.files is None else "on_n_files"
    rule = OutputRule(committed=committed, n_files=output.files)
    return WatchedOutput(port=output.name, root=str(root), globs=(output.name,), kind=kind, rules=(rule,))


def _make(directory: Path, name: str) -> Path:
    (made := directory / name).mkdir()
    return made
