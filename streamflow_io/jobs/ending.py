"""How an attempt of a job has ended, and which error follows."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager

from streamflow.core.exception import UnrecoverableWorkflowException, WorkflowException, WorkflowExecutionException
from streamflow.core.workflow import CommandOutput, Job, Status

from streamflow_io.adapters.attempts import Attempt
from streamflow_io.adapters.inputs import Producers
from streamflow_io.adapters.tokens import parts_of
from streamflow_io.messages import Code, coded, is_about
from streamflow_io.runtime.node_runtime import NodeJob
from streamflow_io.runtime.protocol import ExitEvent
from streamflow_io.runtime.wire import has_opened_again, is_from_outside

from .barrier import OutgrownError, RewrittenError
from .replacing import check_replaced


class JobFailedError(WorkflowExecutionException):  # type: ignore[misc]
    """An attempt of a job failed; the job may be tried again.

    :ivar is_from_outside: whether the command has no part in the failure, as far as is known
    """

    def __init__(self, message: str, is_from_outside: bool = False) -> None:
        super().__init__(message)
        self.is_from_outside = is_from_outside


class ProducerRestartError(Exception):
    """A job that this one reads from has failed: both start again."""


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
def as_failure(job: Job) -> Iterator[None]:
    """Let a job be tried again whose command StreamFlow could not run, or has ended for a time limit.

    :raises JobFailedError: instead of such an error
    """
    try:
        yield
    except UnrecoverableWorkflowException:
        raise
    except WorkflowException as error:
        raise JobFailedError(f"FAILED Job {job.name} with error:\n\t{error}", is_from_outside=True) from error
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
    job: Job, exiting: Awaitable[ExitEvent | None], output: CommandOutput, producers: Producers
) -> ExitEvent:
    """Return the exit event of a job whose command is said to have ended.

    A success that a queue manager reports is not enough: a job that was killed may have ended with 0 for it.

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
        why = said or "its command did not start"
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

    :param job: the reader
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
