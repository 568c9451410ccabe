"""How an attempt of a job has ended, and which error follows."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import re
import signal
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

from streamflow.core.exception import UnrecoverableWorkflowException, WorkflowException, WorkflowExecutionException
from streamflow.core.workflow import CommandOutput, Job, Status, Token
from streamflow.cwl.step import CWLExecuteStep, CWLTransferStep

from streamflow_io._streamflow import UNSEEN
from streamflow_io.adapters.attempts import Attempt, StreamingJobs
from streamflow_io.adapters.inputs import Producers, held
from streamflow_io.adapters.tokens import StreamToken, parts_of, stream_tokens, with_files
from streamflow_io.messages import Code, coded, is_about
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeJob
from streamflow_io.runtime.protocol import ExitEvent, StreamPart
from streamflow_io.runtime.wire import has_opened_again, is_from_outside
from streamflow_io.wording import counted


class ReplacedError(Exception):
    """An output that the job reads is another file in the end than the one that it has read.

    :ivar how: what has happened to the output
    """

    def __init__(self, token: StreamToken, final: Token) -> None:
        source = token.source
        made = "nothing" if final.value is None else final.value["basename"]
        if made == posixpath.basename(source.path):
            made += " with another format, or with secondary files"
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

    :raises ProducerFailedError: if a file never will be final
    :raises ProducerMovesError: if the job has to give up its place first
    """

    async def final(port: str, token: StreamToken) -> Token | None:
        source = token.source
        if port not in names:
            return None
        return await jobs.get(source.job).final(source.port, source.path, from_place=True)

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


class OutOfReachError(Exception):
    """The location of the job does not see a file that was delivered early. The job has to read the complete file.

    :ivar job: the job that writes the file
    """

    def __init__(self, job: str | None, why: str | None) -> None:
        super().__init__(why)
        self.job = job


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
                when = (
                    "it was closed"
                    if part.first.whole
                    else f"{counted(part.first.bytes, 'byte')} of it had been streamed"
                )
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


class JobFailedError(WorkflowExecutionException):  # type: ignore[misc]
    """An attempt of a job failed; the job may be tried again.

    :ivar is_from_outside: whether the command has no part in the failure, as far as is known
    """

    def __init__(self, message: str, is_from_outside: bool = False) -> None:
        super().__init__(message)
        self.is_from_outside = is_from_outside


class ProducerRestartError(Exception):
    """A job that this one reads from has failed: both start again."""


class NodeLostError(Exception):
    """The node of a job is lost. The job starts again at another place, with the jobs that read from it."""


class WindowLostError(Exception):
    """A reader needs the file of a window once more: the job starts again, and keeps its files whole."""


class GaveWayError(Exception):
    """The job was ended because its producer waits for a node. The job starts again when the producer runs."""


@contextmanager
def blaming(node_job: NodeJob) -> Iterator[None]:
    """Let a job that fails be repeated if its runtime may have a part in the failure.

    :raises AttemptLostError: instead of an error of the job
    """
    try:
        yield
    except UnrecoverableWorkflowException:
        raise
    except WorkflowException as error:
        node_job.blame(str(error))
        raise


@contextmanager
def prepared(job: Job) -> Iterator[None]:
    """Let a job be tried again that StreamFlow could not prepare, or whose command StreamFlow could not run.

    :raises JobFailedError: instead of such an error
    """
    try:
        yield
    except UnrecoverableWorkflowException:
        raise
    except WorkflowException as error:
        raise JobFailedError(f"FAILED Job {job.name} with error:\n\t{error}", is_from_outside=True) from error


@contextmanager
def as_failure(job: Job) -> Iterator[None]:
    """Let a job be tried again whose command StreamFlow could not run, or has ended for a time limit.

    :raises JobFailedError: instead of such an error
    """
    try:
        with prepared(job):
            yield
    except asyncio.TimeoutError as error:
        why = str(error) or "a time limit has ended the command"
        raise JobFailedError(f"FAILED Job {job.name}: {why}") from error


@contextmanager
def in_time(job: Job) -> Iterator[None]:
    """Let a job be tried again whose node, or a file system, has not answered in time.

    :raises JobFailedError: instead of the error
    """
    try:
        yield
    except asyncio.TimeoutError as error:
        why = str(error) or "its node, or a file system, does not answer"
        raise JobFailedError(f"FAILED Job {job.name}: {why}", is_from_outside=True) from error


