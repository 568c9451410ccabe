"""One job of a streaming step: its attempts under the node runtime, until one succeeds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import cast

from msgspec import Struct
from msgspec.structs import replace
from streamflow.core.exception import UnrecoverableWorkflowException, WorkflowException
from streamflow.core.workflow import CommandOutput, Job, Status, Token
from streamflow.cwl.command import CWLCommand
from streamflow.log_handler import logger

from streamflow_io._streamflow import RetryPolicy, has_lost_place, prepare_work_dir, retry_policy
from streamflow_io.adapters.attempts import Attempt, ProducerFailedError, ProducerMovesError, ReadWindows, StreamingJob
from streamflow_io.adapters.inputs import (
    Producers,
    byte_streams,
    gated_input,
    held,
    held_now,
    input_stream,
    numbered_streams,
    part_inputs,
    place_inputs,
)
from streamflow_io.adapters.job_spec import job_spec
from streamflow_io.adapters.output_globs import expression_context, output_globs
from streamflow_io.adapters.paths import job_path
from streamflow_io.adapters.steps import Connectors, StreamingExecuteStep
from streamflow_io.adapters.tokens import (
    StreamSource,
    StreamToken,
    file_bytes,
    parts_of,
    stream_tokens,
    streams_of,
    with_own_value,
)
from streamflow_io.messages import Code, coded
from streamflow_io.parts.splitting import Split
from streamflow_io.runtime.node_commands import AttemptLostError, NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeJob, NodeRuntime
from streamflow_io.runtime.protocol import JobSpec
from streamflow_io.runtime.values import readable
from streamflow_io.storage.intermediates.job_in_memory import JobInMemory
from streamflow_io.tasks import to_the_end

from .delivering import CommitChangedError, Deliverer
from .ending import (
    GaveWayError,
    JobFailedError,
    NodeLostError,
    OutgrownError,
    OutOfReachError,
    ProducerRestartError,
    ReplacedError,
    RewrittenError,
    WindowLostError,
    as_failure,
    blaming,
    check_exit,
    check_read,
    check_replaced,
    end_when_lost,
    end_with,
    exit_of,
    give_way,
    in_time,
    prepared,
    settled,
    with_replacements,
)
from .job_logs import LastWords
from .learned_streams import LearnedReads, LearnedWrites
from .streaming_run import MovesFirst, StreamingRun, move


class _Prepared(Struct, frozen=True):
    """An attempt that is about to run under a node runtime.

    :ivar command: of the job, for this attempt
    :ivar globs: of the outputs that other jobs may get early
    :ivar split: how the job splits files
    """

    node_job: NodeJob
    command: CWLCommand
    globs: Mapping[str, tuple[str, ...]]
    split: Split
    spec: JobSpec
    attempt: Attempt


class Execution:
    """Runs a job of a streaming step.

    Guarantees:

    - Committed outputs are delivered only when every job that this one streams from has succeeded, or has committed
      what was read.
    - A failed attempt is repeated with the jobs that read from it, as often as the failure manager allows: in place, or
      at another place if its node is lost.
    - When :meth:`run` returns or raises, no process of the job is left.
    - Without a node runtime the job runs as with plain StreamFlow, and delivers all outputs at its end.
    """

    def __init__(self, run: StreamingRun, step: StreamingExecuteStep, job: Job, connectors: Connectors) -> None:
        self._run = run
        self._step = step
        self._job = job
        self._state = run.jobs.of(job)
        self._state.executes(step, job)
        self._connectors = connectors
        self._deliverer = Deliverer(step, job, connectors)
        self._streams = streams_of(job.inputs)
        self._first_output: str = job.output_directory
        self._first_temporary: str = job.tmp_directory
        self._inputs: Mapping[str, Token] = job.inputs
        self._command = cast(CWLCommand, step.command)
        self._reads_what_is_final = False
        self._lost_a_producer = False
        # Whether other files have taken the place of outputs that the job reads as streams.
        self._has_replacements = False
        # Whether the job has to get another place before its next attempt.
        self._is_to_move = False
        # Whether the preparation of an attempt has failed, and may have put files into the directories of the job.
        self._needs_directories = False
        self._windows = ReadWindows(job.name)
        self._has_windows = any(output.window is not None for output in step.early_outputs)
        self._splitting = run.cuts.splitting(step, job)
        self._learned = LearnedReads(run.proofs.streams, step, self._state)
        self._writes = LearnedWrites(run.proofs.streams, step.name)

    async def run(self) -> None:
        """Run the job until an attempt succeeds.

        :raises UnrecoverableWorkflowException: if the job fails for good: streams cannot be rolled back
        """
        jobs, deliverer = self._run.streaming_jobs, self._deliverer
        await jobs.vacant(self._job.name)
        record = jobs.open(self._job.name, deliverer.final, deliverer.replacement)
        try:
            while True:
                try:
                    if self._is_to_move:
                        await self._move(record)
                    return await self._attempt_in_time(record)
                except AttemptLostError as error:
                    logger.info(f"Job {self._job.name} starts again without {error.without}: {error}")
                    self._run.reach.fell_back(self._state, None, str(error), error.without)
                    await self._failed()
                except ProducerRestartError:
                    self._lost_a_producer = True
                except ProducerMovesError:
                    self._is_to_move = True
                except NodeLostError as error:
                    await self._wait_for_retry(error, "at another place")
                    await self._failed()
                    self._is_to_move = True
                except WindowLostError as error:
                    self._has_windows = False
                    why = "a reader needs the whole file" if record.latest.lost.done() else str(error)
                    again = f"Job {self._job.name} starts again, and keeps its files whole: {why}"
                    logger.warning(coded(again, Code.WINDOW_LOST))
                    await self._failed()
                except RewrittenError as error:
                    await self._read_again(error)
                    await self._failed()
                except OutOfReachError as error:
                    self._read_as_file(error)
                    await self._failed()
                except OutgrownError as error:
                    self._learned.outgrown(self._inputs, error)
                    await self._failed()
                except ReplacedError as error:
                    await self._note_replacement(error)
                except GaveWayError:
                    logger.info(f"Job {self._job.name} gives up its node until the jobs from which it reads have nodes")
                except ProducerFailedError as error:
                    raise UnrecoverableWorkflowException(
                        f"CANCELLED Job {self._job.name}: job {error}, from which it reads, has failed"
                    ) from None
                except JobFailedError as error:
                    self._needs_directories = True
                    if (memory := self._memory) is not None:
                        # The next attempt writes to the disk: the files may have found no space in memory.
                        why = "they are larger than those of earlier jobs" if memory.has_outgrown else str(error)
                        logger.info(f"Job {self._job.name} starts again, with its files on the disk: {why}")
                    elif self._learned.blamed(error):
                        self._give_up(self._learned.given_up)
                    else:
                        self._is_to_move = await self._has_space_elsewhere(error) or self._is_to_move
                        await self._wait_for_retry(error, "at another place" if self._is_to_move else "in place")
                    await self._failed()
                except NodeRuntimeError as error:
                    # Readers of the job have the place of this attempt, and StreamFlow cannot roll streams back.
                    if self._retry_policy().take():
                        does = "delivers before its end" if self._step.early_outputs else "reads a stream"
                        why = f"{error}. A job that {does} is tried again only where it ran"
                        raise UnrecoverableWorkflowException(why) from None
                    raise
                except UnicodeEncodeError as error:
                    raise UnrecoverableWorkflowException(
                        f"FAILED Job {self._job.name}: StreamFlow has no File with a name that is not UTF-8: "
                        f"{readable(str(error.object))}"
                    ) from None
        finally:
            self._windows.end()
            self._run.sessions.split_ended(self._state)
            jobs.close(record, may_be_read=deliverer.has_streamed)

    async def _read_again(self, error: RewrittenError) -> None:
        """Let the next attempt read final files. The results of this one are void, but no other job has got them.

        This does not count as a failed attempt.

        :raises UnrecoverableWorkflowException: if the attempt has read final files already
        """
        if await self._learned.rewritten(self._inputs, error):
            return
        if self._reads_what_is_final:
            raise UnrecoverableWorkflowException(f"FAILED Job {self._job.name}: {error}") from None
        self._reads_what_is_final = True
        again = f"Job {self._job.name} starts again when its input is final: {error}"
        logger.warning(coded(again, Code.REWRITTEN))
        reason = coded(f"the reader has started again: {error.how or 'the file was changed'}", Code.REWRITTEN)
        self._fell_back((token.source for token in self._streams if token.source.job == error.job), reason)

    def _read_as_file(self, error: OutOfReachError) -> None:
        """Let the next attempt read the complete file. This does not count as a failed attempt."""
        again = f"Job {self._job.name} starts again with the complete file: {error}"
        logger.warning(coded(again, Code.OUT_OF_REACH))
        reason = coded(f"the reader has started again: {error}", Code.OUT_OF_REACH)
        self._fell_back(self._learned.read_as_files(self._inputs, error.job), reason)

    def _give_up(self, inputs: Collection[str]) -> None:
        """Record that the job gets the file of a stream with which the job has failed."""
        failed = "the reader has failed with the stream, and starts again with the file"
        reason = coded(failed, Code.NOT_AS_DECLARED)
        self._fell_back((token.source for name in inputs for token in stream_tokens(self._inputs[name])), reason)

    def _fell_back(self, sources: Iterable[StreamSource], reason: str) -> None:
        """Record that the job gets outputs of other jobs only when these are complete."""
        for source in sources:
            self._run.reach.fell_back(self._state, (source.job, source.port), reason)

    async def _note_replacement(self, error: ReplacedError) -> None:
        """Let the next attempt read the file that has taken the place of an output."""
        if not await self._learned.replaced(error):
            again = f"Job {self._job.name} starts again with the final output: {error}"
            logger.warning(coded(again, Code.REPLACED))
            source = error.token.source
            reason = coded(f"the reader has started again: the output {error.how}", Code.REPLACED)
            self._run.reach.fell_back(self._state, (source.job, source.port), reason)
        self._has_replacements = True

    async def _wait_for_retry(self, error: JobFailedError | NodeLostError, where: str = "in place") -> None:
        policy = self._retry_policy()
        if not policy.take():
            raise UnrecoverableWorkflowException(str(error)) from None
        logger.warning(f"{error}\nThe job is tried again {where}, with the jobs that read from it")
        await asyncio.sleep(policy.delay)

    def _retry_policy(self) -> RetryPolicy:
        return retry_policy(self._step.workflow.context.failure_manager, self._job.name)

    @property
    def _is_lost(self) -> bool:
        """Whether the node of the job is lost."""
        return has_lost_place(self._step.workflow.context, self._job.name)

    async def _has_space_elsewhere(self, error: JobFailedError) -> bool:
        """Whether an attempt has failed where the disk is full, and there is space at another place."""
        words = None if error.is_from_outside else self._state.kept(LastWords)
        await self._run.full_disks.failed(self._state, None if words is None else words.full)
        return await self._run.full_disks.look(self._job.name, self._state.targets)

    async def _move(self, record: StreamingJob) -> None:
        """Give the job another place, when the jobs from which it reads have theirs: they may need its cores.

        A job whose window it has read starts again first. It may hold the cores that this one needs, and wait for it.

        :raises UnrecoverableWorkflowException: if there is no other place
        :raises ProducerFailedError: if such a job has failed for good
        """

        async def producers_run() -> None:
            await self._windows.read_again()
            for token in self._streams:
                await self._run.streaming_jobs.get(token.source.job).attempt()

        record.move()
        try:
            self._inputs = await move(self._step, self._job, self._inputs, producers_run)
        except WorkflowException as error:
            raise UnrecoverableWorkflowException(
                f"FAILED Job {self._job.name}: it cannot start at another place: {error}"
            ) from error
        self._is_to_move = False
        self._streams = streams_of(self._inputs)
        self._job.inputs = dict(self._inputs)
        self._state = self._run.jobs.of(self._job)
        self._learned.moved(self._state)
        self._state.executes(self._step, self._job)
        self._first_output, self._first_temporary = self._job.output_directory, self._job.tmp_directory

    async def _attempt_in_time(self, record: StreamingJob) -> None:
        """Try the job.

        :raises NodeLostError: if its node is lost
        """
        try:
            with in_time(self._job):
                await self._attempt(record)
        except (UnrecoverableWorkflowException, ProducerFailedError, ProducerMovesError, ProducerRestartError):
            raise
        except Exception as error:
            if self._is_lost:
                why = str(error).removeprefix(f"FAILED Job {self._job.name}").removeprefix(":").strip()
                raise NodeLostError(f"FAILED Job {self._job.name}: {why}") from error
            raise

    async def _attempt(self, record: StreamingJob) -> None:
        with prepared(self._job):
            runtime, producers = await self._begin(record)
        if runtime is None:
            await self._run_without(record)
        elif self._is_short(record, runtime):
            began = time.monotonic()
            await self._run_without(record)
            self._run.proofs.short_jobs.ran_plainly(self._step.name, time.monotonic() - began)
        elif self._learned.are_out_of_reach(
            self._inputs, runtime, producers, self._run.reach
        ) or self._learned.are_too_large(self._inputs, producers):
            await self._attempt(record)
        else:
            await self._run_under(runtime, record, producers)

    async def _begin(self, record: StreamingJob) -> tuple[NodeRuntime | None, Producers]:
        """Begin an attempt.

        :return: the node runtime, if there is one; the streams that the attempt reads, with their producers
        :raises ProducerRestartError: if a job that this one reads from is tried again
        :raises ProducerMovesError: if such a job has no place
        """
        if self._state.drop(MovesFirst) is not None:
            raise ProducerMovesError
        await self._windows.read_again()
        await self._learned.begin(self._run.reach)
        if self._has_replacements:
            self._inputs = await with_replacements(self._step, self._job, self._inputs, self._run.streaming_jobs)
            self._has_replacements = False
        self._inputs = await self._learned.take(self._inputs, self._run.streaming_jobs)
        self._streams = streams_of(self._inputs)
        gave_way = record.attempts > 0 and record.latest.gave_way
        producers = [(token, await self._producer(token, gave_way)) for token in self._streams]
        if self._lost_a_producer:
            self._lost_a_producer = False
            logger.info(f"Job {self._job.name} starts again: a job from which it reads has failed, and is tried again")
        if self._reads_what_is_final and not await settled(producers):
            raise ProducerRestartError
        check_replaced(producers)
        if record.attempts > 0 or self._needs_directories:
            await self._in_time(self._new_directories)
        return await self._run.reach.runtime(self._state), producers

    def _in_windows(self, producers: Producers) -> dict[int, Attempt]:
        """The attempts that discard what this job has read of a stream, by the identity of its token.

        Nothing that is known may make the job need the file.
        """
        asked = [(token, attempt) for token, attempt in producers if token.source.port in attempt.windows]
        if not asked:
            return {}
        may_go_back = self._learned.under_net(self._inputs).keys() | self._learned.largest(self._inputs).keys()
        return {
            id(token): attempt
            for token, attempt in asked
            if id(token) not in may_go_back and self._learned.closes(token) is None
        }

    def _is_short(self, record: StreamingJob, runtime: NodeRuntime) -> bool:
        """Whether the job is too short to gain anything from a stream, and no hint has asked for one.

        Other jobs may still read the stream of an earlier attempt. In a queue even a short job takes long.
        """
        if record.attempts > 0 or self._streams or runtime.wrapper == "run" or parts_of(self._inputs):
            return False
        return self._run.proofs.short_jobs.is_short(self._step.name, file_bytes(self._inputs))

    async def _run_without(self, record: StreamingJob) -> None:
        """Run an attempt as plain StreamFlow does. Its inputs are files, for the command can read no stream.

        :raises UnrecoverableWorkflowException: if an input is a part, which is in no file of its own
        :raises JobFailedError: if the command fails, or has made no such outputs
        """
        if parts := parts_of(self._inputs):
            names = ", ".join(sorted({token.value["basename"] for _, token in parts}))
            raise UnrecoverableWorkflowException(
                f"FAILED Job {self._job.name}: no job has written {names}, and no node runtime at its "
                "location delivers the bytes"
            )
        self._take(self._inputs)
        attempt = record.begin(PurePosixPath(self._job.output_directory))
        self._deliverer.begin(attempt, {})
        attempt.start()
        try:
            with as_failure(self._job):
                output = await self._command.execute(self._job)
            if output.status is not Status.COMPLETED:
                said = str(output.value or "").strip() or "its command has failed without a message"
                raise JobFailedError(f"FAILED Job {self._job.name} with error:\n\t{said}")
            await self._check_memory()
            with self._learned.suspecting():
                tokens = await self._step.collect(self._job, output, self._connectors, {})
            await self._deliverer.succeeded(tokens)
            attempt.end(True)
        finally:
            attempt.end(False)

    async def _prepare(self, runtime: NodeRuntime, record: StreamingJob, producers: Producers) -> _Prepared:
        """Prepare an attempt under a node runtime.

        :raises ProducerRestartError: if a job that this one reads from is tried again
        """
        windows = self._in_windows(producers)
        self._windows.begin(windows.values())
        waiting = partial(settled, producers) if producers else None
        named = partial(output_globs, self._step, self._job)
        node_job = await runtime.create_job(self._job.name, held_now(producers), waiting, named)
        if (inputs := await place_inputs(self._inputs, producers, node_job)) is None:
            raise ProducerRestartError
        self._take(inputs)
        command = self._command
        if command.initial_work_dir is not None:
            # Before the globs are evaluated: an input that is put there under another name can change them.
            command = await prepare_work_dir(command, self._job, expression_context(self._step, self._job))
        globs = {output.port: output_globs(self._step, self._job, output.port) for output in self._step.early_outputs}
        split = await self._splitting.begin(runtime, node_job, self._inputs, producers)
        spec = self._spec(node_job, [read for read in producers if held(*read) is None], globs, split, windows)
        await self._run.sessions.split(self._state, split, runtime)
        attempt = record.begin(PurePosixPath(self._job.output_directory), node_job)
        attempt.largest = self._learned.largest(self._inputs)
        if self._has_windows:
            attempt.windows = {output.port for output in self._step.early_outputs if output.window is not None}
        self._deliverer.begin(attempt, globs)
        return _Prepared(node_job, command, globs, split, spec, attempt)

    async def _run_under(self, runtime: NodeRuntime, record: StreamingJob, producers: Producers) -> None:
        with prepared(self._job):
            ready = await self._prepare(runtime, record, producers)
        node_job, attempt, split = ready.node_job, ready.attempt, ready.split
        runner = self._run.runner
        events = self._learned.told(self._writes.told(split.told(runner.events(self._state, node_job))))
        permitted = partial(self._run.proofs.awaited.permitted, self._step.name)
        losing = asyncio.create_task(end_when_lost(node_job, attempt))
        following = asyncio.gather(
            self._deliverer.follow(attempt, events, producers, runtime.wrapper == "run", permitted),
            give_way(node_job, attempt, producers),
            *(end_with(node_job, *producer) for producer in producers),
        )
        # A job runs once more only with all files of its inputs and outputs.
        has_windows = bool(attempt.windows or self._windows)
        rehearsals = None if has_windows else self._run.proofs.rehearsals
        try:
            if rehearsals is not None:
                streams = byte_streams(self._inputs, producers, ())
                rehearsals.begins(self._step, self._state, runtime, self._inputs, streams)
            command = split.command(runtime)
            running = runner.running(self._state, node_job, ready.spec, command, self._step.tells_paths)
            with as_failure(self._job), running:
                output = await ready.command.execute(self._job)
            with blaming(node_job):
                exit_event = await exit_of(
                    self._job, runner.exit(self._state, node_job), output, producers, runtime.wrapper == "run"
                )
                streams = byte_streams(self._inputs, producers, self._learned.parts())
                streams = [name for name in streams if name not in self._learned.suspects]
                await check_exit(self._job, exit_event, output, attempt, producers, streams)
                await self._check_memory()
            collected = None
            if has_windows:
                collected = await self._collect_before(node_job, attempt, split, output)
            await following
            if not await settled(producers):
                raise ProducerRestartError
            await check_read(attempt, producers)
            with self._learned.suspecting(), blaming(node_job):
                tokens = collected
                if tokens is None:
                    tokens = await self._deliverer.collect(output, split.made(output))
            self._splitting.ended(split, tokens)
            try:
                await self._deliverer.succeeded(tokens)
            except CommitChangedError:
                await self._writes.changed(output.port for output in self._step.early_outputs)
                raise
            attempt.end(True)
            await self._splitting.delivered(split, runtime, tokens, ready.globs)
            if rehearsals is not None:
                rehearsals.succeeded(self._state, tokens, exit_event)
            await self._learned.succeeded(exit_event)
            await self._writes.succeeded(exit_event)
            seconds = (exit_event.ended or 0.0) - (exit_event.started or 0.0)
            self._run.proofs.short_jobs.measured(self._step.name, file_bytes(self._inputs), seconds)
        except (WorkflowException, asyncio.TimeoutError) as error:
            if attempt.lost.done() or (attempt.windows and Code.NOT_AS_WINDOW.value in str(error)):
                raise WindowLostError(str(error)) from error
            raise
        finally:
            if rehearsals is not None:
                rehearsals.attempt_ended(self._state)
            following.cancel()
            losing.cancel()
            try:
                if not node_job.exit.done():
                    await to_the_end(node_job.cancel())
            finally:
                attempt.end(False)
                await asyncio.gather(following, return_exceptions=True)

    async def _producer(self, token: StreamToken, when_started: bool) -> Attempt:
        """Return the attempt to read from.

        :param when_started: wait until the command of the attempt runs
        :raises ProducerFailedError: if there will be no attempt
        :raises ProducerMovesError: if the other job has no place
        """
        job = self._run.streaming_jobs.get(token.source.job)
        attempt = await job.attempt(from_place=True)
        while when_started and not attempt.has_started:
            await attempt.started()
            attempt = await job.attempt(from_place=True)
        return attempt

    @property
    def _memory(self) -> JobInMemory | None:
        """The memory that has the output directory of the last attempt. None: the directory is on the disk."""
        memory = self._state.kept(JobInMemory)
        return memory if memory is not None and memory.directory == self._job.output_directory else None

    async def _check_memory(self) -> None:
        """Check that the attempt had space for its files.

        :raises JobFailedError: if not. A tool may have failed to write without saying so
        """
        if (memory := self._memory) is not None and await memory.has_no_space():
            raise JobFailedError(f"FAILED Job {self._job.name}: nearly no space is left in memory")

    async def _failed(self) -> None:
        """Note that an attempt has failed.

        :raises UnrecoverableWorkflowException: if its node is lost with files that other jobs have read
        """
        try:
            await self._in_time(self._deliverer.failed)
        except JobFailedError as error:
            lost = (
                "the files that other jobs have read of it are lost, and cannot be compared with those of another run"
            )
            raise UnrecoverableWorkflowException(f"{error}: {lost}") from None

    async def _in_time(self, does: Callable[[], Awaitable[None]]) -> None:
        """Do something at the node of the job, as soon as the node answers.

        :raises JobFailedError: if the node is lost
        :raises UnrecoverableWorkflowException: if the node does not answer as often as a job may be tried
        """
        while True:
            try:
                with as_failure(self._job):
                    return await does()
            except JobFailedError as error:
                if self._is_lost:
                    raise
                await self._wait_for_retry(error)

    async def _new_directories(self) -> None:
        """Give the job new directories for outputs and temporary files.

        Other jobs may still read what the last attempt has committed. Its temporary files may be incomplete.
        """
        if (memory := self._state.kept(JobInMemory)) is not None:
            self._first_output = memory.on_disk
        self._job.output_directory = await self._new_directory(self._first_output)
        self._job.tmp_directory = await self._new_directory(self._first_temporary)

    async def _new_directory(self, first: str) -> str:
        """Make another directory, named after that of the first attempt."""
        context = self._step.workflow.context
        number = 2
        while await (path := job_path(context, self._job, f"{first}-{number}")).exists():
            number += 1
        await path.mkdir(mode=0o777, parents=True)
        context.data_manager.register_path(
            location=context.scheduler.get_locations(self._job.name)[0], path=str(path), relpath=str(path)
        )
        return str(path)

    def _spec(
        self,
        node_job: NodeJob,
        producers: Producers,
        globs: Mapping[str, tuple[str, ...]],
        split: Split,
        windows: Container[int],
    ) -> JobSpec:
        runtime, outputs = node_job.runtime, self._step.early_outputs
        watched = [output for output in outputs if output.of is None]
        if not self._has_windows:
            watched = [output.model_copy(update={"window": None}) for output in watched]
        link = partial(self._run.part_ways.link, runtime)
        read = numbered_streams(producers)
        nets = self._learned.under_net(self._inputs)
        most = self._learned.most(self._inputs)
        streams = (
            input_stream(
                token,
                attempt,
                runtime,
                name,
                net=nets.get(id(token)),
                closes=self._learned.closes(token),
                most=most.get(id(token)),
                window=id(token) in windows,
            )
            for name, (token, attempt) in read.items()
        )
        spec = job_spec(self._step, self._job)
        command = replace(spec.command, directories=self._run.reach.made_for(self._state))
        spec = replace(
            spec,
            command=command,
            outputs=tuple(
                self._writes.watched(output.watched(self._job.output_directory, globs[output.port]))
                for output in watched
            ),
            streams=tuple(streams),
            parts=part_inputs(self._job.inputs, self._learned.parts(), link),
            gates=tuple(gated_input(*read, runtime) for read in producers if read[0].source.gate is not None),
        )
        return split.asked(spec)

    def _take(self, inputs: Mapping[str, Token]) -> None:
        """Set the inputs of an attempt.

        An InitialWorkDirRequirement may change inputs in place. Then the attempt gets copies, so that the next attempt
        finds the inputs unchanged.
        """
        if self._command.initial_work_dir is not None:
            inputs = {name: with_own_value(token) for name, token in inputs.items()}
        self._job.inputs = dict(inputs)

    async def _collect_before(
        self, node_job: NodeJob, attempt: Attempt, split: Split, output: CommandOutput
    ) -> dict[str, Token]:
        """Collect the outputs, and let the windows that this job has read go.

        Its own readers, which may need this job to run again, come first.

        :raises WindowLostError: if one of them does
        """
        with self._learned.suspecting(), blaming(node_job):
            tokens = await self._deliverer.collect(output, split.made(output))
        if attempt.discarded and not await attempt.has_been_read():
            raise WindowLostError
        self._windows.end()
        return tokens
