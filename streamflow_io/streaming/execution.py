"""One job of a streaming step: its attempts under the node runtime, until one succeeds."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from streamflow.core.deployment import Connector
from streamflow.core.exception import UnrecoverableWorkflowException, WorkflowExecutionException
from streamflow.core.workflow import CommandOutput, Job, Status, Token
from streamflow.cwl.command import CWLCommand
from streamflow.cwl.processor import CWLOutputJSONCommandOutput
from streamflow.data.remotepath import StreamFlowPath
from streamflow.log_handler import logger

from streamflow_io.coordination.graph import OutputKind
from streamflow_io.runtime import EmbeddedRuntime, ExitEvent, JobSpec, NodeJob, NodeRuntimeError
from streamflow_io.runtime.protocol import (
    ChangedEvent,
    ClosedEvent,
    CommittedEvent,
    CompleteEvent,
    OpenedEvent,
    StartedEvent,
    WarningEvent,
)

from ._streamflow import retry_policy
from .capio import CapioJob, CapioLostError, begin_capio_job, blaming, outputs_in_file_system, place_inputs
from .connector import JobConnector
from .globs import output_globs
from .inputs import gated_input, input_stream
from .jobs import Attempt, ProducerFailedError, StreamingJob
from .outputs import relative
from .publisher import Publisher
from .spec import job_spec
from .token import StreamToken, stream_tokens

if TYPE_CHECKING:
    from streamflow_io.scheduling.scheduler import IOAwareScheduler

    from .step import StreamingExecuteStep

_Commit = ChangedEvent | ClosedEvent | CommittedEvent | CompleteEvent
_EXIT_SECONDS = 60.0
_NOTICE_SECONDS = 2.0


class JobFailedError(WorkflowExecutionException):  # type: ignore[misc]
    """An attempt of a job failed by itself; it may be tried again."""


class _ProducerRestartError(Exception):
    """A job that this one reads from failed: both start again."""


class Execution:
    """Runs a job of a streaming step.

    Guarantees: outputs are delivered only when every job it streams from has succeeded, or has committed what is read
    of it; a failed attempt is repeated in place, with those that read from it, as often as the failure manager allows;
    when :meth:`run` returns or raises, no process of the job is left.
    """

    def __init__(self, step: StreamingExecuteStep, job: Job, connectors: MutableMapping[str, Connector]) -> None:
        self._step = step
        self._job = job
        self._scheduler = cast("IOAwareScheduler", step.workflow.context.scheduler)
        self._connectors = connectors
        self._publisher = Publisher(step, job, step.early_outputs, connectors)
        self._streams = [token for value in job.inputs.values() for token in stream_tokens(value)]
        self._first_directory: str = job.output_directory

    async def run(self) -> None:
        """:raises UnrecoverableWorkflowException: if the job fails for good: what streams cannot be rolled back"""
        record = self._scheduler.streaming_jobs.open(self._job.name)
        try:
            while True:
                try:
                    await self._attempt(record)
                    return
                except CapioLostError as error:
                    logger.info(f"Job {self._job.name} starts again without CAPIO: {error}")
                    await self._publisher.commits.keep(record.latest)
                except _ProducerRestartError:
                    logger.info(f"Job {self._job.name} starts again: a job it reads from has failed")
                except ProducerFailedError as error:
                    raise UnrecoverableWorkflowException(
                        f"CANCELLED Job {self._job.name}: job {error}, from which it reads, has failed"
                    ) from None
                except JobFailedError as error:
                    await self._wait_for_retry(error)
                    await self._publisher.commits.keep(record.latest)
        finally:
            record.close()

    async def _wait_for_retry(self, error: JobFailedError) -> None:
        policy = retry_policy(self._step.workflow.context.failure_manager, self._job.name)
        if not policy.take():
            raise UnrecoverableWorkflowException(str(error)) from None
        logger.warning(f"{error}\nIt is tried again in place, with the jobs that read from it")
        await asyncio.sleep(policy.delay)

    async def _attempt(self, record: StreamingJob) -> None:
        producers = [(token, await self._producer(token)) for token in self._streams]
        if record.attempts > 0:
            await self._new_directory()
        capio = await self._begin_capio(producers)
        if (inputs := await place_inputs(self._job.inputs, producers, capio is not None)) is None:
            raise _ProducerRestartError
        spec = self._spec([producer for producer in producers if producer[0].source.runtime != "capio"])
        self._publisher.begin({output.port: output.globs for output in spec.outputs})
        spec = spec.model_copy(update={"outputs": outputs_in_file_system(self._step, spec.outputs)})
        location = self._scheduler.get_locations(self._job.name)[0]
        node_job = await (await self._scheduler.node_runtime(location)).create_job(self._job.name)
        directory = None if capio is None else capio.directory
        attempt = record.begin(Path(self._job.output_directory), node_job.events_path, directory)
        following = asyncio.gather(
            self._follow(node_job, attempt, producers),
            *(self._end_with(node_job, *producer) for producer in producers),
        )
        try:
            output = await self._execute(node_job, spec, inputs, capio, producers)
            if capio is not None and capio.lost is not None:
                raise CapioLostError(capio.lost)
            with blaming(capio):
                await self._check(node_job, output, producers)
            await following
            if not await _settled(producers):
                raise _ProducerRestartError
            with blaming(capio):
                tokens = await self._collect(output)
            await self._publisher.commits.check(tokens)
            await self._step.deliver_regular(self._job, tokens)
            await self._publisher.finish(tokens)
            attempt.end(True)
        except asyncio.TimeoutError as error:
            raise JobFailedError(f"FAILED Job {self._job.name}: {str(error) or 'it does not end'}") from error
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(node_job.cancel())
            attempt.end(False)
            await asyncio.gather(following, return_exceptions=True)

    async def _check(
        self, node_job: NodeJob, output: CommandOutput, producers: list[tuple[StreamToken, Attempt]]
    ) -> None:
        if not await node_job.has_started():
            node_job.abandon()
            raise JobFailedError(f"FAILED Job {self._job.name} with error:\n\t{output.value}")
        exit_event = await asyncio.wait_for(asyncio.shield(node_job.exit), _EXIT_SECONDS)
        self._scheduler.measured(self._job.name, exit_event)
        await self._check_exit(exit_event, output, producers)

    async def _collect(self, output: CommandOutput) -> dict[str, Token]:
        unchanged: Mapping[str, Token] = {}
        if not isinstance(output, CWLOutputJSONCommandOutput):
            unchanged = await self._publisher.unchanged()
        return await self._step.collect(self._job, output, self._connectors, unchanged)

    async def _producer(self, token: StreamToken) -> Attempt:
        return await self._scheduler.streaming_jobs.get(token.source.job).attempt()

    async def _new_directory(self) -> None:
        """Each attempt has an output directory of its own: others may still read what the last one committed."""
        directory = self._first_directory
        number = 2
        while Path(f"{directory}-{number}").exists():
            number += 1
        self._job.output_directory = f"{directory}-{number}"
        location = self._scheduler.get_locations(self._job.name)[0]
        path = StreamFlowPath(self._job.output_directory, context=self._step.workflow.context, location=location)
        await path.mkdir(mode=0o777, parents=True)
        self._step.workflow.context.data_manager.register_path(
            location=location, path=self._job.output_directory, relpath=self._job.output_directory
        )

    def _spec(self, producers: list[tuple[StreamToken, Attempt]]) -> JobSpec:
        outputs = tuple(
            output.watched(self._job.output_directory, output_globs(self._step, self._job, output.port))
            for output in self._step.early_outputs
        )
        spec = job_spec(self._step, self._job).model_copy(
            update={
                "measure": self._scheduler.is_measured(self._job.name),
                "outputs": outputs,
                "inputs": tuple(input_stream(*producer) for producer in producers if producer[0].source.gate is None),
                "gates": tuple(gated_input(*producer) for producer in producers if producer[0].source.gate is not None),
            }
        )
        return self._scheduler.observed(spec, self._step, self._job)

    async def _begin_capio(self, producers: list[tuple[StreamToken, Attempt]]) -> CapioJob | None:
        runtime = self._scheduler.capio
        server = None
        if runtime is not None:
            embedded = await self._scheduler.node_runtime(self._scheduler.get_locations(self._job.name)[0])
            # CAPIO serves what runs on the driver's node.
            server = await runtime.server(embedded) if isinstance(embedded, EmbeddedRuntime) else None
        return await begin_capio_job(self._step, runtime, server, producers)

    async def _execute(
        self,
        node_job: NodeJob,
        spec: JobSpec,
        inputs: dict[str, Token],
        capio: CapioJob | None,
        producers: list[tuple[StreamToken, Attempt]],
    ) -> CommandOutput:
        inner = self._scheduler.get_connector(self._job.name)
        connector = JobConnector(inner, self._job.name, node_job, spec, capio)
        known, self._job.inputs = self._job.inputs, inputs
        read = [attempt for _, attempt in producers]
        try:
            with self._scheduler.connected(self._job.name, connector):
                execution = cast(CWLCommand, self._step.command).execute(self._job)
                if capio is None:
                    return await execution
                return await capio.follow(execution, node_job, self._publisher, self._job.output_directory, read)
        finally:
            self._job.inputs = known

    async def _check_exit(
        self, exit_event: ExitEvent, output: CommandOutput, producers: list[tuple[StreamToken, Attempt]]
    ) -> None:
        if exit_event.reason == "rewritten":
            raise UnrecoverableWorkflowException(
                f"FAILED Job {self._job.name}: job {exit_event.input} replaced or shortened a file after it had been "
                "streamed: the output is not written front to back, and must not be `no_update`"
            )
        if exit_event.reason == "producer":
            for token, attempt in producers:
                if token.source.job == exit_event.input and await asyncio.shield(attempt.succeeded):
                    raise UnrecoverableWorkflowException(
                        f"FAILED Job {self._job.name}: job {token.source.job} has ended without {token.source.path}"
                    )
            raise _ProducerRestartError
        if exit_event.reason == "cancelled" and any(attempt.has_failed for _, attempt in producers):
            raise _ProducerRestartError
        if exit_event.message is not None:
            raise JobFailedError(f"FAILED Job {self._job.name}: {exit_event.message}")
        if output.status is not Status.COMPLETED or not exit_event.success:
            raise JobFailedError(f"FAILED Job {self._job.name} with error:\n\t{_why(exit_event, output)}")

    async def _end_with(self, node_job: NodeJob, token: StreamToken, attempt: Attempt) -> None:
        """End this job with one that it reads from.

        Its `exec` does so by itself, but for an end that could not be written to the events, as on a full disk.
        """
        if not await attempt.settled(token.source.port, token.source.path):
            if token.source.runtime == "embedded":
                with contextlib.suppress(asyncio.TimeoutError, NodeRuntimeError):
                    await asyncio.wait_for(asyncio.shield(node_job.exit), _NOTICE_SECONDS)
            await node_job.cancel()

    async def _follow(self, node_job: NodeJob, attempt: Attempt, producers: list[tuple[StreamToken, Attempt]]) -> None:
        """Deliver early what the events say; what is committed waits until the producers have succeeded."""
        commits: asyncio.Queue[_Commit | None] = asyncio.Queue()
        committing = asyncio.create_task(self._commit(commits, attempt, producers))
        early = {output.port for output in self._step.early_outputs}
        try:
            async for event in node_job.events():
                self._scheduler.happened(self._job.name, event)
                if isinstance(event, OpenedEvent | _Commit) and event.port not in early:
                    continue
                if isinstance(event, StartedEvent):
                    await self._publisher.started()
                elif isinstance(event, OpenedEvent):
                    await self._publisher.opened(event.port, event.path)
                elif isinstance(event, _Commit):
                    commits.put_nowait(event)
                elif isinstance(event, WarningEvent):
                    logger.warning(f"Job {self._job.name}: {event.message}")
                elif isinstance(event, ExitEvent):
                    commits.put_nowait(None)
            await committing
        finally:
            committing.cancel()

    async def _commit(
        self,
        commits: asyncio.Queue[_Commit | None],
        attempt: Attempt,
        producers: list[tuple[StreamToken, Attempt]],
    ) -> None:
        if not await _settled(producers):
            return
        outputs = {output.port: output for output in self._step.early_outputs}
        committed: dict[str, set[str]] = {port: set() for port in outputs}
        while (event := await commits.get()) is not None:
            output = outputs[event.port]
            is_directory = output.kind is OutputKind.DIRECTORY
            if isinstance(event, CompleteEvent):
                if output.completes_early and output.kind is not OutputKind.FILE:
                    await self._publisher.complete(event.port, committed[event.port])
                    if is_directory:
                        attempt.commit(event.port)
                continue
            file = relative(event.path, self._job.output_directory)
            if isinstance(event, ChangedEvent):
                self._publisher.commits.change(event.port, file, event.how)
                continue
            if isinstance(event, ClosedEvent):
                # Of the files of a Directory it is not told here when they are committed: there may be many.
                if file in committed[event.port] or (is_directory and output.closes_enough(file, event.closes - 1)):
                    self._publisher.commits.close_again(event.port, file)
                continue
            committed[event.port].add(file)
            if not is_directory and output.commits_early(file):
                await self._publisher.committed(event.port, event.path)
                attempt.commit(event.port, file)


def _why(exit_event: ExitEvent, output: CommandOutput) -> str:
    """What a command that has failed said, and how it ended: many say nothing, or say it into an output."""
    if exit_event.reason == "lost":
        how = "sfio-node exec, which ran it, was killed"
    elif exit_event.signal is not None:
        how = f"ended by signal {exit_event.signal}, {signal.strsignal(exit_event.signal)}"
    else:
        how = f"exit code {exit_event.code}"
    said = str(output.value or "").strip()
    return f"{said}\n\t({how})" if said else how


async def _settled(producers: list[tuple[StreamToken, Attempt]]) -> bool:
    """The barrier: wait until all that is read is final. False: a producer failed."""
    results = await asyncio.gather(
        *(attempt.settled(token.source.port, token.source.path) for token, attempt in producers)
    )
    return all(results)