async def exit_of(
    job: Job,
    exiting: Awaitable[ExitEvent | None],
    output: CommandOutput,
    producers: Producers,
    is_queued: bool = False,
) -> ExitEvent:
    """Return the exit event of a job whose command is said to have ended.

    A success that a queue manager reports is not enough: a job that was killed may have ended with 0 for it.

    :param is_queued: whether a queue manager has run the job
    :raises JobFailedError: if there is no exit event
    :raises ProducerRestartError: if the command has not run, and a job that it reads from has failed
    """
    try:
        exit_event = await exiting
    except asyncio.TimeoutError:
        raise JobFailedError(
            f"FAILED Job {job.name}: its command has ended without an exit code: the command was killed "
            "together with sfio-node, or its node has failed",
            is_from_outside=True,
        ) from None
    if exit_event is None:
        _check_producers(producers)  # a producer may have failed while this job was in the queue
        said = str(output.value or "").strip()
        why = said or f"its command did not start{f': {UNSEEN}' if is_queued else ''}"
        raise JobFailedError(f"FAILED Job {job.name} with error:\n\t{why}", is_from_outside=True)
    return exit_event


async def check_exit(
    job: Job,
    exit_event: ExitEvent,
    output: CommandOutput,
    attempt: Attempt,
    producers: Producers,
    streams: Sequence[str] = (),
) -> None:
    """Check that the attempt has succeeded.

    :param streams: the inputs that were byte streams
    :raises JobFailedError: if the attempt failed by itself
    :raises GaveWayError: if the attempt was ended to free its node
    :raises ProducerRestartError: if a job that it reads from failed
    :raises RewrittenError: if a file has changed after the attempt has read it as a stream
    :raises OutOfReachError: if the location of the attempt does not see a file
    :raises OutgrownError: if the attempt asks for more of a file than it may read as a stream
    :raises ReplacedError: if the attempt has read a file that is not the output any more
    :raises UnrecoverableWorkflowException: if another attempt would fail, too
    """
    is_part = any(name == exit_event.input for name, _ in parts_of(job.inputs))
    if exit_event.reason == "rewritten" and is_part:
        raise UnrecoverableWorkflowException(
            coded(
                f"FAILED Job {job.name}: its input `{exit_event.input}` is a part of a file that has changed since it "
                f"was cut: {exit_event.message}",
                Code.CHANGED_SINCE_CUT,
            )
        )
    if exit_event.reason == "rewritten":
        raise RewrittenError(exit_event.input, exit_event.message)
    if exit_event.reason == "unstreamable":
        raise OutOfReachError(exit_event.input, exit_event.message)
    if exit_event.reason == "outgrown":
        raise OutgrownError(exit_event.input, asks=True)
    if exit_event.reason == "producer" and not is_part:
        await _check_blamed(job, exit_event, producers)
        raise ProducerRestartError
    if exit_event.reason == "cancelled":
        if attempt.gave_way:
            raise GaveWayError
        _check_producers(producers)
    if exit_event.message is not None and is_about(exit_event.message, Code.STREAM_REPLACED):
        # A program that has replaced its stream could also replace the file that another attempt would read.
        raise UnrecoverableWorkflowException(f"FAILED Job {job.name}: {exit_event.message}")
    if exit_event.message is not None:
        is_foreign = is_from_outside(exit_event) and not has_opened_again(exit_event)
        raise JobFailedError(f"FAILED Job {job.name}: {exit_event.message}", is_foreign)
    if output.status is not Status.COMPLETED or not exit_event.success:
        hint = _of_streams(streams) if exit_event.reason == "exited" else ""
        said = f"{_why(exit_event, output)}{hint}"
        raise JobFailedError(f"FAILED Job {job.name} with error:\n\t{said}", is_from_outside(exit_event))


