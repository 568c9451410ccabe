"""Carries out the instructions of :mod:`.delivery`: runs StreamFlow's output processors, and puts tokens on ports."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from copy import copy
from typing import Any, Literal

from msgspec.structs import replace
from streamflow.core.exception import UnrecoverableWorkflowException, WorkflowExecutionException
from streamflow.core.utils import get_tag, make_future
from streamflow.core.workflow import CommandOutput, Job, Status, Token
from streamflow.cwl.processor import CWLCommandOutput, CWLOutputJSONCommandOutput
from streamflow.cwl.token import CWLFileToken
from streamflow.cwl.utils import get_class_from_path
from streamflow.log_handler import logger
from streamflow.workflow.token import ListToken, ObjectToken

from streamflow_io._streamflow import forget_path
from streamflow_io.adapters.attempts import Attempt
from streamflow_io.adapters.inputs import Producers
from streamflow_io.adapters.output_globs import (
    certain_path,
    collects_only_files,
    field_port,
    file_processor,
    output_globs,
    output_processor,
    with_format,
)
from streamflow_io.adapters.outputs import early_port, element_port, is_early_port, order_port, relative_or_absolute
from streamflow_io.adapters.paths import NoChecksumsError, checksums_below, job_path
from streamflow_io.adapters.steps import Connectors, StreamingExecuteStep
from streamflow_io.adapters.tokens import (
    PartToken,
    SaidBy,
    ScatterSize,
    StreamSource,
    StreamToken,
    directory_value,
    file_tokens,
    file_value,
)
from streamflow_io.graph.io_graph import Delivery, OutputKind
from streamflow_io.hints.globs import is_pattern
from streamflow_io.messages import Code, coded
from streamflow_io.parts.said_parts import in_order
from streamflow_io.runtime.protocol import Event, OpenedEvent, PartEvent, StartedEvent, StreamEvent
from streamflow_io.runtime.wire import part_of
from streamflow_io.tasks import to_the_end

from .delivered import Fail, Item, Value, Warn
from .delivery import (
    Answer,
    Begun,
    Collect,
    CommitEvent,
    DeliverySource,
    Effect,
    Instruction,
    JobDelivery,
    Permitted,
    Put,
    PutOrder,
    Settle,
    Succeeded,
)
from .delivery import Event as DeliveryEvent
from .ending import OutgrownError, ReplacedError, RewrittenError, check_read, settled

# What may stand in `cwl.output.json` of a part.
_FIELDS = {"class", "path", "location", "basename", "format"}


class CommitChangedError(UnrecoverableWorkflowException):  # type: ignore[misc]
    """An output was delivered early, and is not the same any more."""


class Deliverer:
    """Delivers the outputs of one job, over all of its attempts, as :class:`JobDelivery` decides."""

    def __init__(self, step: StreamingExecuteStep, job: Job, connectors: Connectors) -> None:
        self._step = step
        self._job = job
        self._tag: str = get_tag(job.inputs.values())
        self._connectors = connectors
        self._outputs = {output.port: output for output in step.early_outputs}
        self._delivery = JobDelivery(step.early_outputs)
        self._attempt: Attempt | None = None
        self._tokens: dict[DeliverySource, Token] = {}

    @property
    def has_streamed(self) -> bool:
        """Whether a token was put on a port before its file was complete, so that other jobs may ask for the file."""
        return any(source.stage in ("early", "said") for source in self._tokens)

    def begin(self, attempt: Attempt, globs: Mapping[str, tuple[str, ...]]) -> None:
        """Begin an attempt, in the present output directory of the job.

        :param globs: where its outputs are found, relative to that directory
        """
        places = {port: certain_path(output_processor(self._step, port), found) for port, found in globs.items()}
        certain = {port: path for port, path in places.items() if path is not None}
        self._delivery.handle(Begun(self._job.output_directory, globs, certain))
        self._attempt, attempt.committed = attempt, self._delivery.committed

    async def follow(
        self,
        attempt: Attempt,
        events: AsyncIterator[Event],
        producers: Producers,
        queued: bool = False,
        permitted: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        """Deliver what the events of the attempt report, until the attempt has ended and everything is delivered.

        Committed files are delivered once all that the attempt reads of other jobs is final.

        :param queued: whether the attempt is in the queue of a queue manager
        :param permitted: waits until a proof allows an output to be streamed; None: outputs that need one are not
            streamed
        :raises NodeRuntimeError: if the node runtime ends before the attempt
        """
        awaited = [output.port for output in self._outputs.values() if output.when_proven]
        permits = [asyncio.create_task(self._permit(port, permitted)) for port in awaited if permitted is not None]
        commits: asyncio.Queue[Instruction | None] = asyncio.Queue()
        committing = asyncio.create_task(self._commit(attempt, producers, commits))
        try:
            if queued:
                await self._handle("submitted")
            async for event in events:
                if isinstance(event, CommitEvent):
                    for instruction in self._delivery.handle(event):
                        commits.put_nowait(instruction)
                elif isinstance(event, StreamEvent) and event.part is not None:
                    attempt.parts.append(event.part)
                elif isinstance(event, OpenedEvent | StartedEvent | PartEvent):
                    if isinstance(event, StartedEvent):
                        attempt.start()
                    await self._handle(event)
            commits.put_nowait(None)
            await committing
            for permit in permits:
                if permit.done():
                    permit.result()
        finally:
            for task in (committing, *permits):
                task.cancel()
            await asyncio.wait([committing, *permits])

    async def _permit(self, port: str, permitted: Callable[[str], Awaitable[None]]) -> None:
        await permitted(port)
        await self._handle(Permitted(port))

    async def _commit(self, attempt: Attempt, producers: Producers, commits: asyncio.Queue[Instruction | None]) -> None:
        """Execute the instructions of commits, one after the other. Early deliveries do not wait for them."""
        if not await settled(producers):
            return
        try:
            await check_read(attempt, producers)
        except (OutgrownError, ReplacedError, RewrittenError):
            return  # the attempt is going to start again
        await self._handle("barrier lifted")
        while (instruction := await commits.get()) is not None:
            await self._execute([instruction])

    async def failed(self) -> None:
        """Let the files of the failed attempt be compared with those of the next one.

        Reads the files that were streamed and committed. All other delivered files have a checksum already.
        """
        await self._handle("failed")

    async def collect(self, output: CommandOutput, made: Mapping[str, Any] | None = None) -> dict[str, Token]:
        """Return the outputs of the attempt, which has succeeded, as StreamFlow makes them.

        :param made: the values of the outputs that are not delivered early, if the program has not run; None: the
            program has run
        """
        unchanged: dict[str, Token] = {}
        if made is not None:
            others = [port for port in self._step.output_processors if port not in self._outputs]
            unchanged = {port: Token(made.get(port), tag=self._tag) for port in others if not is_early_port(port)}
        for source in [] if isinstance(output, CWLOutputJSONCommandOutput) else self._delivery.unchanged():
            token = self._tokens.get(source)
            is_field = self._outputs[source.port].record is not None
            if token is not None and not is_field and await self._is_unchanged(source, token):
                unchanged[source.port] = token.update(dict(token.value))
        unchanged |= self._discarded(output)
        for port in self._outputs:
            if parts := {name: self._part_token(port, name) for name in self._delivery.parts(port)}:
                unchanged |= await list_with_parts(self._step, self._job, port, output, self._connectors, parts)
        return await self._step.collect(self._job, output, self._connectors, unchanged)

    def _discarded(self, output: CommandOutput) -> dict[str, Token]:
        """Return the tokens of files that are not there as a whole, as StreamFlow would make them of the whole files.

        StreamFlow does not register such a file: no job may read it.

        :raises UnrecoverableWorkflowException: if the tool itself says which outputs it has
        """
        found = self._attempt.discarded if self._attempt is not None else {}
        if found and isinstance(output, CWLOutputJSONCommandOutput):
            path = next(iter(found.values())).path
            raise UnrecoverableWorkflowException(self._lost(str(path), "`cwl.output.json` may name it"))
        tokens = {}
        for port, event in found.items():
            value = with_format(self._step, self._job, port, file_value(str(event.path)))
            value |= {"size": event.size, "checksum": f"sha1${event.sha1}"}
            tokens[port] = CWLFileToken(value, tag=self._tag, recoverable=False)
        return tokens

    def _lost(self, path: str, why: str) -> str:
        lost = f"FAILED Job {self._job.name}: {path} has a window, and is not there as a whole any more: {why}"
        return coded(lost, Code.WINDOW_LOST)

    async def _is_unchanged(self, source: DeliverySource, token: Token) -> bool:
        path = job_path(self._step.workflow.context, self._job, f"{self._job.output_directory}/{source.path}")
        return (
            not is_pattern(str(source.path))
            and collects_only_files(output_processor(self._step, source.port))
            and token.value["path"] == str(path)  # a later attempt has another path
            and not await path.is_symlink()
            and token.value["checksum"] == f"sha1${await path.checksum()}"
        )

    async def succeeded(self, tokens: Mapping[str, Token]) -> None:
        """Deliver the outputs of the job, which has succeeded.

        :raises CommitChangedError: if a file that was delivered or committed is not the same any more
        """
        values = {}
        found = {port: token for port in self._outputs if (token := self._output_of(port, tokens)) is not None}
        for port, output in found.items():
            value = self._value(output)
            values[port] = await self._with_checksums(value) if port in self._delivery.summed else value
            self._tokens[DeliverySource(port, stage="final")] = output
            for item, token in zip(value.items, file_tokens(output), strict=True):
                self._tokens.setdefault(DeliverySource(port, item.path, "final"), token)
        await self._handle(Succeeded(values))
        await self._step.deliver_regular(self._job, tokens)
        await self._handle("published")

    def _output_of(self, port: str, tokens: Mapping[str, Token]) -> Token | None:
        """The token of an output, or of a field of a record output; None: the job has made no such token."""
        if (record := self._outputs[port].record) is None:
            return tokens.get(port)
        fields = tokens[record].value if isinstance(tokens.get(record), ObjectToken) else {}
        field: Token | None = next((token for name, token in fields.items() if field_port(record, name) == port), None)
        return field

    def replacement(self, port: str, path: str) -> Token | None:
        """The final token of an output that is another file than the one other jobs have begun to read.

        None: the file at the path is not replaced.

        :param path: of the file that they read, relative to the output directory of the job
        """
        return self._tokens[DeliverySource(port, stage="final")] if self._delivery.is_replaced(port, path) else None

    async def final(self, port: str, path: str) -> Token:
        """Return the token of a final file or directory, for a reader that cannot have it before.

        :param path: relative to the output directory of the job
        :return: the token of another file if that has taken the place of this one
        :raises UnrecoverableWorkflowException: if the job has succeeded without the file
        """
        if self._attempt is not None and port in self._attempt.discarded:
            raise UnrecoverableWorkflowException(
                self._lost(path, "a job that has failed with its stream needs the file")
            )
        if (source := self._delivery.source(port, path)) is None:
            raise UnrecoverableWorkflowException(f"Job {self._job.name} has ended without {path}")
        if source not in self._tokens:
            await self._execute([Collect(source)])
        return self._tokens[source]

    async def _handle(self, event: DeliveryEvent) -> None:
        await self._execute(self._delivery.handle(event))

    async def _execute(self, instructions: Iterable[Instruction]) -> None:
        """Execute the effects first, and all of them even if the attempt ends now; then collect tokens.

        The decisions count a delivery as done when they have asked for it.
        """
        instructions = list(instructions)
        if effects := [each for each in instructions if not isinstance(each, Collect)]:
            await to_the_end(self._act(effects))
        for asked in (each for each in instructions if isinstance(each, Collect)):
            await self._handle(Answer(asked, await self._collect(asked.source)))

    async def _act(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Put():
                    await self._put(effect)
                case PutOrder(port, order):
                    await self._step.deliver(self._job, order_port(port), ScatterSize(list(order), tag=self._tag))
                case Settle(port, path):
                    if self._attempt is not None:
                        self._attempt.settle(port, path)
                case Warn(message):
                    logger.warning(f"Job {self._job.name}: {message}")
                case Fail(message):
                    raise CommitChangedError(coded(f"Job {self._job.name}: {message}", Code.CHANGED_AFTER_COMMIT))

    async def _put(self, put: Put) -> None:
        token, source = self._tokens[put.source], put.source
        if source.stage == "early":
            token = self._stream_token(source, put.delivery, token.value)
        elif source.stage == "final":
            token = token.update(token.value)
        elif put.only is not None:
            token = ListToken([file for file in token.value if self._path_of(file) in put.only], tag=self._tag)
        if put.number is None:
            await self._step.deliver(self._job, early_port(put.delivery, source.port), token)
        else:
            token = token.retag(f"{self._tag}.{put.number}")
            await self._step.deliver(self._job, element_port(put.delivery, source.port), token)

    def _stream_token(self, source: DeliverySource, delivery: Delivery, value: Mapping[str, Any]) -> StreamToken:
        output = self._outputs[source.port]
        if is_directory := output.kind is OutputKind.DIRECTORY:
            forget_path(self._step.workflow.context.data_manager, value["path"])
        gate: Literal["file", "directory"] | None = None
        if delivery is Delivery.GATE:
            gate = "directory" if is_directory else "file"
        mode = output.rule.mode if is_directory else "update"
        origin = StreamSource(self._job.name, source.port, str(source.path), gate, mode)
        return StreamToken(value, origin, self._tag)

    async def _collect(self, source: DeliverySource) -> Value | None:
        if source.stage == "early":
            return self._describe(source)
        if source.stage == "said":
            return self._describe_part(source)
        if source.stage == "failed":
            return await self._checksum_of(source)
        # A file of a former attempt stays where it was. An output as a whole is in another directory now.
        token = self._tokens.get(source) if source.path is not None else None
        if token is None:
            token = await self._process(source)
        value = self._value(token)
        if source.path is not None:
            value = Value((Item(source.path, token.value),))
        elif self._outputs[source.port].kind is OutputKind.DIRECTORY:
            value = await self._with_checksums(value)
        self._tokens[source] = token
        return value

    def _describe(self, source: DeliverySource) -> Value | None:
        """The value of a file that is not committed yet; None: its format cannot be evaluated, now or ever."""
        path = f"{self._job.output_directory}/{source.path}"
        try:
            is_directory = self._outputs[source.port].kind is OutputKind.DIRECTORY
            value = directory_value(path) if is_directory else file_value(path)
            value = with_format(self._step, self._job, source.port, value)
        except Exception:
            # An expression may raise anything. It is evaluated again at the end of the job, which fails then.
            return None
        self._tokens[source] = Token(value)
        return Value((Item(str(source.path), value),))

    def _describe_part(self, source: DeliverySource) -> Value | None:
        """The value of a reported part; None: its format cannot be evaluated, now or ever."""
        try:
            token = self._tokens[source] = self._part_token(source.port, str(source.path))
        except Exception:
            return None
        return Value((Item(str(source.path), token.value),))

    def _part_token(self, port: str, name: str) -> PartToken:
        said = self._delivery.parts(port)[name]
        value = file_value(f"{self._job.output_directory}/{name}") | {"size": said.size}
        value = with_format(self._step, self._job, port, value)
        assert self._attempt is not None
        assert self._attempt.node_job is not None, "only a job under a node runtime says parts"
        run = str(self._attempt.node_job.runtime.directory)
        said_by = SaidBy(self._job.name, run, said.job, said.number)
        return PartToken(value, part_of(said), port, said_by, self._tag)

    async def _process(self, source: DeliverySource) -> Token:
        """Return the token of one file, or of a whole output, made as StreamFlow makes it at the end of the job."""
        processor = output_processor(self._step, source.port)
        job = copy(self._job)  # a later attempt has another output directory
        found = None
        if source.path is not None:
            processor = copy(file_processor(processor))
            assert processor is not None, "only outputs with files are delivered early"
            # A glob is evaluated as an expression, and by a shell. So the name of a file is made no glob.
            processor.glob, processor.single, processor.optional = None, True, False
            path = posixpath.join(job.output_directory, source.path)
            found = [{"path": path, "class": await get_class_from_path(path, job, self._step.workflow.context)}]
        token: Token = await processor.process(
            job,
            make_future(CWLCommandOutput(found, Status.COMPLETED)),
            self._connectors.get(source.port),
            self._step.is_recoverable(self._job),
        )
        return token

    async def _checksum_of(self, source: DeliverySource) -> Value | None:
        """Return the checksum of a file that the failed attempt has committed; None: the file has no checksum."""
        assert self._attempt is not None
        path = str(self._attempt.output_directory / str(source.path))
        checksum = await job_path(self._step.workflow.context, self._job, path).checksum()
        return Value((Item(str(source.path), {"checksum": f"sha1${checksum}"}),)) if checksum else None

    def _value(self, token: Token) -> Value:
        items = tuple(Item(self._path_of(file), file.value) for file in file_tokens(token))
        return Value(items, isinstance(token, ListToken))

    def _path_of(self, token: Token) -> str:
        """The path of a File or Directory, relative to the output directory of the job if that is above it."""
        return relative_or_absolute(token.value["path"], self._job.output_directory)

    async def _with_checksums(self, directory: Value) -> Value:
        """Return a Directory with the checksums of its files, or with the reason why there are none. Reads them all."""
        try:
            for item in directory.items:
                path = job_path(self._step.workflow.context, self._job, item.value["path"])
                return replace(directory, checksums=await checksums_below(path))
        except NoChecksumsError as error:
            return replace(directory, why=str(error))
        return directory


async def list_with_parts(
    step: StreamingExecuteStep,
    job: Job,
    port: str,
    output: CommandOutput,
    connectors: Connectors,
    parts: Mapping[str, PartToken],
) -> dict[str, Token]:
    """An output of a job that has succeeded: what its program has written, and what it has said, in order.

    :param parts: by name
    :return: by port; empty if there is none
    :raises WorkflowExecutionException: if `cwl.output.json` says of a part what is not known of it
    """
    found: dict[str, Token] = dict(parts)
    if isinstance(output, CWLOutputJSONCommandOutput) and isinstance(values := output.value.get(port), list):
        order = [_path(job, value) for value in values]
        told = {path: value for path, value in zip(order, values, strict=True) if path in parts}
        found |= {path: _as_said(job, parts[path], value) for path, value in told.items()}
        rest = output.value | {port: [value for value in values if _path(job, value) not in parts]}
        output = CWLOutputJSONCommandOutput(value=rest, status=output.status, exit_code=output.exit_code)
        written = await step.collect_port(job, port, output, connectors)
    else:
        written = await step.collect_port(job, port, output, connectors)
        is_told = isinstance(output, CWLOutputJSONCommandOutput)
        paths = {*parts, *(_path(job, token.value) for token in file_tokens(written))}
        order = [] if is_told else in_order(output_globs(step, job, port), paths)
    if written is None or parts.keys().isdisjoint(order):
        return {} if written is None else {port: written}
    found |= {_path(job, token.value): token for token in file_tokens(written)}
    # One may be in `cwl.output.json` twice.
    tokens = [found[path].update(found[path].value) for path in order]
    return {port: ListToken(tokens, tag=get_tag(job.inputs.values()))}


def _path(job: Job, value: Any) -> str:
    """The path of a File, relative to the output directory of the job; empty: it is no File."""
    path = value.get("path") if isinstance(value, Mapping) else None
    return "" if path is None else relative_or_absolute(posixpath.normpath(str(path)), job.output_directory)


def _as_said(job: Job, part: PartToken, value: Mapping[str, Any]) -> PartToken:
    """A part with what `cwl.output.json` says of it."""
    if more := sorted(value.keys() - _FIELDS):
        name = part.value["basename"]
        raise WorkflowExecutionException(
            f"FAILED Job {job.name}: `cwl.output.json` has {more[0]} of {name}, which is a part of another file"
        )
    told = {key: value[key] for key in ("basename", "format") if key in value}
    return part.update({**part.value, **told})