async def _check_blamed(job: Job, exit_event: ExitEvent, producers: Producers) -> None:
    """Check that the job has failed that the exit event of its reader blames.

    :raises JobFailedError: if the other job has succeeded with all files that this one reads
    :raises ReplacedError: if an output is another file
    :raises UnrecoverableWorkflowException: if the other job has succeeded without one of the files
    """
    blamed = [(token.source, producer) for token, producer in producers if token.source.job == exit_event.input]
    for source, producer in blamed:
        if not await producer.has_succeeded(job.name):
            return
        check_replaced(producers)
        try:
            if producer.collect is not None:
                await producer.collect(source.port, source.path)
        except UnrecoverableWorkflowException:
            gone = f"FAILED Job {job.name}: job {source.job} has ended without {source.path}: {exit_event.message}"
            raise UnrecoverableWorkflowException(coded(gone, Code.ENDED_WITHOUT)) from None
    if blamed:
        raise JobFailedError(f"FAILED Job {job.name}: {exit_event.message}", is_from_outside=True)


def _check_producers(producers: Producers) -> None:
    if any(attempt.has_failed for _, attempt in producers):
        raise ProducerRestartError


def _of_streams(streams: Sequence[str]) -> str:
    """A hint for a failed command whose inputs were byte streams; empty without streams.

    A command that needs a file says so in many ways, or not at all.
    """
    if not streams:
        return ""
    several = len(streams) > 1
    names = ", ".join(f"`{name}`" for name in streams)
    what = f"inputs {names} were byte streams" if several else f"input {names} was a byte stream"
    told = f"({what}, read once and front to back: if the command needs a file, remove `streamable` from the input)"
    return f"\n\t{coded(told, Code.WAS_A_STREAM)}"


def _why(exit_event: ExitEvent, output: CommandOutput) -> str:
    """The text that a failed command has printed, and how it ended. Many print nothing, or print into an output."""
    if exit_event.reason == "lost":
        how = "sfio-node exec, which ran the command, was killed"
    elif exit_event.signal is not None:
        how = f"ended by signal {exit_event.signal}, {signal.strsignal(exit_event.signal)}"
    elif exit_event.reason == "cancelled":
        how = "the command was cancelled"
    else:
        how = f"exit code {exit_event.code}"
    said = str(output.value or "").strip()
    return f"{said}\n\t({how})" if said else how


# Seconds in which `exec` may end the job itself.
_NOTICE_SECONDS = 2.0
# Seconds for which a job of a queue manager may hold its node while a job that it reads from is still in the queue.
_PATIENCE_SECONDS = 60.0


async def end_with(node_job: NodeJob, token: StreamToken, attempt: Attempt) -> None:
    """End a job when a job that it reads from fails.

    The job's `exec` ends it, too, unless the failure could not be written to the events, as on a full disk.
    """
    if not await attempt.settled(token.source.port, token.source.path):
        if held(token, attempt) is None:
            with contextlib.suppress(asyncio.TimeoutError, NodeRuntimeError):
                await asyncio.wait_for(asyncio.shield(node_job.exit), _NOTICE_SECONDS)
        await node_job.cancel()


async def end_when_lost(node_job: NodeJob, attempt: Attempt) -> None:
    """End a job when a reader needs the file of its window once more."""
    if attempt.windows:
        await asyncio.wait((attempt.lost,))
        await node_job.cancel()


async def give_way(node_job: NodeJob, attempt: Attempt, producers: Producers) -> None:
    """End a job if it has a node while a job that it reads from waits in the queue of a queue manager.

    The other job may need this very node. The job starts again when the other one runs. This does not count as a
    failed attempt.
    """
    waited_for = [producer for _, producer in producers if not producer.has_started]
    if not waited_for:
        return
    await attempt.started()
    try:
        await asyncio.wait_for(asyncio.gather(*(p.started() for p in waited_for)), _PATIENCE_SECONDS)
    except asyncio.TimeoutError:
        attempt.gave_way = True
        await node_job.cancel()


# The words of the C library, and of the runtimes of languages.
_WANT = re.compile(
    r"cannot allocate memory|not enough memory|out ?of ?memory|memory (?:exhausted|error\b)|\bMemoryError\b|bad_alloc"
    r"|no space left on device|disk quota exceeded|too many open files",
    re.IGNORECASE,
)


def is_want(said: str) -> bool:
    """Whether the message of a failed program tells of a lack of memory, space or open files.

    Another run may have enough, so such a failure proves nothing about the program.
    """
    return _WANT.search(said) is not None
